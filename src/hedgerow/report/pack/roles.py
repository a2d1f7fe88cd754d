"""Who was what, in words of multi-party computation: which party put something in, computed, or got a result.

ISO/IEC 4922 tells parties of a secure multi-party computation apart by what they do: some provide input, some compute
on what they cannot read, some get the output. One organisation may be several of these. Below are our own words for the
three, and what each role of each protocol is in them. The table is kept by hand; a test holds it against the roles that
the protocols declare. Protocols whose guarantee is noise, and not computing on what nobody can read, are in it for the
sake of one language, and say so.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hedgerow.report.pack.blocks import Block, Fill, Grid, Page, Points, Text
from hedgerow.report.pack.subject import Subject
from hedgerow.runtime.protocol import COORDINATOR, DEALER, FEATURE_HOLDER, LABEL_HOLDER, OWNER

INPUT, COMPUTING, RESULT = "input party", "computing party", "result party"
WORDS = {
    INPUT: "provides data of its own to the computation, in a form that protects them",
    COMPUTING: "computes on what others provide in such a form",
    RESULT: "gets to know an output, or a part of it",
}
HELPER = "helper"
NOTE_ON_HELPER = (
    "A dealer is a helper: it has no data, gets no result and computes on nobody's data, but deals the randomness that "
    "the computation uses up. It must not work together with any other party."
)


class Is(NamedTuple):
    """What a role is."""

    kinds: tuple[str, ...]
    provides: str
    gets: str


_MODEL = "the trees, with questions about others' columns as numbers, and leaf values"
_OWN_PART = "its own part of the model: the questions about its own columns"
_DEALER = Is((HELPER,), "correlated randomness", "sizes, and no message between the others")
_LABELS = "labels and columns of its own"

ROLES: dict[str, dict[str, Is]] = {
    "horizontal.secure_sum": {
        OWNER: Is((INPUT, RESULT), "sums over its rows, under masks", "the whole model"),
        COORDINATOR: Is(
            (COMPUTING, RESULT),
            "nothing; if it is one of the owners, it is an input party too, and sums over its own rows stay with it",
            "sums over all owners, and the whole model",
        ),
    },
    "vertical.bucket_rr": {
        LABEL_HOLDER: Is((INPUT, COMPUTING, RESULT), f"{_LABELS}, which stay with it", _MODEL),
        FEATURE_HOLDER: Is((INPUT, RESULT), "buckets of its values, randomised if there is an epsilon", _OWN_PART),
    },
    "vertical.noised_gradients": {
        LABEL_HOLDER: Is((INPUT, COMPUTING, RESULT), "gradients, with noise if there is an epsilon", _MODEL),
        FEATURE_HOLDER: Is((INPUT, COMPUTING, RESULT), "sums of gradients over its own bins", _OWN_PART),
    },
    "vertical.homomorphic": {
        LABEL_HOLDER: Is((INPUT, COMPUTING, RESULT), "gradients, encrypted under a key of its own", _MODEL),
        FEATURE_HOLDER: Is((INPUT, COMPUTING, RESULT), "sums of ciphertexts over its own bins", _OWN_PART),
    },
    "vertical.masked_gradients": {
        LABEL_HOLDER: Is((INPUT, COMPUTING, RESULT), "gradients, masked as the paper has it", _MODEL),
        FEATURE_HOLDER: Is((INPUT, COMPUTING, RESULT), "sums over candidates of its own columns", _OWN_PART),
    },
    "vertical.private_histograms": {
        LABEL_HOLDER: Is(
            (INPUT, COMPUTING, RESULT), f"{_LABELS}, as shares", "what was opened with noise, and its part"
        ),
        FEATURE_HOLDER: Is(
            (INPUT, COMPUTING, RESULT), "its columns, as shares", "what was opened with noise, and its part"
        ),
        DEALER: Is((HELPER,), "correlated randomness, and noise", "sizes, and no message between the others"),
    },
    "vertical.secret_shared": {
        LABEL_HOLDER: Is((INPUT, COMPUTING, RESULT), f"{_LABELS}, as masked words", _MODEL),
        FEATURE_HOLDER: Is((INPUT, COMPUTING, RESULT), "its columns, as masked words", _OWN_PART),
        DEALER: _DEALER,
    },
    "vertical.mp_fedxgb": {
        LABEL_HOLDER: Is((INPUT, COMPUTING, RESULT), f"{_LABELS}, as shares", "its part, with shares of leaf values"),
        FEATURE_HOLDER: Is(
            (INPUT, COMPUTING, RESULT), "its columns, as shares", "its part, with shares of leaf values"
        ),
        DEALER: _DEALER,
    },
    "vertical.aligning": {
        "party": Is(
            (INPUT, COMPUTING, RESULT), "ids, blinded by its own secret", "which of its own rows all parties have"
        ),
        "comparer": Is(
            (INPUT, COMPUTING, RESULT),
            "ids, blinded by its own secret",
            "which rows all parties have; compares for all",
        ),
    },
}
"""Protocol -> role, as its job's cast has it -> what that is."""

NOT_ON_SECRETS = {
    "vertical.bucket_rr": "Nothing is computed on secrets: what protects values is that their owner made them random.",
    "vertical.noised_gradients": "Nothing is computed on secrets: what protects labels is the noise in gradients.",
    "vertical.masked_gradients": (
        "Masks are as a paper has them, and attacks undo them; the run is stamped, and the words below claim nothing."
    ),
    "vertical.mp_fedxgb": (
        "What the paper opens on the way is opened; the run is stamped, and the words below claim nothing."
    ),
}


def roles_of(subject: Subject) -> dict[str, Any]:
    """For machines."""
    return {
        "vocabulary": "input party, computing party and result party, after ISO/IEC 4922; the words are our own",
        "words": WORDS,
        "parts": [
            {
                "protocol": protocol,
                "parties": [
                    {"party": name, "role": role, **ROLES[protocol][role]._asdict()} for name, role in cast.items()
                ],
            }
            for protocol, cast in _parts(subject).items()
        ],
    }


def _parts(subject: Subject) -> dict[str, dict[str, str]]:
    """What the run was made of, and who was what in it."""
    matching = {} if subject.matching is None else {"vertical.aligning": dict(subject.matching)}
    return {**matching, subject.protocol: subject.roles}


def page(subject: Subject) -> Page:
    """For people."""
    blocks: list[Block] = [
        Text("Parties of a computation on data that nobody shows are told apart by what they do. In our own words:"),
        Points(
            tuple(f"An {kind} {words}." if kind == INPUT else f"A {kind} {words}." for kind, words in WORDS.items())
        ),
    ]
    for protocol, cast in _parts(subject).items():
        if protocol in NOT_ON_SECRETS:
            blocks.append(Text(NOT_ON_SECRETS[protocol], loud=subject.statement.stamp is not None))
        rows = [(name, role, ROLES[protocol][role]) for name, role in cast.items()]
        cells = tuple((name, role, ", ".join(what.kinds), what.provides, what.gets) for name, role, what in rows)
        blocks.append(Grid(protocol, ("party", "role here", "is", "provides", "gets"), cells))
        if any(HELPER in what.kinds for _, _, what in rows):
            blocks.append(Text(NOTE_ON_HELPER))
    blocks.append(
        Fill(
            "whoever answers for the use of the standard",
            "Whether ISO/IEC 4922 is applied at all, which part of it, and whether these words are the right ones.",
        )
    )
    return Page("roles", "Roles, in words of ISO/IEC 4922", tuple(blocks))
