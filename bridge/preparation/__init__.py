"""The preparation of this VM for an event before it may start: once, and when it is asked to."""
