"""Several parties on one machine, running the same role functions as in production.

    fed = Federation.horizontal({"clinic_a": (X_a, y_a), "clinic_b": (X_b, y_b), "clinic_c": (X_c, y_c)})
    run = fed.fit("horizontal.secure_sum", n_estimators=50, max_depth=4, transport="grpc")
    run.model.predict_proba(X); print(run.statement()); print(run.ledgers["clinic_a"].to_text())

With transport="memory" parties are threads; with "grpc" each is a process that has its own rows and nothing else, and
all talk over mutual TLS. The result is the same, bit for bit.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hedgerow.boosted_trees import engine_params
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.table import read_table
from hedgerow.engine.threads import resolve_n_jobs
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.estimators import BoostedTreesClassifier, BoostedTreesRegressor
from hedgerow.labels import encode_classes, read_classes, read_targets
from hedgerow.ledger import Ledger
from hedgerow.parameters import UnknownParameter, check_values, seed_from
from hedgerow.party import DEADLINE, named, root_cause
from hedgerow.progress import duration, say
from hedgerow.protocols import protocol as protocols
from hedgerow.protocols.protocol import PartyData, Protocol, Request
from hedgerow.protocols.rehearsal import in_memory, role
from hedgerow.runs import Run
from hedgerow.transport.emulate import Link
from hedgerow.transport.memory import MemoryNetwork
from hedgerow.transport.meter import Meter
from hedgerow.transport.mtls import check_party_name

TRANSPORTS = ("memory", "grpc")
NOT_FEDERATED = ("warm_start", "early_stopping", "callbacks", "eval_metric", "categorical_features")
OnProgress = Callable[[int, int], None]


class Federation:
    """Parties and their data. Make one with `Federation.horizontal` or `Federation.vertical`, then `fit`."""

    def __init__(self, partition: str, data: Mapping[str, PartyData], task: str) -> None:
        self.partition = partition
        self.task = task
        self._data = dict(data)

    @property
    def parties(self) -> tuple[str, ...]:
        """The parties that bring data."""
        return tuple(self._data)

    @classmethod
    def horizontal(
        cls,
        data: Mapping[str, tuple[Any, Any]],
        *,
        task: str = "classification",
        categorical_features: Any = "from_dtype",
    ) -> Federation:
        """Owners of rows: name -> (X, y), with the same columns. `task` is "classification" or "regression".

        `categorical_features` as for the estimators: by dtype, or by name, index or mask.
        """
        _check_task(task)
        if not isinstance(data, Mapping) or not data:
            raise InvalidInput("Federation.horizontal takes a dict: name of the owner -> (X, y)")
        read = {}
        for name, pair in data.items():
            check_party_name(name)
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise InvalidInput(f"{name}: an owner brings (X, y), got {type(pair).__name__}")
            read[name] = _read(name, *pair, task, categorical_features)
        return cls("rows", read, task)

    @classmethod
    def vertical(
        cls,
        data: Mapping[str, Any],
        *,
        labels: tuple[str, Any],
        task: str = "classification",
    ) -> Federation:
        """Holders of columns of the same rows, in the same order: name -> X; `labels` = (name of their holder, y)."""
        _check_task(task)
        if not isinstance(data, Mapping) or not data:
            raise InvalidInput("Federation.vertical takes a dict: name of the party -> X")
        is_pair = isinstance(labels, tuple) and len(labels) == 2 and isinstance(labels[0], str)
        if not is_pair or labels[0] not in data:
            raise InvalidInput(f"labels must be (name of a party, y), with one of the parties {list(data)}")
        holder, y = labels
        read = {}
        for name, X in data.items():
            check_party_name(name)
            if name == holder:
                read[name] = _read(name, X, y, task)
            else:
                read[name] = PartyData(read_table(X, where=f"{name}: X"))
        sizes = {name: party.table.n_rows for name, party in read.items()}
        odd = next((name for name, n_rows in sizes.items() if n_rows != sizes[holder]), None)
        if odd is not None:
            raise InvalidInput(
                f"{odd} has {sizes[odd]} rows and {holder} has {sizes[holder]}; rows of all parties must be the same "
                "ones, in the same order"
            )
        return cls("columns", read, task)

    def fit(
        self,
        protocol: str,
        *,
        transport: str = "memory",
        link: Link | None = None,
        deadline: float = DEADLINE,
        verbose: int = 0,
        on_progress: OnProgress | None = None,
        **params: Any,
    ) -> Run:
        """Train with a protocol. `params` are those of the estimators (XGBoost's spellings too) and the protocol's own.

        `link` emulates a slow network (`hedgerow.transport.emulate.Link`). `deadline`: seconds that a party waits for a
        message. `verbose=1` says how far it is, `on_progress(done, total)` tells a program.
        """
        if transport not in TRANSPORTS:
            raise InvalidParameter(f"transport must be one of {', '.join(TRANSPORTS)}, got {transport!r}")
        if not isinstance(deadline, int | float) or not deadline > 0:
            raise InvalidParameter(f"deadline must be a positive number of seconds, got {deadline!r}")
        chosen = protocols.find(protocol)
        if chosen.partition != self.partition:
            raise InvalidParameter(f"{protocol} is for data split by {chosen.partition}, not by {self.partition}")
        own = {name: params.pop(name) for name in list(params) if name in chosen.options}
        estimator = self._estimator(params, chosen)
        job = chosen.job(self._request(estimator, own))
        watch = _watcher(verbose, on_progress)
        if transport == "memory":
            outcome = _run_in_memory(chosen, job, self._data_for(estimator), link, deadline, watch)
        else:
            from hedgerow.local_processes import run_in_processes

            outcome = run_in_processes(chosen, job, self._data_for(estimator), link, deadline, watch)
        results, ledgers, meters, seconds = outcome
        ensemble = results[chosen.parties(job)[0]]
        ensemble.meta |= {"protocol": protocol, "estimator": type(estimator).__name__}
        ensemble.meta |= {"has_feature_names": next(iter(self._data.values())).table.has_names}
        stamp = chosen.statement(job, ensemble.meta).facts.get("stamp")
        if stamp:
            ensemble.meta["stamp"] = stamp
        model = estimator.adopt(ensemble, "the federation")
        run = Run(protocol, transport, job, model, ledgers, meters, seconds)
        run.reconcile()
        return run

    def _estimator(self, params: dict[str, Any], protocol: Protocol) -> BoostedTreesClassifier | BoostedTreesRegressor:
        """An estimator with these parameters: it knows their names, aliases and ranges, and will hold the model."""
        kind = BoostedTreesClassifier if self.task == "classification" else BoostedTreesRegressor
        try:
            estimator = kind(**params)
        except UnknownParameter as problem:
            raise UnknownParameter(f"{problem}; {protocol.name} adds {', '.join(sorted(protocol.options))}") from None
        check_values(estimator.get_params(deep=False))
        default = kind().get_params(deep=False)
        for name in NOT_FEDERATED:
            value = getattr(estimator, name)
            if value != default[name]:
                hint = "; give it to Federation.horizontal(...) instead" if name == "categorical_features" else ""
                raise InvalidParameter(f"{name} is not available in a federation, got {value!r}{hint}")
        return estimator

    def _request(self, estimator: BoostedTreesClassifier | BoostedTreesRegressor, options: dict[str, Any]) -> Request:
        tables = [party.table for party in self._data.values()]
        names = tables[0].columns if self.partition == "rows" else [c for table in tables for c in table.columns]
        columns = [(column.name, column.levels is not None) for column in names]
        loss: dict[str, Any] = {}
        if isinstance(estimator, BoostedTreesRegressor):
            loss = {
                "loss": "squared" if estimator.loss == "squared_error" else "poisson",
                "label_range": estimator.label_range,
            }
        boosting = engine_params(
            estimator, columns, n_iterations=estimator.max_iter, seed=seed_from(estimator.random_state), **loss
        )
        return Request(self.parties, uuid.uuid4().hex, self.task, boosting, int(estimator.max_bins), options)

    def _data_for(self, estimator: BoostedTreesClassifier | BoostedTreesRegressor) -> dict[str, PartyData]:
        """Each party's data; one thread each unless the user asks for more, since all share this machine."""
        n_threads = 1 if estimator.n_jobs is None else resolve_n_jobs(estimator.n_jobs)
        return {name: PartyData(d.table, d.labels, d.classes, n_threads) for name, d in self._data.items()}

    def __repr__(self) -> str:
        rows = ", ".join(f"{name}: {d.table.n_rows:,} x {len(d.table.columns)}" for name, d in self._data.items())
        return f"Federation({self.partition} split, {rows})"


def _check_task(task: str) -> None:
    if task not in ("classification", "regression"):
        raise InvalidParameter(f"task must be 'classification' or 'regression', got {task!r}")


def _read(name: str, X: Any, y: Any, task: str, categorical_features: Any = "from_dtype") -> PartyData:
    table = read_table(X, categorical_features=categorical_features, where=f"{name}: X")
    if task == "regression":
        return PartyData(table, read_targets(y, table.n_rows, f"{name}: y"))
    found, codes = encode_classes(read_classes(y, table.n_rows, f"{name}: y"), f"{name}: y")
    return PartyData(table, codes, tuple(_plain_class(label) for label in found.tolist()))


def _plain_class(label: Any) -> Any:
    """1.0 and 1 are the same class, so that one owner's floats do not differ from another's integers."""
    return int(label) if isinstance(label, float | np.floating) and float(label).is_integer() else label


def _watcher(verbose: int, on_progress: OnProgress | None) -> OnProgress | None:
    if not verbose:
        return on_progress
    first: list[tuple[float, int]] = []  # when the first news came, and how much was done by then

    def watch(done: int, total: int) -> None:
        if not first:
            first.append((time.monotonic(), done))
        if done % verbose == 0 or done == total:
            started, before = first[0]
            left = (total - done) * (time.monotonic() - started) / max(done - before, 1)
            say(f"[{done}/{total}] ETA {duration(left)}")
        if on_progress is not None:
            on_progress(done, total)

    return watch


Outcome = tuple[dict[str, Ensemble], dict[str, Ledger], dict[str, Meter], float]


def _run_in_memory(
    protocol: Protocol,
    job: Any,
    data: Mapping[str, PartyData],
    link: Link | None,
    deadline: float,
    on_progress: OnProgress | None,
) -> Outcome:
    """Parties as threads that pass a baton."""
    protocol.rehearse(job)
    names = protocol.parties(job)
    single = link is None and all(brought.n_threads == 1 for brought in data.values())
    network = MemoryNetwork(names, link=link, one_core=single)
    parties = in_memory(network, names, deadline=deadline, on_progress=on_progress)
    roles = {name: role(protocol, parties[name], job, data.get(name)) for name in names}
    started = time.perf_counter()
    outcomes = network.run(roles)
    seconds = time.perf_counter() - started
    errors = {name: outcome.error for name, outcome in outcomes.items() if outcome.error is not None}
    if names[0] in errors:
        party, error = root_cause(errors)
        raise named(party, error, names)
    results: dict[str, Ensemble] = {
        name: outcome.value for name, outcome in outcomes.items() if outcome.error is None and outcome.value is not None
    }
    ledgers = {name: party.ledger for name, party in parties.items()}
    return results, ledgers, {name: party.meter for name, party in parties.items()}, seconds
