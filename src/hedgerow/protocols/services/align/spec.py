"""vertical.aligning, declared: private record linkage before a vertical training. And what it has told whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hedgerow.protocols.services.align import messages
from hedgerow.protocols.services.align.roles import NAME, PARTY, AlignedRows, AligningJob, party
from hedgerow.protocols.vertical.common import stating
from hedgerow.runtime.protocol import Protocol
from hedgerow.statement import Statement

TO_ALL = (
    "Every party learned its own rows of the common ids, in an order that is random and the same at all parties, the "
    "number of common ids, and the number of ids of every party."
)
NOT_COVERED = (
    "a party that lies about its ids: it can test for ids of its choice",
    "what numbers of ids say about single persons if they are small, or as large as a set",
    "repeated matching: differences between two results tell who was added or left",
    "who took part",
    stating.ERRORS,
)


def statement(job: AligningJob, meta: Mapping[str, Any]) -> Statement:
    """In words and as facts; `meta` may hold `n_ids` of each party and `n_common`."""
    n_ids, n_common = meta.get("n_ids"), meta.get("n_common")
    several = len(job.parties) > 2
    guarantee = [
        f"Records of {len(job.parties)} parties were aligned by their ids. There is no noise, and no epsilon.",
        _about_result(n_ids, n_common),
        TO_ALL,
        _about_comparer(job, several=several),
        "No party learned an id that it does not hold"
        + (", nor which of its ids some but not all of the others hold." if several else "."),
        _about_rule(job),
    ]
    facts = {
        "protocol": NAME,
        "parties": list(job.parties),
        "comparer": job.comparer,
        "n_ids": None if n_ids is None else dict(n_ids),
        "n_common": n_common,
        "minimum": job.minimum,
        "rule": dict(job.rule or {}),
        "rule_fingerprint": job.id_rule.fingerprint,
        "duplicates": job.duplicates,
        "adversary": "honest but curious; all parties but one together learn the result and numbers for groups",
        "assumptions": ["decisional Diffie-Hellman on P-256", "SHA-256 as a random function"],
        "comparer_learned_numbers_for_groups": several,
    }
    assumed = (*stating.ASSUMED, "Diffie-Hellman on P-256 is hard, and SHA-256 behaves as a random function.")
    return Statement(NAME, tuple(filter(None, guarantee)), assumed, (), NOT_COVERED, facts)


def _about_result(n_ids: Mapping[str, int] | None, n_common: int | None) -> str:
    if n_ids is None or n_common is None:
        return ""
    sizes = ", ".join(f"{name} {n:,}" for name, n in n_ids.items())
    return f"{n_common:,} ids are common to all ({sizes})."


def _about_comparer(job: AligningJob, *, several: bool) -> str:
    if not several:
        return f"{job.comparer}, which compared blinded ids, learned nothing beside."
    return (
        f"{job.comparer}, which compared blinded ids, also learned how many ids each group of parties has in common, "
        "as numbers."
    )


def _about_rule(job: AligningJob) -> str:
    rule = job.id_rule
    if rule.kind == "integer":
        how = "as whole numbers"
    else:
        case = "capitals count" if rule.case == "keep" else "capitals do not count"
        ends = "white space at the ends does not count" if rule.strip else "white space at the ends counts"
        how = f"as text (Unicode {rule.unicode_form}, {case}, {ends})"
    rows = "an id in two rows of a table was refused"
    if job.duplicates == "first":
        rows = "of several rows with one id the first was taken"
    return f"Ids were compared {how}; {rows}. Results of fewer than {job.minimum} ids are not shown."


SPEC = Protocol(
    AligningJob,
    roles={PARTY: party},
    messages=messages.ALL,
    statement=statement,
    warmup=lambda _job: None,  # no kernel is compiled for this
    result=AlignedRows.from_dict,
    on_ray={PARTY: None},
)
