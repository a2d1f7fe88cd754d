"""Tables from files and folders: what is read, what a folder must be, and the laws that hold between them."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hedgerow.errors import HedgerowError, InvalidInput, JobError
from hedgerow.node.party_file import Dataset
from hedgerow.node.sources import Look, look, read

PEOPLE = pa.table({"id": ["a", "b", "c", "d"], "age": [30, 40, None, 60], "pay": [1.5, 2.0, 3.25, None]})


def dataset(source: str, **more: str) -> Dataset:
    """A dataset of this source."""
    return Dataset(name="people", source=source, **more)


def write(path: Path, table: pa.Table) -> None:
    """The table as a file of the kind that the name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".csv":
        pc.write_csv(table, path)
    else:
        pq.write_table(table, path)


@pytest.mark.parametrize("suffix", ["parquet", "pq", "csv"])
def test_a_file_is_read(tmp_path, suffix):
    """By a path relative to the party file or an absolute one; of all columns or some, in the order asked for."""
    write(tmp_path / f"people.{suffix}", PEOPLE)
    assert read(dataset(f"people.{suffix}"), base=tmp_path) == PEOPLE
    assert read(dataset(str(tmp_path / f"people.{suffix}")), base=Path("elsewhere")) == PEOPLE
    assert read(dataset(f"people.{suffix}"), base=tmp_path, columns=["pay", "id"]) == PEOPLE.select(["pay", "id"])
    expected = Look({"id": "string", "age": "int64", "pay": "double"}, 4)
    assert look(dataset(f"people.{suffix}"), tmp_path) == expected


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_folder_is_its_parts_end_to_end(tmp_path, suffix):
    """In the order of their names, whatever else is hidden there; some columns of it, too."""
    write(tmp_path / "people" / f"part-2.{suffix}", PEOPLE.slice(3))
    write(tmp_path / "people" / f"part-10.{suffix}", PEOPLE.slice(0, 3))
    write(tmp_path / "people" / f".part-0.{suffix}", PEOPLE)
    (tmp_path / "people" / "_SUCCESS").touch()
    assert read(dataset("people"), base=tmp_path).to_pydict() == PEOPLE.to_pydict()
    assert read(dataset("people"), base=tmp_path, columns=["age"]) == PEOPLE.select(["age"])
    assert look(dataset("people"), tmp_path) == Look({"id": "string", "age": "int64", "pay": "double"}, 4)


def test_a_column_named_like_part_of_another(tmp_path):
    """Dots in names are dots: a is not a.b."""
    table = pa.table({"a.b": [1], "a": [2]})
    write(tmp_path / "dots.parquet", table)
    assert read(dataset("dots.parquet"), base=tmp_path, columns=["a"]).to_pydict() == {"a": [2]}
    assert read(dataset("dots.parquet"), base=tmp_path, columns=["a.b"]).to_pydict() == {"a.b": [1]}


def test_csv_parts_are_guessed_together(tmp_path):
    """A column is of one type in all parts, that which it would have in one file; no last line break is needed."""
    (tmp_path / "people").mkdir()
    (tmp_path / "people" / "1.csv").write_text("x,y,z,w\n1,,0,9223372036854775809")
    (tmp_path / "people" / "2.csv").write_bytes(b"\r\nx,y,z,w\r\n2.5,NA,true,3\r\n")
    (tmp_path / "people" / "3.csv").write_text("x,y,z,w\n")
    (tmp_path / "people" / "4.csv").write_text('x,"y",z,w\n,b,1,4')
    table = read(dataset("people"), base=tmp_path)
    assert table.to_pydict() == {
        "x": [1.0, 2.5, None],
        "y": [None, "NA", "b"],
        "z": [False, True, True],
        "w": [2**63 + 1, 3, 4],
    }


def test_parquet_parts_may_lack_values(tmp_path):
    """A part without any value of a column has no type to differ in; the order of such parts does not matter."""
    for order in (["1", "2"], ["2", "1"]):
        folder = tmp_path / "".join(order)
        write(folder / f"{order[0]}.parquet", pa.table({"x": pa.nulls(2), "y": [1, 2]}))
        write(folder / f"{order[1]}.parquet", pa.table({"x": ["a"], "y": [3]}))
        assert read(dataset(folder.name), base=tmp_path).schema.field("x").type == pa.string()
        assert look(dataset(folder.name), tmp_path) == Look({"x": "string", "y": "int64"}, 3)


def test_parquet_parts_may_number_their_levels_differently(tmp_path):
    """Categories as other programs write them are the same text in all parts."""
    for name, town in (("1", ["oak", "elm"]), ("2", ["elm", "ash"])):
        write(tmp_path / "people" / f"{name}.parquet", pa.table({"town": pa.array(town).dictionary_encode()}))
    column = read(dataset("people"), base=tmp_path).column("town")
    assert column.to_pylist() == ["oak", "elm", "elm", "ash"]
    assert column.chunk(0).dictionary == column.chunk(1).dictionary


def test_parquet_parts_are_compared_whole(tmp_path):
    """Also if only a column is asked for that all of them have."""
    write(tmp_path / "people" / "1.parquet", PEOPLE)
    write(tmp_path / "people" / "2.parquet", PEOPLE.select(["id", "age"]))
    with pytest.raises(InvalidInput, match=r"2\.parquet: the file lacks 'pay'"):
        read(dataset("people"), base=tmp_path, columns=["id"])


def parts(**files: str | bytes | pa.Table | None) -> dict[str, str | bytes | pa.Table | None]:
    """Files of a folder: name with _ for the dot -> what is in it; None is a folder."""
    return {name.replace("_", "."): content for name, content in files.items()}


FOLDERS = [
    (parts(), "people: there is no .parquet or .csv file in the folder"),
    (
        parts(a_csv="x\n1\n", b_parquet=PEOPLE),
        "b.parquet: a folder holds either Parquet or CSV files, and a.csv is .csv",
    ),
    (parts(a_csv="x\n1\n", notes_txt="hello"), "notes.txt: the file must end in .parquet or .csv"),
    (parts(a_csv="x\n1\n", sub=None), "sub: this is a folder; all parts must lie in"),
    (parts(a_csv="x,y\n1,2\n", b_csv="x\n1\n"), "b.csv: the file lacks 'y'; all files of a folder must have the same"),
    (parts(a_csv="x,y\n1,2\n", b_csv="x,z\n1,2\n"), "b.csv: the file lacks 'y' and has 'z' besides"),
    (parts(a_csv="x,y\n1,2\n", b_csv="y,x\n1,2\n"), "b.csv: the file has the columns in another order"),
    (parts(a_csv="x,y\n1,2\n", b_csv="x,y\n1\n"), "b.csv: cannot be read as csv"),
    (parts(a_csv="x,y\n1,2\n", b_csv=""), "b.csv: the file is empty"),
    (parts(a_csv="x,y\n1,2\n", b_csv="x,y\r1,2\r"), "b.csv: the first line does not end"),
    (parts(a_csv="x,x\n1,2\n"), "a.csv: 2 columns are called 'x'"),
    (parts(a_csv=b"\xff\n1\n"), "a.csv: cannot be read as csv"),
    (parts(a_csv='"x\ny",z\n1,2\n', b_csv='"x\ny",z\n1,2\n'), "a.csv: "),
    (parts(a_csv='"x\ny"\n1\n', b_csv='"x\ny"\n1\n'), "a.csv: "),
    (parts(a_csv="x\n", b_csv="x\n"), "people: the files of the folder have no rows"),
    (parts(a_parquet=PEOPLE, b_parquet=PEOPLE.select(["id", "age"])), "b.parquet: the file lacks 'pay'"),
    (parts(a_parquet=PEOPLE, b_parquet=b"PAR1"), "b.parquet: cannot be read as parquet"),
    (
        parts(a_parquet=pa.table({"x": [1]}), b_parquet=pa.table({"x": ["a"]})),
        "b.parquet: column 'x' is string here and int64 in the files before",
    ),
]


@pytest.mark.parametrize(("files", "sentence"), FOLDERS)
def test_a_folder_that_is_refused(tmp_path, files, sentence):
    """The error names the file that is to blame, whether the rows are asked for or the columns."""
    folder = tmp_path / "people"
    folder.mkdir()
    for name, content in files.items():
        if content is None:
            (folder / name).mkdir()
        elif isinstance(content, pa.Table):
            write(folder / name, content)
        else:
            (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(HedgerowError, match=re.escape(sentence)):
        read(dataset("people"), base=tmp_path)
    if "no rows" not in sentence:
        with pytest.raises(HedgerowError, match=re.escape(sentence)):
            look(dataset("people"), tmp_path)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("none.csv", "none.csv: there is no such file"),
        ("none", "none: the file must end in .parquet or .csv"),
        ("a" * 300 + ".csv", "File name too long"),
        ("a.xlsx", "a.xlsx: the file must end in .parquet or .csv"),
    ],
)
def test_a_source_that_is_not_there(tmp_path, source, sentence):
    """Files are named; the kinds that can be read are, too."""
    for attempt in (lambda: read(dataset(source), base=tmp_path), lambda: look(dataset(source), tmp_path)):
        with pytest.raises(HedgerowError, match=sentence):
            attempt()


@pytest.mark.parametrize("name", ["people.parquet", "people.csv", "folder/people.parquet", "folder/people.csv"])
def test_a_column_that_is_not_there(tmp_path, name):
    """The nearest one is named."""
    write(tmp_path / name, PEOPLE)
    with pytest.raises(InvalidInput, match=r"there is no column 'agee', which .*; did you mean 'age'\?"):
        read(dataset(name.split("/", maxsplit=1)[0]), base=tmp_path, columns=["id", "agee"])


def test_passwords_are_refused_here_too(tmp_path):
    """A dataset that was made without a party file gets the same check."""
    with pytest.raises(JobError) as caught:
        read(dataset("postgresql://a:hunter2@b/c", query="SELECT 1"), base=tmp_path)
    assert "hunter2" not in str(caught.value)


# --- laws ------------------------------------------------------------------------------------------------------------

COLUMNS = {
    "whole": st.none() | st.integers(-(2**63), 2**63 - 1),
    "real": st.none() | st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x + 0.5).filter(math.isfinite),
    "word": st.none() | st.text("aé,\" ;'", min_size=1, max_size=5).map(lambda text: f"w{text}"),
    "truth": st.none() | st.booleans(),
}
ARROW = {"whole": pa.int64(), "real": pa.float64(), "word": pa.string(), "truth": pa.bool_()}
ROWS = st.lists(st.tuples(*COLUMNS.values()), min_size=1, max_size=12)


def table_of(rows: list[tuple[object, ...]]) -> pa.Table:
    """Rows as a table, whose first row has a value in every column, so that CSV shows what each is."""
    rows = [(1, 0.5, "w", True), *rows]
    return pa.table({name: pa.array([row[k] for row in rows], ARROW[name]) for k, name in enumerate(COLUMNS)})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(ROWS, st.lists(st.integers(0, 13), max_size=3), st.sampled_from(["csv", "parquet"]))
def test_a_folder_equals_the_whole(tmp_path_factory, rows, cuts, suffix):
    """However the rows are cut into parts, empty ones included, and of which format."""
    place, table = tmp_path_factory.mktemp("whole"), table_of(rows)
    write(place / f"whole.{suffix}", table)
    ends = [0, *sorted(min(cut, table.num_rows) for cut in cuts), table.num_rows]
    for k in range(len(ends) - 1):
        write(place / "parts" / f"{k}.{suffix}", table.slice(ends[k], ends[k + 1] - ends[k]))
    whole = read(dataset(f"whole.{suffix}"), base=place)
    assert read(dataset("parts"), base=place).equals(whole)
    assert look(dataset("parts"), place) == look(dataset(f"whole.{suffix}"), place)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(ROWS)
def test_csv_equals_parquet(tmp_path_factory, rows):
    """Whole numbers, fractions, text and truth values are the same from both."""
    place, table = tmp_path_factory.mktemp("both"), table_of(rows)
    for suffix in ("csv", "parquet"):
        write(place / f"people.{suffix}", table)
    from_csv, from_parquet = (read(dataset(f"people.{suffix}"), base=place) for suffix in ("csv", "parquet"))
    assert from_csv.equals(from_parquet)
    assert look(dataset("people.csv"), place) == look(dataset("people.parquet"), place)


@settings(max_examples=60)
@given(st.binary(max_size=80), st.binary(max_size=80))
def test_any_bytes_as_csv_are_read_or_refused(tmp_path_factory, first, second):
    """As a file and as parts of a folder: a table or a HedgerowError."""
    place = tmp_path_factory.mktemp("any")
    (place / "parts").mkdir()
    (place / "a.csv").write_bytes(first)
    (place / "parts" / "1.csv").write_bytes(b"x,y\n1,2\n" + first)
    (place / "parts" / "2.csv").write_bytes(b"x,y\n" + second)
    for source in ("a.csv", "parts"):
        for attempt in (lambda s=source: read(dataset(s), base=place), lambda s=source: look(dataset(s), place)):
            said = str(place)
            try:
                attempt()
            except HedgerowError as problem:
                said = str(problem)
            assert str(place) in said
