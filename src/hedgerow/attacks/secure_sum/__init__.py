"""Attacks on horizontal.secure_sum."""
