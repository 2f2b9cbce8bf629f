"""A stand-in for IMDS: its events, its instance document, its refusals and its bad days.

It never imports the rest of the bridge: it knows Azure's side only.
"""
