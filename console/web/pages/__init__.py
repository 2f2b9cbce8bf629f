"""The pages: what the API answers, for people; drawn on the server, readable without JavaScript.

They only read. Every text that comes from a record is shown as text: see `text.outside`.
"""
