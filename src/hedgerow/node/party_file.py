"""party.toml: what a party brings and what it lets happen. Format: docs/reference/party_file.md, made from `FORMAT`."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hedgerow.engine.rows_ray.cluster import RayBackend, backend_of
from hedgerow.errors import InvalidParameter, JobError
from hedgerow.node.addresses import EVERYWHERE, check_address
from hedgerow.node.databases import check_source, is_database
from hedgerow.node.settings import (
    NAMES,
    PATH,
    TEXT,
    TRUTH,
    Document,
    Each,
    Key,
    Kind,
    Table,
    WrongKind,
    hint,
    many,
    one_of,
    read_toml,
    real,
    whole,
)
from hedgerow.runtime.protocol import names as protocol_names
from hedgerow.transport.mtls import check_party_name

SCHEMA_FILE = "party.schema.json"
"""What the template calls the JSON Schema, beside it."""


@dataclass(frozen=True)
class Network:
    """Where this node listens, and where others find it."""

    bind: str | None = None
    advertise: str | None = None
    authority: Path | None = None


@dataclass(frozen=True)
class Dataset:
    """A table that this party may bring into a run."""

    name: str
    source: str
    query: str | None = None
    id: str | None = None
    label: str | None = None
    weight: str | None = None
    columns: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    schema: Path | None = None


@dataclass(frozen=True)
class Limits:
    """How much privacy loss there may be in all."""

    epsilon: float
    delta: float = 0.0


@dataclass(frozen=True)
class Policy:
    """What this party lets happen; it wins over everything that a peer proposes."""

    protocols: tuple[str, ...] | None = None
    peers: tuple[str, ...] | None = None
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    minimum_rows: int = 100
    minimum_matched: int = 100
    epsilon_per_run: float | None = None
    approved: tuple[str, ...] = ()
    budget: Limits | None = None
    budget_of_peers: Mapping[str, Limits] = field(default_factory=dict)
    budget_of_datasets: Mapping[str, Limits] = field(default_factory=dict)
    rows_per_day: int | None = None


@dataclass(frozen=True)
class Compute:
    """Where this party works on its rows, in roles that can say so. `backend` None: on this machine, from files."""

    backend: RayBackend | None = None


@dataclass(frozen=True)
class PartyFile:
    """All that party.toml says."""

    path: Path
    name: str
    network: Network
    data: Mapping[str, Dataset]
    policy: Policy
    log: str = "text"
    compute: Compute | None = None
    """None: tables are read into memory, and worked on here."""


# --- the format ------------------------------------------------------------------------------------------------------

_HASH = re.compile(r"[0-9a-f]{32,128}")


def _address(value: Any, *, to_listen: bool) -> str:
    if not isinstance(value, str):
        raise WrongKind
    try:
        check_address(value, to_listen=to_listen)
    except InvalidParameter:
        raise WrongKind from None
    return value


def _hash(value: Any, _folder: Path) -> str:
    if not isinstance(value, str) or not _HASH.fullmatch(value):
        raise WrongKind
    return value


def _source(value: Any, _folder: Path) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise WrongKind
    check_source(value)
    return value


def _backend(value: Any, _folder: Path) -> str:
    if not isinstance(value, str):
        raise WrongKind
    try:
        backend_of(value)
    except InvalidParameter:
        raise WrongKind from None
    return value


def _party(value: Any, _folder: Path) -> str:
    if not isinstance(value, str):
        raise WrongKind
    return check_party_name(value)


_ADDRESS_SCHEMA = {
    "type": "string",
    "pattern": r"^(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?:[0-9]{1,5})$",
}
BIND = Kind(
    '"host:port" in quotes, with port 0 for any free one', _ADDRESS_SCHEMA, lambda v, _: _address(v, to_listen=True)
)
DIAL = Kind(
    '"host:port" in quotes, of a host that others can reach', _ADDRESS_SCHEMA, lambda v, _: _address(v, to_listen=False)
)
PARTY = Kind(
    "the name of a party, in quotes",
    {"type": "string", "pattern": "^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"},
    _party,
)
SOURCE = Kind(
    "a path or an address, in quotes",
    {"type": "string", "minLength": 1, "not": {"pattern": "://[^/?]*:[^/?]*@"}},
    _source,
    secret=True,
)
HASH = Kind("hashes", {"type": "string", "pattern": f"^{_HASH.pattern}$"}, _hash)
BACKEND = Kind(
    '"local", "ray" or the address of a Ray cluster, in quotes', {"type": "string", "minLength": 1}, _backend
)
ROWS = whole(1)

NETWORK = {
    "bind": Key(BIND, "where this node listens", otherwise="it listens nowhere and only dials out"),
    "advertise": Key(DIAL, "what others dial", otherwise="`bind`, if that names a host"),
    "authority": Key(
        PATH, "certificates of your own authority, as PEM", otherwise="certificates are pinned by pairing"
    ),
}
LIMITS = {
    "epsilon": Key(real(0), "privacy loss that all runs together may cause"),
    "delta": Key(real(0, below=1), "the delta that goes with it", default=0.0),
}


def _limits(of: str) -> Table:
    needed = {"epsilon": Key(LIMITS["epsilon"].kind, LIMITS["epsilon"].help, needed=True), "delta": LIMITS["delta"]}
    return Table(f"the budget of runs {of}", needed)


FORMAT = Table(
    "what a party brings to runs with others, and what it lets happen",
    {
        "name": Key(PARTY, "what others call this party; it stands in its certificate", needed=True),
        "log": Key(one_of("text", "json"), "how the log is written", default="text"),
        "network": Table(
            "where this node listens, and where others find it",
            NETWORK,
        ),
        "data": Each(
            "dataset",
            "tables that this party may bring into a run",
            Table(
                "a table, under a name that jobs call it by",
                {
                    "source": Key(
                        SOURCE,
                        "a .parquet or .csv file, a folder of them, duckdb:FILE, or postgresql://user@host:port/database",
                        needed=True,
                    ),
                    "query": Key(TEXT, "what to read from a database, in SQL: one SELECT"),
                    "id": Key(TEXT, "the column that records are matched by"),
                    "label": Key(TEXT, "the column to predict, where this party has it"),
                    "weight": Key(
                        TEXT,
                        "the column with weights of rows, beside `label`; not all protocols take weights",
                        otherwise="all rows count alike",
                    ),
                    "columns": Key(
                        NAMES,
                        "those that may be trained on",
                        otherwise="all but `id`, `label`, `weight` and `drop`",
                        default=[],
                    ),
                    "drop": Key(NAMES, "columns that are never trained on", default=[]),
                    "categorical": Key(
                        NAMES, "columns of numbers that are categories; columns of text are anyway", default=[]
                    ),
                    "schema": Key(PATH, "public bounds and levels, as `Schema.save` writes them"),
                },
            ),
        ),
        "compute": Table(
            "where this party works on its rows: for roles that can read files, or use Ray. No peer hears of it",
            {
                "backend": Key(
                    BACKEND,
                    "`local`: Parquet files are read here some rows at a time, so they may be larger than memory; "
                    "`ray`: by the actors of a Ray cluster (that of RAY_ADDRESS, or a new one on this machine); or the "
                    "address of one",
                    needed=True,
                ),
                "actors": Key(whole(1), "how many actors hold the rows", otherwise="one for each processor"),
                "threads": Key(whole(1), "threads of each actor", default=1),
                "rows_in_object_store": Key(
                    TRUTH,
                    "whether rows may pass through Ray's object store, which every job on the cluster can read. "
                    "Parquet files need it not; other sources have no other way to an actor",
                    default=False,
                ),
                "rebuilds": Key(whole(0), "lost actors that are replaced in one run", default=3),
                "patience": Key(
                    real(0), "seconds after which an actor that does not answer counts as lost", default=600.0
                ),
            },
        ),
        "policy": Table(
            "what this party lets happen; it wins over what others propose",
            {
                "protocols": Key(
                    many(one_of(*protocol_names()), "a list of protocols"),
                    "those that may be run",
                    otherwise="all that hold what they say",
                ),
                "peers": Key(
                    many(PARTY, "a list of names of parties"),
                    "who may take part in a run with this party",
                    otherwise="everybody who is paired",
                ),
                "minimum_rows": Key(ROWS, "rows that a dataset must have", default=100),
                "minimum_matched": Key(ROWS, "records that must be common to all parties", default=100),
                "epsilon_per_run": Key(real(0), "privacy loss that one run may cause", otherwise="no limit"),
                "rows_per_day": Key(
                    ROWS, "rows that each peer may have scored with this party in one day (UTC)", otherwise="no limit"
                ),
                "approved": Key(
                    many(HASH, "a list of hashes of proposals, each of 32 to 128 digits 0-9, a-f"),
                    "proposals that `hedgerow accept --yes` accepts without a question",
                    default=[],
                ),
                "columns": Each(
                    "dataset",
                    "columns of a dataset that may take part; one that is not listed never does",
                    Key(NAMES, "columns of this dataset that may take part", otherwise="all that the dataset offers"),
                ),
                "budget": Table(
                    "privacy loss that all runs together may cause",
                    {
                        **LIMITS,
                        "peers": Each(
                            "peer", "the same, of runs with one peer", _limits("with this peer"), check=check_party_name
                        ),
                        "datasets": Each("dataset", "the same, of runs on one dataset", _limits("on this dataset")),
                    },
                    together={"delta": ("epsilon",)},
                ),
            },
        ),
    },
)


# --- reading ---------------------------------------------------------------------------------------------------------


def read_party_file(path: Path) -> PartyFile:
    """The file, checked; JobError with the line of what is wrong. No dataset is opened."""
    document = read_toml(path, "party file")
    found = FORMAT.read(document)
    data = {name: Dataset(name=name, **entries) for name, entries in found.get("data", {}).items()}
    for dataset in data.values():
        _check_dataset(dataset, document)
    return PartyFile(
        path=path,
        name=found["name"],
        network=_network(found.get("network", {})),
        data=data,
        policy=_policy(found.get("policy", {}), data, document),
        compute=_compute(found["compute"], document) if "compute" in found else None,
        **{key: found[key] for key in ("log",) if key in found},
    )


def _compute(given: dict[str, Any], document: Document) -> Compute:
    backend = backend_of(given.pop("backend"))
    if backend is None and given:
        key = next(iter(given))
        raise JobError(f'{document.where("compute", key)}: {key} is for actors of Ray, and backend is "local"')
    try:
        return Compute(None if backend is None else replace(backend, **given))
    except InvalidParameter as problem:
        raise JobError(f"{document.where('compute')}: {problem}") from None


def _network(given: Mapping[str, Any]) -> Network:
    network = Network(**given)
    host, _, port = (network.bind or "").rpartition(":")
    if host and network.advertise is None and host not in EVERYWHERE and port != "0":
        return Network(network.bind, network.bind, network.authority)
    return network


def _check_dataset(dataset: Dataset, document: Document) -> None:
    """What no key can say alone."""
    where = ("data", dataset.name)
    if is_database(dataset.source) and not (dataset.query or "").strip():
        raise JobError(f"{document.where(*where, 'source')}: a database needs a query, which says in SQL what to read")
    if dataset.query is not None and not is_database(dataset.source):
        raise JobError(f"{document.where(*where, 'query')}: query is for databases, and the source is a file or folder")
    if dataset.weight is not None and dataset.label is None:
        raise JobError(f"{document.where(*where, 'weight')}: weight is for rows with labels, and there is no label")
    alone = {"id": dataset.id, "label": dataset.label, "weight": dataset.weight}
    for one, other in itertools.combinations(alone, 2):
        if alone[one] is not None and alone[one] == alone[other]:
            raise JobError(f"{document.where(*where, other)}: {alone[one]!r} cannot be both {one} and {other}")
    away = {**{key: (name,) for key, name in alone.items()}, "drop": dataset.drop}
    for key in ("columns", "categorical"):
        for name in getattr(dataset, key):
            for other, names in away.items():
                if name in names:
                    said = f"{key} has {name!r}, which is also named by {other}; take it out of one of them"
                    raise JobError(f"{document.where(*where, key)}: {said}")
    for name in dataset.categorical:
        if dataset.columns and name not in dataset.columns:
            said = f"categorical has {name!r}, which is not one of columns{hint(name, dataset.columns)}"
            raise JobError(f"{document.where(*where, 'categorical')}: {said}")


def _policy(given: dict[str, Any], data: Mapping[str, Dataset], document: Document) -> Policy:
    budget = given.pop("budget", {})
    peers, datasets = budget.pop("peers", {}), budget.pop("datasets", {})
    _check_known(given.get("columns", {}), data, document, ("policy", "columns"))
    _check_known(datasets, data, document, ("policy", "budget", "datasets"))
    for name, columns in given.get("columns", {}).items():
        offered = (*data[name].columns, data[name].id, data[name].label, data[name].weight)
        for column in columns:
            if data[name].columns and column not in offered:
                said = f"{column!r} is not one of columns of [data.{name}]{hint(column, data[name].columns)}"
                raise JobError(f"{document.where('policy', 'columns', name)}: {said}")
    return Policy(
        **given,
        budget=Limits(**budget) if budget else None,
        budget_of_peers={name: Limits(**limits) for name, limits in peers.items()},
        budget_of_datasets={name: Limits(**limits) for name, limits in datasets.items()},
    )


def _check_known(names: Iterable[str], data: Mapping[str, Dataset], document: Document, place: tuple[str, ...]) -> None:
    for name in names:
        if name not in data:
            known = hint(name, data) if data else "; there is no [data.<dataset>] at all"
            raise JobError(f"{document.where(*place, name)}: there is no dataset {name!r}{known}")


# --- for editors, and to start with ----------------------------------------------------------------------------------


def json_schema() -> dict[str, Any]:
    """The format as JSON Schema, by which editors complete and check the file while it is written."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Hedgerow: party.toml",
        **FORMAT.schema(),
    }


def template(name: str, dataset: Dataset | None = None, **network: str | Path | None) -> str:
    """A party.toml to start from: name, dataset, bind, advertise and authority as given, the rest in comments."""
    examples = {"bind": "0.0.0.0:7341", "advertise": "hedgerow.example.org:7341", "authority": "ca.pem"}
    for key in network:
        if key not in examples:
            raise InvalidParameter(f"[network] has no {key!r}{hint(key, examples)}")
    said = {"name": _quoted(check_party_name(name))}
    for key, example in examples.items():
        value = network.get(key)
        if value is not None:
            NETWORK[key].kind.checked(key, str(value), "[network]", Path())
        said[key] = f"{'# ' if value is None else ''}{key} = {_quoted(str(example if value is None else value))}"
    brings = "" if dataset is None else _section(dataset)
    return _TEMPLATE.format(schema=SCHEMA_FILE, brings=brings, **said)


def _section(dataset: Dataset) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]+", dataset.name):
        raise InvalidParameter(f"a dataset's name is letters, digits, hyphens and underscores, got {dataset.name!r}")
    given = {"source": dataset.source, "id": dataset.id, "label": dataset.label}
    lines = [f"{key} = {_quoted(value)}" for key, value in given.items() if value is not None]
    return "\n".join([f"[data.{dataset.name}]", *lines]) + "\n\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


_TEMPLATE = """\
#:schema {schema}
# What this party brings to runs with others, and what it lets happen.
# Lines that begin with "# " and a key are examples: take the "# " away and change what they say.

name = {name}
# log = "json"    # one JSON object per line, for programs; by default "text"

[network]
# One side of each pair listens; the other needs no open port. Leave bind out if yours does not listen.
{bind}
# What others dial, if that is not bind: behind a router, a proxy, or with bind on all addresses.
{advertise}
# Certificates of your own authority. By default each peer's certificate is pinned when you pair.
{authority}

{brings}# A dataset, under a name of your choice. Paths are relative to this file.
# [data.customers]
# source = "customers.parquet"                   # .parquet or .csv, or a folder of such files
# source = "duckdb:customers.db"                 # a DuckDB file, with a query
# source = "postgresql://reader@localhost/crm"   # a server, with a query; password: PGPASSWORD or ~/.pgpass
# query = "SELECT * FROM customers"
# id = "customer_id"                             # the column that records are matched by
# label = "defaulted"                            # the column to predict, if you have it
# weight = "exposure"                            # the column with weights of rows, for protocols that take them
# drop = ["name", "street"]                      # columns that are never trained on
# categorical = ["postcode"]                     # columns of numbers that are categories
# schema = "customers.schema.json"               # public bounds and levels, for private protocols

# [compute]                                      # for roles that can; by default tables are read into memory
# backend = "ray"                                # "local" reads files some rows at a time; or an address: "host:6379"
# actors = 8                                     # by default one for each processor
# threads = 1                                    # of each actor
# rows_in_object_store = false                   # tables that are not in Parquet files need it
# rebuilds = 3                                   # lost actors that are replaced
# patience = 600.0                               # seconds until an actor counts as lost

[policy]
# What is not allowed here is refused, whatever others propose.
# protocols = ["vertical.secret_shared"]         # by default all that hold what they say
# peers = ["shop"]                               # by default everybody who is paired
minimum_rows = 100
minimum_matched = 100
# epsilon_per_run = 1.0
# rows_per_day = 10000                           # that each peer may have scored with you

# [policy.columns]
# customers = ["age", "income"]                  # no other column of customers ever takes part

# [policy.budget]                                # privacy loss of all runs together
# epsilon = 10.0
# delta = 1e-5
# [policy.budget.peers.shop]
# epsilon = 3.0
# [policy.budget.datasets.customers]
# epsilon = 5.0
"""
