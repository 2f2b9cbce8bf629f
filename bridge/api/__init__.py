"""All that a running bridge shows or can be asked: HTTP, metrics, control socket, clients."""
