"""Makes the labelled corpus of failures anew: real code that fails, run by real workers."""
