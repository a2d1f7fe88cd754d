"""A model whose parts are with several parties: predictions and explanations by all of them together.

    run = fed.fit("vertical.bucket_rr", epsilon=4, ...)
    run.model.predict_proba({"bank": X_bank, "shop": X_shop})     # rows in the same order
    run.model.save("model")                                       # model/bank/part.json, model/shop/part.json

On this machine all parts are at hand, as all tables are. Still nothing is put together: every call plays the roles of
`hedgerow.protocols.vertical.scoring` or `explaining`, with the same messages, ledgers and transports as in production.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np

from hedgerow.engine.dtypes import Floats
from hedgerow.engine.losses import Loss
from hedgerow.engine.table import Table
from hedgerow.engine.threads import resolve_n_jobs
from hedgerow.errors import ExportRefused, InvalidInput, ModelFileError
from hedgerow.labels import read_classes, read_targets
from hedgerow.ledger import Ledger, reconcile
from hedgerow.party import DEADLINE
from hedgerow.protocols.protocol import PartyData, Statement, find
from hedgerow.protocols.vertical.explaining.job import ExplainingJob
from hedgerow.protocols.vertical.explaining.results import Contributions
from hedgerow.protocols.vertical.parts import LabelHolderPart, OwnerPart, Part, load_part, save_part
from hedgerow.protocols.vertical.scoring.job import BATCH_ROWS, ScoringJob
from hedgerow.protocols.vertical.scoring.roles import Answered
from hedgerow.running import OnProgress, run_together
from hedgerow.transport.emulate import Link
from hedgerow.transport.meter import Meter

PART, ABOUT = "part.json", "parties.json"


@dataclass(frozen=True, eq=False)
class Scoring:
    """One scoring of rows: the label holder's raw scores, and what it took."""

    job: ScoringJob
    transport: str
    raw: Floats  # [rows, outputs]
    answered: Mapping[str, Answered]  # what each feature holder gave away
    ledgers: Mapping[str, Ledger]
    meters: Mapping[str, Meter]
    seconds: float

    def statement(self) -> Statement:
        """Who learned what, in words (`str`) and as facts (`to_dict`)."""
        columns = {party: answered.n_columns for party, answered in self.answered.items()}
        return find("vertical.scoring").statement(self.job, {"columns": columns})

    @property
    def traffic(self) -> dict[str, Any]:
        """Bytes and messages of each party: in all, by peer and by kind of message, sent and received."""
        return {party: meter.to_dict() for party, meter in self.meters.items()}


class VerticalModel:
    """The parts of one model, by party."""

    def __init__(self, parts: Mapping[str, Part]) -> None:
        asking = [part for part in parts.values() if isinstance(part, LabelHolderPart)]
        if len(asking) != 1:
            raise InvalidInput(f"a model has one label holder's part, got {len(asking)} among {list(parts)}")
        self._asking = asking[0]
        for name, part in parts.items():
            if part.party != name or part.run_id != self._asking.run_id:
                raise InvalidInput(f"{name}: its part is that of {part.party} in run {part.run_id!r}, of another model")
        absent = [party for party in self._asking.handles if party not in parts]
        if absent:
            raise InvalidInput(f"{absent[0]}: its part of the model is not there")
        self.parts = dict(parts)

    # --- what it is --------------------------------------------------------------------------------------------------

    @property
    def parties(self) -> tuple[str, ...]:
        """Everybody who has a part, in the order of training."""
        return tuple(self.parts)

    @property
    def label_holder(self) -> str:
        """The party that asks, and learns the scores."""
        return self._asking.party

    @property
    def meta(self) -> dict[str, Any]:
        """What the model says about its training."""
        return self._asking.meta

    @property
    def classes_(self) -> np.ndarray:
        """The classes, in the order of the columns of `predict_proba`."""
        classes = self._asking.ensemble.classes
        if classes is None:
            raise AttributeError("a model for numbers has no classes")
        return np.array(classes)

    @property
    def n_iter_(self) -> int:
        """Rounds of boosting."""
        return self._asking.ensemble.n_iterations

    def __repr__(self) -> str:
        others = ", ".join(f"{party}: {n} handles" for party, n in self._asking.handles.items())
        return f"VerticalModel({self.n_iter_} iterations, {self.label_holder} asks {others})"

    # --- predictions -------------------------------------------------------------------------------------------------

    def predict(self, X: Mapping[str, Any], **how: Any) -> np.ndarray:
        """The class, or the number, that is expected for each row; `how` as for `scoring`."""
        predictions = self._predictions(X, **how)
        if self._asking.ensemble.classes is None:
            return predictions
        labels: np.ndarray = self.classes_[np.argmax(predictions, axis=1)]
        return labels

    def predict_proba(self, X: Mapping[str, Any], **how: Any) -> Floats:
        """The probability of each class [rows, classes]; `how` as for `scoring`."""
        if self._asking.ensemble.classes is None:
            raise AttributeError("a model for numbers has no probabilities")
        return self._predictions(X, **how)

    def decision_function(self, X: Mapping[str, Any], **how: Any) -> Floats:
        """Raw scores, [rows] or [rows, classes]; `how` as for `scoring`."""
        raw = self.scoring(X, **how).raw
        return raw[:, 0] if raw.shape[1] == 1 else raw

    def score(self, X: Mapping[str, Any], y: Any, **how: Any) -> float:
        """Accuracy, or R^2 for a regression."""
        predicted = self.predict(X, **how)
        if self._asking.ensemble.classes is not None:
            return float(np.mean(read_classes(y, len(predicted), "y") == predicted))
        target = read_targets(y, len(predicted), "y")
        return 1.0 - float(np.sum((target - predicted) ** 2) / np.sum((target - target.mean()) ** 2))

    def _predictions(self, X: Mapping[str, Any], **how: Any) -> Floats:
        ensemble = self._asking.ensemble
        return Loss(ensemble.loss, ensemble.n_outputs).predictions(self.scoring(X, **how).raw)

    def scoring(
        self,
        X: Mapping[str, Any],
        *,
        predict_epsilon: float | None = None,
        transport: str = "memory",
        link: Link | None = None,
        deadline: float = DEADLINE,
        batch_rows: int = BATCH_ROWS,
        n_jobs: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> Scoring:
        """Score rows: name of each party -> its table of them, in the same order. All trees in one round trip.

        With `predict_epsilon` feature holders randomise their answers: that much for each value of each row, every
        time. `transport`, `link` and `deadline` as for `Federation.fit`.
        """
        job = ScoringJob(
            self.parties, self.label_holder, uuid.uuid4().hex, self._asking.run_id, predict_epsilon, batch_rows
        )
        results, ledgers, meters, seconds = run_together(
            find("vertical.scoring"),
            job,
            self._data(X, n_jobs),
            transport=transport,
            link=link,
            deadline=deadline,
            on_progress=on_progress,
        )
        reconcile(ledgers)
        answered = {party: results[party] for party in job.feature_holders}
        return Scoring(job, transport, results[self.label_holder].raw, answered, ledgers, meters, seconds)

    # --- explanations ------------------------------------------------------------------------------------------------

    def importances(
        self,
        kind: Literal["gain", "count"] = "gain",
        *,
        transport: str = "memory",
        link: Link | None = None,
        deadline: float = DEADLINE,
    ) -> dict[str, dict[str, float]]:
        """Party -> column -> its importance; in production each party sees its own columns only.

        Feature holders learn the gains of their own splits, which follow from the labels.
        """
        job = self._explaining(what="importances", kind=kind)
        nobody = Table((), 0, (), has_names=False)
        data = {name: PartyData(nobody, part=part.to_dict()) for name, part in self.parts.items()}
        how: dict[str, Any] = {"transport": transport, "link": link, "deadline": deadline}
        results, ledgers, _, _ = run_together(find("vertical.explaining"), job, data, **how)
        reconcile(ledgers)
        return {
            party: dict(zip(results[party].columns, results[party].values.tolist(), strict=True))
            for party in self.parties
        }

    def contributions(
        self,
        X: Mapping[str, Any],
        *,
        transport: str = "memory",
        link: Link | None = None,
        deadline: float = DEADLINE,
        n_jobs: int | None = None,
    ) -> dict[str, Contributions]:
        """Party -> what each of its columns adds to the raw score of each row (TreeSHAP); each party sees its own only.

        Values of all parties and the label holder's `expected` add up to the raw scores.
        """
        job = self._explaining(what="contributions")
        how: dict[str, Any] = {"transport": transport, "link": link, "deadline": deadline}
        results, ledgers, _, _ = run_together(find("vertical.explaining"), job, self._data(X, n_jobs), **how)
        reconcile(ledgers)
        return {party: results[party] for party in self.parties}

    def _explaining(self, **what: Any) -> ExplainingJob:
        return ExplainingJob(self.parties, self.label_holder, uuid.uuid4().hex, self._asking.run_id, **what)

    def _data(self, X: Mapping[str, Any], n_jobs: int | None) -> dict[str, PartyData]:
        """Each party's table, read as its own part wants it, and its part."""
        if not isinstance(X, Mapping):
            raise InvalidInput(f"rows are given by party, {{name: table}}, got {type(X).__name__}")
        for name in self.parties:
            if name not in X:
                raise InvalidInput(f"{name}: its table of the rows is not there; there are {list(X)}")
        unknown = [name for name in X if name not in self.parts]
        if unknown:
            raise InvalidInput(f"{unknown[0]!r} is not a party of this model; those are {list(self.parties)}")
        n_threads = 1 if n_jobs is None else resolve_n_jobs(n_jobs)
        return {
            name: PartyData(part.read(X[name], f"{name}: X"), n_threads=n_threads, part=part.to_dict())
            for name, part in self.parts.items()
        }

    # --- files -------------------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> None:
        """Write one file per party, each in a folder of its own: that folder is what the party takes home."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        for name, part in self.parts.items():
            own = place / name
            own.mkdir(mode=0o700, exist_ok=True)
            save_part(part, own / PART)
        (place / ABOUT).write_text(json.dumps({"parties": list(self.parties)}))

    @classmethod
    def load(cls, folder: str | Path) -> VerticalModel:
        """The model whose parts `save` has written."""
        place = Path(folder)
        try:
            parties = json.loads((place / ABOUT).read_text())["parties"]
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise ModelFileError(f"{place} holds no model in parts: {problem}") from problem
        return cls({name: load_part(place / name / PART) for name in parties})

    def save_model(self, path: str | Path) -> NoReturn:
        """Refused: one file would hold what each party has for itself."""
        self._refuse(f"one file ({path})")

    def export_xgboost(self, path: str | Path) -> NoReturn:
        """Refused: XGBoost's format holds every threshold."""
        self._refuse(f"XGBoost's format ({path})")

    def _refuse(self, what: str) -> NoReturn:
        owners = [name for name, part in self.parts.items() if isinstance(part, OwnerPart) and part.n_handles]
        raise ExportRefused(
            f"this model cannot be written as {what}: it would show {self.label_holder} the thresholds of "
            f"{', '.join(owners) or 'the other parties'}, and them its trees and leaf values. save(folder) writes one "
            "part for each party"
        )
