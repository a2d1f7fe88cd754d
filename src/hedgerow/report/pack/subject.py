"""What a pack is about: one run, as one party has it in its home, or as one program saved it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hedgerow.codec import from_json
from hedgerow.errors import InvalidInput
from hedgerow.node import commitments, manifest
from hedgerow.node.audit_extract import Extract, extract
from hedgerow.node.commitments import Opening
from hedgerow.node.documents import read_bounded, told_of
from hedgerow.node.playing import read_run
from hedgerow.node.trained import Trained
from hedgerow.node.words import matching_cast
from hedgerow.runtime.protocol import find
from hedgerow.runtime.saved_files import damage_told
from hedgerow.statement import RunDocument

if TYPE_CHECKING:
    from hedgerow.federation.run import Run
    from hedgerow.node.home import Home
    from hedgerow.protocols.vertical.common.parts import Part

MOST_BYTES = 16 << 20
"""Of a statement, a paper or the result of an attack."""


@dataclass(frozen=True)
class Seat:
    """Who took part as what."""

    name: str
    role: str
    fingerprint: str | None = None  # of its certificate, where organisations took part


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A run that is over."""

    run_id: str
    protocol: str  # that was run; an option may have chosen it
    party: str | None  # whose pack it is; None: all parties were in one program, which has everything
    seats: tuple[Seat, ...]
    matching: Mapping[str, str] | None  # who was what while rows were matched; None where they were not
    task: str
    params: Mapping[str, Any]
    columns: Mapping[str, tuple[str, ...]]  # by party, of those whose columns are known here
    label: str | None = None
    dataset: str | None = None
    n_matched: int | None = None
    scoring: str | None = None
    hedgerow: str | None  # the version that ran
    finished: str | None
    seconds: float
    attempts: int = 1
    statement: RunDocument
    facts: Mapping[str, Any]  # of the statement
    is_planned: bool = False  # the statement is of a run that came to its end as planned, by what the party knows
    manifest: Mapping[str, Any]
    trail: Extract | None = None
    papers: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def whose(self) -> str:
        """Whose view it is, in words."""
        return "all parties, in one program" if self.party is None else self.party

    @property
    def roles(self) -> dict[str, str]:
        """By party."""
        return {seat.name: seat.role for seat in self.seats}


def of_home(home: Home, start: str) -> Subject:
    """A run of a party's home, by the beginning of its id. Errors say which runs there are, or what is damaged."""
    trained = Trained.find(home, start)
    proposal, folder = trained.proposal, trained.folder
    about = read_run(folder)
    opening = Opening.read(folder / commitments.FILE) if (folder / commitments.FILE).exists() else None
    how = None if opening is None else opening.how
    matching = proposal.matching_job
    stated = folder / "statement.json"
    if stated.exists():
        with told_of(stated):
            document, facts = _read_statement(json.loads(read_bounded(stated, MOST_BYTES)))
    else:
        spec = proposal.chosen.protocol
        known = {**spec.expected(proposal.job), **getattr(trained.part, "meta", {})}
        document, facts = _read_statement(spec.statement(proposal.job, known).to_dict())
    with damage_told(f"{folder / 'run.json'} is damaged"):
        took: dict[str, Any] = {
            "hedgerow": str(about["hedgerow"]),
            "finished": str(about["finished"]),
            "seconds": float(about["seconds"]),
            "attempts": int(about["attempts"]),
            "n_matched": None if about["n_matched"] is None else int(about["n_matched"]),
        }
    papers = home.proposals / proposal.hash
    return Subject(
        run_id=proposal.run_id,
        protocol=proposal.chosen.protocol.name,
        party=home.name,
        seats=tuple(Seat(place.name, place.role, place.fingerprint) for place in proposal.parties),
        matching=None if matching is None else matching_cast(matching),
        task=proposal.task,
        params=proposal.params,
        columns={} if how is None else {home.name: how.columns},
        label=None if how is None else how.label,
        dataset=None if how is None else how.dataset,
        scoring=proposal.scoring,
        statement=document,
        facts=facts,
        is_planned=not stated.exists(),
        manifest=manifest.of_run(home, proposal),
        trail=extract(home.audit, proposal, home.certificate.pem) if home.audit.exists() else None,
        papers={
            path.relative_to(papers).as_posix(): read_bounded(path, MOST_BYTES)
            for path in (papers / "proposal.json", *sorted(papers.glob("answers/*.json")))
        },
        **took,
    )


def of_saved(run: Run) -> Subject:
    """A run that `run.save(folder)` wrote. There is no trail and nobody signed anything: it was one program."""
    spec, alignment = find(run.protocol), run.alignment
    document, facts = _read_statement(run.statement().to_dict())
    announced, sent = manifest.before([spec], run.job.cast), manifest.after(run.ledgers)
    if alignment is not None:
        cast = matching_cast(alignment.job)
        announced = [*manifest.before([find(alignment.job.NAME)], cast), *announced]
        sent = [*manifest.after(alignment.ledgers), *sent]
    left_out = {"run_id", "parties", "label_holder"}
    parts: Mapping[str, Part] = getattr(run.model, "parts", {})
    columns = {name: tuple(feature.name for feature in part.features) for name, part in parts.items()}
    return Subject(
        run_id=run.job.run_id,
        protocol=run.protocol,
        party=None,
        seats=tuple(Seat(name, role) for name, role in run.job.cast.items()),
        matching=None if alignment is None else matching_cast(alignment.job),
        task=str(getattr(run.job, "task", "not told")),
        params={name: value for name, value in run.job.to_dict().items() if name not in left_out},
        columns=columns,
        n_matched=None if alignment is None else len(next(iter(alignment.rows.values()))),
        hedgerow=document.hedgerow,
        finished=run.finished,
        seconds=run.seconds,
        statement=document,
        facts=facts,
        manifest={
            "run_id": run.job.run_id,
            "protocol": run.protocol,
            "party": None,
            "announced": [each._asdict() for each in announced],
            "has_run": True,
            "sent": [each._asdict() for each in sent],
            "received": [],
            "unannounced": [each._asdict() for each in manifest.unannounced(announced, sent)],
        },
    )


def find_subject(run: str, home: Home | None) -> Subject:
    """By the beginning of a run's id in a home, or by its folder, in a home or as `run.save` wrote it."""
    from hedgerow.node.home import Home as Homes

    folder = Path(run)
    if (folder / "run.json").is_file():
        above = folder.absolute().parents[1]
        if (above / "party.toml").is_file():
            return of_home(Homes(above), folder.absolute().name)
        from hedgerow.federation.run import Run

        return of_saved(Run.load(folder))
    return of_home(home or Homes.find(), run)


def _read_statement(found: Any) -> tuple[RunDocument, dict[str, Any]]:
    """The document and the facts beside it."""
    names = {entry.name for entry in fields(RunDocument)}
    if not isinstance(found, dict):
        raise InvalidInput("a statement is an object")
    document: RunDocument = from_json(RunDocument, {n: v for n, v in found.items() if n in names}, "statement")
    return document, {name: value for name, value in found.items() if name not in names}
