"""Experiments: what the library's methods achieve on real data, beside the papers and beside other libraries."""
