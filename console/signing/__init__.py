"""Signs commands, with a key in a file or in Azure Key Vault."""
