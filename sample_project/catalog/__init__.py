"""Product pictures: work for the CPU."""
