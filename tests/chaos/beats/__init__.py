"""Beats that are killed, paused, stopped, cut off or put in another time, and an account of it."""
