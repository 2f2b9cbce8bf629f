"""The audit: every decision and every refused attempt, in an append-only chain of hashes."""
