"""Made-up letters, as many as a large installation has: to try its pages and replays at that size."""
