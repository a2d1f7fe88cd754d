"""Several parties on one machine, running the same role functions as in production.

    fed = Federation.horizontal({"clinic_a": (X_a, y_a), "clinic_b": (X_b, y_b), "clinic_c": (X_c, y_c)})
    run = fed.fit("horizontal.secure_sum", n_estimators=50, max_depth=4, transport="grpc")
    run.model.predict_proba(X); print(run.statement()); print(run.ledgers["clinic_a"].to_text())

With transport="memory" parties are threads; with "grpc" each is a process that has its own rows and nothing else, and
all talk over mutual TLS. The result is the same, bit for bit.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from hedgerow.crypto.identifiers import Duplicates, IdRule
from hedgerow.engine.table import Table
from hedgerow.engine.threads import resolve_n_jobs
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.estimators.parameters import (
    UnknownParameter,
    check_values,
    defaults_of,
    engine_params,
    own_names,
    seed_from,
)
from hedgerow.estimators.plain import BoostedTreesClassifier, BoostedTreesRegressor
from hedgerow.federation.alignment import Alignment, align, split_ids
from hedgerow.federation.brought import Brought, Declared
from hedgerow.federation.finished import what_it_took
from hedgerow.federation.run import Run
from hedgerow.federation.vertical_model import VerticalModel
from hedgerow.privacy.budget_file import Dataset
from hedgerow.protocols.bad_rows import check_columns
from hedgerow.protocols.services.align.job import MOST_IDS
from hedgerow.runtime import protocol as protocols
from hedgerow.runtime.budgets import checked_budgets, refuse_raising
from hedgerow.runtime.options import Settled
from hedgerow.runtime.party import DEADLINE
from hedgerow.runtime.protocol import PartyData, Protocol
from hedgerow.runtime.recording import records_for
from hedgerow.runtime.running import OnProgress, check_how, run_together, watcher
from hedgerow.runtime.training_record import TrainingRecord
from hedgerow.schema import Schema
from hedgerow.transport.emulate import Link
from hedgerow.transport.mtls import check_party_names

Estimator = BoostedTreesClassifier | BoostedTreesRegressor
NOT_FEDERATED = ("warm_start", "early_stopping", "callbacks", "eval_metric", "categorical_features")


class Plan(NamedTuple):
    """A training between parties, before it runs."""

    protocol: Protocol  # or the variant that is meant
    options: dict[str, Any]
    trees: dict[str, Any]  # all parameters of trees
    data: dict[str, PartyData]
    job: Any


class Federation:
    """Parties and their data. Make one with `Federation.horizontal` or `Federation.vertical`, then `fit`."""

    def __init__(
        self, partition: str, brought: Mapping[str, Brought], task: str, *, label_holder: str | None = None
    ) -> None:
        self.partition = partition
        self.task = task
        self.label_holder = label_holder
        self.alignment: Alignment | None = None
        self._brought = dict(brought)
        self._linkage: dict[str, Any] | None = None  # how rows are to be aligned, until they are
        self._schema: Schema | None = None  # that tables are read by

    @property
    def parties(self) -> tuple[str, ...]:
        """The parties that bring data."""
        return tuple(self._brought)

    @property
    def _estimator(self) -> type[Estimator]:
        """The scikit-learn face of a model of this task: it knows the parameters of trees, and holds the model."""
        return BoostedTreesClassifier if self.task == "classification" else BoostedTreesRegressor

    @classmethod
    def horizontal(
        cls,
        data: Mapping[str, tuple[Any, Any]],
        *,
        task: str = "classification",
        categorical_features: Any = "from_dtype",
        schema: Schema | None = None,
    ) -> Federation:
        """Owners of rows: name -> (X, y), with the same columns. `task` is "classification" or "regression".

        `categorical_features` as for the estimators: by dtype, or by name, index or mask. With a public `schema` tables
        are read as it says, and no row can make that fail: what does not fit is mapped to what it allows, and a row
        with an unlisted class is left out (`protocols/bad_rows.py`). `fit` with dp goes by the same schema, or by the
        one that it is given itself. Without either, `fit` raises if a row cannot be trained on.
        """
        _check_task(task)
        if not isinstance(data, Mapping) or not data:
            raise InvalidInput("Federation.horizontal takes a dict: name of the owner -> (X, y)")
        read = {}
        check_party_names(data)
        for name, pair in data.items():
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise InvalidInput(f"{name}: an owner brings (X, y), got {type(pair).__name__}")
            if schema is not None:
                check_columns(pair[0], schema, where=name)
            read[name] = Brought(name, *pair, task=task, categorical_features=categorical_features)
        federation = cls("rows", read, task)
        federation._schema = schema
        return federation

    @classmethod
    def vertical(
        cls,
        data: Mapping[str, Any],
        *,
        labels: tuple[str, Any],
        task: str = "classification",
        categorical_features: Mapping[str, Any] | None = None,
        id: str | int | None = None,  # noqa: A002 - what users call it
        id_rule: IdRule | Mapping[str, Any] | None = None,
        duplicates: Duplicates = "refuse",
        minimum: int = 2,
        most_ids: int = MOST_IDS,
    ) -> Federation:
        """Holders of columns of the same people: name -> X; `labels` = (name of their holder, y).

        Without `id` the rows of all parties must be the same ones, in the same order. With `id`, the name of a column
        that all tables have, parties find their common rows first, without showing each other the ids (`align`);
        `id_rule`, `duplicates`, `minimum` and `most_ids` as for `alignment.align`. That column is not trained on.
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
        check_party_names(data)
        for name, X in data.items():
            if id is not None:
                ids[name], X = split_ids(X, id, name)  # noqa: PLW2901 - from here on the table is without ids
            if _n_columns(X) == 0:
                raise InvalidInput(f"{name}: brings no column; a party that takes part needs at least one")
            kinds, has_labels = categorical.get(name, "from_dtype"), name == holder
            own = y if has_labels else None
            read[name] = Brought(name, X, own, task=task, categorical_features=kinds, has_labels=has_labels)
        federation = cls("columns", read, task, label_holder=holder)
        if id is not None:
            how = {"rule": id_rule, "duplicates": duplicates, "minimum": minimum, "most_ids": most_ids}
            federation._linkage = {"ids": ids, **how, "column": str(id)}
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
    ) -> Alignment:
        """Find the rows that all parties hold, by the column `id`; `fit` does it too, if it has not been done."""
        if self.alignment is not None:
            return self.alignment
        if self._linkage is None:
            raise InvalidParameter("rows are aligned by a column of ids; give Federation.vertical its name, id='...'")
        found = align(
            **self._linkage,
            transport=transport,
            link=link,
            deadline=deadline,
            verbose=verbose,
            on_progress=on_progress,
        )
        for name, brought in self._brought.items():
            brought.rows = found.rows[name]
        self.alignment, self._linkage = found, None
        return found

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
        **params: Any,
    ) -> Run:
        """Train with a protocol. `params` are those of the estimators (XGBoost's spellings too) and the protocol's own.

        `link` emulates a slow network (`hedgerow.transport.emulate.Link`). `deadline`: seconds that a party waits for a
        message. `verbose=1` says how far it is, `on_progress(done, total)` tells a program. `record=True` keeps all
        frames that each party sent and received (`run.transcripts`), a folder writes them there as they pass. That is
        as sensitive as the data, and for tests and attacks only.

        `budget`: name of a party -> its own `BudgetFile(path).dataset(name)`. What the run may cost is charged to it
        before the party sends anything, and stays charged if the run fails. BudgetExceeded if it is too small.
        """
        check_how(transport, deadline)
        refuse_raising(budget, params)
        spec, own, trees, data, job = self.plan(protocol, **params)
        budgets = checked_budgets(budget, spec, job, data)
        if own.get("on_bad_rows") == "raise":
            self._refuse_bad_rows(own)
        records = records_for(record, job.run_id)
        how: dict[str, Any] = {"transport": transport, "link": link, "deadline": deadline}
        if self._linkage is not None:
            self.align(**how, verbose=verbose)
            data = self._read(spec, own, trees)
        watch = watcher(verbose, on_progress)
        outcome = run_together(spec, job, data, **how, on_progress=watch, records=records, budgets=budgets)
        model = self._model(outcome[0], trees, spec, job, next(iter(data.values())).table)
        transcripts = {} if records is None else records.transcripts
        now = datetime.now(UTC).isoformat(timespec="seconds")
        took = what_it_took(job, transport, outcome)
        run = Run(model=model, alignment=self.alignment, transcripts=transcripts, finished=now, **took)
        run.reconcile()
        return run

    def plan(self, protocol: str, **params: Any) -> Plan:
        """What `fit` would run, checked as `fit` checks it; nothing is run."""
        spec = protocols.find(protocol)
        if spec.partition != self.partition:
            raise InvalidParameter(f"{protocol} is for data split by {spec.partition}, not by {self.partition}")
        if protocol not in protocols.names():
            raise InvalidParameter(f"{protocol} trains nothing; there are {', '.join(protocols.names())}")
        variant = spec.variant(params)
        spec = spec if variant is None else protocols.find(variant)
        own = {name: value for name, value in params.items() if name in spec.options}
        if self._schema is not None and own.get("dp") is not None:
            own.setdefault("schema", self._schema)
        trees = self._trees({name: value for name, value in params.items() if name not in own}, spec)
        data = self._read(spec, own, trees)
        return Plan(spec, own, trees, data, self._job(spec, own, trees, data))

    def _trees(self, params: dict[str, Any], spec: Protocol) -> dict[str, Any]:
        """All parameters of trees under our names, checked: what the user wrote, then the protocol's, then ours."""
        try:
            given = own_names(self._estimator, params)
        except UnknownParameter as problem:
            raise UnknownParameter(f"{problem}; {spec.name} adds {', '.join(sorted(spec.options))}") from None
        default = defaults_of(self._estimator)
        for name in NOT_FEDERATED:
            if name in given and given[name] != default[name]:
                hint = "; give it to the Federation instead" if name == "categorical_features" else ""
                raise InvalidParameter(f"{name} is not available in a federation, got {given[name]!r}{hint}")
        trees = {**default, **(spec.defaults or {}), **given}
        check_values(trees)
        return trees

    def _job(self, spec: Protocol, own: dict[str, Any], trees: dict[str, Any], data: Mapping[str, PartyData]) -> Any:
        tables = [party.table for party in data.values()]
        names = tables[0].columns if self.partition == "rows" else [c for table in tables for c in table.columns]
        columns = [(column.name, column.levels is not None) for column in names]
        loss: dict[str, Any] = {}
        if self.task == "regression":
            is_squared = trees["loss"] == "squared_error"
            loss = {"loss": "squared" if is_squared else "poisson", "label_range": trees["label_range"]}
        seed = seed_from(trees["random_state"])
        boosting = engine_params(trees, columns, n_iterations=trees["max_iter"], seed=seed, **loss)
        max_bins, run_id = int(trees["max_bins"]), uuid.uuid4().hex
        return spec.job.from_user(own, Settled(self.parties, run_id, self.task, boosting, max_bins, self.label_holder))

    def _model(
        self, results: Mapping[str, Any], trees: dict[str, Any], spec: Protocol, job: Any, table: Table
    ) -> BoostedTreesClassifier | BoostedTreesRegressor | VerticalModel:
        first = results[spec.parties(job)[0]]
        meta: TrainingRecord = first.meta
        meta |= {"protocol": spec.name, "estimator": self._estimator.__name__, "has_feature_names": table.has_names}
        stamp = spec.statement(job, meta).facts.get("stamp")
        if stamp:
            meta["stamp"] = stamp
        if self.partition == "rows":
            return self._estimator(**trees).adopt(first, "the federation")
        return VerticalModel({name: results[name] for name in self.parties})

    def _read(self, spec: Protocol, options: Mapping[str, Any], trees: Mapping[str, Any]) -> dict[str, PartyData]:
        """What everybody brings, read as the protocol needs it. Where that protects rows, none of them raises.

        Each party has one thread unless the user asks for more, since all share this machine.
        """
        declared = Declared.of(self.task, options, trees.get("label_range"))
        n_threads = 1 if trees["n_jobs"] is None else resolve_n_jobs(trees["n_jobs"])
        read = {}
        for name, brought in self._brought.items():
            is_mapped = spec.maps_rows(options, self.label_holder in (None, name))
            if self.partition == "columns":
                is_mapped = is_mapped and options.get("on_bad_rows") != "raise"
                data = brought.as_columns(declared) if is_mapped else brought.strictly()
            elif is_mapped and declared.schema is not None:
                data = brought.as_rows(declared.schema)
            else:
                data = brought.strictly() if self._schema is None else brought.fitted(self._schema)
            read[name] = replace(data, n_threads=n_threads)
        return read

    def _refuse_bad_rows(self, options: Mapping[str, Any]) -> None:
        """InvalidInput for a row that does not fit: for rows that are public."""
        schema = options.get("schema")
        if self.partition == "rows" and isinstance(schema, Schema):
            for brought in self._brought.values():
                brought.refuse_bad_rows(schema)

    def __repr__(self) -> str:
        rows = ", ".join(
            f"{name}: {brought.n_rows:,} x {len(brought.names)}" for name, brought in self._brought.items()
        )
        return f"Federation({self.partition} split, {rows})"


def _check_task(task: str) -> None:
    if task not in ("classification", "regression"):
        raise InvalidParameter(f"task must be 'classification' or 'regression', got {task!r}")


def _n_columns(X: Any) -> int | None:
    """How many columns a table has, if it can be told without reading it."""
    shape = getattr(X, "shape", None)
    return int(shape[1]) if isinstance(shape, tuple) and len(shape) == 2 else None
