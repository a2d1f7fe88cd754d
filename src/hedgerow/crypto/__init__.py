"""Randomness, fixed point, masks, shares and record linkage. Nothing here talks to anybody."""
