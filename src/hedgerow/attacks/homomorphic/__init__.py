"""Attacks on vertical.homomorphic."""
