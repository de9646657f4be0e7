"""Against real servers and real workers."""
