"""How this VM prepares for an event before it may start, once, and when it was asked to."""
