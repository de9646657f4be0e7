"""Groups: letters with one cause, counted, followed and decided on together."""
