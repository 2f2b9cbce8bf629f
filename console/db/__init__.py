"""The database: SQLite or PostgreSQL, with the same tables. Only this package makes
statements; the others hand its connections on.

`schema` has the tables and `connection` opens them. `vms`, `events`, `decisions`, `access` and
`sources` have the rows of each; `batches` and `upkeep` change rows of several. A reader of all
begins with a `snapshot`.
"""
