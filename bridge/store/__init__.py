"""The one SQLite file: records, cursors, dead letters, approvals, rows of events.

The only package that uses sqlite3. It knows neither Azure nor what an event means.
"""
