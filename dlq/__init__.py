"""Keeps dead letters in the database, shows them in the admin and sends them again."""
