"""A party's own part of a run that all have signed: match rows, train, keep the result. The same roles as everywhere.

    with Node(home, identity) as node:
        folder = play(node, paper)               # runs/<run_id>: run.json, ledger.jsonl, part.json or model.json

What is checked here before a row is read: everybody has accepted, nobody's certificate is another than the one that was
signed for, the proposal has not expired, and this party's policy still has nothing against it. Rows and columns are
those of the party's own source and no others.

A run that breaks off leaves its folder, with the ledger of what was disclosed, the rows that were matched, and what the
role kept after its last trees. It is taken up again as the next attempt, when all parties are there again. Everything
happens in the order: kept, then sent; written into the trail, then done. A run is over when everybody has its result
(`together.py`): until then result.json says that this party has its own, and then it is called run.json.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow._version import __version__
from hedgerow.aborts import reason_of
from hedgerow.engine.rows_ray.cluster import reachable
from hedgerow.engine.threads import resolve_n_jobs
from hedgerow.errors import DeadlineExceeded, HedgerowError, InvalidInput, JobError, PeerFailed, PeerLost, PeerRefused
from hedgerow.federation.alignment import party_with_ids
from hedgerow.federation.federation import Brought
from hedgerow.federation.files import BroughtFiles
from hedgerow.ledger import Ledger, Meter
from hedgerow.node import commitments, documents, passing
from hedgerow.node.books import KeptLedger, whole_lines
from hedgerow.node.budgets import Budgets, Charged
from hedgerow.node.commitments import Opening
from hedgerow.node.desk import Node
from hedgerow.node.digests import Digesting, exchange_salts
from hedgerow.node.home import Home
from hedgerow.node.inputs import Inputs, StoredInputs, read_inputs, read_rows
from hedgerow.node.papers import Beginning, Paper
from hedgerow.node.passing import Passing
from hedgerow.node.policy import Asked, refusals
from hedgerow.node.proposal import Proposal
from hedgerow.node.together import end_together
from hedgerow.node.words import chosen_dataset, view
from hedgerow.protocols.vertical.common.parts import Part, save_part
from hedgerow.runtime.backends import passes_rows, why_not, with_backends
from hedgerow.runtime.budgets import Budget
from hedgerow.runtime.checkpoint import CheckpointFiles, Checkpoints
from hedgerow.runtime.party import Party
from hedgerow.runtime.progress import OnProgress
from hedgerow.runtime.protocol import ROWS, Job, PartyData, Protocol, agreed, find
from hedgerow.runtime.running import get_ready, role
from hedgerow.runtime.saved_files import damage_told, private_folder
from hedgerow.transport.grpc import GrpcEndpoint
from hedgerow.transport.mtls import TrustStore

FORMAT, VERSION = "hedgerow run of one party", 1
RESULTS = ("part.json", "model.json")
"""What a party has of the model: its own part, or the whole."""
_TURN_SECONDS = 2.0  # between two looks whether a peer that does not come has been started anew


@dataclass
class Place:
    """The folder of one run at one party, and what it says about attempts so far."""

    folder: Path
    books: dict[str, Ledger] = field(default_factory=dict)
    _earlier: dict[str, bytes] = field(default_factory=dict)  # what the books of attempts before this one say

    @property
    def is_over(self) -> bool:
        """Whether the result is there."""
        return self.run.exists()

    @property
    def run(self) -> Path:
        """What says that the run is over."""
        return self.folder / "run.json"

    @property
    def result(self) -> Path:
        """The same, before the others have theirs."""
        return self.folder / "result.json"

    @property
    def attempts(self) -> int:
        """How many were begun."""
        path = self.folder / "attempt.json"
        if not path.exists():
            return 0
        with damage_told(f"{path} is damaged"):
            return int(json.loads(documents.read_bounded(path, documents.MOST_BYTES))["attempt"])

    @property
    def checkpoints(self) -> Path:
        """Where the role keeps its states."""
        return self.folder / "checkpoints"

    @property
    def has_kept(self) -> bool:
        """Whether the role has kept any state."""
        return self.checkpoints.exists() and any(self.checkpoints.iterdir())

    @property
    def rows(self) -> Path:
        """The rows that were matched, in the common order."""
        return self.folder / "rows.npy"

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """JobError if another process of this party plays the run right now. The lock ends with the process."""
        private_folder(self.folder)
        with os.fdopen(os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise JobError(f"another process here plays this run already, see {self.folder}") from None
            file.truncate()
            file.write(str(os.getpid()).encode())
            file.flush()
            yield

    def begin(self, attempt: int) -> None:
        """From here on this attempt counts, whatever becomes of it."""
        for path in (self.folder / "failed.json", self.result):
            path.unlink(missing_ok=True)
        documents.write(self.folder / "attempt.json", {"attempt": attempt, "pid": os.getpid(), "at": documents.stamp()})

    def new_book(self, name: str, party: str) -> KeptLedger:
        """A ledger that is on the disk as it is written, below those of the attempts before."""
        path = self._file_of(name)
        self._earlier[name] = whole_lines(path)
        self.books[name] = book = KeptLedger(party, path)
        return book

    def save_books(self) -> None:
        """The ledgers once more, whole. Those of earlier attempts stay: what was disclosed then was disclosed."""
        for name, book in self.books.items():
            documents.write_whole(self._file_of(name), self._earlier[name] + book.to_json_lines().encode())

    def _file_of(self, name: str) -> Path:
        return self.folder / f"{name}.jsonl"


def play(
    node: Node,
    paper: Paper,
    *,
    wait: float = 600.0,
    on_progress: OnProgress | None = None,
    resume: bool = False,
    books: dict[str, Ledger] | None = None,
    tell: Callable[[str], None] | None = None,
) -> Path:
    """Play this party's role; the folder that holds what it has of the result. Raises what ended the run early.

    All parties call it at about the same time, and wait for each other. `resume` takes up a run that was broken off;
    one that is over is not played again, but others may have to be told that it is.
    Ledgers are put into `books` as they begin, for whoever wants to watch them. `tell` is called with words if kernels
    are compiled first.
    """
    proposal = paper.proposal
    place = Place(node.home.runs / proposal.run_id)
    if books is not None:
        place.books = books
    if place.is_over:
        shutil.rmtree(place.checkpoints, ignore_errors=True)  # if it was killed before it had forgotten them
        over = Beginning(place.attempts, has_rows=True, is_over=True)
        if resume and node.tell_over(proposal.run_id, over, proposal.peers_of(node.name), wait):
            return place.folder
    check_may_begin(node.home, paper, resume=resume)
    has_rows = place.rows.exists() or node.name not in proposal.owners_of_data
    begin = node.meet(proposal.run_id, Beginning(place.attempts + 1, has_rows), proposal.peers_of(node.name), wait)
    paper = node.papers.get(proposal.hash)
    if not paper.is_agreed:
        raise JobError(f"the proposal {proposal.hash[:12]} cannot run: it is {paper.state}")
    with place.alone():
        if begin.is_over:
            return _concluded(node, proposal, place)
        return _attempt(node, paper, place, begin, wait, on_progress, tell)


def _concluded(node: Node, proposal: Proposal, place: Place) -> Path:
    """The others have everybody's word that the results are kept, and this party was gone before it heard of that."""
    if not place.result.exists():
        raise JobError(
            f"the run {proposal.run_id[:12]} is over elsewhere, but {place.folder} does not hold the result that "
            f"{node.name} had kept; propose it again"
        )
    _end(node, proposal, place, Opening.of_run(place.folder, node.name, proposal.run_id), place.attempts)
    shutil.rmtree(place.checkpoints, ignore_errors=True)
    return place.folder


def _attempt(
    node: Node,
    paper: Paper,
    place: Place,
    begin: Beginning,
    wait: float,
    on_progress: OnProgress | None,
    tell: Callable[[str], None] | None,
) -> Path:
    proposal = paper.proposal
    if not begin.has_rows and proposal.matching is not None:
        _forget_rows(place)
    place.begin(begin.attempt)
    facts = {"run_id": proposal.run_id, "proposal": proposal.hash, "attempt": begin.attempt}
    signers = {each.name: each.fingerprint for each in proposal.parties}
    node.trail.append("run_started", **facts, protocol=proposal.protocol, signers=signers, version=__version__)
    opening = Opening.of_run(place.folder, node.name, proposal.run_id)
    try:
        run = _Run(node, paper, place, opening, begin.attempt, wait, on_progress, tell)
        with Passing(place.folder / passing.FILE, place.books, begin.attempt, run.progress):
            run.train()
    except BaseException as problem:
        if place.is_over:  # whatever else went wrong: everybody has its result
            raise
        _save_failure(place, problem)
        whose = problem.party if isinstance(problem, PeerFailed) else node.name
        node.trail.append("run_failed", **facts, reason=reason_of(problem).name.lower(), party=whose)
        raise
    shutil.rmtree(place.checkpoints, ignore_errors=True)
    return place.folder


def _end(node: Node, proposal: Proposal, place: Place, opening: Opening, attempt: int, **more: Any) -> None:
    """Everybody has its result: in the trail, and then on the disk."""
    facts = {"run_id": proposal.run_id, "proposal": proposal.hash, "attempt": attempt, **more}
    model = next(path for name in (*RESULTS, place.result.name) if (path := place.folder / name).exists())
    kept: dict[str, str] = {
        "model": opening.commit("model", [model.read_bytes()]),
        "ledger": opening.commit("ledger", [(place.folder / "ledger.jsonl").read_bytes()]),
    }
    node.trail.append("run_ended", **facts, **kept)
    place.result.replace(place.run)


def check_may_begin(home: Home, paper: Paper, *, resume: bool = False) -> Place:
    """The folder of the run. JobError or PeerRefused for what this party can see before it looks for the others."""
    proposal = paper.proposal
    place = Place(home.runs / proposal.run_id)
    if place.is_over:
        raise JobError(f"the run {proposal.run_id[:12]} is over; its result is in {place.folder}")
    if place.attempts and not resume:
        raise JobError(
            f"the run {proposal.run_id[:12]} was begun before and broke off; hedgerow resume takes it up again"
        )
    if paper.refused_by:
        raise JobError(f"the proposal {proposal.hash[:12]} cannot run: it is {paper.state}")
    proposal.check_now()
    for name in proposal.peers_of(home.name):
        known = home.peers.get(name).certificate.fingerprint
        if known != proposal.place(name).fingerprint:
            raise PeerRefused(
                f"{name} is paired with the certificate {known}, but the proposal was signed for "
                f"{proposal.place(name).fingerprint}; propose it again"
            )
    compute = home.party_file.compute
    if compute is not None and compute.backend is not None and _can_use_ray(proposal, home.name):
        reachable(compute.backend)
    against = view(proposal, home, is_begun=bool(place.attempts)).refusals
    if against:
        raise JobError(f"the policy of {home.name} does not allow it any more: {against[0].sentence}")
    return place


def _can_use_ray(proposal: Proposal, name: str) -> bool:
    """Whether a party has some work in a run that a Ray cluster can do."""
    if name not in proposal.owners_of_data:
        return False
    matching = proposal.matching_job
    steps = [(proposal.chosen.protocol, proposal.job), *([] if matching is None else [(find(matching.NAME), matching)])]
    return any(why_not(protocol, job, name) is None for protocol, job in steps)


def _forget_rows(place: Place) -> None:
    """Somebody has no matched rows, so nobody has begun to train on them; who says otherwise does not go on."""
    if place.has_kept:
        raise JobError(
            "another party has lost the rows that were matched, and this one has trained on them: this run cannot go "
            "on, propose it again"
        )
    place.rows.unlink(missing_ok=True)


# --- the run ---------------------------------------------------------------------------------------------------------


class _Run:
    """One attempt."""

    def __init__(
        self,
        node: Node,
        paper: Paper,
        place: Place,
        opening: Opening,
        attempt: int,
        wait: float,
        on_progress: OnProgress | None,
        tell: Callable[[str], None] | None,
    ) -> None:
        self._tell = tell
        self._node, self._proposal, self._place, self._opening = node, paper.proposal, place, opening
        self._trust = _trust(node, paper)
        self._attempt, self._wait = attempt, wait
        self._watch = _Progress(place.folder / "progress.json", on_progress)
        self._n_matched: int | None = None
        self._seconds: dict[str, float] = {}  # of each role, from its first message to its result

    def progress(self) -> tuple[int, int]:
        """Steps that are done, and steps in all; 0 until they are known."""
        return self._watch.steps

    def train(self) -> None:
        """Play the role to the end: everybody has its result."""
        proposal, name = self._proposal, self._node.name
        spec, job = proposal.chosen.protocol, proposal.job
        data = self._bring() if name in proposal.owners_of_data else None
        # What is released is kept before: with the folder at hand, what is not in it was not released, and the charge
        # of an earlier attempt is for what is released now. Without it nobody could tell, and the run is not taken up.
        resumed = self._attempt > 1 and self._place.checkpoints.exists()
        kept = CheckpointFiles(self._place.checkpoints, spec, job, name)
        place, budget = self._place, self._budget(data, resumed=resumed)
        started = time.monotonic()

        def save(result: Any) -> None:
            place.save_books()
            _save(self._node, proposal, result, place, self._seconds, self._n_matched)

        def decide() -> None:
            seconds = round(time.monotonic() - started, 3)
            _end(self._node, proposal, place, self._opening, self._attempt, seconds=seconds)

        self._role("ledger", spec, job, data, save, decide, budget, kept)

    def _bring(self) -> PartyData:
        """The rows of this party's own source; those that all have, where ids are compared."""
        node, proposal = self._node, self._proposal
        inputs = read_inputs(proposal, node.home)
        if isinstance(inputs, StoredInputs):
            self._commit_to(inputs)
            return self._trained_on(inputs.brought(proposal, node.name))
        brought = inputs.brought(proposal, node.name)
        self._commit_to(inputs)
        if proposal.matching_job is not None:
            how = inputs.how
            brought.rows = self._match(inputs.ids, f"{node.name}: column {how.id!r}", brought.n_rows)
            self._n_matched = len(brought.rows)
            self._committed(rows=self._opening.commit("rows", [brought.rows.astype("<i8").tobytes()]))
            peers = proposal.peers_of(node.name)
            asked = Asked(proposal.hash, proposal.protocol, peers, how.dataset, how.columns, n_matched=self._n_matched)
            if against := refusals(node.home.party_file.policy, asked):
                raise InvalidInput(f"{node.name}: {against[0].sentence}")
        return self._trained_on(brought)

    def _trained_on(self, brought: Brought | BroughtFiles) -> PartyData:
        chosen = self._proposal.chosen
        data = replace(chosen.read(brought), n_threads=resolve_n_jobs(None))
        return self._with_backend(chosen.protocol, self._proposal.job, data)

    def _with_backend(self, protocol: Protocol, job: Job, data: PartyData) -> PartyData:
        """How this party works on its rows: as party.toml says, where its role can, and else on this machine."""
        name, compute = self._node.name, self._node.home.party_file.compute
        backend = None if compute is None else compute.backend
        if backend is None or why_not(protocol, job, name) is not None:
            return data
        if passes_rows(data) and not backend.rows_in_object_store:
            return data
        return with_backends(protocol, job, {name: data}, {name: backend})[name]

    def _commit_to(self, inputs: Inputs | StoredInputs) -> None:
        """Before anything leaves the house. Who has begun goes on with the same table, or not at all."""
        path, before = self._place.folder / commitments.FILE, self._opening.inputs
        now = self._opening.with_inputs(inputs)
        if before not in (None, now.inputs) and (self._place.rows.exists() or self._place.has_kept):
            raise JobError(
                f"{self._node.name}: the dataset {inputs.how.dataset} is not what it was when the run began. Put it "
                "back as it was, or propose the run again"
            )
        now.write(path)
        self._committed(inputs=now.inputs)

    def _committed(self, **to: str | None) -> None:
        self._node.trail.append("committed", run_id=self._proposal.run_id, attempt=self._attempt, **to)

    def _match(self, ids: Any, where: str, n_rows: int) -> Any:
        """Rows of the records that all parties have; from the disk, if an earlier attempt found them at all parties."""
        if self._place.rows.exists():
            return read_rows(self._place.rows, n_rows)
        job = self._proposal.matching_job
        if job is None:
            raise InvalidInput(f"{where}: nothing is to be matched")
        if self._attempt > 1:
            job = replace(job, run_id=f"{job.run_id}-{self._attempt}")
        matching = find(job.NAME)
        data = self._with_backend(matching, job, party_with_ids(ids, where, resolve_n_jobs(None)))
        place = self._place

        def save(found: Any) -> None:
            file = io.BytesIO()
            np.save(file, found.rows, allow_pickle=False)
            documents.write_whole(place.rows, file.getvalue())

        return self._role("matching", matching, job, data, save, lambda: None).rows

    def _budget(self, data: PartyData | None, *, resumed: bool) -> Budget | None:
        node, proposal = self._node, self._proposal
        if data is None:
            return None

        def tell(charged: Charged) -> None:
            node.trail.append("charged", run_id=proposal.run_id, **charged._asdict())

        return Budgets(node.home.budget, node.home.party_file.policy).of_run(
            peers=proposal.peers_of(node.name),
            dataset=chosen_dataset(proposal, node.home).name,
            resumed=resumed,
            on_charged=tell,
        )

    def _role(
        self,
        book: str,
        spec: Protocol,
        job: Job,
        data: PartyData | None,
        save: Callable[[Any], None],
        decide: Callable[[], None],
        budget: Budget | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> Any:
        """The result of a role, saved here and by all others."""
        node, attempt = self._node, self._attempt if checkpoints is not None else 1
        links = tuple(link for link in job.links if node.name in link)
        peers = [b if a == node.name else a for a, b in links]
        get_ready(spec, job, "memory", self._tell)
        same = agreed(spec, job, attempt)
        dial = self._proposal.dials(node.name, links)
        with node.open(job.run_id, peers, dial, job=same, timeout=self._wait) as connection:
            endpoint = Digesting(connection)
            with self._digests_told(endpoint, spec.name, job.run_id):
                self._wait_connected(connection)
                me = Party(
                    endpoint,
                    node.identity,
                    self._trust,
                    on_progress=self._watch,
                    attempt=attempt,
                    checkpoints=checkpoints,
                )
                self._watch.steps = (0, 0)  # those of the matching are not those of the training
                with self._place.new_book(book, node.name) as me.ledger:
                    playing = role(spec, me, job, data, budget, same)
                    exchange_salts(Party(endpoint, node.identity, self._trust))
                    started = time.monotonic()
                    result = playing()
                    self._seconds[book] = time.monotonic() - started
            me = Party(connection, node.identity, self._trust)
            try:
                save(result)
                end_together(me, job, decide, without=getattr(result, "meta", {}).get("lost_owners", ()))
            except BaseException as problem:
                me.abort(problem)
                raise
            return result

    def _wait_connected(self, connection: GrpcEndpoint) -> None:
        """Wait for all peers; PeerLost if one has been started anew since all met, and looks for this party there."""
        until, run_id = time.monotonic() + self._wait, self._proposal.run_id
        while (left := until - time.monotonic()) > _TURN_SECONDS:
            with contextlib.suppress(DeadlineExceeded):
                connection.wait_connected(_TURN_SECONDS)
                return
            for peer in connection.missing:
                if self._node.is_looked_for(run_id, peer):
                    raise PeerLost(f"{peer} was started anew before the run began; hedgerow resume takes it up again")
        connection.wait_connected(left)

    @contextlib.contextmanager
    def _digests_told(self, endpoint: Digesting, protocol: str, run_id: str) -> Iterator[None]:
        """However it ends, the trail has what passed."""
        try:
            yield
        finally:
            for peer, facts in endpoint.digests().items():
                about = {"run_id": run_id, "peer": peer, "protocol": protocol, "attempt": self._attempt}
                self._node.trail.append("message_digests", **about, **facts)


def _trust(node: Node, paper: Paper) -> TrustStore:
    """Everybody's certificate: those of peers as they are paired, others' as everybody has signed for them."""
    proposal = paper.proposal
    peers = proposal.peers_of(node.name)
    trust = node.home.peers.trust_store(peers)
    for place in proposal.parties:
        if place.name not in (*peers, node.name):
            trust.pin(place.name, paper.answers[place.name]["certificate"].encode(), place.fingerprint)
    return trust


class _Progress:
    """Tells who watches, and writes down for `hedgerow status` now and then."""

    def __init__(self, path: Path, then: OnProgress | None) -> None:
        self._path, self._then, self._written = path, then, 0.0
        self(0, 0)

    def __call__(self, done: int, total: int) -> None:
        now, self.steps = time.monotonic(), (done, total)
        if now - self._written > 1.0 or done == total:
            self._written = now
            documents.write(self._path, {"pid": os.getpid(), "done": done, "total": total, "at": documents.stamp()})
        if self._then is not None and total:
            self._then(done, total)


# --- what is kept ----------------------------------------------------------------------------------------------------


def _save(
    node: Node,
    proposal: Proposal,
    result: Any,
    place: Place,
    seconds: Mapping[str, float],
    n_matched: int | None,
) -> None:
    """The result and what was said in the end; result.json comes last, and says that all is there."""
    spec, job = proposal.chosen.protocol, proposal.job
    save_result(proposal, node.name, result, place.folder)
    if spec.partition == ROWS or spec.parties(job)[0] == node.name:
        stated = replace(spec.statement(job, result.meta), date=datetime.now(UTC).isoformat(timespec="seconds"))
        documents.write_whole(place.folder / "statement.json", json.dumps(stated.to_dict(), indent=1).encode())
    about = {
        "format": FORMAT,
        "version": VERSION,
        "hedgerow": __version__,
        "party": node.name,
        "proposal": proposal.hash,
        "run_id": proposal.run_id,
        "protocol": spec.name,
        "parties": [each.name for each in proposal.parties],
        "attempts": place.attempts,
        "seconds": seconds["ledger"],
        "seconds_of_matching": seconds.get("matching"),
        "finished": documents.stamp(),
        "n_matched": n_matched,
        "traffic": {name: Meter(book).to_dict() for name, book in place.books.items()},
    }
    for path in place.folder.glob("*.json"):
        path.chmod(0o600)
    documents.write(place.result, about)


def save_result(proposal: Proposal, party: str, result: Any, folder: Path) -> None:
    """What a party has of the model, as one of `RESULTS`; nothing of a dealer. It follows from the run alone."""
    spec, job = proposal.chosen.protocol, proposal.job
    has_model = spec.partition == ROWS
    if has_model or spec.parties(job)[0] == party:
        proposal.chosen.sign(result, job, has_names=True)
    if isinstance(result, Part):
        save_part(result, folder / "part.json")
    elif has_model:
        model = proposal.chosen.estimator(**proposal.chosen.trees).adopt(result, "the run")
        model.save_model(folder / "model.json")


def _save_failure(place: Place, problem: BaseException) -> None:
    """What was disclosed until it ended, and why it did: the sentence stays here."""
    place.save_books()
    kind = type(problem).__name__
    told = str(problem) if isinstance(problem, HedgerowError) else kind
    documents.write(place.folder / "failed.json", {"error": kind, "message": told, "at": documents.stamp()})


def read_run(folder: Path) -> Mapping[str, Any]:
    """What run.json says. InvalidInput if the folder has none that this version can read."""
    with damage_told(f"{folder} holds no run of a party"):
        about: Mapping[str, Any] = json.loads(documents.read_bounded(folder / "run.json", 16 << 20))
        if (about["format"], about["version"]) != (FORMAT, VERSION):
            raise ValueError(f"it is of version {about['version']}")
    return about
