"""One leading Beat among any number. This release warns; it does not elect yet."""
