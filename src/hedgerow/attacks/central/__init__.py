"""Attacks on trainings of one table: audits, canaries, membership."""
