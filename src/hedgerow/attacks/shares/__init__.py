"""Attacks on whatever runs on secret shares."""
