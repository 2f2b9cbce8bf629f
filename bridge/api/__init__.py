"""Everything that a running bridge shows or answers: HTTP, metrics, control socket, clients."""
