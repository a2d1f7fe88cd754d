"""Frames between parties: how messages are written down, carried, counted and protected on the way."""
