"""Trails of several parties side by side: do they tell the same story?

    report = cross_check(["bank/audit.jsonl", "shop/audit.jsonl"])

Each trail is checked by itself first (`audit.verify`). Then, for every run that more than one of them knows: the same
proposal and protocol; the same signers, each with a certificate that its own trail has; what one sent is what the other
received; a run that one party signed is in its trail. And wherever a party wrote down the head of another's trail, that
trail still has this line: so a party cannot write its trail anew without those who saw it noticing.

What only one trail knows is not compared: two parties who agree on leaving something out of both are not found.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations, permutations
from typing import Any

from hedgerow.errors import InvalidParameter
from hedgerow.node.audit import Reading, Report
from hedgerow.node.audit_lines import DIGESTS, RUN_ENDED, RUN_STARTED, Entry
from hedgerow.runtime.progress import OnProgress
from hedgerow.transport.mtls import Certificate

Attempt = tuple[str, int]
"""Of a run: its id, and which time it was started."""


def cross_check(
    paths: Sequence[str | os.PathLike[str]],
    certificates: Iterable[bytes] = (),
    on_progress: OnProgress | None = None,
) -> Report:
    """Check two or more parties' trails, each by itself and against the others.

    `certificates` (PEM) are those that the reader got from somewhere else: each must be one of a trail.
    """
    if len(paths) < 2:
        raise InvalidParameter(f"trails are compared with each other: give two or more, got {len(paths)}")
    brought = {Certificate.from_pem(pem).fingerprint: pem for pem in certificates}
    readings = [_reading(path, brought, on_progress) for path in paths]
    for fingerprint in brought:
        if not any(fingerprint in reading.certificates for reading in readings):
            readings[0].found(f"neither this trail nor another one is signed with the certificate {fingerprint}")
    by_party: dict[str, Reading] = {}
    for reading in readings:
        if reading.party is None:
            continue  # it has no first line that can be read, and that is among its findings
        first = by_party.setdefault(reading.party, reading)
        if first is not reading:
            reading.found(f"it is a trail of {reading.party}, as {first.trail} is: a party has one")
    told = {party: _Told(reading) for party, reading in by_party.items()}
    for one, other in combinations(told.values(), 2):
        _compare_runs(one, other)
    for one, other in permutations(told.values(), 2):
        _check_signed(one, other)
        _check_digests(one, other)
        _check_heads(one, other)
    return Report(
        tuple(reading.summary for reading in readings),
        tuple(finding for reading in readings for finding in reading.findings),
        tuple(note for reading in readings for note in reading.notes),
    )


def _reading(path: str | os.PathLike[str], brought: dict[str, bytes], on_progress: OnProgress | None) -> Reading:
    """A trail, checked with the certificate that was brought for it, if one was."""
    reading = Reading(path, on_progress=on_progress)
    pem = next((pem for fingerprint, pem in brought.items() if fingerprint in reading.certificates), None)
    return reading if pem is None else Reading(path, pem)


class _Told:
    """What a trail says about runs."""

    def __init__(self, reading: Reading) -> None:
        self.reading, self.party = reading, str(reading.party)
        self.started: dict[str, Entry] = {}  # by run; the last one, if it was resumed
        self.ended: set[Attempt] = set()
        self.digests: dict[tuple[Attempt, str, str], Entry] = {}  # by attempt, protocol and peer
        self.lines: dict[str, set[str]] = defaultdict(set)
        for digest, entry in reading.entries:
            self.lines[digest].add(str(entry.seq))
            if entry.kind == RUN_STARTED:
                self.started[entry.facts["run_id"]] = entry
            elif entry.kind == RUN_ENDED:
                self.ended.add(_attempt(entry.facts))
            elif entry.kind == DIGESTS:
                facts = entry.facts
                self.digests[_attempt(facts), facts.get("protocol", ""), facts["peer"]] = entry

    def found(self, sentence: str, entry: Entry) -> None:
        """Write down something that is wrong with a line."""
        self.reading.found(sentence, entry.seq)


def _attempt(facts: dict[str, Any]) -> Attempt:
    return facts["run_id"], facts.get("attempt", 1)


def _compare_runs(one: _Told, other: _Told) -> None:
    """The same proposal, protocol and signers of every run that both know."""
    for run_id in sorted(one.started.keys() & other.started.keys()):
        mine, theirs = one.started[run_id], other.started[run_id]
        for what in ("proposal", "protocol", "signers"):
            if mine.facts[what] != theirs.facts[what]:
                where = f"line {theirs.seq} of {other.reading.trail}"
                one.found(f"run {run_id} has another {what} here than in {where}", mine)


def _check_signed(one: _Told, other: _Told) -> None:
    """Whoever is said to have signed a run has it in its trail, and the certificate that it signed with."""
    for run_id, entry in one.started.items():
        fingerprint = entry.facts["signers"].get(other.party)
        if fingerprint is None:
            continue
        if fingerprint not in other.reading.certificates:
            one.found(f"{other.party} is said to have signed with {fingerprint}, which its trail does not know", entry)
        if run_id not in other.started and any(done[0] == run_id for done in one.ended):
            one.found(f"run {run_id} came to its end, but the trail of {other.party} does not know it", entry)


def _check_digests(one: _Told, other: _Told) -> None:
    """What one sent is what the other received, frame by frame."""
    for (attempt, protocol, peer), mine in one.digests.items():
        if peer != other.party:
            continue
        theirs = other.digests.get((attempt, protocol, one.party))
        finished = attempt in one.ended and attempt in other.ended
        if theirs is None:
            if finished:
                one.found(f"the trail of {other.party} has no digests of its messages with {one.party}", mine)
            continue
        n_sent, n_received = mine.facts["n_sent"], theirs.facts["n_received"]
        where = f"line {theirs.seq} of {other.reading.trail}"
        if n_sent == n_received and mine.facts["sent"] != theirs.facts["received"]:
            one.found(f"what {one.party} sent is not what {other.party} received ({where})", mine)
        elif n_received > n_sent or (n_received != n_sent and finished):
            one.found(f"{one.party} sent {n_sent} messages, {other.party} received {n_received} ({where})", mine)


def _check_heads(one: _Told, other: _Told) -> None:
    """The line that one saw last in the other's trail is still in it."""
    for _, entry in one.reading.entries:
        head = entry.facts.get("heads", {}).get(other.party)
        if head is not None:
            seq, _, digest = head.partition(":")
            if seq not in other.lines.get(digest, ()):
                one.found(
                    f"the trail of {other.party} had another line {seq} when this was written: it was cut, or written "
                    "anew",
                    entry,
                )
