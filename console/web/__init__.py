"""Pages, API and ingest over HTTP."""
