"""Which rows do all parties hold? Ids are compared without being shown, before a vertical training.

    found = align({"bank": bank["customer"], "shop": shop["customer"]})
    bank = take_rows(bank, found.rows["bank"]); shop = take_rows(shop, found.rows["shop"])     # now row for row
    print(found.statement())

All parties run on this machine, as in a `Federation`: threads with transport="memory", or processes that talk over
mutual TLS with "grpc". What is sent, and what it tells whom, is that of `hedgerow.protocols.services.align`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hedgerow._version import __version__
from hedgerow.crypto.identifiers import Duplicates, IdRule, Rows, is_missing, plain_blocks
from hedgerow.crypto.psi import BLOCK
from hedgerow.engine.table import Table
from hedgerow.engine.threads import resolve_n_jobs
from hedgerow.errors import InvalidInput, InvalidType
from hedgerow.federation.finished import Finished, read_heading, read_ledgers, read_what_it_took
from hedgerow.protocols.services.align.roles import MOST_IDS, AligningJob, packed
from hedgerow.protocols.services.align.spec import SPEC as PROTOCOL
from hedgerow.runtime.backends import backends_of, with_backends
from hedgerow.runtime.party import DEADLINE
from hedgerow.runtime.progress import OnProgress, watcher
from hedgerow.runtime.protocol import PartyData
from hedgerow.runtime.running import check_how, run_together
from hedgerow.runtime.saved_files import damage_told, whole_folder
from hedgerow.statement import Statement
from hedgerow.transport.emulate import Link
from hedgerow.transport.mtls import check_party_names

FORMAT = "hedgerow alignment"
VERSION = 1
ABOUT, ROWS, LEDGER = "alignment.json", "rows.npy", "ledger.jsonl"
FILES = (ABOUT, f"*/{ROWS}", f"*/{LEDGER}")
MAX_BITS = 4096  # of a whole number that is an id; Python takes ever longer to write down larger ones


@dataclass(frozen=True, eq=False, kw_only=True)
class Alignment(Finished):
    """What an aligning found: for each party its rows of the common records, in one order."""

    rows: Mapping[str, Rows]  # positions in each party's own table
    sizes: Mapping[str, int]  # different ids, of each party
    n_common: int

    @property
    def rule(self) -> IdRule:
        """How ids were written before they were compared."""
        rule: IdRule = self.job.id_rule
        return rule

    def statement(self) -> Statement:
        """Who learned what, in words (`str`) and as facts (`to_dict`)."""
        return PROTOCOL.statement(self.job, {"n_ids": self.sizes, "n_common": self.n_common})

    def save(self, folder: str | Path) -> None:
        """Write it into a folder: alignment.json with what all know, and a sub-folder for what each party alone knows.

        A party is given alignment.json and its own sub-folder, which holds its rows and its ledger. All of it appears
        together or not at all; another alignment that was saved there is replaced.
        """
        about = {
            "format": FORMAT,
            "version": VERSION,
            "hedgerow": __version__,
            "transport": self.transport,
            "job": self.job.to_dict(),
            "sizes": dict(self.sizes),
            "n_common": self.n_common,
            "seconds": self.seconds,
            "traffic": self.traffic,
            "statement": self.statement().to_dict(),
        }
        with whole_folder(folder, FILES) as place:
            (place / ABOUT).write_text(json.dumps(about, indent=1))
            for party, rows in self.rows.items():
                own = place / party
                own.mkdir()
                np.save(own / ROWS, rows, allow_pickle=False)
                (own / LEDGER).write_text(self.ledgers[party].to_json_lines())

    @classmethod
    def load(cls, folder: str | Path) -> Alignment:
        """What was saved in a folder; parties whose sub-folder is not there are left out."""
        place = Path(folder)
        about = read_heading(place / ABOUT, "alignment", {"format": FORMAT, "version": VERSION})
        with damage_told(f"{place / ABOUT} is damaged"):
            check_party_names(tuple(about["job"]["parties"]))  # each is the name of a folder
            job = AligningJob.from_dict(about["job"])
            n_common, took = int(about["n_common"]), read_what_it_took(about)
            sizes = {party: int(about["sizes"][party]) for party in job.parties}
        here = [party for party in job.parties if (place / party / ROWS).exists()]
        if not here:
            raise InvalidInput(f"{place} holds the rows of none of the parties {list(job.parties)}")
        rows = {party: _read_rows(place / party / ROWS, party, n_common) for party in here}
        files = {party: place / party / LEDGER for party in here}
        ledgers = read_ledgers(files, f"{place}: a ledger of the alignment is damaged")
        found = cls(job=job, rows=rows, sizes=sizes, n_common=n_common, ledgers=ledgers, **took)
        with damage_told(f"{place / ABOUT} is damaged"):
            found.statement()
        return found

    def __str__(self) -> str:
        return f"Alignment of {', '.join(self.sizes)}: {self.n_common:,} common ids"


def _read_rows(file: Path, party: str, n_common: int) -> Rows:
    with damage_told(f"{party}: {file} cannot be read"):
        # Mapped first: a wrong heading cannot make us ask for more memory than the file has bytes.
        rows: Rows = np.array(np.load(file, allow_pickle=False, mmap_mode="r"))
    if rows.dtype != np.int64 or rows.shape != (n_common,) or (rows < 0).any():
        raise InvalidInput(f"{party}: {file} should hold {n_common} rows as int64, none of them negative")
    return rows


# --- aligning --------------------------------------------------------------------------------------------------------


def align(
    ids: Mapping[str, Any],
    *,
    rule: IdRule | Mapping[str, Any] | None = None,
    duplicates: Duplicates = "refuse",
    minimum: int = 2,
    most_ids: int = MOST_IDS,
    comparer: str | None = None,
    column: str = "id",
    transport: str = "memory",
    link: Link | None = None,
    deadline: float = DEADLINE,
    n_jobs: int | None = None,
    backend: Any = None,
    block: int = BLOCK,
    verbose: int = 0,
    on_progress: OnProgress | None = None,
) -> Alignment:
    """Find the records that all parties hold: name -> column of ids, as numpy, pandas, polars, arrow or list.

    `rule`: how ids are written before they are compared; by default as whole numbers if all columns are of whole
    numbers, else as text. `duplicates`: "refuse" an id that stands in two rows, or take the "first". `minimum`: with
    fewer common ids nobody is told which. `most_ids`: what any party may bring, and so make others wait and take memory
    for. `comparer`: the party that compares, by default the first.

    `link` emulates a slow network, `deadline` is how many seconds a party waits for a message (beside the time that
    others need for the few blocks before it), `verbose=1` says how far it is, `on_progress(done, total)` tells a
    program. `n_jobs`: threads of each party, by default all cores in memory, where parties take turns, and 1 over gRPC.

    `backend`: where parties multiply: None for this machine, "ray", an address or a `RayBackend`; or a mapping, name of
    a party -> one of these (docs/scale.md).
    """
    check_how(transport, deadline)
    if not isinstance(ids, Mapping) or len(ids) < 2:
        raise InvalidInput("align takes a dict of two or more parties: name of the party -> column of ids")
    check_party_names(tuple(ids))
    if rule is None and all(_is_whole(values) for values in ids.values()):
        rule = IdRule("integer")
    job = AligningJob(
        parties=tuple(ids),
        run_id=uuid.uuid4().hex,
        comparer=comparer or "",
        rule=rule.to_dict() if isinstance(rule, IdRule) else rule,
        duplicates=duplicates,
        minimum=minimum,
        most_ids=most_ids,
        column=column,
        block=block,
    )
    n_threads = resolve_n_jobs(1 if n_jobs is None and transport == "grpc" else n_jobs)
    data = {name: party_with_ids(values, f"{name}: column {column!r}", n_threads) for name, values in ids.items()}
    data = with_backends(PROTOCOL, job, data, backends_of(backend, tuple(ids), n_jobs))
    results, ledgers, meters, seconds = run_together(
        PROTOCOL,
        job,
        data,
        transport=transport,
        link=link,
        deadline=deadline,
        on_progress=watcher(verbose, on_progress, " blocks of ids") if verbose else on_progress,
    )
    first = results[job.comparer]
    return Alignment(
        job=job,
        transport=transport,
        rows={name: results[name].rows for name in job.parties},
        sizes=first.n_ids,
        n_common=first.n_common,
        ledgers={name: ledgers[name] for name in job.parties},
        meters={name: meters[name] for name in job.parties},
        seconds=seconds,
    )


def _is_whole(values: Any) -> bool:
    """Whether a column holds whole numbers, by its type, or in a list by its values."""
    dtype = getattr(values, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind != "O":
        return dtype.kind in "iu"
    if isinstance(values, list | tuple | np.ndarray):
        return len(values) > 0 and all(
            isinstance(value, int | np.integer) and not isinstance(value, bool) for value in values
        )
    kind = str(dtype if dtype is not None else getattr(values, "type", ""))  # pandas' own, polars; arrow
    return kind.lower().startswith(("int", "uint"))


def party_with_ids(values: Any, where: str, n_threads: int) -> PartyData:
    """A party with a column of ids and no other. Whether the ids are right is for the party to find out."""
    brought: npt.NDArray[np.generic]
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "iu":
        brought, n_rows = values, len(values)
    else:
        sizes: list[int] = []
        brought = packed(_packable_blocks(values, where, sizes))
        n_rows = sum(sizes)
    return PartyData(Table((), n_rows, (), has_names=False), n_threads=n_threads, ids=brought)


def _packable_blocks(values: Any, where: str, sizes: list[int]) -> Iterator[list[str | int | bool | None]]:
    """Some ids at a time; `sizes` gets how many."""
    for block in plain_blocks(values, where):
        sizes.append(len(block))
        yield [_packable(value) for value in block]


def _packable(value: object) -> str | int | bool | None:
    """Text and whole numbers as they are, None for a missing value, False for what no id rule takes for an id."""
    if isinstance(value, str):
        return str(value)
    if is_missing(value):
        return None
    is_number = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return int(value) if is_number and int(value).bit_length() <= MAX_BITS else False  # type: ignore[call-overload]  # is_number


# --- tables ----------------------------------------------------------------------------------------------------------


def take_rows(X: Any, rows: Rows) -> Any:
    """These rows of a table or column, in this order: of numpy, pandas, polars, arrow, or a list."""
    family = _family(X)
    if family == "pandas":
        return X.iloc[rows]
    if family == "pyarrow":
        return X.take(rows)
    if family in ("polars", "numpy") or isinstance(X, np.ndarray):
        return X[rows]
    if isinstance(X, list | tuple):
        return type(X)(X[row] for row in rows.tolist())
    raise InvalidType(
        f"rows can be taken of numpy, pandas, polars and arrow tables and of lists, got {type(X).__name__}"
    )


def has_column(X: Any, name: str | int, n_columns: int) -> bool:
    """Whether a table has a column of ids besides its `n_columns` others; one without names has more columns then."""
    names = getattr(X, "column_names", None) or getattr(X, "columns", None)
    if _family(X) in ("pandas", "polars", "pyarrow") and names is not None:
        return name in list(names)
    return isinstance(X, np.ndarray) and isinstance(name, int) and X.ndim == 2 and X.shape[1] == n_columns + 1


def split_ids(X: Any, id: str | int, where: str) -> tuple[Any, Any]:  # noqa: A002 - as users of a federation spell it
    """The column of ids of a party's table, and the table without it; `where` names the party in errors.

    `id` is the name of the column; of a numpy array without names it is its number.
    """
    family = _family(X)
    if family == "numpy" or isinstance(X, np.ndarray):
        return _split_array(X, id, where)
    if family in ("pandas", "polars") and hasattr(X, "columns"):
        names = list(X.columns)
    elif family == "pyarrow" and hasattr(X, "column_names"):
        names = list(X.column_names)
    else:
        raise InvalidType(
            f"{where}: ids can be taken out of numpy, pandas, polars and arrow tables, got {type(X).__name__}"
        )
    times = names.count(id)
    if times == 0:
        raise InvalidInput(f"{where}: there is no column {id!r} to take ids from; there are {_some(names)}")
    if times > 1:
        raise InvalidInput(f"{where}: {times} columns are called {id!r}; ids are taken from one")
    if family == "pandas":
        return X[id], X.drop(columns=[id])
    if family == "polars":
        return X.get_column(id), X.drop(id)
    return X.column(id), X.drop_columns([id])


def _split_array(X: np.ndarray, column: str | int, where: str) -> tuple[Any, Any]:
    if X.dtype.names is not None:
        raise InvalidType(f"{where}: ids cannot be taken out of a structured array; use a data frame")
    if X.ndim != 2:
        raise InvalidInput(f"{where}: ids are taken out of a table of rows and columns, got {X.ndim} dimensions")
    whole = isinstance(column, int | np.integer) and not isinstance(column, bool)
    if not whole or not 0 <= int(column) < X.shape[1]:
        raise InvalidInput(
            f"{where}: there is no column {column!r} to take ids from; an array without names has the columns "
            f"0 to {X.shape[1] - 1}"
        )
    ids = X[:, int(column)]
    if ids.dtype.kind == "f" and np.all(np.isfinite(ids)) and np.array_equal(ids, np.trunc(ids)):
        ids = _whole_numbers(ids, where)
    return ids, np.delete(X, int(column), axis=1)


def _whole_numbers(ids: np.ndarray, where: str) -> np.ndarray:
    """Numbers that stand among measurements as floats; beyond 2^53 floats no longer tell neighbours apart."""
    limit = 2 ** (np.finfo(ids.dtype).nmant + 1)
    if len(ids) and np.abs(ids).max() >= limit:
        raise InvalidInput(
            f"{where}: ids of {limit} or more cannot be kept in {ids.dtype}; bring them as integers or text"
        )
    return ids.astype(np.int64)


def _family(X: Any) -> str:
    """The package of a table's class, which is not imported to look."""
    return type(X).__module__.partition(".")[0]


def _some(names: list[Any]) -> str:
    return ", ".join(repr(name) for name in names[:8]) + (", ..." if len(names) > 8 else "")
