"""Attacks on vertical.mp_fedxgb, and that of vertical.secret_shared there is nothing to attack."""
