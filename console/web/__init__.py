"""Pages, API and ingest over HTTP; it reads the fleet and the store, and writes by the writer."""
