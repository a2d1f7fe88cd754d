"""Protocols as their papers have them, with their leaks: gated, stamped, there to compare with."""
