"""VMs: their rows, and the queries that read them."""
