"""The statement of a run, in the order of NIST SP 800-226, and the fields of the public registry.

NIST's guidelines for evaluating guarantees of differential privacy stack what a guarantee is made of: on top what is
promised and to whom, below it the algorithm with its accounting, its utility and its biases, below that whom one has to
trust and what the program could get wrong, and at the bottom how the data came to be. What stands above means nothing
without what stands below. The headings here are our own words for these layers; every sentence under them is one of the
run's statement, or a box for a person.
"""

from __future__ import annotations

from typing import Any

from hedgerow.codec import to_json
from hedgerow.report.pack.blocks import Block, Facts, Fill, Page, Points, Text, Title
from hedgerow.report.pack.subject import Subject

NO_REGISTRY = (
    "The run's statement claims no differential privacy for what is released, so there are no numbers to register. "
    "What protects data instead is said above, by cryptography or by who sees what."
)
PLANNED = (
    "This party did not get the record of the training: the party that made the model has it. Below is what follows "
    "from the proposal, which all signed, and from this party's own part of the model, if the run came to its end as "
    "planned. Ask for statement.json of the run before you rely on it."
)
ASKED_BY_REGISTRY = {
    "deployment": "what it is called in public",
    "data_curator": "who is responsible for the data",
    "intended_use": "what the release is for",
    "region": "where the people live whose data they are",
    "publication": "when and where the release is made public, and for how long it is repeated",
}
"""What the registry asks beside the guarantee, and only a person knows."""


def page(subject: Subject) -> Page:
    """The statement, layer by layer."""
    stated, facts = subject.statement, subject.facts
    blocks: list[Block] = []
    if subject.is_planned:
        blocks.append(Text(PLANNED, loud=True))
    if stated.stamp:
        blocks.append(Text(f"{stated.stamp}.", loud=True))
    blocks += [
        Title("1. What is promised, and to whom"),
        Points.of(stated.guarantee, "nothing is promised"),
        _loss(subject),
        Title("2. The algorithm: mechanism, accounting, utility, bias"),
        Facts(
            "How it was computed",
            {
                "protocol": subject.protocol,
                **_accounting(subject),
                "parameters": dict(subject.params),
                "sentences hold against": facts.get("adversary", "whom they name"),
            },
        ),
        Fill(
            "whoever evaluates the model",
            "How accurate the model is with this protection, on which rows, and whether it is less accurate for some "
            "groups of people than for others: noise hits small groups hardest.",
        ),
        Title("3. Whom one has to trust: parties, program, machines"),
        Points.of(stated.assumed_of_parties, "nothing beyond what the guarantee says"),
        Fill(
            "whoever runs the party's machines",
            "Who can get at the machine, the key and the home folder; how that is watched. Timing, memory and other "
            "side channels of the machine are not covered by the statement.",
        ),
        Title("4. How the data came to be"),
        Points.of(stated.assumed_of_data, "the statement assumes nothing of the data"),
        Fill(
            "the party that brings the data",
            "How the rows were collected, what people were told, whether one person can stand in several rows, and who "
            "else has the same rows.",
        ),
        Title("What is not covered"),
        Points.of(stated.not_covered),
        Text(f"Reasons to stop early that can follow from protected rows: {', '.join(stated.data_dependent_aborts)}."),
    ]
    return Page("statement", "Statement, in the order of NIST SP 800-226", tuple(blocks))


def _loss(subject: Subject) -> Block:
    registry = subject.statement.registry
    if registry is None:
        return Text(NO_REGISTRY)
    return Facts(
        "In numbers",
        {
            "what is protected": registry.unit,
            "kind of differential privacy": registry.flavour,
            **{name: value for name, value in registry.loss.items() if value is not None},
            **({"tables that are compared": subject.facts["adjacency"]} if "adjacency" in subject.facts else {}),
        },
    )


def _accounting(subject: Subject) -> dict[str, object]:
    registry = subject.statement.registry
    if registry is None:
        return {}
    return {"accounting": registry.accounting, "model (who adds the noise)": registry.model}


def registry_of(subject: Subject) -> dict[str, Any]:
    """registry.json: what the run's statement says, and which fields wait for a person."""
    stated = subject.statement
    found: Any = None if stated.registry is None else to_json(stated.registry)
    return {
        "registry": found,
        "why_empty": NO_REGISTRY if found is None else None,
        "is_planned": subject.is_planned,
        "run_id": subject.run_id,
        "date": stated.date,
        "to_be_filled_in": ASKED_BY_REGISTRY,
    }


def registry_page(subject: Subject) -> Page:
    """The same for people."""
    blocks: list[Block] = [_loss(subject)]
    if subject.statement.registry is not None:
        blocks.append(
            Facts(
                "Further fields",
                {**_accounting(subject), "implementation": subject.statement.registry.implementation},
            )
        )
    blocks += [
        Fill("whoever registers the deployment", f"{name.replace('_', ' ')}: {what}.")
        for name, what in ASKED_BY_REGISTRY.items()
    ]
    return Page("registry", "For the public registry of deployments", tuple(blocks))
