"""The seam: all that `dlq` and `beat_leader` may know of hardening, and nothing else."""
