"""What a party brings to a run: which columns of its own source, and their rows. Read by a node, and by an auditor.

    inputs = read_inputs(proposal, home)             # before the first message
    brought = inputs.brought(proposal, "bank")       # for `Chosen.read`, once it is known which rows take part
    inputs.save("inputs.arrow")                      # for an auditor: types are kept as they are

`blocks` is the one way to write inputs as bytes. Two inputs that could train different models have different bytes:

    length and text of a JSON object      how it is read, the number of rows, name and type of every column, in order
    per column with numbered levels       the levels, in their order, as cells
    per 65,536 rows, column by column     which cells are missing (a bit each), and the cells that are not

A cell of a fixed width is its bytes, as Arrow has them (little-endian); of texts there are all lengths (8 bytes each)
and then all bytes. Every block has its length (8 bytes) before it. How the table was cut into chunks, and what lies
behind a missing cell, has no part in it.

Where party.toml says how to compute, and the role can read files, Parquet files are not read into memory
(`StoredInputs`). Their bytes are those of the same table in memory, some rows at a time: who commits to them reads all
files once, in this process, whoever else will read them later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hedgerow.codec import AsJson
from hedgerow.engine.blocks import Blocks
from hedgerow.engine.dtypes import Ints
from hedgerow.errors import InvalidInput
from hedgerow.federation.federation import Brought
from hedgerow.federation.files import BroughtFiles
from hedgerow.node import documents, sources
from hedgerow.node.databases import is_database
from hedgerow.node.words import chosen_dataset, columns_of
from hedgerow.runtime.saved_files import damage_told

if TYPE_CHECKING:
    from hedgerow.node.home import Home
    from hedgerow.node.proposal import Proposal

BLOCK_ROWS = 1 << 16


@dataclass(frozen=True)
class How(AsJson):
    """What is read, and as what."""

    dataset: str  # as party.toml calls it
    columns: tuple[str, ...]  # to train on, in this order
    categorical: tuple[str, ...]  # of these; of the others their types decide
    label: str | None  # None where the party brings none to this run
    id: str | None  # likewise
    weight: str | None = None  # likewise

    @property
    def categorical_features(self) -> Any:
        """As everything that trains takes it."""
        return list(self.categorical) or "from_dtype"

    @property
    def names(self) -> list[str]:
        """All columns that are read."""
        more = (name for name in (self.label, self.id, self.weight) if name is not None)
        return list(dict.fromkeys([*self.columns, *more]))


def read_inputs(proposal: Proposal, home: Home) -> Inputs | StoredInputs:
    """From the party's own source, as party.toml says now."""
    dataset = chosen_dataset(proposal, home)
    how = How(
        dataset.name,
        columns_of(dataset, sources.look(dataset, home.path).columns),
        dataset.categorical,
        dataset.label if (has_labels := proposal.label_holder in (None, home.name)) else None,
        dataset.id if proposal.matching is not None else None,
        dataset.weight if has_labels else None,
    )
    if home.party_file.compute is not None and proposal.chosen.protocol.reads_files and how.label is not None:
        path = home.path / dataset.source
        if not is_database(dataset.source) and sources.holds_parquet(path):
            return StoredInputs(how, Blocks(path, target=how.label, weight=how.weight, columns=how.columns))
    return Inputs.again(how, home)


@dataclass(frozen=True, eq=False)
class Inputs:
    """The columns that take part in a run, all rows, as they were read."""

    how: How
    table: Any  # of arrow

    @classmethod
    def again(cls, how: How, home: Home) -> Inputs:
        """The same columns once more."""
        dataset = home.party_file.data.get(how.dataset)
        if dataset is None:
            raise InvalidInput(f"{home.party_toml}: there is no dataset {how.dataset!r} any more")
        table = sources.read(dataset, base=home.path, columns=how.names)
        return cls(how, table.unify_dictionaries())

    @property
    def ids(self) -> Any:
        """The column of ids."""
        if self.how.id is None:
            raise InvalidInput(f"no id was read of the dataset {self.how.dataset}")
        return self.table.column(self.how.id)

    def brought(self, proposal: Proposal, party: str) -> Brought:
        """As everything that trains takes it; all rows, until it is told which."""
        has_labels = proposal.label_holder in (None, party)
        if has_labels and self.how.label is None:
            raise InvalidInput(f"{party}: no label was read of the dataset {self.how.dataset}")
        return Brought(
            party,
            self.table.select(list(self.how.columns)),
            self.table.column(self.how.label) if has_labels else None,
            task=proposal.task,
            categorical_features=self.how.categorical_features,
            has_labels=has_labels,
            weight=None if self.how.weight is None or not has_labels else self.table.column(self.how.weight),
        )

    # --- as a file ---------------------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """The table as a file of Arrow's own format, which changes no type."""
        import pyarrow as pa

        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, self.table.schema) as writer:
            writer.write_table(self.table, BLOCK_ROWS)

    @classmethod
    def load(cls, how: How, path: Path) -> Inputs:
        """What `save` wrote, of a file that anybody may have written. InvalidInput unless it has just these columns."""
        import pyarrow as pa

        with damage_told(f"{path} cannot be read"), pa.OSFile(str(path), "rb") as source:
            table = pa.ipc.open_file(source).read_all()
            table.validate(full=True)
        if table.column_names != how.names:
            raise InvalidInput(f"{path} has the columns {table.column_names}, and should have {how.names}")
        return cls(how, table.unify_dictionaries())

    # --- as bytes ----------------------------------------------------------------------------------------------------

    def blocks(self) -> Iterator[Any]:
        """What stands for the inputs, as described above: the same bytes for the same inputs only."""
        import pyarrow as pa

        table, levels = self.table, {}
        for name in self.how.names:
            column = table.column(name)
            if pa.types.is_dictionary(column.type):
                none = pa.array([], column.type.value_type)
                levels[name] = column.chunk(0).dictionary if column.num_chunks else none
        types = {field.name: field.type for field in table.schema}
        yield from _heading(self.how, table.num_rows, types, levels)
        for start in range(0, table.num_rows, BLOCK_ROWS):
            yield from _rows(self.how, table.slice(start, BLOCK_ROWS))


@dataclass(frozen=True, eq=False)
class StoredInputs:
    """The same columns in Parquet files, which nobody reads into memory."""

    how: How
    files: Blocks

    def brought(self, proposal: Proposal, party: str) -> BroughtFiles:
        """As everything that trains takes it."""
        return BroughtFiles(
            party, self.files, None, task=proposal.task, categorical_features=self.how.categorical_features
        )

    def blocks(self) -> Iterator[Any]:
        """The bytes that the same table has in memory."""
        import pyarrow as pa

        names = self.how.names
        types = {name: self.files.types[name] for name in names}
        coded = [name for name in names if pa.types.is_dictionary(types[name])]
        seen: dict[str, dict[Any, None]] = {name: {} for name in coded}
        for _, batch in self.files.batches(coded) if coded else ():
            for name in coded:
                for chunk in batch.column(name).chunks:
                    seen[name].update(dict.fromkeys(chunk.dictionary.to_pylist()))
        levels = {name: pa.array(list(found), types[name].value_type) for name, found in seen.items()}
        yield from _heading(self.how, self.files.n_rows, types, levels)
        waiting: list[Any] = []
        for _, batch in self.files.batches(names):
            waiting.append(batch)
            while sum(each.num_rows for each in waiting) >= BLOCK_ROWS:
                whole = pa.concat_tables(waiting)
                yield from _rows(self.how, whole.slice(0, BLOCK_ROWS))
                waiting = [whole.slice(BLOCK_ROWS)]
        if rest := sum(each.num_rows for each in waiting):
            yield from _rows(self.how, pa.concat_tables(waiting).slice(0, rest))


def _heading(how: How, n_rows: int, types: Mapping[str, Any], levels: Mapping[str, Any]) -> Iterator[Any]:
    """How the table is read, and numbered levels in their order."""
    written = how.to_dict()
    if how.weight is None:  # inputs of versions that knew no weights have the bytes that they had
        del written["weight"]
    about = {"how": written, "n_rows": n_rows, "types": {name: str(kind) for name, kind in types.items()}}
    yield from _with_length(documents.canonical(about))
    for each in levels.values():
        yield from _cells(each)


def _rows(how: How, table: Any) -> Iterator[Any]:
    for name in how.names:
        yield from _cells(_one_array(table.column(name)))


def _one_array(column: Any) -> Any:
    """A column as one array; the value of each cell in place of its number, where levels are numbered."""
    import pyarrow as pa

    whole = column.combine_chunks()
    whole = whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
    return whole.dictionary_decode() if pa.types.is_dictionary(whole.type) else whole


def _cells(array: Any) -> Iterator[Any]:
    """Which cells are missing, and all others in their order."""
    import pyarrow as pa

    yield from _with_length(np.packbits(array.is_null().to_numpy(zero_copy_only=False)).tobytes())
    values, kind = array.drop_null(), array.type
    if any(is_text(kind) for is_text in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)):
        values = values.cast(pa.large_binary())
        ends = np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + len(values) + 1]
        yield from _with_length(np.diff(ends).tobytes())
        yield from _with_length(values.buffers()[2][int(ends[0]) : int(ends[-1])] if len(values) else b"")
    elif pa.types.is_boolean(kind):
        yield from _with_length(values.to_numpy(zero_copy_only=False).tobytes())
    elif pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
        width = kind.bit_width // 8
        held = values.buffers()[1] if len(values) else b""
        yield from _with_length(held[values.offset * width : (values.offset + len(values)) * width])
    else:  # nothing that trees are grown on
        yield from _with_length(repr(values.to_pylist()).encode())


def _with_length(block: Any) -> Iterator[Any]:
    """Bytes, or what is in a buffer of arrow, after their number."""
    yield len(block).to_bytes(8, "little")
    yield block


def read_rows(path: Path, n_rows: int) -> Ints:
    """Positions in a table of this many rows, from a file. InvalidInput for anything else."""
    with damage_told(f"{path} cannot be read"):
        # Mapped first: a wrong heading cannot make us ask for more memory than the file has bytes.
        rows: Ints = np.array(np.load(path, allow_pickle=False, mmap_mode="r"))
    if rows.dtype != np.int64 or rows.ndim != 1 or (rows.size and not 0 <= rows.min() <= rows.max() < n_rows):
        raise InvalidInput(f"{path} does not have rows of the table, which has {n_rows:,}")
    return rows
