"""Real processes and servers to test tasks against: public, never imported by production code."""
