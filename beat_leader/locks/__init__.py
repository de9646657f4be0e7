"""Leader locks: in Redis, in a database, in memory."""
