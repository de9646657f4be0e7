"""Shutdown of a worker: what has not begun goes back at once, what runs has a grace period.

`handlers` lead the signals to the `drain`, which works in turns of the worker's loop; `request` keeps a
request from both beginning and going back; `messages` goes back to the broker; `pools` ends what runs;
`watchdog` sees to it that the grace period ends even where the loop is held up.
"""
