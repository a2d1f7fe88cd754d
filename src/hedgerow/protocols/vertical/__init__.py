"""Columns are split between parties who share their rows; one of them, the label holder, has the labels.

`common/` is what label holders and feature holders of all of them do alike; protocols on secret shares have more in
common, in `protocols/shares`. Those that are there as published, with their leaks, are in `protocols/published`;
matching rows before a training, and scoring and explaining after it, in `protocols/services`.

All parties are taken to follow the protocol, and to be curious.
"""
