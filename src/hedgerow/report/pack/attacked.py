"""The annex on attacks: how likely is it that somebody gets people's data out, and how was that tested?

That is what EDPB Opinion 28/2024 asks before a model is called anonymous: how likely it is, by all means that somebody
may reasonably use, to extract data of the people it was trained on or to get them by queries, and which tests say so.
The annex has only what was really run: results of `hedgerow attack --json` on a recorded run, or of
`hedgerow rehearse --json` on made-up rows, which are marked as such. Kinds of attack that nobody tried are listed as
not tested. It does not say that the model is anonymous: that is for whoever answers for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from hedgerow.attacks.registry import ATTACKS, NOT_RUN, NOT_SCORED
from hedgerow.codec import from_json, to_json
from hedgerow.errors import InvalidInput
from hedgerow.node.documents import read_bounded, told_of
from hedgerow.report.pack.blocks import Block, Fill, Grid, Page, Points, Text, Title
from hedgerow.report.pack.subject import MOST_BYTES, Subject

MEMBERSHIP = "membership inference: was this person in the table?"
ATTRIBUTE = "attribute inference: what is this person's label or value?"
RECONSTRUCTION = "reconstruction: what were the rows, or sums that show single rows?"
KINDS_OF_ATTACK = {
    MEMBERSHIP: frozenset({"all_but_one"}),
    ATTRIBUTE: frozenset(
        {
            *("bucket_bayes", "noised_labels", "label_clusters", "argmax_opened", "leaf_opened", "singleton_cells"),
            *("unmask_least_squares", "label_network", "all_but_one"),
        }
    ),
    RECONSTRUCTION: frozenset({"bin_sums", "denominators_opened", "active_set", "openings", "mask_reuse"}),
    "model inversion: what does a typical person of a class look like?": frozenset(),
    "regurgitation and extraction by queries to the finished model": frozenset(),
}
"""Kinds that are spoken of where models are judged -> the attacks of Hedgerow that are of that kind."""

NOT_TESTED = (
    "Not tested. No attack was run on this run, or none was handed over for this pack. What the statement guarantees "
    "does not depend on attacks, but nothing here shows that it withstands one."
)


@dataclass(frozen=True)
class Value:
    """A number with its interval."""

    estimate: float
    low: float
    high: float
    confidence: float


@dataclass(frozen=True)
class Tried:
    """One attack by one party."""

    attack: str
    attacker: str
    target: str
    found: str
    verdict: str
    measure: str | None
    value: Value | None
    chance: float | None
    ceiling: float | None
    reason: str | None


@dataclass(frozen=True)
class Tests:
    """What one file says."""

    protocol: str
    run_id: str | None  # None: it does not say
    on_made_up_rows: bool
    tried: tuple[Tried, ...]


def read_tests(path: Path, subject: Subject) -> Tests:
    """The result of `hedgerow attack --json` or `hedgerow rehearse --json`. InvalidInput for anything else."""
    with told_of(path):
        found = json.loads(read_bounded(path, MOST_BYTES))
        if not isinstance(found, dict) or found.get("command") not in ("attack", "rehearse"):
            raise InvalidInput("it is not the result of hedgerow attack --json, nor of hedgerow rehearse --json")
        is_rehearsal = found["command"] == "rehearse"
        outcomes = found["attacks" if is_rehearsal else "outcomes"]
        names = {each.name for each in fields(Tried)}
        tried = from_json(tuple[Tried, ...], [{n: each[n] for n in names} for each in outcomes], "outcomes")
        run_id = found.get("run_id")
        tests = Tests(str(found["protocol"]), None if run_id is None else str(run_id), is_rehearsal, tried)
    if tests.protocol != subject.protocol:
        raise InvalidInput(f"{path} is about {tests.protocol}, and the run is one of {subject.protocol}")
    return tests


def read_all(paths: Iterable[Path], subject: Subject) -> tuple[Tests, ...]:
    """All files that were handed over."""
    return tuple(read_tests(path, subject) for path in paths)


def _where(tests: Tests, subject: Subject) -> str:
    """On what it was tested."""
    if tests.on_made_up_rows:
        return "a rehearsal on MADE-UP ROWS with the same protocol: it says nothing about the people in this run"
    if tests.run_id == subject.run_id:
        return "this run"
    return "another run of the same protocol, recorded for the test"


def kinds(tests: Iterable[Tests]) -> dict[str, str]:
    """Each kind of attack, and whether any was run that gave a number."""
    ran = {each.attack for one in tests for each in one.tried if each.verdict not in (NOT_RUN, NOT_SCORED)}
    found = {}
    for kind, names in KINDS_OF_ATTACK.items():
        here = sorted(ran & names)
        found[kind] = f"tested by {', '.join(here)}" if here else "not tested"
    return found


def to_dict(tests: Iterable[Tests], subject: Subject) -> dict[str, Any]:
    """attacks.json."""
    tests = tuple(tests)
    return {
        "tested": bool(tests),
        "words": None if tests else NOT_TESTED,
        "kinds": kinds(tests),
        "tests": [{"on": _where(each, subject), **to_json(each)} for each in tests],
        "attacks_that_exist_for_this_protocol": [name for name, homes in ATTACKS.items() if subject.protocol in homes],
    }


def page(tests: Iterable[Tests], subject: Subject) -> Page:
    """For people."""
    tests = tuple(tests)
    blocks: list[Block] = [
        Text(
            "The question of EDPB Opinion 28/2024, in our words: by all means that somebody may reasonably use, how "
            "likely is it that data of the people behind the training rows are got out of the model, or out of what "
            "passed while it was trained? And how was that tested?"
        ),
        Grid("What was tested", ("kind of attack", "here"), tuple(kinds(tests).items())),
    ]
    if not tests:
        blocks.append(Text(NOT_TESTED, loud=True))
    for each in tests:
        blocks += [
            Title(f"Attacks on {_where(each, subject)}"),
            Grid(
                "A result between chance and ceiling is what the statement allows",
                ("attack", "by", "on", "result", "chance", "ceiling", "verdict"),
                tuple(_row(one) for one in each.tried),
            ),
            Points.of((f"{one.attack} by {one.attacker}: {one.found}" for one in each.tried), "no attack applies"),
        ]
    exist = [name for name, homes in ATTACKS.items() if subject.protocol in homes]
    blocks += [
        Text(
            f"Attacks on {subject.protocol} that Hedgerow has: {', '.join(exist) or 'none'}. They are run on a "
            f"recorded run."
        ),
        Fill(
            "whoever answers for the model, with the data protection officer",
            "Who could get hold of the model or ask it questions, with what knowledge and what means; whether the "
            "tests above are those that matter; what else was tested, by whom and when; and what follows for the "
            "question whether data of people can be got out.",
        ),
    ]
    return Page("attacks", "Annex: attacks, and what was not tested", tuple(blocks))


def _row(one: Tried) -> tuple[str, ...]:
    result = "no number"
    if one.value is not None:
        low, high = f"{one.value.low:.3f}", f"{one.value.high:.3f}"
        result = f"{one.measure} {one.value.estimate:.3f} ({low} to {high}, {one.value.confidence:.2%})"
    numbers = ("none" if number is None else f"{number:.3f}" for number in (one.chance, one.ceiling))
    return (one.attack, one.attacker, one.target, result, *numbers, one.verdict)
