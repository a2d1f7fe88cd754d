"""Attacks on recorded runs, one file per family of protocols: from transcripts to what `attacks.*` take, and back.

Each function takes a `registry.Context` and gives `registry.Outcome`s. What an attacker uses is in its own transcript
or in its own table. Truth, where it was given, comes in last, to count with.
"""
