"""What becomes of work when much fails at once; minutes long, run by `make chaos-tests` alone."""
