"""Rows are split between owners who share their columns."""
