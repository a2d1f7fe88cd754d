"""A model whose parts are with several parties: predictions and explanations by all of them together.

    run = fed.fit("vertical.bucket_rr", epsilon=4, ...)
    run.model.predict_proba({"bank": X_bank, "shop": X_shop})     # rows in the same order
    run.model.save("model")                                       # model/bank/part.json, model/shop/part.json

A model whose training matched rows by a column of ids does so again: tables that have that column need not be in the
same order, nor hold the same rows. Scores are then those of the common rows, in the label holder's order, and
`Scoring.rows` says which of its rows these are. Tables without the column are taken row by row.

On this machine all parts are at hand, as all tables are. Still nothing is put together: every call plays the roles of
a service (`scoring`, `closed_scoring` or `explaining` in `hedgerow.protocols.vertical`), with the same messages,
ledgers and transports as in production.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, cast

import numpy as np

from hedgerow.engine.dtypes import Floats, Ints
from hedgerow.engine.ensemble import predictions_from
from hedgerow.engine.table import Table
from hedgerow.engine.threads import resolve_n_jobs
from hedgerow.errors import ExportRefused, InvalidInput, InvalidParameter, ModelFileError
from hedgerow.estimators.inputs import exact_array, read_classes, read_targets
from hedgerow.federation.alignment import align, has_column, split_ids, take_rows
from hedgerow.federation.finished import Finished
from hedgerow.protocols.services.explain.roles import Contributions, ExplainingJob, Interactions
from hedgerow.protocols.services.score.roles import BATCH_ROWS, Answered, ScoringJob
from hedgerow.protocols.services.score_closed.roles import ClosedScoringJob
from hedgerow.protocols.vertical.common.agreement import FittingParts
from hedgerow.protocols.vertical.common.parts import OwnerPart, load_part, save_part
from hedgerow.protocols.vertical.common.readable import export_part
from hedgerow.protocols.vertical.common.shared_parts import SharedLeavesPart
from hedgerow.runtime.party import DEADLINE
from hedgerow.runtime.progress import OnProgress
from hedgerow.runtime.protocol import PartyData, TrainingRecord, find
from hedgerow.runtime.running import run_together
from hedgerow.runtime.saved_files import damage_told, read_object, whole_folder
from hedgerow.statement import Statement
from hedgerow.transport.emulate import Link
from hedgerow.transport.mtls import check_party_names

PART, ABOUT = "part.json", "parties.json"
FILES = (ABOUT, f"*/{PART}")


@dataclass(frozen=True, eq=False, kw_only=True)
class Scoring(Finished):
    """One scoring of rows: the label holder's raw scores, and what it took."""

    raw: Floats  # [rows, outputs]
    answered: Mapping[str, Answered]  # what each feature holder gave away; of a closed scoring nothing
    rounds: int | None = None  # of a closed scoring: how often all parties sent each other words
    rows: Ints | None = None  # of the label holder's table, where rows were matched by ids; None: all of them

    def statement(self) -> Statement:
        """Who learned what, in words (`str`) and as facts (`to_dict`)."""
        columns = {party: answered.n_columns for party, answered in self.answered.items()}
        return find(self.job.NAME).statement(self.job, {"columns": columns, "rounds": self.rounds})


class Dependence(NamedTuple):
    """Mean predictions, were a column the same in all rows."""

    values: tuple[Any, ...]  # of the column
    means: Floats  # [values], or [values, classes] probabilities


class VerticalModel(FittingParts):
    """The parts of one model, by party."""

    @property
    def parties(self) -> tuple[str, ...]:
        """Everybody who has a part, in the order of training."""
        return tuple(self.parts)

    @property
    def label_holder(self) -> str:
        """The party that asks, and learns the scores."""
        return self.asking.party

    @property
    def meta(self) -> TrainingRecord:
        """What the model says about its training."""
        return cast("TrainingRecord", dict(self.asking.meta))

    @property
    def classes_(self) -> np.ndarray:
        """The classes, in the order of the columns of `predict_proba`."""
        classes = self.target.classes
        if classes is None:
            raise AttributeError("a model for numbers has no classes")
        return exact_array(classes)

    @property
    def n_iter_(self) -> int:
        """Rounds of boosting."""
        return self.asking.n_trees // self.target.n_outputs

    def __repr__(self) -> str:
        if isinstance(self.asking, SharedLeavesPart):
            return f"VerticalModel({self.n_iter_} iterations, leaves shared among {', '.join(self.all_parties)})"
        others = ", ".join(f"{party}: {n} handles" for party, n in self.asking.handles.items())
        return f"VerticalModel({self.n_iter_} iterations, {self.label_holder} asks {others})"

    def _repr_html_(self) -> str:
        from hedgerow.report.of_run import told_of_parts
        from hedgerow.report.sections import page

        return page(told_of_parts(self)).fragment

    # --- predictions -------------------------------------------------------------------------------------------------

    def predict(self, X: Mapping[str, Any], **how: Any) -> np.ndarray:
        """The class, or the number, that is expected for each row; `how` as for `scoring`."""
        return self._predicted(self.scoring(X, **how))

    def _predicted(self, scoring: Scoring) -> np.ndarray:
        predictions = predictions_from(self.target.loss, scoring.raw)
        if self.target.classes is None:
            return predictions
        labels: np.ndarray = self.classes_[np.argmax(predictions, axis=1)]
        return labels

    def predict_proba(self, X: Mapping[str, Any], **how: Any) -> Floats:
        """The probability of each class [rows, classes]; `how` as for `scoring`."""
        if self.target.classes is None:
            raise AttributeError("a model for numbers has no probabilities")
        return predictions_from(self.target.loss, self.scoring(X, **how).raw)

    def decision_function(self, X: Mapping[str, Any], **how: Any) -> Floats:
        """Raw scores, [rows] or [rows, classes]; `how` as for `scoring`."""
        raw = self.scoring(X, **how).raw
        return raw[:, 0] if raw.shape[1] == 1 else raw

    def score(self, X: Mapping[str, Any], y: Any, **how: Any) -> float:
        """Accuracy, or R^2 for a regression; y is that of all rows of the label holder's table."""
        scoring = self.scoring(X, **how)
        predicted = self._predicted(scoring)
        n_rows = len(predicted) if scoring.rows is None else len(y)
        rows = slice(None) if scoring.rows is None else scoring.rows
        if self.target.classes is not None:
            return float(np.mean(read_classes(y, n_rows, "y")[rows] == predicted))
        target = read_targets(y, n_rows, "y")[rows]
        return 1.0 - float(np.sum((target - predicted) ** 2) / np.sum((target - target.mean()) ** 2))

    def scoring(
        self,
        X: Mapping[str, Any],
        *,
        predict_epsilon: float | None = None,
        closed: bool = False,
        dealer: str = "dealer",
        transport: str = "memory",
        link: Link | None = None,
        deadline: float = DEADLINE,
        batch_rows: int = BATCH_ROWS,
        n_jobs: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> Scoring:
        """Score rows: name of each party -> its table of them. All trees in one round trip.

        Rows are in the same order in all tables, or matched by the column of ids that the training went by.

        With `predict_epsilon` feature holders randomise their answers: that much for each value of each row, every
        time. With `closed` nobody answers: scores are computed on shares that one more party deals, `dealer`, and
        nothing but the scores is opened; a model whose leaf values are shared is scored in no other way.
        `transport`, `link`, `deadline` and `on_progress` as for `Federation.fit`.
        """
        closed = closed or self.is_shared
        if closed and predict_epsilon is not None:
            raise InvalidParameter(
                "predict_epsilon must be None in a closed scoring, in which no feature holder answers, "
                f"got {predict_epsilon!r}"
            )
        who = (self.parties, self.label_holder, uuid.uuid4().hex, self.asking.run_id)
        job = ClosedScoringJob(*who, dealer, batch_rows) if closed else ScoringJob(*who, predict_epsilon, batch_rows)
        how: dict[str, Any] = {"link": link, "deadline": deadline, "on_progress": on_progress}
        X, rows = self._matched(X, {"transport": transport, "link": link, "deadline": deadline})
        data = self._data(X, n_jobs)
        results, ledgers, meters, seconds = run_together(find(job.NAME), job, data, transport=transport, **how)
        mine = results[self.label_holder]
        return Scoring(
            job=job,
            transport=transport,
            raw=mine.raw,
            answered={} if closed else {party: results[party] for party in job.feature_holders},
            rounds=mine.rounds if closed else None,
            rows=rows,
            ledgers=ledgers,
            meters=meters,
            seconds=seconds,
        )

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

        Feature holders learn the gains of their own splits, which follow from the labels. `transport`, `link` and
        `deadline` as for `Federation.fit`.
        """
        how: dict[str, Any] = {"transport": transport, "link": link, "deadline": deadline}
        nobody = Table((), 0, (), has_names=False)
        data = {name: PartyData(nobody, part=part) for name, part in self.parts.items()}
        found = self._explained(data, {"what": "importances", "kind": kind}, how)
        return {party: dict(zip(each.columns, each.values.tolist(), strict=True)) for party, each in found.items()}

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
        how: dict[str, Any] = {"transport": transport, "link": link, "deadline": deadline}
        X, _ = self._matched(X, how)
        return self._explained(self._data(X, n_jobs), {"what": "contributions"}, how)

    def interactions(
        self,
        X: Mapping[str, Any],
        *,
        transport: str = "memory",
        link: Link | None = None,
        deadline: float = DEADLINE,
        n_jobs: int | None = None,
    ) -> dict[str, Interactions]:
        """Party -> what each two of its columns add to the raw score of each row only together (SHAP interactions).

        What a column adds together with those of all other parties is `elsewhere`; the label holder has it by party.
        """
        how: dict[str, Any] = {"transport": transport, "link": link, "deadline": deadline}
        return self._explained(self._data(X, n_jobs), {"what": "interactions"}, how)

    def permutation_importance(
        self,
        X: Mapping[str, Any],
        y: Any,
        *,
        columns: Mapping[str, Sequence[str]] | None = None,
        n_repeats: int = 5,
        random_state: int = 0,
        **how: Any,
    ) -> dict[str, dict[str, Floats]]:
        """Party -> column -> how much `score` falls when the column's owner shuffles it: one number per repetition.

        Each repetition of each column is a scoring by all parties, in which the owner brings its rows with that one
        column in another order; `how` goes to `scoring`. A column that no split asks about costs nothing and gets 0.
        `columns` names some of them, by party.
        """
        if n_repeats < 1:
            raise InvalidParameter(f"n_repeats must be at least 1, got {n_repeats}")
        tables = {party: brought.table for party, brought in self._data(X, None).items()}
        wanted = {party: self.parts[party].names for party in self.parties} if columns is None else columns
        places = {(party, name): self._place(party, name) for party, names in wanted.items() for name in names}
        best, rng = self.score(tables, y, **how), np.random.default_rng(random_state)
        found: dict[str, dict[str, Floats]] = {party: {} for party in wanted}
        for (party, name), place in places.items():
            fallen = found[party][name] = np.zeros(n_repeats)
            table = tables[party]
            for k in range(n_repeats if place in self.parts[party].asked_columns else 0):
                shuffled = rng.permutation(table.columns[place].values)
                fallen[k] = best - self.score(tables | {party: table.with_values(place, shuffled)}, y, **how)
        return found

    def partial_dependence(
        self,
        X: Mapping[str, Any],
        party: str,
        column: str,
        *,
        values: Sequence[Any] | None = None,
        grid_resolution: int = 20,
        **how: Any,
    ) -> Dependence:
        """The mean prediction for the rows, were `column` the same in all of them: its owner puts each value in turn.

        `values` are levels or numbers, None for missing; otherwise all levels, or `grid_resolution` quantiles of the
        owner's rows from the 5th to the 95th percentile. Each value is a scoring by all parties; `how` goes to it.
        """
        tables = {name: brought.table for name, brought in self._data(X, None).items()}
        place = self._place(party, column)
        table, feature = tables[party], self.parts[party].features[place]
        own = table.columns[place].values
        if values is None and feature.levels is not None:
            values = feature.levels
        elif values is None:
            there = own[np.isfinite(own)]
            if not there.size:
                raise InvalidInput(f"{party}: column {column!r} has no value in these rows; say which values to try")
            values = np.unique(np.quantile(there, np.linspace(0.05, 0.95, max(grid_resolution, 2)))).tolist()
        means = []
        for value in values:
            if feature.levels is not None:
                if value is not None and value not in feature.levels:
                    raise InvalidInput(f"{party}: column {column!r} has no level {value!r} in this model")
                as_read: Any = -1 if value is None else feature.levels.index(value)
            else:
                as_read = np.nan if value is None else value
            same = table.with_values(place, np.full(table.n_rows, as_read, own.dtype))
            raw = self.scoring(tables | {party: same}, **how).raw
            means.append(predictions_from(self.target.loss, raw).mean(axis=0))
        return Dependence(tuple(values), np.array(means))

    def _place(self, party: str, column: str) -> int:
        """Where a column is among its owner's."""
        if party not in self.parts:
            raise InvalidInput(f"{party!r} is not a party of this model; those are {list(self.parties)}")
        names = self.parts[party].names
        if column not in names:
            raise InvalidInput(f"{party} has no column {column!r} in this model; there are {', '.join(names)}")
        return names.index(column)

    def _explained(
        self, data: Mapping[str, PartyData], what: Mapping[str, Any], how: Mapping[str, Any]
    ) -> dict[str, Any]:
        if self.is_shared:
            raise InvalidInput(
                f"this model cannot be explained: its leaf values are shared among {', '.join(self.all_parties)}, and "
                "nobody knows what a split or a column adds to a score"
            )
        job = ExplainingJob(self.parties, self.label_holder, uuid.uuid4().hex, self.asking.run_id, **what)
        results = run_together(find(job.NAME), job, data, **how)[0]
        return {party: results[party] for party in self.parties}

    def _matched(self, X: Mapping[str, Any], how: Mapping[str, Any]) -> tuple[Mapping[str, Any], Ints | None]:
        """Tables row for row, matched by ids where they have them as in the training; and the label holder's rows."""
        self._check_parties(X)
        about = self.meta.get("ids")
        if about is None:
            return X, None
        column = about["column"]
        has_ids = {name: has_column(X[name], column, len(part.features)) for name, part in self.parts.items()}
        if not any(has_ids.values()):
            return X, None
        if not all(has_ids.values()):
            lacks = next(name for name, has in has_ids.items() if not has)
            raise InvalidInput(
                f"{lacks}: its table has no column {column!r}, by which the others' rows are to be matched; leave it "
                "out everywhere if all tables have the same rows in the same order"
            )
        tables = {name: split_ids(X[name], column, name) for name in self.parties}
        ids = {name: ids for name, (ids, _) in tables.items()}
        rules = {"rule": about["rule"], "duplicates": about["duplicates"], "column": str(column), "minimum": 1}
        found = align(ids, **rules, **how)
        order = np.argsort(found.rows[self.label_holder], kind="stable")
        rows = {name: places[order] for name, places in found.rows.items()}
        return {name: take_rows(X, rows[name]) for name, (_, X) in tables.items()}, rows[self.label_holder]

    def _check_parties(self, X: Mapping[str, Any]) -> None:
        if not isinstance(X, Mapping):
            raise InvalidInput(f"rows are given by party, {{name: table}}, got {type(X).__name__}")
        for name in self.parties:
            if name not in X:
                raise InvalidInput(f"{name}: its table of the rows is not there; there are {list(X)}")
        unknown = [name for name in X if name not in self.parts]
        if unknown:
            raise InvalidInput(f"{unknown[0]!r} is not a party of this model; those are {list(self.parties)}")

    def _data(self, X: Mapping[str, Any], n_jobs: int | None) -> dict[str, PartyData]:
        """Each party's table, read as its own part wants it, and its part."""
        n_threads = 1 if n_jobs is None else resolve_n_jobs(n_jobs)
        return {
            name: PartyData(part.read(X[name], f"{name}: X"), n_threads=n_threads, part=part)
            for name, part in self.parts.items()
        }

    # --- files -------------------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> None:
        """Write one file per party, each in a folder of its own: that folder is what the party takes home.

        All of them appear together or not at all; another model that was saved there is replaced.
        """
        with whole_folder(folder, FILES) as place:
            for name, part in self.parts.items():
                (place / name).mkdir()
                save_part(part, place / name / PART)
            (place / ABOUT).write_text(json.dumps({"parties": list(self.parties)}))

    @classmethod
    def load(cls, folder: str | Path) -> VerticalModel:
        """The model whose parts `save` has written."""
        place = Path(folder)
        with damage_told(f"{place} holds no model in parts", ModelFileError):
            parties = list(read_object(place / ABOUT)["parties"])
            check_party_names(tuple(parties))  # each is the name of a folder
            return cls({name: load_part(place / name / PART) for name in parties})

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refused: pickle and joblib would write everybody's parts into one file."""
        self._refuse("one file (with pickle or joblib)")

    def __copy__(self) -> VerticalModel:
        """In memory there is nothing to refuse."""
        return VerticalModel(self.parts)

    def __deepcopy__(self, memo: dict[int, Any]) -> VerticalModel:
        """In memory there is nothing to refuse."""
        return VerticalModel(deepcopy(self.parts, memo))

    def save_model(self, path: str | Path) -> NoReturn:
        """Refused: one file would hold what each party has for itself."""
        self._refuse(f"one file ({path})")

    def export(self, party: str, path: str | Path) -> None:
        """Write one party's own part as JSON for other tools: its splits as conditions, or the trees with handles."""
        if party not in self.parts:
            raise InvalidParameter(f"party must be one of {', '.join(self.parties)}, got {party!r}")
        export_part(self.parts[party], path)

    def export_xgboost(self, path: str | Path) -> NoReturn:
        """Refused: XGBoost's format holds every threshold."""
        self._refuse(f"XGBoost's format ({path})")

    def export_onnx(self, path: str | Path) -> NoReturn:
        """Refused: ONNX's format holds every threshold."""
        self._refuse(f"ONNX ({path})")

    def export_treelite(self, path: str | Path) -> NoReturn:
        """Refused: treelite's format holds every threshold."""
        self._refuse(f"treelite's format ({path})")

    def export_lightgbm(self, path: str | Path) -> NoReturn:
        """Refused: LightGBM's format holds every threshold."""
        self._refuse(f"LightGBM's format ({path})")

    def export_pmml(self, path: str | Path) -> NoReturn:
        """Refused: PMML holds every threshold."""
        self._refuse(f"PMML ({path})")

    def _refuse(self, what: str) -> NoReturn:
        if self.is_shared:
            raise ExportRefused(
                f"this model cannot be written as {what}: its leaf values are shared among "
                f"{', '.join(self.all_parties)}, and nobody knows them. save(folder) writes one part for each party"
            )
        owners = [name for name, part in self.parts.items() if isinstance(part, OwnerPart) and part.n_handles]
        raise ExportRefused(
            f"this model cannot be written as {what}: it would show {self.label_holder} the thresholds of "
            f"{', '.join(owners) or 'the other parties'}, and them its trees and leaf values. save(folder) writes one "
            "part for each party"
        )
