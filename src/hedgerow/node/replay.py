"""A run repeated by an auditor, offline, from what each party has handed over (`bundles`): does it give this model?

    report = replay(["from-bank", "from-shop"])
    report.ok; report.failed                     # the first step that found something: trail, proposal, ...

Five steps, each of which rests on those before it. The first one that finds something is the last:

    trail         every party's trail is whole and signed, and together they tell the same story of this run
    proposal      all parties have signed the same proposal, and it is the one that the trails speak of
    commitment    every party's table is the one that it committed to before the first message
    match         matched rows are those that were committed to; they are the same records at all parties, and all the
                  records that they have in common
    part          the job that follows from the proposal, played on these rows, gives every party's part, byte for byte

The order of matched rows is taken from the parties, because the matching draws it at random. It is checked against the
ids themselves, which are in the tables that were committed to.

A run that was taken up again is repeated from its first tree, as an attempt with the number of the last one: the model
says how many attempts it took, and nothing else in it depends on them. But for one number: horizontal.secure_sum counts
rounds of messages, and new keys of a later attempt take some more. How many they were, such a model is believed.

Roles, jobs and files are those of a node (`playing`, `runtime.running`): all parties are threads of one program.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hedgerow._version import __version__
from hedgerow.crypto.identifiers import Bytes32, prepare_ids
from hedgerow.engine.dtypes import Ints
from hedgerow.engine.threads import resolve_n_jobs
from hedgerow.errors import HedgerowError, JobError
from hedgerow.node import bundles
from hedgerow.node.audit import Reading
from hedgerow.node.audit_cross import cross_check
from hedgerow.node.audit_lines import COMMITTED, DIGESTS, RUN_ENDED, RUN_STARTED
from hedgerow.node.bundles import Bundle
from hedgerow.node.inputs import read_rows
from hedgerow.node.playing import save_result
from hedgerow.node.proposal import Proposal
from hedgerow.protocols.services.align.roles import AligningJob
from hedgerow.runtime.progress import OnProgress
from hedgerow.runtime.protocol import PartyData
from hedgerow.runtime.running import run_together
from hedgerow.runtime.saved_files import damage_told

TRAIL, PROPOSAL, COMMITMENT, MATCH, PART = STEPS = ("trail", "proposal", "commitment", "match", "part")


@dataclass(frozen=True)
class Replayed:
    """What became of it: the steps that were made, each with what was found against it."""

    run_id: str
    parties: tuple[str, ...]
    protocol: str | None  # None if it did not get as far
    attempts: int | None
    steps: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether every party's part is what the run gives."""
        return tuple(self.steps) == STEPS and self.failed is None

    @property
    def failed(self) -> str | None:
        """The step that found something, which was the last."""
        return next((step for step, findings in self.steps.items() if findings), None)

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        return {
            "ok": self.ok,
            "failed": self.failed,
            "run_id": self.run_id,
            "protocol": self.protocol,
            "attempts": self.attempts,
            "parties": list(self.parties),
            "steps": [{"step": step, "findings": list(findings)} for step, findings in self.steps.items()],
            "notes": list(self.notes),
        }


def replay(
    folders: Sequence[str | Path], certificates: Iterable[bytes] = (), on_progress: OnProgress | None = None
) -> Replayed:
    """Check bundles of all parties that brought data to a run, and play it again.

    `certificates` (PEM) are those that the auditor got from elsewhere: each must be one of a trail. JobError, before
    anything is played, for bundles that do not belong together, and for a run that gives another model each time.
    """
    brought = _of_one_run([Bundle.read(folder) for folder in folders])
    again = _Again(brought, tuple(certificates), on_progress)
    steps: dict[str, tuple[str, ...]] = {}
    for step, check in zip(
        STEPS, (again.trails, again.proposals, again.tables, again.matches, again.parts), strict=True
    ):
        steps[step] = tuple(check())
        if steps[step]:
            break
    told = next(iter(again.told.values()), None)
    return Replayed(
        again.run_id,
        tuple(brought),
        None if again.proposal is None else again.proposal.protocol,
        None if told is None else told.attempt,
        steps,
        tuple(again.notes),
    )


def _of_one_run(brought: Sequence[Bundle]) -> dict[str, Bundle]:
    found: dict[str, Bundle] = {}
    for bundle in brought:
        first = found.setdefault(bundle.party, bundle)
        if first is not bundle:
            raise JobError(f"{first.folder} and {bundle.folder} are both bundles of {bundle.party}")
        if bundle.opening.run_id != brought[0].opening.run_id:
            raise JobError(f"{brought[0].folder} and {bundle.folder} are of different runs")
    if len(found) < 2:
        raise JobError(f"a run is repeated from bundles of all its parties; give two or more, got {len(found)}")
    return found


class _Told(NamedTuple):
    """What one party's trail says about the run, in the attempt that came to its end."""

    proposal: str
    signers: Mapping[str, str]
    version: str
    attempt: int
    model: str | None
    inputs: str | None
    rows: str | None

    @classmethod
    def by(cls, reading: Reading, run_id: str) -> _Told | str:
        """Or what is wrong: the run did not come to its end, or a commitment came late or twice."""
        lines = [entry for _, entry in reading.entries if str(entry.facts.get("run_id")).startswith(run_id)]
        kinds = [entry.kind for entry in lines]
        if RUN_STARTED not in kinds or kinds[-1] != RUN_ENDED:
            return f"does not say that the run {run_id[:12]} came to its end"
        first = len(kinds) - 1 - kinds[::-1].index(RUN_STARTED)
        about, ended = lines[first].facts, lines[-1].facts
        to: dict[str, str] = {}
        open_to = {"inputs", "rows"}
        for kind, facts in ((entry.kind, entry.facts) for entry in lines[first + 1 :]):
            if kind == DIGESTS:  # told when messages have passed: what follows was not committed to before them
                open_to = open_to - {"inputs"} if facts["run_id"] != run_id else set()
            for what in open_to & facts.keys() if kind == COMMITTED else ():
                if what in to:
                    return f"has two commitments to {what} in one attempt of the run {run_id[:12]}"
                to[what] = facts[what]
        return cls(
            about["proposal"], about["signers"], about["version"], ended.get("attempt", 1), ended.get("model"),
            to.get("inputs"), to.get("rows"),
        )  # fmt: skip


class _Again:
    """A run that is being repeated: its steps, each of which says what it has found."""

    def __init__(
        self, brought: Mapping[str, Bundle], certificates: tuple[bytes, ...], on_progress: OnProgress | None
    ) -> None:
        self._bundles, self._certificates, self._on_progress = brought, certificates, on_progress
        self.run_id = next(iter(brought.values())).opening.run_id
        self.told: dict[str, _Told] = {}
        self.proposal: Proposal | None = None
        self.notes: list[str] = []
        self._rows: dict[str, Ints] = {}

    # --- what was said -----------------------------------------------------------------------------------------------

    def trails(self) -> list[str]:
        """Chain and signatures, crosswise; and that the run is over in each."""
        found = [str(finding) for finding in cross_check(self._paths(), self._certificates).findings]
        for party, bundle in self._bundles.items():
            reading = Reading(bundle.trail)
            told = _Told.by(reading, self.run_id)
            if reading.party != party:
                found.append(f"{bundle.trail} is the trail of {reading.party}, in the bundle of {party}")
            elif isinstance(told, str):
                found.append(f"{bundle.trail} {told}")
            else:
                self.told[party] = told
        if len({told.attempt for told in self.told.values()}) > 1:
            ends = ", ".join(f"at {party} with attempt {told.attempt}" for party, told in self.told.items())
            found.append(f"the run {self.run_id[:12]} did not end everywhere at once: {ends}")
        for party, told in self.told.items():
            if told.version != __version__:
                self.notes.append(f"{party} ran version {told.version}, and this is version {__version__}")
        if not self._certificates:
            self.notes.append("no certificate was given, so it is the parties' own word whose the trails are")
        return found

    def _paths(self) -> list[Path]:
        return [bundle.trail for bundle in self._bundles.values()]

    def proposals(self) -> list[str]:
        """One proposal, signed by all, of which all trails speak. JobError if it cannot be repeated."""
        found = []
        for party, bundle in self._bundles.items():
            try:
                paper = bundle.paper
            except HedgerowError as problem:
                found.append(f"what {party} says was signed: {problem}")
                continue
            told, proposal = self.told[party], paper.proposal
            signers = {place.name: place.fingerprint for place in proposal.parties}
            if not paper.is_agreed:
                found.append(f"the proposal in the bundle of {party} is {paper.state}")
            if told.proposal != proposal.hash or proposal.run_id != self.run_id or dict(told.signers) != signers:
                found.append(f"the proposal in the bundle of {party} is not the one that its trail speaks of")
            self.proposal = proposal
        if not found:
            self._check_can_be_repeated(self._agreed)
        return found

    @property
    def _agreed(self) -> Proposal:
        if self.proposal is None:
            raise JobError("nothing was signed")
        return self.proposal

    def _check_can_be_repeated(self, proposal: Proposal) -> None:
        bundles.check_repeatable(proposal)
        absent = [name for name in proposal.owners_of_data if name not in self._bundles]
        if absent:
            raise JobError(
                f"a run is repeated from what all parties brought: there is no bundle of {', '.join(absent)}"
            )

    # --- what was brought --------------------------------------------------------------------------------------------

    def tables(self) -> list[str]:
        """Each is the one that its party committed to."""
        return self._about_each(self._about_table)

    def _about_each(self, check: Callable[[str, Bundle], str | None]) -> list[str]:
        """What is wrong with what parties brought; a file that cannot be read is."""
        found = []
        for party in self._agreed.owners_of_data:
            try:
                wrong = check(party, self._bundles[party])
            except HedgerowError as problem:
                wrong = str(problem)
            found += [] if wrong is None else [wrong]
        return found

    def _about_table(self, party: str, bundle: Bundle) -> str | None:
        opened = bundle.opening.commit("inputs", bundle.inputs.blocks())
        if opened == self.told[party].inputs:
            return None
        return f"the table in the bundle of {party} is not the one that {party} committed to when the run began"

    def matches(self) -> list[str]:
        """The same records everywhere, and all that there are; nothing where rows were not matched."""
        job = self._agreed.matching_job
        if job is None:
            return []
        found = self._about_each(self._about_rows)
        if found:
            return found
        try:
            return _about_records(
                job, {name: (self._bundles[name].inputs.ids, rows) for name, rows in self._rows.items()}
            )
        except HedgerowError as problem:
            return [str(problem)]

    def _about_rows(self, party: str, bundle: Bundle) -> str | None:
        rows = read_rows(bundle.folder / bundles.ROWS, bundle.inputs.table.num_rows)
        if bundle.opening.commit("rows", [rows.astype("<i8").tobytes()]) != self.told[party].rows:
            return f"the matched rows in the bundle of {party} are not those that {party} committed to"
        self._rows[party] = rows
        return None

    # --- what follows ------------------------------------------------------------------------------------------------

    def parts(self) -> list[str]:
        """The committed ones, and those that the run gives."""
        found = self._about_each(self._about_part)
        if found:
            return found
        proposal = self._agreed
        try:
            data = {party: self._data(party) for party in proposal.owners_of_data}
            attempt = next(iter(self.told.values())).attempt
            how: dict[str, Any] = {"attempt": attempt, "on_progress": self._on_progress}
            results, *_ = run_together(proposal.chosen.protocol, proposal.job, data, **how)
        except HedgerowError as problem:
            return [f"the run does not come to its end when it is repeated: {problem}"]
        return self._about_each(lambda party, bundle: self._about_repeated(party, bundle, results[party]))

    def _about_part(self, party: str, bundle: Bundle) -> str | None:
        if bundle.opening.commit("model", [bundle.result_bytes()]) == self.told[party].model:
            return None
        return f"{bundle.result} is not what {party} committed to when the run was over"

    def _data(self, party: str) -> PartyData:
        brought = self._bundles[party].inputs.brought(self._agreed, party)
        brought.rows = self._rows.get(party)
        return replace(self._agreed.chosen.read(brought), n_threads=resolve_n_jobs(None))

    def _about_repeated(self, party: str, bundle: Bundle, result: Any) -> str | None:
        if self.told[party].attempt > 1:
            self._believe_rounds(party, bundle, result)
        with tempfile.TemporaryDirectory() as folder:
            save_result(self._agreed, party, result, Path(folder))
            written = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
        if bundle.result is not None and written == {bundle.result.name: bundle.result_bytes()}:
            return None
        return f"the run, repeated on the committed inputs, gives {party} another part than {bundle.result}"

    def _believe_rounds(self, party: str, bundle: Bundle, result: Any) -> None:
        """Put the rounds of a run that was taken up again into what it gives, where the model counts them otherwise."""
        made = getattr(result, "meta", {}).get("rounds")
        with damage_told(f"{bundle.result} cannot be read"):
            said = json.loads(bundle.result_bytes()).get("meta", {}).get("rounds")
            if made is None or said in (None, made):
                return
            result.meta["rounds"] = {name: int(said[name]) for name in made}
            rounds, others = said["training"], made["training"]
            self.notes.append(f"{party} says that the attempts took {rounds} rounds, and one alone takes {others}")


def _about_records(job: AligningJob, brought: Mapping[str, tuple[Any, Ints]]) -> list[str]:
    """What is wrong with matched rows, by the ids of the tables; they are compared as the matching compares them."""
    first: tuple[str, Bytes32] | None = None
    common: set[bytes] | None = None
    for party, (ids, rows) in brought.items():
        own = prepare_ids(ids, job.id_rule, context="", party=party, duplicates=job.duplicates)
        everything = set(map(bytes, own.digests))
        common = everything if common is None else common & everything
        places = np.searchsorted(own.rows, rows)
        if np.any(own.rows[np.minimum(places, len(own.rows) - 1)] != rows):
            return [f"{party} matched a row whose id stands in an earlier row"]
        records = own.digests[places]
        if first is None:
            first = party, records
        elif not np.array_equal(first[1], records):
            return [f"the matched rows of {first[0]} and {party} are not the same records in the same order"]
    n_rows = 0 if first is None else len(set(map(bytes, first[1])))
    if common is None or len(common) != n_rows or any(len(rows) != n_rows for _, rows in brought.values()):
        return ["the matched rows are not all the records that the parties have in common, each once"]
    return []
