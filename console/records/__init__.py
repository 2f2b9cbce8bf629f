"""Turns received bytes into checked values; pure, and strict about what it accepts."""
