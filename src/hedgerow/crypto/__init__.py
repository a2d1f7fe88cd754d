"""Randomness, fixed point, masks and shares. Nothing here talks to anybody."""
