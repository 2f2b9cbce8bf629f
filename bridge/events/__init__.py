"""From a document to committed records: what changed, what it means, and which gaps there were."""
