"""A fleet on one machine: simulated VMs, a real bridge for each, and a real console.

It uses only loopback, and leaves nothing behind. No other part of the console uses the simulator.
"""
