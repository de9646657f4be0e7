"""Alerts: conditions become incidents, each told on every channel, once for the whole fleet."""
