"""Batches of messages: each is written in one transaction."""
