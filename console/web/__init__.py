"""The web application: the API, the pages, and what bridges call."""
