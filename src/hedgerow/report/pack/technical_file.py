"""A technical file in the order of Annex IV of the EU AI Act, filled in as far as a run knows.

Annex IV of Regulation (EU) 2024/1689 lists in nine points what the technical documentation of a high-risk AI system has
in it. The headings here are our own words for these points. Most of what it asks is about a system, of which a model is
one part: those answers stand in boxes, each with whom to ask. Whether a system is a high-risk one, and whether the file
is enough, this program cannot know.
"""

from __future__ import annotations

from collections.abc import Iterable

from hedgerow.report.pack.blocks import Block, Facts, Fill, Page, Points, Text, Title
from hedgerow.report.pack.subject import Subject
from hedgerow.runtime.protocol import find

PROVIDER, DEPLOYER, MODELLER = "the provider of the system", "the deployer", "whoever built the model"
SECURITY, DATA = "whoever answers for security", "the party that brings the data"
_FROM_STATEMENT = "What is assumed, by the run's statement"


def page(subject: Subject) -> Page:
    """Nine points."""
    points = (_general, _development, _control, _metrics, _risks, _changes, _standards, _declaration, _monitoring)
    blocks: list[Block] = [
        Text(
            "Pre-filled from the files of one training run. Boxes are for people; a sentence without a box is a fact "
            "of the run. The file says nothing about whether the system is a high-risk one, nor whether it meets the "
            "Act."
        )
    ]
    for point in points:
        blocks += point(subject)
    return Page("technical_file", "Technical file, in the order of Annex IV of the EU AI Act", tuple(blocks))


def _general(subject: Subject) -> Iterable[Block]:
    yield Title("1. The system in general")
    yield Fill(PROVIDER, "Intended purpose, name and version of the system, who the provider is, earlier versions.")
    yield Facts(
        "The part of it that is described here",
        {
            "what": f"a model of gradient-boosted trees for {subject.task}, by {len(subject.seats)} parties together",
            "run": subject.run_id,
            "trained until": subject.finished,
            "parties": [f"{seat.name} ({seat.role})" for seat in subject.seats],
            "software": f"Hedgerow {subject.hedgerow}; all that it needs is in sbom.cdx.json",
            "may be used together afterwards": subject.scoring,
        },
    )
    yield Fill(
        PROVIDER,
        "How the model meets other hardware and software; forms in which the system is placed on the market; the "
        "hardware it is to run on; what it looks like to its users; instructions for use.",
    )


def _development(subject: Subject) -> Iterable[Block]:
    spec = find(subject.protocol)
    yield Title("2. How it was developed, and what it is made of")
    yield Text(
        f"Method: {subject.protocol}, in which {'rows' if spec.partition == 'rows' else 'columns'} are divided between "
        "parties. How splits and leaves are found, and what is opened on the way, is on the protocol's page in the "
        "documentation of Hedgerow. What was sent and learned is in the egress manifest."
    )
    yield Facts("Design choices: parameters of the run", dict(subject.params))
    yield Facts(
        "Resources",
        {
            "seconds of training": round(subject.seconds, 1),
            "attempts": subject.attempts,
            "bytes that left": sum(entry["bytes"] for entry in subject.manifest["sent"]),
        },
    )
    yield Fill(
        MODELLER, "Why this method and these parameters; what was tried and dropped; what is optimised, at what cost."
    )
    yield Title("2. How it was developed: the data")
    yield Facts(
        "What is known here of the training data",
        {
            "dataset": subject.dataset,
            "label": subject.label,
            "rows that all parties had": subject.n_matched,
            **{f"columns of {name}": list(columns) for name, columns in subject.columns.items()},
        },
    )
    yield Fill(
        DATA,
        "Where the rows come from, whom they are about and from when to when; how labels were given; how rows were "
        "cleaned; which groups are missing or few; what this means for whom the model is used on. Every party fills in "
        "its own.",
    )
    yield Title("2. How it was developed: oversight, changes, validation, security")
    yield Fill(PROVIDER, "Which human oversight is needed, and what helps people to make sense of scores.")
    yield Fill(PROVIDER, "Which later changes are foreseen, and how they are kept from making the system worse.")
    yield Fill(
        MODELLER,
        "How the model was validated and tested: on which rows, by which measures of accuracy, robustness and unequal "
        "effect on groups; dated test reports, signed by whoever answers for them.",
    )
    yield Points.of((f"{_FROM_STATEMENT}: {sentence}" for sentence in subject.statement.assumed_of_parties), "none")
    yield Text(
        "Between parties: mutual TLS with pinned certificates; every message is of a declared kind and is checked "
        "before it is used; each party keeps a signed trail."
        if subject.party is not None
        else "The parties of this run were parts of one program on one machine."
    )
    yield Fill(
        SECURITY, "Further measures: who can reach machines and keys, how that is watched, how incidents are handled."
    )


def _control(subject: Subject) -> Iterable[Block]:
    yield Title("3. Monitoring, functioning and control")
    yield Text("Known limits of what is protected, from the run's statement:")
    yield Points.of(subject.statement.not_covered)
    yield Fill(
        MODELLER,
        "What the model can and cannot do; how accurate it is for the people and groups it is meant for, and overall; "
        "what it may do wrong to health, safety, rights or by unequal treatment; what its inputs must look like.",
    )
    yield Fill(DEPLOYER, "Who oversees its use, with what training, and how a decision is stopped or corrected.")


def _metrics(subject: Subject) -> Iterable[Block]:
    del subject
    yield Title("4. Why these measures of performance")
    yield Fill(MODELLER, "Which measures were chosen, and why they fit what the system is for.")


def _risks(subject: Subject) -> Iterable[Block]:
    yield Title("5. Risk management")
    yield Fill(
        PROVIDER, "The system of risk management that Article 9 asks for: which risks, which measures, what is left."
    )
    if subject.statement.stamp:
        yield Text(f"The run is stamped: {subject.statement.stamp}. Treat this as a risk.", loud=True)
    yield Text("Risks to the people in the training rows are treated in the statement and in the annex on attacks.")


def _changes(subject: Subject) -> Iterable[Block]:
    yield Title("6. Changes over the life of the system")
    entries = () if subject.trail is None else subject.trail.entries
    yield Points.of(
        (f"{entry.at[:19]}Z: {entry.kind.replace('_', ' ')}" for entry in entries),
        "there is no trail of this run: it was made in one program",
    )
    yield Fill(PROVIDER, "What was changed since, by whom and why.")


def _standards(subject: Subject) -> Iterable[Block]:
    del subject
    yield Title("7. Standards that were applied")
    yield Text(
        "NIST SP 800-226, ISO/IEC 4922 and CycloneDX lend this pack their order and their words. That is not a claim "
        "that any of them is met."
    )
    yield Fill(
        PROVIDER, "Harmonised standards that were applied, in full or in part; where none was, what was done instead."
    )


def _declaration(subject: Subject) -> Iterable[Block]:
    del subject
    yield Title("8. The provider's EU declaration")
    yield Fill(PROVIDER, "A copy of the declaration that Article 47 speaks of, if there is one. This pack is none.")


def _monitoring(subject: Subject) -> Iterable[Block]:
    del subject
    yield Title("9. Monitoring after it is in use")
    yield Fill(PROVIDER, "How the system is watched in use, with the plan that Article 72 asks for.")
