"""The bridge: from Azure's Scheduled Events to every configured sink, with nothing lost."""
