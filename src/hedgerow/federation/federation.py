"""Several parties on one machine, running the same role functions as in production.

    fed = Federation.horizontal({"clinic_a": (X_a, y_a), "clinic_b": (X_b, y_b), "clinic_c": (X_c, y_c)})
    run = fed.fit("horizontal.secure_sum", n_estimators=50, max_depth=4, transport="grpc")
    run.model.predict_proba(X); print(run.statement()); print(run.ledgers["clinic_a"].to_text())

With transport="memory" parties are threads; with "grpc" each is a process that has its own rows and nothing else, and
all talk over mutual TLS. The result is the same, bit for bit.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hedgerow.crypto.identifiers import Duplicates, IdRule
from hedgerow.engine.binning import FeatureBins
from hedgerow.engine.dtypes import Bools, Ints
from hedgerow.engine.table import Table, open_source, read_table, time_rules
from hedgerow.engine.threads import resolve_n_jobs
from hedgerow.errors import HedgerowError, InvalidInput, InvalidParameter
from hedgerow.estimators.inputs import (
    ALIASES,
    LOSSES,
    UnknownParameter,
    check_values,
    class_weights,
    defaults_of,
    encode_classes,
    engine_params,
    own_names,
    plain_class,
    read_classes,
    read_targets,
    read_weights,
    seed_from,
)
from hedgerow.estimators.plain import BoostedTreesClassifier, BoostedTreesRegressor, split_rows
from hedgerow.federation.alignment import Alignment, align, split_ids
from hedgerow.federation.continuing import Earlier, where_columns_are_split, where_rows_are_split
from hedgerow.federation.files import BroughtFiles, are_files
from hedgerow.federation.run import Run
from hedgerow.federation.vertical_model import VerticalModel
from hedgerow.privacy.budget_file import Dataset
from hedgerow.protocols.bad_rows import (
    check_columns,
    entry_for,
    feature_of,
    features_of,
    fit_rows,
    read_labels,
    read_tolerantly,
)
from hedgerow.protocols.services.align.roles import MOST_IDS
from hedgerow.runtime import features
from hedgerow.runtime import protocol as protocols
from hedgerow.runtime.backends import backends_of, with_backends
from hedgerow.runtime.budgets import checked_budgets, epsilon_of, refuse_raising
from hedgerow.runtime.party import DEADLINE
from hedgerow.runtime.progress import OnProgress, watcher
from hedgerow.runtime.protocol import PartyData, Protocol, Settled, TrainingRecord
from hedgerow.runtime.recording import records_for
from hedgerow.runtime.running import check_how, get_ready, run_together
from hedgerow.schema import Column, Schema
from hedgerow.times import TimeRule
from hedgerow.transport.emulate import Link
from hedgerow.transport.mtls import check_party_names

if TYPE_CHECKING:
    from hedgerow.federation.trials import Trial, Tuned

Estimator = BoostedTreesClassifier | BoostedTreesRegressor
_INSTEAD = {
    "warm_start": "give fit the earlier model, init_model=run.model",
    "callbacks": "on_progress tells a program how far a training is",
    "categorical_features": "give it to the Federation instead",
    "backend": "each party says for itself how it computes: fit(..., backend=...)",
}
"""Parameters of the estimators that a federation does not take -> what it takes in their place."""


_ELSEWHERE = {
    "sample_weight": "weights of rows belong to Federation.vertical(..., sample_weight=...), or to an owner of rows: "
    "Federation.horizontal({name: (X, y, sample_weight)})",
    "validation": "name rows to watch where rows are given: Federation.vertical(..., validation=mask) or "
    "Federation.horizontal(..., validation={name: mask}); early_stopping=True watches them",
    "eval_set": "rows to watch are rows of the parties: Federation.vertical(..., validation=mask) or "
    "Federation.horizontal(..., validation={name: mask}), then fit(..., early_stopping=True)",
    "id": "the column of ids is named where tables are given: Federation.vertical(..., id=...)",
    "labels": "labels belong to Federation.vertical(..., labels=(party, y)), or to an owner of rows as (X, y)",
    "task": "Federation.vertical and Federation.horizontal take it: task='regression'",
    "classes": "classes are those of the labels; this protocol takes no public list of them",
}
"""What belongs to the federation, and people give to `fit` -> where it belongs."""


class Chosen(NamedTuple):
    """What a user asks for, sorted and checked: a protocol, its options, and all parameters of trees.

    It knows nothing of rows, so that parties who never meet can each begin with it.
    """

    protocol: Protocol  # or the variant that is meant
    options: dict[str, Any]
    trees: dict[str, Any]  # all parameters of trees
    task: str
    estimator: type[
        Estimator
    ]  # the scikit-learn face of a model: it knows the parameters of trees, and holds the model
    schema: Schema | None  # that tables are read by, whatever the protocol is

    @classmethod
    def of(
        cls, protocol: str, params: Mapping[str, Any], *, partition: str, task: str, schema: Schema | None = None
    ) -> Chosen:
        """From what the user wrote; InvalidParameter, naming it, for what cannot be."""
        spec = protocols.find(protocol)
        if spec.partition != partition:
            raise InvalidParameter(f"{protocol} is for data split by {spec.partition}, not by {partition}")
        if protocol not in protocols.names():
            raise InvalidParameter(f"{protocol} trains nothing; there are {', '.join(protocols.names())}")
        params = dict(params)
        variant = spec.variant(params)
        spec = spec if variant is None else protocols.find(variant)
        own = {name: value for name, value in params.items() if name in spec.options}
        if schema is not None and own.get("dp") is not None:
            own.setdefault("schema", schema)
        estimator = BoostedTreesClassifier if task == "classification" else BoostedTreesRegressor
        trees = _trees(spec, estimator, {name: value for name, value in params.items() if name not in own})
        return cls(spec, own, trees, task, estimator, schema)

    def job(
        self,
        parties: tuple[str, ...],
        label_holder: str | None,
        columns: Sequence[tuple[str, bool]],
        run_id: str | None = None,
    ) -> Any:
        """The job, for columns as far as they are known: name, and whether it has levels."""
        trees = self.trees
        loss: dict[str, Any] = {}
        if self.task == "regression":
            loss = {"loss": LOSSES[trees["loss"]], "label_range": trees["label_range"]}
        seed = seed_from(trees["random_state"])
        patience = trees["n_iter_no_change"] if self.stops_early else None
        boosting = engine_params(
            trees, columns, n_iterations=trees["max_iter"], seed=seed, early_stopping_rounds=patience, **loss
        )
        settled = Settled(
            parties, run_id or uuid.uuid4().hex, self.task, boosting, int(trees["max_bins"]), label_holder
        )
        return self.protocol.job.from_user(self.options, settled)

    @property
    def stops_early(self) -> bool:
        """Whether training ends when rows that are watched no longer improve."""
        return self.trees["early_stopping"] is True

    def read(self, brought: Brought | BroughtFiles) -> PartyData:
        """What a party brings, read as the protocol needs it. Where that protects rows, none of them raises."""
        if brought.has_weights:
            features.check(self.protocol.name, "sample_weight", f"{brought.name}: sample_weight is given")
        data = self._read(brought)
        for column in data.table.columns:
            if column.levels is not None:
                features.check(self.protocol.name, "levels", f"{brought.name}: column {column.name!r} has levels")
        listed = Declared.of(self.task, self.options, None).classes
        n_classes = sum(each is not None for each in listed or data.classes or ())
        if n_classes > 2:
            features.check(self.protocol.name, "classes", f"{brought.name}: labels are of {n_classes} classes")
        if self.stops_early and brought.has_labels:
            data = self._with_validation(brought, data)
        return self._with_class_weights(brought, data)

    def _with_class_weights(self, brought: Brought | BroughtFiles, data: PartyData) -> PartyData:
        """Rows to learn from with the weights of their classes; those to watch count as they were given."""
        wish = {
            name: self.trees[name] for name in ("class_weight", "scale_pos_weight") if self.trees.get(name) is not None
        }
        if not wish or not brought.has_labels:
            return data
        what = ", ".join(f"{name}={value!r}" for name, value in wish.items())
        if data.labels is None or data.classes is None:
            raise InvalidParameter(f"{brought.name}: {what} needs rows in memory; give files a column of weights")
        if self.protocol.partition == "rows" and wish.get("class_weight") == "balanced":
            raise InvalidParameter(
                "class_weight='balanced' follows from how many rows of each class all owners have together, which "
                "nobody knows here; give the weights by class instead: class_weight={class: weight}"
            )
        self.protocol.check_weights(self.options, what)
        learned = np.ones(len(data.labels), np.bool_) if data.validation is None else ~data.validation
        own = np.ones(len(data.labels)) if data.weight is None else data.weight.copy()
        known = data.classes
        if "class_weight" in wish and isinstance(wish["class_weight"], Mapping) and self.protocol.partition == "rows":
            known = tuple(
                dict.fromkeys((*data.classes, *wish["class_weight"]))
            )  # others may have classes that it has not
        found = class_weights(data.labels[learned], known, **wish, sample_weight=own[learned])
        own[learned] = own[learned] if found is None else found
        return replace(data, weight=own)

    def _with_validation(self, brought: Brought | BroughtFiles, data: PartyData) -> PartyData:
        """Rows to watch are those that the party named; otherwise a share of its own is drawn, as the estimators do."""
        if data.validation is not None:
            return data
        if data.labels is None:
            raise InvalidParameter(f"{brought.name}: early_stopping needs rows in memory, or a column that names them")
        seed = seed_from(self.trees["random_state"])
        is_class, share = data.classes is not None, self.trees["validation_fraction"]
        counted = np.arange(len(data.labels)) if data.weight is None else np.flatnonzero(data.weight)
        by_class = is_class and not (self.protocol.watches_openly and self.options.get("epsilon") != math.inf)
        _, check = split_rows(data.labels[counted], share, seed, by_class=by_class)
        validation = np.zeros(len(data.labels), np.bool_)
        validation[counted[check]] = True
        return replace(data, validation=validation)

    def _read(self, brought: Brought | BroughtFiles) -> PartyData:
        if brought.has_weights:
            self.protocol.check_weights(self.options, f"{brought.name}: sample_weight is given")
        declared = Declared.of(self.task, self.options, self.trees.get("label_range"))
        is_mapped = self.protocol.maps_rows(self.options, brought.has_labels)
        if isinstance(brought, Brought) and self.protocol.partition == "columns":
            is_mapped = is_mapped and self.options.get("on_bad_rows") != "raise"
            return brought.as_columns(declared) if is_mapped else brought.strictly()
        if is_mapped and declared.schema is not None:
            return brought.as_rows(declared.schema)
        return brought.strictly() if self.schema is None else brought.fitted(self.schema)

    def sign(self, result: Any, job: Any, *, has_names: bool) -> None:
        """Let the result of the run's first party say which training it comes from."""
        meta: TrainingRecord = result.meta
        meta |= {
            "protocol": self.protocol.name,
            "estimator": self.estimator.__name__,
            "has_feature_names": has_names,
        }
        stated = self.protocol.stamp
        stamp = stated(job) if stated is not None else self.protocol.statement(job, meta).facts.get("stamp")
        if stamp:
            meta["stamp"] = stamp


class Plan(NamedTuple):
    """A training between parties, before it runs."""

    chosen: Chosen
    data: dict[str, PartyData]
    job: Any


class Federation:
    """Parties and their data. Make one with `Federation.horizontal` or `Federation.vertical`, then `fit`."""

    def __init__(
        self,
        partition: str,
        brought: Mapping[str, Brought | BroughtFiles],
        task: str,
        *,
        label_holder: str | None = None,
    ) -> None:
        self.partition = partition
        self.task = task
        self.label_holder = label_holder
        self.alignment: Alignment | None = None
        self._brought = dict(brought)
        self._id: str | int | None = None  # the column of ids
        self._linkage: dict[str, Any] | None = None  # how rows are to be aligned, until they are
        self._schema: Schema | None = None  # that tables are read by

    @property
    def parties(self) -> tuple[str, ...]:
        """The parties that bring data."""
        return tuple(self._brought)

    @classmethod
    def horizontal(
        cls,
        data: Mapping[str, tuple[Any, ...]],
        *,
        validation: Mapping[str, Any] | None = None,
        task: str = "classification",
        categorical_features: Any = "from_dtype",
        schema: Schema | None = None,
    ) -> Federation:
        """Owners of rows: name -> (X, y) or (X, y, sample_weight), with the same columns.

        `task` is "classification" or "regression". `validation`: name of an owner -> which of its rows are watched for
        early stopping, as a mask or as numbers of rows; without it each owner draws a share of its own rows.

        X may be a folder of Parquet files, a file or `Blocks`, with y the name of the column of labels: rows are then
        read some at a time, and are never all in memory (docs/scale.md).
        `categorical_features` as for the estimators: by dtype, or by name, index or mask. With a public `schema` tables
        are read as it says, and no row can make that fail: what does not fit is mapped to what it allows, and a row
        with an unlisted class is left out (`protocols/bad_rows.py`). `fit` with dp goes by the same schema, or by the
        one that it is given itself. Without either, `fit` raises if a row cannot be trained on.
        """
        _check_task(task)
        if not isinstance(data, Mapping) or not data:
            raise InvalidInput("Federation.horizontal takes a dict: name of the owner -> (X, y)")
        read: dict[str, Brought | BroughtFiles] = {}
        check_party_names(tuple(data))
        for name, pair in data.items():
            if not isinstance(pair, tuple | list) or len(pair) not in (2, 3):
                raise InvalidInput(
                    f"{name}: an owner brings (X, y) or (X, y, sample_weight), got {type(pair).__name__}"
                )
            watched = (validation or {}).get(name)
            if are_files(pair[0]):
                files = BroughtFiles(name, *pair, task=task, categorical_features=categorical_features)
                files.validation = _rows_named(watched, files.n_rows, f"{name}: validation")
                read[name] = files
                continue
            if schema is not None:
                check_columns(pair[0], schema, where=name)
            X, y, weight = (*pair, None)[:3]
            how: dict[str, Any] = {"task": task, "categorical_features": categorical_features}
            read[name] = Brought(name, X, y, weight=weight, validation=watched, **how)
        federation = cls("rows", read, task)
        federation._schema = schema
        return federation

    @classmethod
    def vertical(
        cls,
        data: Mapping[str, Any],
        *,
        labels: tuple[str, Any],
        sample_weight: Any = None,
        validation: Any = None,
        task: str = "classification",
        categorical_features: Mapping[str, Any] | None = None,
        id: str | int | None = None,  # noqa: A002 - what users call it
        id_rule: IdRule | Mapping[str, Any] | None = None,
        duplicates: Duplicates = "refuse",
        minimum: int = 2,
        most_ids: int = MOST_IDS,
    ) -> Federation:
        """Holders of columns of the same people: name -> X; `labels` = (name of their holder, y).

        `sample_weight`: a weight for each of the label holder's rows, which is its own as y is. Not all protocols take
        weights. `validation`: which of its rows are watched for early stopping, as a mask or as numbers of rows;
        without it a share of them is drawn, as the estimators do.
        Without `id` the rows of all parties must be the same ones, in the same order. With `id`, the name of a column
        that all tables have, parties find their common rows first, without showing each other the ids (`align`);
        `id_rule`, `duplicates`, `minimum` and `most_ids` as for `alignment.align`. That column is not trained on; the
        model matches rows by it again where tables to predict have it.
        `categorical_features`: by party, as for the estimators.
        """
        _check_task(task)
        if not isinstance(data, Mapping) or not data:
            raise InvalidInput("Federation.vertical takes a dict: name of the party -> X")
        is_pair = isinstance(labels, tuple) and len(labels) == 2 and isinstance(labels[0], str)
        if not is_pair or labels[0] not in data:
            raise InvalidInput(f"labels must be (name of a party, y), with one of the parties {list(data)}")
        holder, y = labels
        categorical = dict(categorical_features or {})
        unknown = [name for name in categorical if name not in data]
        if unknown:
            raise InvalidParameter(f"categorical_features names {unknown[0]!r}, which is not one of {list(data)}")
        read, ids = {}, {}
        check_party_names(tuple(data))
        for name, X in data.items():
            if id is not None:
                ids[name], X = split_ids(X, id, name)  # noqa: PLW2901 - from here on the table is without ids
            if _n_columns(X) == 0:
                raise InvalidInput(f"{name}: brings no column; a party that takes part needs at least one")
            kinds, has_labels = categorical.get(name, "from_dtype"), name == holder
            own = {"y": y, "weight": sample_weight, "validation": validation} if has_labels else {}
            read[name] = Brought(name, X, **own, task=task, categorical_features=kinds, has_labels=has_labels)
        federation = cls("columns", read, task, label_holder=holder)
        if id is not None:
            how = {"rule": id_rule, "duplicates": duplicates, "minimum": minimum, "most_ids": most_ids}
            federation._linkage, federation._id = {"ids": ids, **how, "column": str(id)}, id
            return federation
        if id_rule is not None:
            raise InvalidParameter("id_rule says how ids are compared, but no id was given")
        sizes = {name: party.n_rows for name, party in read.items()}
        odd = next((name for name, n_rows in sizes.items() if n_rows != sizes[holder]), None)
        if odd is not None:
            raise InvalidInput(
                f"{odd} has {sizes[odd]} rows and {holder} has {sizes[holder]}; rows of all parties must be the same "
                "ones, in the same order; with id='...' they are found by a column of ids"
            )
        return federation

    def align(
        self,
        *,
        transport: str = "memory",
        link: Link | None = None,
        deadline: float = DEADLINE,
        verbose: int = 0,
        on_progress: OnProgress | None = None,
        backend: Any = None,
    ) -> Alignment:
        """Find the rows that all parties hold, by the column `id`; `fit` does it too, if it has not been done.

        `backend`: where parties multiply, as for `alignment.align`.
        """
        if self.alignment is not None:
            return self.alignment
        if self._linkage is None:
            raise InvalidParameter("rows are aligned by a column of ids; give Federation.vertical its name, id='...'")
        how: dict[str, Any] = {"transport": transport, "link": link, "deadline": deadline}
        self.alignment = align(**self._linkage, **how, verbose=verbose, on_progress=on_progress, backend=backend)
        self._linkage = None
        for name, brought in self._brought.items():
            if isinstance(brought, Brought):  # files have no ids that could be matched
                brought.rows = self.alignment.rows[name]
        return self.alignment

    def fit(
        self,
        protocol: str,
        *,
        transport: str = "memory",
        link: Link | None = None,
        deadline: float = DEADLINE,
        verbose: int = 0,
        on_progress: OnProgress | None = None,
        record: bool | str | Path = False,
        budget: Mapping[str, Dataset] | None = None,
        backend: Any = None,
        init_model: Estimator | VerticalModel | None = None,
        init_tables: Mapping[str, Any] | None = None,
        **params: Any,
    ) -> Run:
        """Train with a protocol. `params` are those of the estimators (XGBoost's spellings too) and the protocol's own.

        `init_model`: the model of an earlier run, to which this one adds `n_estimators` trees; its parties score the
        rows first. Where columns are split, `init_tables` has the tables of earlier partners who take no part now:
        name -> X, row for row as this federation's (`federation.continuing`).

        `link` emulates a slow network (`hedgerow.transport.emulate.Link`). `deadline`: seconds that a party waits for a
        message. `verbose=1` says how far it is, and when kernels are compiled; `on_progress(done, total)` tells a
        program. `record=True` keeps all frames that each party sent and received (`run.transcripts`), a folder writes
        them there as they pass. That is as sensitive as the data, and for tests and attacks only.

        `budget`: name of a party -> its own `BudgetFile(path).dataset(name)`. What the run may cost is charged to it
        before the party sends anything, and stays charged if the run fails. BudgetExceeded if it is too small.

        `backend`: where parties work on their rows, as for the estimators: None for this machine, "ray", an address or
        a `RayBackend`; or a mapping, name of a party -> one of these. Not all roles can use Ray (docs/scale.md).
        """
        check_how(transport, deadline)
        if init_model is not None:
            features.check(protocol, "warm_start", "init_model")
        elif init_tables:
            raise InvalidParameter("init_tables are for scoring rows with an init_model, and there is none")
        if budget:
            refuse_raising(params)
        chosen, data, job = self.plan(protocol, **params)
        spec, own = chosen.protocol, chosen.options
        backends = {} if backend is None else backends_of(backend, self.parties, chosen.trees["n_jobs"])
        data = with_backends(spec, job, data, backends) if backends else data
        budgets = {} if budget is None else checked_budgets(budget, spec, job, data)
        if own.get("on_bad_rows") == "raise" and self.partition == "rows" and isinstance(own.get("schema"), Schema):
            for brought in self._brought.values():  # these rows are public
                if isinstance(brought, Brought):  # those in files are refused by the role that reads them
                    brought.refuse_bad_rows(own["schema"])
        records = None if record is False else records_for(record, job.run_id)
        how: dict[str, Any] = {"transport": transport, "link": link, "deadline": deadline}
        if self._linkage is not None:
            self.align(**how, verbose=verbose, backend=backend)
            data = self._read(chosen)
            data = with_backends(spec, job, data, backends) if backends else data
        earlier = None
        if init_model is not None:
            earlier = self._earlier(init_model, init_tables, spec, job, data, how)
            data = earlier.data
        how["on_progress"] = watcher(verbose, on_progress) if verbose else on_progress
        if verbose:
            get_ready(spec, job, transport)
        results, ledgers, meters, seconds = run_together(spec, job, data, **how, records=records, budgets=budgets)
        first = results[spec.parties(job)[0]]
        chosen.sign(first, job, has_names=next(iter(data.values())).table.has_names)
        if earlier is not None:
            first.meta["continued"] = earlier.record
        if self.alignment is not None:
            rules = self.alignment.job
            first.meta["ids"] = {"column": self._id, "rule": dict(rules.rule), "duplicates": rules.duplicates}
        model: Estimator | VerticalModel
        if self.partition == "rows":
            model = chosen.estimator(**chosen.trees).adopt(first, "the federation")
        else:
            left = (
                {}
                if earlier is None
                else {name: replace(part, run_id=job.run_id) for name, part in earlier.left.items()}
            )
            model = VerticalModel({**{name: results[name] for name in self.parties}, **left})
        return Run(
            job=job,
            protocol=spec.name,
            transport=transport,
            ledgers=ledgers,
            meters=meters,
            seconds=seconds,
            model=model,
            alignment=self.alignment,
            transcripts={} if records is None else records.transcripts,
            finished=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def cross_validate(
        self,
        protocol: str,
        *,
        cv: Any = 5,
        scoring: Any = None,
        transport: str = "memory",
        link: Link | None = None,
        deadline: float = DEADLINE,
        budget: Mapping[str, Dataset] | None = None,
        **params: Any,
    ) -> Trial:
        """Train on all folds but one and score that one, in turn: scores, and what that cost in epsilon and bytes.

        `cv`: how many folds, a splitter of scikit-learn's, or pairs of numbers of rows (of the common ones, where rows
        were matched). All parties use the same folds; where rows are split each owner deals its own. `scoring` as in
        scikit-learn, by default accuracy or R^2. Every fold is a training that spends what `fit` would spend, and is
        charged to `budget`. The other parameters as for `fit`; `docs/reference/federation.md` says who learns what.
        """
        from hedgerow.federation import trials

        how = {"transport": transport, "link": link, "deadline": deadline, "budget": budget}
        self._align_first(how)
        return trials.cross_validate(self, protocol, cv, scoring, how, params)

    def tune(
        self,
        protocol: str,
        space: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        cv: Any = 5,
        scoring: Any = None,
        n_trials: int | None = None,
        refit: bool = True,
        transport: str = "memory",
        link: Link | None = None,
        deadline: float = DEADLINE,
        budget: Mapping[str, Dataset] | None = None,
        **params: Any,
    ) -> Tuned:
        """Cross-validate every choice of parameters in `space` on the same folds, and train with the best.

        `space`: parameter -> values to try, all combinations of them; with `n_trials` so many are drawn, and values may
        be distributions of scipy's. Every trial tells what it cost. With `refit` the best is trained on all rows,
        `found.run`. The other parameters as for `cross_validate`.
        """
        from hedgerow.federation import trials

        how = {"transport": transport, "link": link, "deadline": deadline, "budget": budget}
        self._align_first(how)
        return trials.tune(self, protocol, space, cv, scoring, n_trials, how, params, refit=refit)

    def _align_first(self, how: Mapping[str, Any]) -> None:
        if self._linkage is not None:
            self.align(**{name: value for name, value in how.items() if name != "budget"})

    def with_rows(self, rows: Mapping[str, Ints]) -> Federation:
        """Some rows of everybody: name -> numbers of rows, of the common ones if these were matched."""
        brought: dict[str, Brought | BroughtFiles] = {}
        for name, each in self._brought.items():
            if not isinstance(each, Brought):
                raise InvalidInput(f"{name}: rows in files cannot be taken apart; bring a table in memory")
            brought[name] = each.with_rows(rows[name])
        some = Federation(self.partition, brought, self.task, label_holder=self.label_holder)
        some.alignment, some._id, some._schema = self.alignment, self._id, self._schema
        return some

    def _earlier(
        self,
        model: Any,
        tables: Mapping[str, Any] | None,
        spec: Protocol,
        job: Any,
        data: dict[str, PartyData],
        how: Mapping[str, Any],
    ) -> Earlier:
        """What everybody brings, with the model to go on from."""
        if self.label_holder is None:
            return where_rows_are_split(model, data, job.boosting.loss)
        for name in self.parties:
            planned = None if name == self.label_holder else spec.planned(job, name, data[name])
            if planned is not None and math.isfinite(epsilon_of(planned)):
                raise InvalidParameter(
                    f"init_model: to go on, {name} would say in the clear on which side of its splits each row is, "
                    f"which the epsilon of {spec.name} does not cover; train all trees in one run instead"
                )
        return where_columns_are_split(model, data, self.label_holder, job.boosting.loss, tables, how)

    def plan(self, protocol: str, **params: Any) -> Plan:
        """What `fit` would run, checked as `fit` checks it; nothing is run."""
        chosen = Chosen.of(protocol, params, partition=self.partition, task=self.task, schema=self._schema)
        data = self._read(chosen)
        tables = [party.table for party in data.values()]
        columns = tables[0].columns if self.partition == "rows" else [c for table in tables for c in table.columns]
        job = chosen.job(
            self.parties, self.label_holder, [(column.name, column.levels is not None) for column in columns]
        )
        return Plan(chosen, data, job)

    def _read(self, chosen: Chosen) -> dict[str, PartyData]:
        """What everybody brings. Each party has one thread unless the user asks for more: all share this machine."""
        n_threads = 1 if chosen.trees["n_jobs"] is None else resolve_n_jobs(chosen.trees["n_jobs"])
        read = {name: chosen.read(brought) for name, brought in self._brought.items()}
        return {name: replace(data, n_threads=n_threads) for name, data in read.items()}

    def __repr__(self) -> str:
        rows = ", ".join(
            f"{name}: {brought.n_rows:,} x {len(brought.names)}" for name, brought in self._brought.items()
        )
        return f"Federation({self.partition} split, {rows})"


def _trees(spec: Protocol, estimator: type[Estimator], params: dict[str, Any]) -> dict[str, Any]:
    """All parameters of trees under our names, checked: what the user wrote, then the protocol's, then ours."""
    for name, value in params.items():
        if name in _ELSEWHERE:
            raise InvalidParameter(f"fit takes no {name}: {_ELSEWHERE[name]}")
        features.check_parameter(spec.name, ALIASES.get(name, name), value)
    try:
        given = own_names(estimator, params)
    except UnknownParameter as problem:
        raise UnknownParameter(f"{problem}; {spec.name} adds {', '.join(sorted(spec.options))}") from None
    default = defaults_of(estimator)
    for name, instead in _INSTEAD.items():
        if name in given and given[name] != default[name]:
            raise InvalidParameter(f"a federation takes no {name}, got {given[name]!r}; {instead}")
    trees = {**default, **(spec.defaults or {}), **given}
    if "loss" in trees:
        features.check_parameter(spec.name, "loss", trees["loss"])
    check_values(trees)
    if trees["eval_metric"] is not None and not isinstance(trees["eval_metric"], str):
        raise InvalidParameter(
            f"eval_metric must be the name of a metric, which all parties know, got {trees['eval_metric']!r}"
        )
    return trees


def _check_task(task: str) -> None:
    if task not in ("classification", "regression"):
        raise InvalidParameter(f"task must be 'classification' or 'regression', got {task!r}")


def _n_columns(X: Any) -> int | None:
    """How many columns a table has, if it can be told without reading it."""
    shape = getattr(X, "shape", None)
    return int(shape[1]) if isinstance(shape, tuple) and len(shape) == 2 else None


# --- what a party brings ---------------------------------------------------------------------------------------------


class Declared(NamedTuple):
    """What is public about tables and labels before anybody looks at a row."""

    schema: Schema | None = None
    classes: tuple[Any, ...] | None = None
    label_range: tuple[float, float] | None = None

    @classmethod
    def of(cls, task: str, options: Mapping[str, Any], label_range: tuple[float, float] | None) -> Declared:
        """From the parameters of a training, of which nothing has been checked yet."""
        given = options.get("schema")
        schema = given if isinstance(given, Schema) else None
        if task == "regression":
            return cls(schema, None, label_range or (None if schema is None else schema.label_bounds))
        classes = options.get("classes", None if schema is None else schema.classes)
        return cls(schema, tuple(classes) if isinstance(classes, list | tuple) else None)


class Brought:
    """One party's table, its labels and their weights if it has any; and the two ways to read them.

    strictly         what cannot be trained on is an error that names the row: for protocols that protect no rows
    as declared      for protocols with public rules for rows that do not fit (`Protocol.maps_rows`): by the public
                     schema, classes and range of labels. No row makes it fail; what cannot be read counts as missing,
                     and what becomes of that is for the protocol to say.

    Which of the two it will be is known when a protocol is chosen. So a table whose rows cannot be read strictly is
    taken, and `strictly` raises what was wrong. A table of which nothing could be made in either way is refused at
    once: for the names or types of its columns, or if rows and labels are not equally many. So are weights that
    cannot be weights. Protocols that read rows as declared take none.
    """

    def __init__(
        self,
        name: str,
        X: Any,
        y: Any = None,
        *,
        task: str,
        categorical_features: Any,
        has_labels: bool = True,
        weight: Any = None,
        validation: Any = None,
    ) -> None:
        self.name = name
        self.rows: Ints | None = None
        """Which rows to take, in this order, once they have been aligned; None: all."""
        self._X, self._y, self.has_labels = X, y, has_labels
        self._task, self._categorical = task, categorical_features
        self._strict: PartyData | HedgerowError  # or what is wrong with a row
        try:
            self._strict = self._read()
        except HedgerowError as problem:
            self._strict = problem
        except (TypeError, ValueError, OverflowError) as problem:  # objects that numpy and others choke on
            self._strict = InvalidInput(f"{name}: X or y cannot be read: {problem}")
        self.names, self._n_rows = self._look()
        self._weight = read_weights(weight, self._n_rows, f"{name}: sample_weight")
        self._validation = _rows_named(validation, self._n_rows, f"{name}: validation")

    @property
    def has_weights(self) -> bool:
        """Whether rows have weights of their own."""
        return self._weight is not None

    @property
    def n_rows(self) -> int:
        """How many rows there are to train on."""
        return self._n_rows if self.rows is None else len(self.rows)

    def with_rows(self, rows: Ints) -> Brought:
        """The same with some of its rows alone."""
        some = copy(self)
        some.rows = rows if self.rows is None else self.rows[rows]
        return some

    def strictly(self) -> PartyData:
        """Everything as it is; raises what is wrong with a row."""
        if isinstance(self._strict, HedgerowError):
            raise self._strict
        return self._taken(self._strict)

    def as_rows(self, schema: Schema) -> PartyData:
        """A whole table of the schema's columns, and labels; rows that do not fit are still there."""
        table, misfits = read_tolerantly(self._X, like=features_of(schema.columns), where=self.name)
        return self._with_labels(table, misfits, schema.classes)

    def fitted(self, schema: Schema) -> PartyData:
        """The rows that count, as the schema has them."""
        fitted = fit_rows(self._X, self._y, schema, where=self.name)
        rows = np.arange(len(fitted.counts)) if self.rows is None else self.rows
        return taken(PartyData(fitted.table, fitted.labels, schema.classes), rows[fitted.counts[rows]])

    def refuse_bad_rows(self, schema: Schema) -> None:
        """InvalidInput if a row does not fit: for rows that are public."""
        fit_rows(self._X, self._y, schema, where=self.name, on_bad_rows="raise")

    def as_columns(self, declared: Declared) -> PartyData:
        """Columns that are declared, read by that; the others strictly. Labels too, where it is declared what they are.

        Raises what is wrong with a row only where that is in a column, or a label, of which nothing is declared.
        """
        schema, classes, label_range = declared
        entries = [entry_for(schema, self.name, name) for name in self.names]
        about_labels = classes is not None or label_range is not None
        if not any(entries) and not about_labels:
            return self.strictly()
        table, misfits = self._described(entries)
        if not self.has_labels:
            return self._taken(PartyData(table, misfits=misfits))
        if not about_labels:
            strict = self._strict if isinstance(self._strict, PartyData) else self.strictly()
            return self._taken(replace(strict, table=table, misfits=misfits))
        return self._with_labels(table, misfits, classes)

    def _read(self) -> PartyData:
        table, where = self._table(), f"{self.name}: y"
        if not self.has_labels:
            return PartyData(table)
        if self._task == "regression":
            return PartyData(table, read_targets(self._y, table.n_rows, where))
        found, codes = encode_classes(read_classes(self._y, table.n_rows, where), where)
        return PartyData(table, codes, tuple(plain_class(label) for label in found.tolist()))

    def _table(self) -> Table:
        how = {"categorical_features": self._categorical, "many_levels": "hash"}  # which tells nothing about rows
        return read_table(self._X, **how, where=f"{self.name}: X")

    def _look(self) -> tuple[tuple[str, ...], int]:
        """Names of columns and number of rows; raises what is wrong if that is not in rows alone."""
        if isinstance(self._strict, PartyData):
            return self._strict.table.names, self._strict.table.n_rows
        try:
            names = open_source(self._X, self.name).names
            like = [_as_it_is(name, rule) for name, rule in time_rules(self._X, self.name).items()]
            table, _ = read_tolerantly(self._X, like=like, where=self.name)
            n_labels = len(read_labels(self._y, None, where=self.name)) if self.has_labels else table.n_rows
        except HedgerowError:
            raise self._strict from None
        if n_labels != table.n_rows:
            raise self._strict
        return names, table.n_rows

    def _described(self, entries: Sequence[Column | None]) -> tuple[Table, Bools | None]:
        """The table with columns that are described read so, and the others strictly.

        And which rows had cells that could not be read, where all columns are described.
        """
        strict = self._strict.table if isinstance(self._strict, PartyData) else None
        if not any(entries):
            return strict if strict is not None else self._table(), None
        pairs, rules = list(zip(self.names, entries, strict=True)), time_rules(self._X, self.name)
        like = [_as_it_is(name, rules[name]) if entry is None else feature_of(entry, name) for name, entry in pairs]
        table, misfits = read_tolerantly(self._X, like=like, where=f"{self.name}: X")
        if all(entries):
            return table, misfits
        strict = strict if strict is not None else self._table()
        columns = zip(entries, table.columns, strict.columns, strict=True)
        return replace(strict, columns=tuple(old if entry is None else new for entry, new, old in columns)), None

    def _with_labels(self, table: Table, misfits: Bools | None, classes: Sequence[Any] | None) -> PartyData:
        """Labels as they are declared; one that is not listed has the class None."""
        labels = read_labels(self._y, classes, where=self.name)
        return self._taken(PartyData(table, labels, None if classes is None else (*classes, None), misfits=misfits))

    def _taken(self, data: PartyData) -> PartyData:
        data = replace(data, weight=self._weight, validation=self._validation)
        return data if self.rows is None else taken(data, self.rows)


def _rows_named(rows: Any, n_rows: int, where: str) -> Bools | None:
    """Rows that somebody names by a mask or by their numbers, as a mask."""
    if rows is None:
        return None
    named = np.asarray(rows)
    if named.dtype == np.bool_ and named.shape == (n_rows,):
        mask: Bools = named.copy()
    elif named.dtype.kind in "iu" and named.ndim == 1 and (not named.size or 0 <= named.min() <= named.max() < n_rows):
        mask = np.zeros(n_rows, np.bool_)
        mask[named] = True
    else:
        raise InvalidInput(f"{where} must be a mask of {n_rows} rows or numbers from 0 to {n_rows - 1}, got {rows!r}")
    if not 0 < int(mask.sum()) < n_rows:
        raise InvalidInput(
            f"{where} names {int(mask.sum())} of {n_rows} rows; some must be watched, and some learned from"
        )
    return mask


def taken(brought: PartyData, rows: Ints) -> PartyData:
    """Some rows of what a party brings, in this order."""
    table = brought.table
    of_rows = {name: getattr(brought, name) for name in ("labels", "misfits", "weight", "validation")}
    some: dict[str, Any] = {name: None if values is None else values[rows] for name, values in of_rows.items()}
    return replace(brought, table=table.taken(rows), **some)


def _as_it_is(name: str, rule: TimeRule | None) -> FeatureBins:
    """For reading a column of which nothing is known but its type."""
    return FeatureBins(name, edges=np.empty(0), rule=rule)
