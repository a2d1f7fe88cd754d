"""`hedgerow demo`: a real dataset, in one table, released with a privacy guarantee, and divided between parties."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from hedgerow import __version__
from hedgerow.cli.outcome import Outcome, verb
from hedgerow.cli.telling import FitCallback, OnProgress, begin, progress

PARAMS: dict[str, Any] = {"max_iter": 100, "learning_rate": 0.15, "max_depth": 5}
OWNERS = ("north", "east", "south")
HOLDERS = {
    "bank": ("age", "fnlwgt", "capital-gain", "capital-loss"),  # and the labels
    "registry": ("marital-status", "relationship", "race", "sex", "native-country"),
    "employer": ("workclass", "education", "education-num", "occupation", "hours-per-week"),
}
LABEL_HOLDER = "bank"
VERTICAL_PARAMS: dict[str, Any] = {"max_iter": 60, "learning_rate": 0.3, "max_depth": 4}
BASELINES = ("central.parallel", "central.sequential")
"""For --all; without their statements, which say the same as that of central.dpboost."""

PUBLISHED = ("vertical.masked_gradients", "vertical.mp_fedxgb")
"""For --all: there to compare with, as their papers have them."""

APART = "vertical.homomorphic"
"""Its kernels are its own, and many: parties begin with it, so that nobody waits for what another core compiles."""

REPORTED = "vertical.bucket_rr, epsilon=4"
"""The training whose parties each get a report."""

BUDGET = (1.0, 1e-5)
NOT_PROTECTED = (
    "In one table nothing is protected: all rows lay on this machine, and the model may remember some of them."
)


@verb("The result as JSON on stdout.", is_long=True)
def demo(
    *,
    statements: Annotated[bool, typer.Option("--statements", help="Print the statement of every run as well.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also baselines, and protocols as their papers have them, which leak.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where to write the reports; otherwise a new temporary one.")
    ] = None,
) -> Outcome:
    """Train on the shipped Adult census data, in one table and between parties, and show what came out.

    Each party is a process of its own; they talk over mutual TLS on this machine. It ends with the address of a report.

    Example: hedgerow demo
    """
    result = run(everything=everything, out=out)
    return Outcome(result, lambda: _print(result, statements=statements))


class _Steps:
    """What is done one after the other: "step 5 of 14"."""

    def __init__(self, total: int) -> None:
        self.done, self.total = 0, total

    def next(self, what: str) -> AbstractContextManager[OnProgress]:
        """The next one, with a bar of its own where one can be drawn."""
        self.done += 1
        title = f"step {self.done} of {self.total}: {what}"
        begin(title)
        return progress(title)


def run(*, everything: bool = False, out: Path | None = None) -> dict[str, Any]:
    """Train on the official training split, score the official test split; then the same with each protocol."""
    from hedgerow.cli.summary import scores
    from hedgerow.datasets import adult_schema, load_adult
    from hedgerow.engine.threads import available_cores
    from hedgerow.estimators.plain import BoostedTreesClassifier

    people, incomes = load_adult("train")
    others, their_incomes = load_adult("test")
    tables, schema = (people, incomes, others), adult_schema()
    found = (_by_rows(*tables, schema), _by_columns(tables, schema), _on_shares(tables, schema))
    divided = tuple(runs if everything else runs.without(PUBLISHED) for runs in found)
    models = {name: model for name, model in _central_models(schema).items() if everything or name not in BASELINES}
    steps = _Steps(4 + len(models) + sum(len(runs.trainings) for runs in divided))
    with steps.next("getting kernels ready (compiled once per machine, about a minute)"):
        compile_seconds = _first_calls(divided, models, people, incomes)
    started = time.perf_counter()
    with steps.next("one table") as on_progress:
        callbacks = [FitCallback(on_progress, PARAMS["max_iter"])]
        model = BoostedTreesClassifier(**PARAMS, callbacks=callbacks).fit(people, incomes)
    fitted = time.perf_counter()
    test_scores = scores(model, others, their_incomes, None)
    predicted = time.perf_counter()
    names = model.feature_names_in_.tolist()
    kept: dict[str, tuple[Any, Any]] = {}
    return {
        "command": "demo",
        "version": __version__,
        "dataset": "adult",
        "rows": {"train": people.num_rows, "test": others.num_rows},
        "columns": people.num_columns,
        "categorical_columns": sum(feature.levels is not None for feature in model.ensemble_.mapper.features),
        "params": PARAMS,
        "cores": available_cores(),
        "iterations": model.n_iter_,
        "seconds": {"compile_or_load": compile_seconds, "fit": fitted - started, "predict": predicted - fitted},
        "scores": {"test": test_scores},
        "importances": dict(zip(names, model.feature_importances_.tolist(), strict=True)),
        "protection": NOT_PROTECTED,
        "protocols": [
            *_central(steps, models, tables, their_incomes),
            *(entry for runs in divided for entry in _between_parties(steps, runs, their_incomes, kept)),
        ],
        "alignment": _alignment(steps),
        "reports": _reports(steps, kept, their_incomes, out),
    }


def _first_calls(divided: tuple[_Runs, ...], models: dict[str, Any], people: Any, incomes: Any) -> float:
    """Seconds until every kernel is ready: compiled on this machine's first run, loaded from disk ever after.

    Those of the parties are made ready on another core, and all before anything is timed.
    """
    from hedgerow.compiling import is_compiled
    from hedgerow.engine.splitting import evaluate_families
    from hedgerow.estimators.plain import BoostedTreesClassifier
    from hedgerow.runtime.forks import begin_preparing
    from hedgerow.runtime.processes import PREPARE_SECONDS
    from hedgerow.runtime.running import warm_up

    started = time.perf_counter()
    is_first_run = not is_compiled(evaluate_families)
    plans = [runs.federation.plan(each.protocol, **each.params) for runs in divided[::-1] for each in runs.trainings]
    plans.sort(key=lambda plan: plan.chosen.protocol.name != APART)
    parties = begin_preparing(((plan.chosen.protocol.name, plan.job.to_dict()) for plan in plans), PREPARE_SECONDS)
    few, theirs = people.slice(0, 2000), incomes[:2000]
    BoostedTreesClassifier(**{**PARAMS, "max_iter": 2}).fit(few, theirs).predict_proba(few)
    for model in models.values():
        model.fit(few, theirs)
    for plan in reversed(plans if is_first_run else []):
        if parties.is_alive():  # what this core compiles, the other need not
            warm_up(plan.chosen.protocol, plan.job)
    parties.join()
    return time.perf_counter() - started


def _central_models(schema: Any) -> dict[str, Any]:
    """By protocol: models of a table in one place that are to be released."""
    from hedgerow.estimators.private import DPBoostClassifier, PrivateBoostingClassifier

    epsilon, delta = BUDGET
    return {
        "central.gaussian": PrivateBoostingClassifier(epsilon=epsilon, delta=delta, schema=schema, random_state=0),
        **{
            name: DPBoostClassifier(epsilon=epsilon, schema=schema, protocol=name, random_state=0)
            for name in ("central.dpboost", "central.parallel", "central.sequential")
        },
    }


def _central(steps: _Steps, models: dict[str, Any], tables: tuple[Any, Any, Any], their_incomes: Any) -> Any:
    """One entry per protocol for a table in one place whose model is to be released."""
    from hedgerow.cli.summary import scores

    (people, incomes, others), (epsilon, delta) = tables, BUDGET
    for name, model in models.items():
        title = f"{name}, epsilon={epsilon:g}" + (f", delta={delta:g}" if name == "central.gaussian" else "")
        with steps.next(title) as on_progress:
            started = time.perf_counter()
            model.watch(on_progress).fit(people, incomes)
            seconds = time.perf_counter() - started
        statement = model.privacy_statement()
        yield {
            "protocol": name,
            "title": title,
            "parties": [],
            "scores": {"test": scores(model, others, their_incomes, None)},
            "seconds": seconds,
            "rounds": {},
            "bytes_sent": {},
            "same_trees_as_pooled": None,
            "worth": _worth_of_model(statement.epsilon, statement.delta),
            "privacy": {"epsilon": statement.epsilon, "delta": statement.delta},
            "statement": {**statement.to_dict(), "words": statement.text(80)},
        }


class _Training(NamedTuple):
    """One training between parties."""

    title: str
    protocol: str
    params: dict[str, Any]
    worth: str = ""  # what it protects; nothing where it is compared with the pooled engine instead


class _Runs(NamedTuple):
    """Trainings between the same parties on the same tables, and the rows on which their models are scored."""

    federation: Any
    rows: Any
    same_as_pooled: Callable[[Any], bool]
    trainings: tuple[_Training, ...]

    def without(self, protocols: tuple[str, ...]) -> _Runs:
        """Without trainings by some protocols."""
        return self._replace(trainings=tuple(each for each in self.trainings if each.protocol not in protocols))


def _by_rows(people: Any, incomes: Any, others: Any, schema: Any) -> _Runs:
    """Rows that are divided between owners."""
    import numpy as np

    from hedgerow.federation.federation import Federation

    shares = np.array_split(np.random.default_rng(0).permutation(len(incomes)), len(OWNERS))
    name, dp = "horizontal.secure_sum", {"dp": BUDGET, "schema": schema, "random_state": 0}
    return _Runs(
        Federation.horizontal(
            {owner: (people.take(rows), incomes[rows]) for owner, rows in zip(OWNERS, shares, strict=True)}
        ),
        others,
        lambda run: _same_trees(run, people, incomes),
        (_Training(name, name, PARAMS), _Training(f"{name}, dp={BUDGET}", name, dp, _worth_of_model(*BUDGET))),
    )


def _by_columns(tables: tuple[Any, Any, Any], schema: Any) -> _Runs:
    """Columns that are divided between parties."""
    delta = BUDGET[1]
    exact = {"epsilon": math.inf, "edges": "quantile", "buckets": 64}
    buckets = {"epsilon": 4.0, "schema": schema, "buckets": 64}
    gradients = {"epsilon": 4.0, "delta": delta, "max_iter": 20, "max_depth": 3}
    encrypted = {"max_iter": 4, "max_bins": 64}
    masked = {"max_iter": 3, "max_depth": 3, "max_bins": 32, "eps_ap": 8.0, "delta_ap": 1e-3, "eps_pp": 1.0}
    accepted = {"reading": "record", "accept_low_snr": True, "accept_known_leaks": True}
    return _vertical(
        lambda table: table,
        tables,
        ("bucket_rr", ", no noise", exact, ""),
        ("bucket_rr", ", epsilon=4", buckets, "each value 4-private"),
        ("noised_gradients", f", epsilon=4, delta={delta:g}", gradients, f"labels (4, {delta:.0e})-private"),
        ("homomorphic", "", encrypted, ""),
        ("masked_gradients", ", as published", masked | accepted, "LEAKS every label"),
    )


def _on_shares(tables: tuple[Any, Any, Any], schema: Any) -> _Runs:
    """The same columns without text, for protocols that compute on shares of numbers."""
    delta = BUDGET[1]
    shared = {"max_iter": 6, "max_bins": 32}
    private = {"max_iter": 6, "max_depth": 3, "max_bins": 32, "epsilon": 4.0, "delta": delta, "learning_rate": 0.5}
    published = {"max_iter": 3, "max_depth": 3, "max_bins": 16, "accept_known_leaks": True}
    both = f"rows, labels (4, {delta:.0e})-private"
    return _vertical(
        lambda table: _as_numbers(table, schema),
        tables,
        ("secret_shared", "", shared, "only winners are opened"),
        ("private_histograms", f", epsilon=4, delta={delta:g}", private | {"schema": _bounds_of_numbers(schema)}, both),
        ("mp_fedxgb", ", as published", published, "LEAKS sums of labels"),
    )


def _vertical(
    prepare: Callable[[Any], Any], tables: tuple[Any, Any, Any], *trainings: tuple[str, str, dict[str, Any], str]
) -> _Runs:
    """Trainings between holders of columns: protocol, what its title adds, parameters, worth."""
    from hedgerow.federation.federation import Federation

    people, incomes, others = tables
    own, rows = (
        {holder: prepare(table.select(columns)) for holder, columns in HOLDERS.items()} for table in (people, others)
    )
    return _Runs(
        Federation.vertical(own, labels=(LABEL_HOLDER, incomes)),
        rows,
        lambda run: _same_scores(run, people, incomes, others, rows),
        tuple(
            _Training(f"vertical.{name}{more}", f"vertical.{name}", VERTICAL_PARAMS | params, worth)
            for name, more, params, worth in trainings
        ),
    )


def _between_parties(
    steps: _Steps, runs: _Runs, labels: Any, kept: dict[str, tuple[Any, Any]]
) -> Iterator[dict[str, Any]]:
    """One entry per training. Vertical models score rows together too (in memory where they are to compare).

    The run that is reported on is put into `kept`, with what its model predicts.
    """
    from hedgerow.cli.summary import scores_of_shares

    for title, protocol, params, worth in runs.trainings:
        with steps.next(title) as on_progress:
            run = runs.federation.fit(protocol, transport="grpc", on_progress=on_progress, **params)
        same = None if worth else runs.same_as_pooled(run)
        together = {"transport": "memory" if protocol in PUBLISHED else "grpc"}
        shares = run.model.predict_proba(runs.rows, **(together if runs.federation.partition == "columns" else {}))
        statement = run.statement().to_dict()
        if title == REPORTED:
            kept[title] = (run, shares)
        yield {
            "protocol": run.protocol,
            "title": title,
            "parties": list(run.ledgers),
            "scores": {"test": scores_of_shares(shares, run.model.classes_, labels)},
            "seconds": run.seconds,
            "rounds": run.rounds,
            "bytes_sent": {name: meter.total().bytes_sent for name, meter in run.meters.items()},
            "same_trees_as_pooled": same,
            "worth": worth or ("same trees as in one table with these bins" if same else "trees differ"),
            "privacy": statement.get("privacy"),
            "statement": statement,
        }


def _as_numbers(table: Any, schema: Any) -> Any:
    """A table without text: one column of zeros and ones for each level."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns: dict[str, Any] = {}
    for name in table.column_names:
        if name in schema.levels:
            values = table[name].combine_chunks().dictionary_decode()
            columns |= {
                f"{name} {level}": pc.equal(values, level).fill_null(False).cast("float")
                for level in schema.levels[name]
            }
        else:
            columns[name] = table[name].to_numpy()
    return pa.table(columns)


def _bounds_of_numbers(schema: Any) -> Any:
    """The public schema of a table that `_as_numbers` has made."""
    from hedgerow.schema import NumericColumn, Schema

    bounds: dict[str, tuple[float, float]] = {}
    whole: list[str] = []
    for column in schema.columns:
        if isinstance(column, NumericColumn):
            bounds[column.name] = (column.low, column.high)
            whole += [column.name] * column.integer
        else:
            names = [f"{column.name} {level}" for level in column.levels]
            bounds |= dict.fromkeys(names, (0.0, 1.0))
            whole += names
    return Schema.from_public(bounds=bounds, integers=whole)


def _worth_of_model(epsilon: float, delta: float) -> str:
    from hedgerow.privacy.events import up

    return f"({up(epsilon)}, {up(delta)})-private model" if delta else f"{up(epsilon)}-private model"


def _reports(
    steps: _Steps, kept: dict[str, tuple[Any, Any]], labels: Any, out: Path | None
) -> dict[str, dict[str, str]]:
    """Training -> party -> the address of its report, with how good the model is for the party that has the labels."""
    from hedgerow.report.measure import quality_of_classes
    from hedgerow.report.of_run import told_of_run
    from hedgerow.report.sections import page

    found: dict[str, dict[str, str]] = {}
    with steps.next("reports"):
        folder = Path(tempfile.mkdtemp(prefix="hedgerow-demo-")) if out is None else out
        for title, (run, shares) in kept.items():
            quality = quality_of_classes(shares, run.model.classes_, labels, f"{len(shares):,} other people")
            for party in run.ledgers:
                told = told_of_run(run, party, quality=quality if party == run.model.label_holder else None)
                place = page(told).save(folder / f"{party}.html")
                found.setdefault(title, {})[party] = place.resolve().as_uri()
    return found


def _alignment(steps: _Steps) -> dict[str, Any]:
    """Three parties find the customers that they have in common, without showing each other the others."""
    from hedgerow.federation.alignment import align

    ids = {
        name: [f"customer {number}" for number in range(start, start + 1000)]
        for name, start in zip(HOLDERS, (0, 100, 200), strict=True)
    }
    with steps.next("vertical.aligning: which of 3 x 1,000 customers do all three have?"):
        found = align(ids, transport="grpc")
    return {
        "parties": list(ids),
        "ids": dict(found.sizes),
        "common": found.n_common,
        "seconds": found.seconds,
        "bytes_sent": {name: meter.total().bytes_sent for name, meter in found.meters.items()},
        "statement": found.statement().to_dict(),
    }


def _pooled(run: Any, mapper: Any, people: Any, incomes: Any) -> Any:
    """The model of the plain engine, given everything in one table and the bins of a run."""
    from hedgerow.engine.boosting import train
    from hedgerow.engine.table import read_table

    codes = mapper.transform(read_table(people, like=mapper.features))
    return train(run.job.for_labels(2, (0.0, 1.0)), mapper, codes, incomes.astype(float)).ensemble


def _same_trees(run: Any, people: Any, incomes: Any) -> bool:
    """Whether the plain engine has the very same splits and leaves."""
    from hedgerow.protocols.horizontal.secure_sum.model import as_handed_out

    ensemble = run.model.ensemble_
    pooled = as_handed_out(run.job, _pooled(run, ensemble.mapper, people, incomes))
    return bool(pooled.to_dict()["trees"] == ensemble.to_dict()["trees"])


def _same_scores(run: Any, people: Any, incomes: Any, others: Any, rows: Any) -> bool:
    """Whether the plain engine scores new rows just the same."""
    import numpy as np

    from hedgerow.engine.binning import BinMapper
    from hedgerow.engine.table import read_table

    holders = (LABEL_HOLDER, *(name for name in HOLDERS if name != LABEL_HOLDER))
    mapper = BinMapper(tuple(bins for name in holders for bins in run.model.parts[name].features))
    order = [name for columns in HOLDERS.values() for name in columns]
    pooled = _pooled(run, mapper, people.select(order), incomes)
    scored = pooled.raw_scores(read_table(others.select(order), like=mapper.features))
    return bool(np.array_equal(scored[:, 0], run.model.decision_function(rows)))


def _print(result: dict[str, Any], *, statements: bool) -> None:
    """Two screens: one table, what it means, where to look next."""
    from rich.text import Text

    from hedgerow.cli.summary import console, protocol_table
    from hedgerow.runtime.progress import duration

    out = console()

    def say(line: str = "", style: str = "") -> None:
        out.print(Text(line, style=style))

    rows, seconds, aligned = result["rows"], result["seconds"], result["alignment"]
    say("Who earns more than 50,000 dollars a year? (Adult census data, 1994)", style="bold")
    say(
        f"Trained on {rows['train']:,} people with {result['columns']} columns, scored on {rows['test']:,} others; "
        f"{result['cores']} core{'s' if result['cores'] > 1 else ''}.\n"
        f"Kernels were ready after {duration(seconds['compile_or_load'])} (compiled on the first run, then kept)."
    )
    say()
    out.print(protocol_table(result))
    say()
    *some, last = HOLDERS
    say(
        "central: one table, but the model may be released. horizontal: three offices\n"
        f"({', '.join(OWNERS)}) each have some of the people. vertical: {', '.join(some)} and\n"
        f"{last} each know other things about everybody, and only the {LABEL_HOLDER} what they\n"
        "earn. Each party is a process of its own; they talk over mutual TLS.",
        style="dim",
    )
    say(
        f"vertical.aligning: {aligned['common']:,} of {min(aligned['ids'].values()):,} customers are common to all "
        f"three, found in\n{duration(aligned['seconds'])} without showing any party a customer that it does not have."
    )
    say(result["protection"])
    for entry in result["protocols"] if statements else ():
        if entry["protocol"] not in BASELINES:
            say()
            say(entry["title"], style="bold")
            say(entry["statement"]["words"])
    say()
    say("Where to look next", style="bold")
    for title, reports in result["reports"].items():
        say(f"{title}: who learned what, as each party may see it")
        for address in reports.values():
            out.print(Text(f"  {address}"), soft_wrap=True)  # an address stays in one piece
    if not statements:
        say("What holds after each run, and what does not: hedgerow demo --statements")
    say("Baselines, and protocols as published, which leak: hedgerow demo --all")
    say("On your own table: hedgerow train --data FILE --label COLUMN")
    say(
        "In docs/tutorials: private_model.md (to be released), three_owners.md (rows\n"
        "divided), shared_customers.md (columns divided)"
    )
