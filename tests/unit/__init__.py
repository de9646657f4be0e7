"""One function or class at a time: no server, no process but one's own children."""
