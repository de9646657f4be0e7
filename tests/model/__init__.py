"""A small model of leases, checked over every interleaving; no server and no process."""
