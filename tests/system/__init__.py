"""Real worker processes, real brokers, real databases: what a user would see."""
