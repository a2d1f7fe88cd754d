"""Scores of a table, by all parties of a model together: the same services as everywhere, each party in its own house.

    1  label holder -> everybody    ScoringNamed      a new run: how many rows, and how far answers are randomised
    2  everybody -> label holder    ScoringAnswered   whether it takes part, or the code of why not
    3  label holder -> everybody    ScoringBegins     all take part
    4  matching by ids (vertical.aligning), where the training matched records
    5  vertical.scoring, or vertical.closed_scoring with its dealer where leaf values are shared

Everybody brings its own rows; the label holder ends with the scores. What each learns beside that: of this
conversation, what the messages say of themselves; of the services, what they state. All of it is in the ledgers in
runs/<run id>/scorings/<scoring>/, and a line `scored` is in the trail.
"""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from hedgerow.engine.dtypes import Floats
from hedgerow.engine.ensemble import predictions_from
from hedgerow.engine.table import Table
from hedgerow.engine.threads import resolve_n_jobs
from hedgerow.errors import HedgerowError, InvalidParameter, JobError, PeerRefused, ProtocolError
from hedgerow.federation.alignment import party_with_ids
from hedgerow.ledger import Exact, Ledger, Meter, Public
from hedgerow.node import documents
from hedgerow.node.budgets import Budgets
from hedgerow.node.day_counts import DayCounts
from hedgerow.node.desk import Node
from hedgerow.node.policy import Refusal, RefusalCode
from hedgerow.node.trained import OwnRows, Trained
from hedgerow.protocols.services.align.roles import AligningJob
from hedgerow.protocols.services.score.roles import BATCH_ROWS, ScoringJob
from hedgerow.protocols.services.score_closed.roles import ClosedScoringJob
from hedgerow.protocols.vertical.common.parts import Target
from hedgerow.protocols.vertical.common.shared_parts import SharedLeavesPart
from hedgerow.runtime.budgets import Budget
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import Job, PartyData, agreed, find
from hedgerow.runtime.running import role, warm_up
from hedgerow.runtime.saved_files import private_folder, write_private
from hedgerow.transport.endpoint import Agreed
from hedgerow.transport.frames import Message
from hedgerow.transport.ranges import MOST, Index, Shape, Within

NAME_LETTERS = 16
ACCEPTED = 0
_MOST_CODES = 1000
_NAME = re.compile(rf"[0-9a-f]{{{NAME_LETTERS}}}")
_WITHOUT_PART = frozenset({"vertical.mp_fedxgb", "vertical.private_histograms"})
"""Protocols of models that are scored with a dealer, which has no part of them that would say so."""
OnProgress = Callable[[int, int], None]


# --- messages --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ScoringNamed(Message, name="node.scoring_named", version=1):
    """Label holder to party: I want to score rows with our model; this is what the scoring is called."""

    discloses = Exact("that this many rows are to be scored with this model, and how much answers are to be randomised")
    scoring: Annotated[str, Shape(NAME_LETTERS)]  # hexadecimal digits
    n_rows: Annotated[int, Within(1, MOST)]  # that the label holder brings
    predict_epsilon: Annotated[float, Within(0.0, math.inf)]  # infinite for answers in the clear
    batch_rows: Annotated[int, Within(1, MOST)]


@dataclass(frozen=True, slots=True)
class ScoringAnswered(Message, name="node.scoring_answered", version=1):
    """Party to label holder: I take part in this scoring, or one of a public list of reasons why not."""

    discloses = Exact("whether the party takes part in a scoring, or the code of why it does not")
    code: Annotated[int, Index(_MOST_CODES)]  # 0: it takes part


@dataclass(frozen=True, slots=True)
class ScoringBegins(Message, name="node.scoring_begins", version=1):
    """Label holder to party: everybody takes part."""

    discloses = Public("that all parties take part")


MESSAGES = (ScoringNamed, ScoringAnswered, ScoringBegins)


# --- results ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Scored:
    """What a party has in the end; scores only the label holder."""

    folder: Path
    n_rows: int  # that were scored
    places: Any = None  # of the label holder: which of its own rows they are
    raw: Floats | None = None  # [rows, outputs]
    target: Target | None = None

    @property
    def predictions(self) -> Floats:
        """Probabilities of the classes [rows, classes], or expected labels [rows], as `VerticalModel` gives them."""
        if self.raw is None or self.target is None:
            raise InvalidParameter("scores are with the label holder alone")
        return predictions_from(self.target.loss, self.raw)


# --- the scoring -----------------------------------------------------------------------------------------------------


def score(
    node: Node,
    trained: Trained,
    rows: OwnRows | None,
    *,
    predict_epsilon: float | None = None,
    batch_rows: int = BATCH_ROWS,
    wait: float = 600.0,
    on_progress: OnProgress | None = None,
) -> Scored:
    """Play this party's part of a scoring. `predict_epsilon` and `batch_rows` are the label holder's to say."""
    conversation = _Scoring(node, trained, rows, wait, on_progress)
    named = conversation.named(predict_epsilon, batch_rows)
    folder = private_folder(trained.folder / "scorings" / named.scoring)
    try:
        found = conversation.played(named, folder)
    except BaseException as problem:
        told = str(problem) if isinstance(problem, HedgerowError) else ""
        about = {"error": type(problem).__name__, "message": told, "at": documents.stamp()}
        write_private(folder / "failed.json", json.dumps(about))
        raise
    finally:
        for name, book in conversation.books.items():
            write_private(folder / f"{name}.jsonl", book.to_json_lines())
        # What was asked counts, whatever became of it: rows may have been answered before it failed.
        node.trail.append(
            "scored",
            peers=list(conversation.peers),
            n_rows=named.n_rows,
            run_id=f"{trained.proposal.run_id}-{named.scoring}",
            proposal=trained.proposal.hash,
        )
    return found


class _Scoring:
    """One party in one scoring: the conversation that names it, then the services."""

    def __init__(
        self, node: Node, trained: Trained, rows: OwnRows | None, wait: float, on_progress: OnProgress | None
    ) -> None:
        self._node, self._trained, self._rows, self._wait = node, trained, rows, wait
        self._on_progress = on_progress
        self.books: dict[str, Ledger] = {}
        self._holders = trained.proposal.owners_of_data
        part = trained.part
        if part is None:
            shares_leaves = trained.proposal.params.get("policy") != "smooth_then_trees"  # whose leaves are public
            self._is_closed = shares_leaves and trained.proposal.protocol in _WITHOUT_PART
        else:
            self._is_closed = isinstance(part, SharedLeavesPart)
        if part is None and not self._is_closed:
            raise JobError(
                f"{node.name} is not needed: models of {trained.proposal.protocol} are scored without a dealer"
            )
        if (part is None) != (rows is None):
            raise JobError(
                f"{node.name} brings no rows to a scoring" if part is None else f"{node.name} has to bring rows"
            )
        dealer = trained.dealer
        self._dealer = dealer if self._is_closed else None
        others = [name for name in (*self._holders, self._dealer) if name not in (None, trained.label_holder)]
        self._others = tuple(str(name) for name in others)
        self.peers = self._others if trained.is_asking else (trained.label_holder,)

    # Naming

    def named(self, predict_epsilon: float | None, batch_rows: int) -> ScoringNamed:
        """The scoring that all take part in; raises what is against it, here or elsewhere."""
        trained, holder = self._trained, self._trained.label_holder
        links = tuple((holder, other) for other in self._others)
        run_id = f"{trained.proposal.run_id}-scoring"
        facts = {
            "proposal": trained.proposal.hash,
            "messages": sorted((kind.NAME, kind.VERSION) for kind in MESSAGES),
        }
        dial = trained.proposal.dials(self._node.name, links)
        with self._node.open(run_id, self.peers, dial, job=Agreed.of(facts), timeout=self._wait) as endpoint:
            endpoint.wait_connected(self._wait)
            me = Party(endpoint, self._node.identity, self._node.trust)
            self.books["naming"] = me.ledger
            if trained.is_asking:
                return self._name(me, predict_epsilon, batch_rows)
            return self._answer(me)

    def _name(self, me: Party, predict_epsilon: float | None, batch_rows: int) -> ScoringNamed:
        n_rows = 0 if self._rows is None else self._rows.n_rows
        epsilon = math.inf if predict_epsilon is None else float(predict_epsilon)
        named = ScoringNamed(secrets.token_hex(NAME_LETTERS // 2), n_rows, epsilon, batch_rows)
        self._job(named)  # what is wrong with it is told here, before anybody hears of it
        me.send_all(self._others, named)
        codes = {other: me.recv(other, ScoringAnswered).code for other in self._others}
        for other, code in codes.items():
            if code != ACCEPTED:
                known = code in set(RefusalCode)
                why = RefusalCode(code).words if known else f"it gave the code {code}, which means nothing here"
                raise PeerRefused(f"{other} does not take part in the scoring: {why}")
        me.send_all(self._others, ScoringBegins())
        return named

    def _answer(self, me: Party) -> ScoringNamed:
        holder = self._trained.label_holder
        named = me.recv(holder, ScoringNamed, timeout=self._wait)
        if not _NAME.fullmatch(named.scoring):
            raise ProtocolError(f"{holder} calls a scoring by something else than {NAME_LETTERS} hexadecimal digits")
        try:
            job = self._job(named)
        except InvalidParameter as problem:
            raise ProtocolError(f"{holder} wants a scoring that there cannot be: {problem}") from problem
        refusal = self._refusal(named, job)
        me.send(holder, ScoringAnswered(ACCEPTED if refusal is None else int(refusal.code)))
        if refusal is not None:
            raise JobError(f"{self._node.name}: {refusal.sentence}")
        me.recv(holder, ScoringBegins)
        return named

    def _refusal(self, named: ScoringNamed, job: Job) -> Refusal | None:
        """The first thing that this party has against it. Rows are counted only if there is nothing else."""
        if self._rows is None:
            return next(iter(self._trained.against("batch")), None)
        nothing = PartyData(Table((), 0, (), has_names=False), part=self._rows.part)
        planned = find(job.NAME).planned(job, self._node.name, nothing)
        against = self._trained.against("batch", dataset=self._rows.dataset, planned=planned)
        if against:
            return against[0]
        limit, holder = self._node.home.party_file.policy.rows_per_day, self._trained.label_holder
        counts = DayCounts(self._node.home.path / "scored.json")
        if limit is not None and not counts.take(holder, named.n_rows, limit):
            return Refusal(
                RefusalCode.ROWS_PER_DAY,
                f"{holder} asks for {named.n_rows} rows; [policy] rows_per_day is {limit}, with what it had today",
            )
        return None

    # The services

    def played(self, named: ScoringNamed, folder: Path) -> Scored:
        """Match rows where that is needed, then score them."""
        places, budget = None, None
        data: PartyData | None = None
        if self._rows is not None:
            places = self._matched(named) if self._trained.proposal.matching is not None else None
            data = self._data(places)
            budget = self._budget()
        job = self._job(named)
        result = self._role(job, data, "ledger", budget)
        n_rows = named.n_rows if data is None else data.table.n_rows
        spec = find(job.NAME)
        about = {
            "format": "hedgerow scoring of one party",
            "version": 1,
            "party": self._node.name,
            "model": self._trained.proposal.run_id,
            "job": job.to_dict(),
            "n_rows": n_rows,
            "finished": documents.stamp(),
            "statement": spec.statement(job, {}).to_dict(),
            "traffic": {name: Meter(book).to_dict() for name, book in self.books.items()},
        }
        write_private(folder / "scoring.json", json.dumps(about, indent=1))
        if not self._trained.is_asking or data is None:
            return Scored(folder, n_rows)
        places = np.arange(n_rows) if places is None else places
        order = np.argsort(places, kind="stable")
        return Scored(folder, n_rows, places[order], result.raw[order], _target(data.part))

    def _matched(self, named: ScoringNamed) -> Any:
        """Which own rows all have, in the common order."""
        trained, rows = self._trained, self._rows
        if rows is None or rows.ids is None:
            raise JobError(f"{self._node.name}: brings no ids, and records are matched by them")
        matching = {**(trained.proposal.matching or {}), "minimum": 1}
        job = AligningJob(
            parties=self._holders,
            run_id=f"{trained.proposal.run_id}-{named.scoring}-matching",
            comparer=trained.label_holder,
            **matching,
        )
        where = f"{self._node.name}: column {rows.dataset.id!r}"
        found = self._role(job, party_with_ids(rows.ids, where, resolve_n_jobs(None)), "matching")
        return found.rows

    def _job(self, named: ScoringNamed) -> ScoringJob | ClosedScoringJob:
        trained, epsilon = self._trained, named.predict_epsilon
        model = trained.proposal.run_id
        who = (self._holders, trained.label_holder, f"{model}-{named.scoring}", model)
        if not self._is_closed:
            return ScoringJob(*who, None if math.isinf(epsilon) else epsilon, named.batch_rows)
        if not math.isinf(epsilon):
            raise InvalidParameter(
                "predict_epsilon is for models whose feature holders answer; this one is scored closed"
            )
        return ClosedScoringJob(*who, str(self._dealer), named.batch_rows)

    def _data(self, places: Any) -> PartyData:
        rows = self._rows
        if rows is None:
            raise JobError(f"{self._node.name} brings no rows")
        chosen = rows if places is None else rows.taken(places)
        return PartyData(chosen.read(), n_threads=resolve_n_jobs(None), part=rows.part)

    def _budget(self) -> Budget | None:
        home, rows = self._node.home, self._rows
        budgets = Budgets(home.budget, home.party_file.policy)
        if rows is None or not budgets.states():
            return None
        peers = self._trained.proposal.peers_of(home.name)
        return budgets.of_run(peers=peers, dataset=rows.dataset.name)

    def _role(self, job: Job, data: PartyData | None, book: str, budget: Budget | None = None) -> Any:
        node, spec = self._node, find(job.NAME)
        links = tuple(link for link in job.links if node.name in link)
        peers = [b if a == node.name else a for a, b in links]
        warm_up(spec, job)
        dial = self._trained.proposal.dials(node.name, links)
        with node.open(job.run_id, peers, dial, job=agreed(spec, job), timeout=self._wait) as endpoint:
            endpoint.wait_connected(self._wait)
            me = Party(endpoint, node.identity, node.trust, on_progress=self._on_progress)
            self.books[book] = me.ledger
            return role(spec, me, job, data, budget)()


def _target(part: Any) -> Target:
    target: Target = part.target
    return target


def columns_of(scored: Scored, rows: OwnRows, keep: Sequence[str]) -> dict[str, Any]:
    """What the label holder writes: ids if it has them, what it keeps, predictions, probabilities of classes."""
    if scored.target is None or scored.places is None:
        raise InvalidParameter("scores are with the label holder alone")
    chosen = rows.taken(scored.places)
    columns: dict[str, Any] = {}
    if rows.dataset.id is not None:
        columns[rows.dataset.id] = chosen.ids
    columns |= {name: chosen.table.column(name) for name in keep}
    found, classes = scored.predictions, scored.target.classes
    if classes is None:
        return {**columns, "prediction": found}
    columns["prediction"] = [classes[k] for k in np.argmax(found, axis=1).tolist()]
    return columns | {f"probability_{label}": found[:, k] for k, label in enumerate(classes)}
