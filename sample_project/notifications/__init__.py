"""Webhooks to other people's servers: waiting, and all that can go wrong on a network."""
