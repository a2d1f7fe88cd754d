"""Attacks on vertical.noised_gradients."""
