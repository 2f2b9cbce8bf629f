"""The API of programs and pages, described by `/openapi.json`."""
