"""Mechanisms, what they cost, and what that adds up to."""
