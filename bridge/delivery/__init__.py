"""Delivers committed records to every sink, in order, at least once, with one worker per sink."""
