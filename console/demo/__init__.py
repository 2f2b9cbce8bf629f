"""A fleet on one machine: simulated VMs, a real bridge for each, and a real console.

It speaks to loopback only, and leaves nothing behind. It alone of the console knows the simulator.
"""
