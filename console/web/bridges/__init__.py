"""What bridges call over HTTPS: they send records and receipts, and poll for their commands."""
