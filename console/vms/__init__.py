"""What an admin does with VMs: enrol, accept, retire and forget them."""
