"""What is written without a message: what time changes, and what is deleted."""
