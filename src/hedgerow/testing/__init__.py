"""Slow twins, contract suites and fleets: importable by people who add a kernel, a backend or a protocol."""
