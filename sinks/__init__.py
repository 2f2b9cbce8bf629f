"""What a destination of records is; this package knows nothing of Azure's IMDS."""
