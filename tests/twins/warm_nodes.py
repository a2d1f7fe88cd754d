"""Importing this compiles all that runs of `stories.STORIES` need: done by the process that nodes are forked from."""

from __future__ import annotations

from hedgerow.federation.federation import Chosen
from hedgerow.runtime.protocol import find
from hedgerow.runtime.running import warm_up
from twins import killed_nodes  # noqa: F401 - what forks run
from twins.stories import OWNERS, SCHEMA, STORIES

for story in STORIES.values():
    spec, options = find(story.protocol), {**story.trees, **story.options}
    if "schema" in options:
        options["schema"] = SCHEMA
    if "notary" in story.parties:
        options["dealer"] = "notary"
    parties, label_holder = (("bank", "shop"), "bank") if story.is_vertical else (OWNERS, None)
    if not story.is_vertical:
        options["coordinator"] = OWNERS[0]
    chosen = Chosen.of(story.protocol, options, partition=spec.partition, task="classification")
    warm_up(spec, chosen.job(parties, label_holder, (), "0" * 32))
