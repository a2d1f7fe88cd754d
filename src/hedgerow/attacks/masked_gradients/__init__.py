"""Attacks on vertical.masked_gradients."""
