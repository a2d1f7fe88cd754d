"""Pages of a pack that say what passed and what was written down about it, and what the model is for."""

from __future__ import annotations

from typing import Any

from hedgerow.node.audit import Report
from hedgerow.report.pack.blocks import Block, Facts, Fill, Grid, Page, Points, Text, Title
from hedgerow.report.pack.subject import Subject

_SENT = ("from", "to", "message", "number", "bytes", "what it tells, and how that is protected")
_MAY = ("from", "to", "message", "largest", "what it tells, and how that is protected")

_CHECKS = (
    "sha256sum -c SHA256SUMS: the files are those of the list.",
    (
        "hedgerow audit verify audit_extract.jsonl --extract --certificate party.pem: chain, signatures, certificates. "
        "Get party.pem, the party's certificate, from the party itself."
    ),
    (
        "Without Hedgerow: what is signed, and ten lines of Python that check it, are in the reference of the audit "
        "trail (docs/reference/audit.md, Without Hedgerow)."
    ),
)
"""How a reader checks the extract."""


def summary(subject: Subject) -> Page:
    """The first page: what it is about, in facts."""
    stated = subject.statement
    blocks: list[Block] = []
    if stated.stamp:
        blocks.append(Text(f"{stated.stamp}.", loud=True))
    blocks += [
        Facts(
            "The run",
            {
                "run": subject.run_id,
                "protocol": subject.protocol,
                "seen by": subject.whose,
                "parties": [f"{seat.name} ({seat.role})" for seat in subject.seats],
                "ended": subject.finished,
                "software": f"Hedgerow {subject.hedgerow}",
            },
        ),
        Text("What is guaranteed, first of all:"),
        Points.of(stated.guarantee[:3], "nothing"),
        Text(
            "This pack holds facts of one run, and boxes for what only people know. It does not say that any law or "
            "standard is met. It holds no rows, no values out of rows, no thresholds of the model and no keys."
        ),
    ]
    certificates = [seat for seat in subject.seats if seat.fingerprint is not None]
    if certificates:
        blocks.append(
            Grid(
                "Certificates; compare them by telephone with those that the parties show",
                ("party", "fingerprint"),
                tuple((seat.name, str(seat.fingerprint)) for seat in certificates),
            )
        )
    return Page("summary", "What this is about", tuple(blocks))


def manifest(subject: Subject) -> Page:
    """What may have left, and what did."""
    told = subject.manifest
    own = [each for each in told["announced"] if subject.party in (None, each["sender"])]
    blocks: list[Block] = [
        Title("What might leave, as it followed from the protocol before the run"),
        Grid(
            "Kinds of messages",
            _MAY,
            tuple((each["sender"], each["to"], each["message"], each["size"], _told(each)) for each in own),
        ),
        Title("What left"),
        Grid("From the ledger", _SENT, tuple(_cells(each) for each in told["sent"])),
    ]
    if told["received"]:
        blocks += [
            Title("What came in"),
            Grid("From the ledger", _SENT, tuple(_cells(each) for each in told["received"])),
        ]
    n_unannounced = len(told["unannounced"])
    if n_unannounced:
        blocks.append(
            Text(f"NOT ANNOUNCED: {n_unannounced} kinds of messages left that nothing had announced.", loud=True)
        )
    else:
        blocks.append(Text("Everything that left had been announced."))
    return Page("manifest", "Egress manifest: what left whose house", tuple(blocks))


def _cells(each: dict[str, Any]) -> tuple[str, ...]:
    return (
        each["sender"],
        each["receiver"],
        each["message"],
        f"{each['messages']:,}",
        f"{each['bytes']:,}",
        _told(each),
    )


def _told(each: dict[str, Any]) -> str:
    return f"{each['what']} ({each['protection']})"


def audit(subject: Subject) -> Page:
    """What the trail says about the run, and whether it holds."""
    if subject.trail is None:
        words = "There is no trail: parties that are organisations keep one, and this run was made in one program."
        return Page("audit", "Audit extract", (Text(words),))
    found = subject.trail
    lines = tuple((f"{entry.seq:,}", f"{entry.at[:19]}Z", entry.kind.replace("_", " ")) for entry in found.entries)
    blocks: list[Block] = [
        Text(
            "The lines of the party's trail about this run are in audit_extract.jsonl as they stand, each with its "
            "number, its link to the line before and its signature. The first has the party's certificate."
        ),
        Grid("Lines in the extract", ("number", "when", "what"), lines),
        Title("What a check came to"),
        *_verdict("The whole trail, when the pack was made", found.trail),
        *_verdict("The extract by itself", found.checked),
        Title("To check it again, offline"),
        Points(_CHECKS),
        Text(
            "An extract cannot show that no line about the run was left out. The whole trail, and those of the other "
            "parties, compared with hedgerow audit verify, can."
        ),
    ]
    return Page("audit", "Audit extract, and its verification", tuple(blocks))


def _verdict(what: str, report: Report) -> list[Block]:
    (summary,) = report.trails
    said = f"{what}: {summary.n_lines:,} lines. "
    if report.ok:
        return [Text(f"{said}Nothing is wrong: chain, signatures and certificates hold."), *_notes(report)]
    findings = Points(tuple(str(finding) for finding in report.findings))
    return [Text(f"{said}BROKEN.", loud=True), findings, *_notes(report)]


def _notes(report: Report) -> list[Block]:
    return [Points(report.notes)] if report.notes else []


def model_card(subject: Subject) -> Page:
    """What the model is, what it is for, and what it is not for."""
    stated = subject.statement
    blocks: list[Block] = [
        Title("The model"),
        Facts(
            "Details",
            {
                "kind": f"gradient-boosted trees for {subject.task}",
                "trees asked for": subject.params.get("n_estimators"),
                "depth at most": subject.params.get("max_depth"),
                "protocol": subject.protocol,
                "parties": [f"{seat.name} ({seat.role})" for seat in subject.seats],
                "made": subject.finished,
                "software": f"Hedgerow {subject.hedgerow}",
            },
        ),
        Fill("whoever built the model", "Who made it, for whom, under which licence, and whom to ask about it."),
        Title("Intended use"),
        Text(f"What the parties have agreed on for later: scoring together is {subject.scoring!r}.")
        if subject.scoring is not None
        else Text("Nothing was agreed on for later: the run was made in one program."),
        Fill("whoever built the model", "What it is for, who is to use it, and what it must not be used for."),
        Title("Training data"),
        Facts(
            "What is known here",
            {
                "dataset": subject.dataset,
                "label": subject.label,
                "rows that all parties had": subject.n_matched,
                **{f"columns of {name}": list(columns) for name, columns in subject.columns.items()},
            },
        ),
        Fill("the party that brings the data", "Where the rows come from and whom they are about."),
        Title("Evaluation"),
        Fill(
            "whoever evaluates the model",
            "Measures, rows that it was evaluated on, results overall and for groups of people, with intervals.",
        ),
        Title("Protection of those in the training rows"),
        *([Text(f"{stated.stamp}.", loud=True)] if stated.stamp else []),
        Points.of(stated.guarantee, "nothing is promised"),
        Title("Caveats"),
        Points.of(stated.not_covered),
        Fill("whoever built the model", "Further risks, to whom, and what was done about them."),
    ]
    return Page("model_card", "Model card", tuple(blocks))
