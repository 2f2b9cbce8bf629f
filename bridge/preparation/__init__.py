"""The preparation of this VM before an event starts: once, and only when something asks for it."""
