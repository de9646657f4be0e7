"""Letters as files: written for people and programs, and taken into the store of another environment."""
