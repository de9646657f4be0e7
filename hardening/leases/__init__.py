"""Leases: on Redis a worker renews what it holds, and what nobody renews is given to others."""
