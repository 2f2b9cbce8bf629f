"""From a document to committed records: what changed, what it means, which gaps there were."""
