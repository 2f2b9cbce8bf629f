"""The bridge: delivers Azure's Scheduled Events to every configured sink, with nothing lost."""
