"""Protocols: who holds which part of the histogram, and who may see the sums."""
