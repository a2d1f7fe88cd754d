"""Attacks on vertical.bucket_rr."""
