"""The report of a party about a run between organisations: of what lies in its own folder, and nothing else.

Where the party's role ends without the record of the training (`statement.json` is not there), the statement is what
all signed, as it holds for a run that came to its end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hedgerow.estimators.plain import load_model
from hedgerow.ledger import Ledger
from hedgerow.node import documents
from hedgerow.node.budgets import to_look_at
from hedgerow.node.home import Home
from hedgerow.node.playing import RESULTS, read_run
from hedgerow.node.proposal import Proposal
from hedgerow.node.trained import Trained
from hedgerow.node.words import matching_cast
from hedgerow.report.charts import moment
from hedgerow.report.measure import importances
from hedgerow.report.of_model import trained_words
from hedgerow.report.of_run import (
    STAND_INS,
    agreed_words,
    job_digest,
    note_on_statement,
    of_part,
    own_words,
    repeatable,
    seen_by,
    settings_of,
)
from hedgerow.report.told import Budget, Passed, Quality, Ranked, Told, read_statement
from hedgerow.runtime.saved_files import read_object
from hedgerow.statement import Statement

KEPT = (*RESULTS, "ledger.jsonl", "matching.jsonl", "statement.json")
"""Files whose digests are told."""


def told_of_node(
    home: Home, start: str, *, attacks: Sequence[Mapping[str, Any]] = (), quality: Quality | None = None
) -> Told:
    """What a party's home has of a run that is over, by the beginning of its id."""
    trained = Trained.find(home, start)
    proposal, folder = trained.proposal, trained.folder
    about = _about(folder)
    spec, job = proposal.chosen.protocol, proposal.job
    words, ranked = _of_model(trained)
    with to_look_at(home.budget, home.party_file.policy) as budgets:
        states = [Budget(*state) for state in budgets.states()]
    return Told(
        title=f"Report of {home.name}",
        subtitle=f"{spec.name}, run {proposal.run_id[:12]}, {moment(about['finished'])}",
        protocol=spec.name,
        party=home.name,
        trained=[*agreed_words(spec, job), *words, *_matched(about)],
        cast=job.cast,
        passed=_passed(home.name, proposal, folder, about),
        statement=_statement(trained),
        statement_note="" if (folder / "statement.json").exists() else note_on_statement(spec, job, home.name),
        ranked=ranked,
        quality=quality,
        is_from_rows=quality is not None or bool(attacks),
        attacks=[seen_by(home.name, outcome) for outcome in attacks],
        budgets=states,
        again=repeatable(spec, job),
        facts={
            "Hedgerow": about["hedgerow"],
            "run": proposal.run_id,
            "proposal, signed by all": proposal.hash,
            "proposed by": f"{proposal.proposed_by}, {proposal.made}",
            **{f"certificate of {place.name}": place.fingerprint for place in proposal.parties},
            "attempts": about["attempts"],
            "ended": about["finished"],
            "digest of the job": job_digest(job),
            **{f"SHA-256 of {name}": _digest(folder / name) for name in KEPT if (folder / name).exists()},
        },
        commands=[
            f"hedgerow manifest {proposal.run_id[:12]}",
            f"hedgerow audit verify {home.audit.name}",
            f"hedgerow audit export {proposal.run_id[:12]} --out bundle",
            "hedgerow audit replay BUNDLE ...     # with the bundles of all parties",
        ],
        settings=settings_of(job),
    )


def _about(folder: Path) -> dict[str, Any]:
    """What run.json says, as far as a report shows it."""
    with documents.told_of(folder / "run.json"):
        about = read_run(folder)
        took = {
            name: None if about[name] is None else float(about[name]) for name in ("seconds", "seconds_of_matching")
        }
        n_matched = None if about["n_matched"] is None else int(about["n_matched"])
        return {
            **{name: str(about[name]) for name in ("hedgerow", "finished", "attempts")},
            **took,
            "n_matched": n_matched,
        }


def _of_model(trained: Trained) -> tuple[list[str], list[Ranked]]:
    if trained.part is not None:
        return own_words(trained.part), of_part(trained.part)
    path = trained.folder / "model.json"
    if not path.exists():
        return [f"{trained.home.name} took part without data, and has no part of the model."], []
    model = load_model(path)
    exact = getattr(trained.proposal.job, "shares_cover", True)
    return trained_words(model), [importances(model.ensemble_, "" if exact else STAND_INS)]


def _matched(about: Mapping[str, Any]) -> list[str]:
    return [] if about["n_matched"] is None else [f"{about['n_matched']:,} rows were matched by their ids."]


def _passed(name: str, proposal: Proposal, folder: Path, about: Mapping[str, Any]) -> list[Passed]:
    job, before = proposal.job, proposal.matching_job
    found = [Passed("The training", job.NAME, job.cast, {name: _book(folder / "ledger.jsonl", name)}, about["seconds"])]
    if before is not None and (folder / "matching.jsonl").exists():
        books = {name: _book(folder / "matching.jsonl", name)}
        took = about["seconds_of_matching"]
        found.append(Passed("Matching rows by ids", before.NAME, matching_cast(before), books, took))
    return found


def _book(path: Path, party: str) -> Ledger:
    with documents.told_of(path):
        return Ledger.from_json_lines(party, path.read_text(encoding="utf-8"))


def _statement(trained: Trained) -> Statement:
    path = trained.folder / "statement.json"
    if path.exists():
        with documents.told_of(path):
            return read_statement(read_object(path))
    spec, job = trained.proposal.chosen.protocol, trained.proposal.job
    return spec.statement(job, {**spec.expected(job), **getattr(trained.part, "meta", {})})


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
