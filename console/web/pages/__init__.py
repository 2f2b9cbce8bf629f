"""The pages: the data of the API, drawn on the server for people, and readable without
JavaScript.

They only read. Every text that comes from a record is shown as text: see `formatting.outside`.
"""
