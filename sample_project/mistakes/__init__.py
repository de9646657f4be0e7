"""Tasks that are wrong on purpose: each shows what is kept of a job that failed."""
