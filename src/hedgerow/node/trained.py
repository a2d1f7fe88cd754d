"""A training that is over, in a party's folder: its proposal, this party's part of the model, and rows for it.

    trained = Trained.find(home, "3f9a")              # by the beginning of the run's id
    trained.check("batch")                            # may it be scored with, in this way?
    rows = trained.rows("new_customers.parquet")      # a file, a folder, or a dataset of party.toml

A model whose columns are divided is scored by all its parties together, or not at all. They have agreed to that when
they signed the proposal of its training (`scoring`), and each party's policy still has a word in it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hedgerow.crypto.identifiers import Duplicates, IdRule
from hedgerow.errors import InvalidInput, InvalidParameter, JobError, PeerRefused
from hedgerow.federation.alignment import take_rows
from hedgerow.node import sources
from hedgerow.node.budgets import to_look_at
from hedgerow.node.databases import is_database
from hedgerow.node.documents import read_bounded
from hedgerow.node.job_file import SCORINGS
from hedgerow.node.papers import Papers
from hedgerow.node.policy import Asked, Refusal, RefusalCode, refusals
from hedgerow.node.proposal import NOT_SERVED
from hedgerow.node.words import chosen_dataset
from hedgerow.protocols.vertical.common.parts import Part, load_part
from hedgerow.runtime.protocol import DEALER, Planned
from hedgerow.runtime.saved_files import damage_told

if TYPE_CHECKING:
    from hedgerow.engine.table import Table
    from hedgerow.node.home import Home
    from hedgerow.node.party_file import Dataset
    from hedgerow.node.proposal import Proposal

_MOST_BYTES = 1 << 20


@dataclass(frozen=True, eq=False)
class OwnRows:
    """Rows of this party's own source that are to be scored: its columns of the model, ids, and what is kept."""

    dataset: Dataset
    table: Any  # of arrow
    part: Part

    @property
    def n_rows(self) -> int:
        """How many."""
        return int(self.table.num_rows)

    @property
    def ids(self) -> Any:
        """The column of ids, or None."""
        return None if self.dataset.id is None else self.table.column(self.dataset.id)

    def taken(self, places: Any) -> OwnRows:
        """Some of them, in this order."""
        return replace(self, table=take_rows(self.table, places))

    def read(self) -> Table:
        """The columns that the model knows, as its part reads them."""
        names = [feature.name for feature in self.part.features]
        return self.part.read(self.table.select(names), f"{self.part.party}: {self.dataset.source}")


@dataclass(frozen=True, eq=False)
class Trained:
    """One party's view of a training that is over."""

    home: Home
    folder: Path
    proposal: Proposal
    part: Part | None  # None: this party has no part of the model, as a dealer

    @classmethod
    def find(cls, home: Home, start: str) -> Trained:
        """By the beginning of the run's id; errors say which runs there are."""
        runs = sorted(path.parent for path in home.runs.glob("*/run.json"))
        found = [folder for folder in runs if folder.name.startswith(start)]
        if len(found) != 1:
            listed = ", ".join(folder.name[:12] for folder in (found or runs)[:8]) or "none"
            problem = f"{len(found)} runs begin with {start!r}" if found else f"no run begins with {start!r}"
            raise InvalidParameter(f"{problem} in {home.runs}; there are {listed}. hedgerow status lists them")
        folder = found[0]
        with damage_told(f"{folder / 'run.json'} is damaged"):
            about = json.loads(read_bounded(folder / "run.json", _MOST_BYTES))
            hash_ = str(about["proposal"])
            if not (home.proposals / hash_ / "proposal.json").is_file():
                raise ValueError("it is the run of a proposal that is not here")
        paper = Papers(home).get(hash_)
        if not paper.is_agreed or paper.proposal.run_id != folder.name:
            raise InvalidInput(f"{folder} is not the run of the proposal {hash_[:12]}, which is {paper.state}")
        place = folder / "part.json"
        part = load_part(place) if place.exists() else None
        if part is not None and (part.party, part.run_id) != (home.name, folder.name):
            raise InvalidInput(f"{place} is the part of {part.party} in the run {part.run_id[:12]}, of another model")
        return cls(home, folder, paper.proposal, part)

    # --- may it be scored with? --------------------------------------------------------------------------------------

    def check(self, way: str) -> None:
        """JobError or PeerRefused unless the parties have agreed to this way of scoring, and are who they were."""
        proposal = self.proposal
        if proposal.label_holder is None:
            raise JobError(
                f"the model of the run {proposal.run_id[:12]} is whole in every party's hands: "
                f"hedgerow predict {self.folder / 'model.json'} ROWS"
            )
        for refusal in self.against(way)[:1]:
            raise JobError(f"{self.home.name}: {refusal.sentence}")
        if way == "standing" and proposal.leaves_are_shared:
            raise JobError(
                f"{self.home.name}: the model of the run {proposal.run_id[:12]} cannot be served: {NOT_SERVED}; score "
                f"tables with hedgerow predict {proposal.run_id[:12]}"
            )
        for name in proposal.peers_of(self.home.name):
            known = self.home.peers.get(name).certificate.fingerprint
            if known != proposal.place(name).fingerprint:
                raise PeerRefused(
                    f"{name} is paired with the certificate {known}, but the model was trained with "
                    f"{proposal.place(name).fingerprint}; train anew with the new one"
                )

    def against(self, way: str, *, dataset: Dataset | None = None, planned: Planned | None = None) -> list[Refusal]:
        """All that this party has against it: the proposal, then its policy and what is left of its budgets.

        `planned` is what the scoring may cost rows of `dataset`.
        """
        proposal, policy = self.proposal, self.home.party_file.policy
        if SCORINGS.index(proposal.scoring) < SCORINGS.index(way):
            said = f"the proposal of the run {proposal.run_id[:12]} says scoring = {proposal.scoring!r}, not {way!r}"
            return [Refusal(RefusalCode.SCORING, f"{said}; propose a training whose job file says so")]
        columns = () if dataset is None or self.part is None else tuple(f.name for f in self.part.features)
        asked = Asked(
            hash=proposal.hash,
            protocol=proposal.protocol,
            peers=proposal.peers_of(self.home.name),
            dataset=None if dataset is None else dataset.name,
            columns=columns,
            planned=planned,
        )
        with to_look_at(self.home.budget, policy) as budgets:
            return refusals(policy, asked, paired=self.home.peers.names(), budgets=budgets)

    # --- who takes part ----------------------------------------------------------------------------------------------

    @property
    def label_holder(self) -> str:
        """Who asks, and learns the scores."""
        return str(self.proposal.label_holder)

    @property
    def is_asking(self) -> bool:
        """Whether that is this party."""
        return self.home.name == self.label_holder

    @property
    def dealer(self) -> str | None:
        """Who deals correlated randomness, where leaf values are shared."""
        return next((place.name for place in self.proposal.parties if place.role == DEALER), None)

    @property
    def rule(self) -> IdRule:
        """How ids are written before they are compared."""
        given = (self.proposal.matching or {}).get("rule")
        return IdRule() if given is None else IdRule.from_dict(given)

    @property
    def duplicates(self) -> Duplicates:
        """What becomes of an id that stands in two rows."""
        return "first" if (self.proposal.matching or {}).get("duplicates") == "first" else "refuse"

    # --- rows --------------------------------------------------------------------------------------------------------

    def dataset(self, given: str | None) -> Dataset:
        """One of party.toml by its name, or that of the training, with other rows if a path is given."""
        known = self.home.party_file.data
        if given in known:
            return known[str(given)]
        trained_on = chosen_dataset(self.proposal, self.home)
        if given is None:
            return trained_on
        path = Path(given).absolute()
        if not path.exists():
            there = ", ".join(known) or "none"
            raise InvalidInput(f"{given!r} is no file or folder, and no dataset of {self.home.party_toml} ({there})")
        return replace(trained_on, source=str(path), query=None)

    def rows(self, given: str | None, *, keep: Sequence[str] = (), needs_ids: bool | None = None) -> OwnRows:
        """The rows of a file, a folder or a dataset, with ids where the parties match records by them.

        `needs_ids` asks for ids also where the training had none, or for none.
        """
        if self.part is None:
            raise JobError(f"{self.home.name} has no part of the model of the run {self.proposal.run_id[:12]}")
        dataset = self.dataset(given)
        if needs_ids is None:
            needs_ids = self.proposal.matching is not None
        if needs_ids and dataset.id is None:
            raise JobError(
                f"{self.home.party_toml}: [data.{dataset.name}] has no id, and records are found by their ids"
            )
        names = [feature.name for feature in self.part.features]
        ids = [dataset.id] if dataset.id is not None and needs_ids else []
        wanted = list(dict.fromkeys([*names, *ids, *keep]))
        if not ids:
            dataset = replace(dataset, id=None)
        return OwnRows(dataset, self._read(dataset, wanted), self.part)

    def _read(self, dataset: Dataset, wanted: list[str]) -> Any:
        path = self.home.path / dataset.source
        if is_database(dataset.source) or not path.is_file() or self.part is None:
            return sources.read(dataset, base=self.home.path, columns=wanted)
        import pyarrow as pa

        # What is text in the model stays text, also where the cells of a CSV file look like numbers.
        texts = {f.name: pa.string() for f in self.part.features if f.levels and isinstance(f.levels[0], str)}
        numbers = {f.name for f in self.part.features if f.levels is None}
        if dataset.id is not None and self.rule.kind == "text":
            texts[dataset.id] = pa.string()
        table = sources.read_file(path, texts, numbers, wanted)
        sources.require_columns(table.column_names, wanted, path, "is needed to score its rows")
        return table.select(wanted)
