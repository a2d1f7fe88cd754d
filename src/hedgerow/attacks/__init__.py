"""Attacks: what a curious party can find out from messages that it really had. `hedgerow attack` and tests run them.

Each knows what is public and reports how well it did. An attack that succeeds is written into the statement of the
protocol it succeeds against; one that must not succeed fails a test if it ever does.
"""
