"""Attacks on vertical.private_histograms."""
