"""party.toml: what it may say, each refusal with its line, and the template."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.engine.rows_ray.cluster import RayBackend
from hedgerow.errors import HedgerowError, InvalidParameter, JobError
from hedgerow.node.party_file import (
    FORMAT,
    Compute,
    Dataset,
    Limits,
    Network,
    PartyFile,
    Policy,
    json_schema,
    read_party_file,
    template,
)
from hedgerow.node.settings import Each, Key, Table

WHOLE = """\
name = "bank"
log = "json"
[network]
bind = "0.0.0.0:7341"
advertise = "bank.example.org:443"
authority = "ca.pem"
[data.customers]
source = "customers.parquet"
id = "customer_id"
label = "defaulted"
weight = "exposure"
columns = ["age", "income"]
drop = ["street"]
categorical = ["age"]
schema = "customers.schema.json"
[data."last year"]
source = "postgresql://reader@db.example:5432/crm?sslmode=verify-full"
query = "SELECT * FROM customers WHERE year = 2025"
[compute]
backend = "head.bank.example:6379"
actors = 3
threads = 2
rows_in_object_store = true
rebuilds = 0
patience = 60
[policy]
protocols = ["vertical.secret_shared", "horizontal.secure_sum"]
peers = ["shop"]
minimum_rows = 1000
minimum_matched = 500
epsilon_per_run = 1
approved = ["0123456789abcdef0123456789abcdef"]
[policy.columns]
customers = ["age"]
[policy.budget]
epsilon = inf
delta = 1e-5
[policy.budget.peers.shop]
epsilon = 3
[policy.budget.datasets.customers]
epsilon = 5.0
delta = 1e-6
"""


def parsed(tmp_path: Path, text: str) -> PartyFile:
    """The party file of this text."""
    path = tmp_path / "party.toml"
    path.write_text(text, encoding="utf-8")
    return read_party_file(path)


def test_a_file_that_says_everything(tmp_path):
    """Every key arrives where it belongs; paths start from the folder of the file."""
    party = parsed(tmp_path, WHOLE)
    assert party == PartyFile(
        path=tmp_path / "party.toml",
        name="bank",
        network=Network("0.0.0.0:7341", "bank.example.org:443", tmp_path / "ca.pem"),
        data={
            "customers": Dataset(
                name="customers",
                source="customers.parquet",
                id="customer_id",
                label="defaulted",
                weight="exposure",
                columns=("age", "income"),
                drop=("street",),
                categorical=("age",),
                schema=tmp_path / "customers.schema.json",
            ),
            "last year": Dataset(
                name="last year",
                source="postgresql://reader@db.example:5432/crm?sslmode=verify-full",
                query="SELECT * FROM customers WHERE year = 2025",
            ),
        },
        policy=Policy(
            protocols=("vertical.secret_shared", "horizontal.secure_sum"),
            peers=("shop",),
            columns={"customers": ("age",)},
            minimum_rows=1000,
            minimum_matched=500,
            epsilon_per_run=1.0,
            approved=("0123456789abcdef0123456789abcdef",),
            budget=Limits(float("inf"), 1e-5),
            budget_of_peers={"shop": Limits(3.0)},
            budget_of_datasets={"customers": Limits(5.0, 1e-6)},
        ),
        log="json",
        compute=Compute(
            RayBackend("head.bank.example:6379", 3, 2, rows_in_object_store=True, rebuilds=0, patience=60.0)
        ),
    )


def test_a_file_that_says_next_to_nothing(tmp_path):
    """The name is enough; the rest is as in the dataclasses."""
    party = parsed(tmp_path, 'name = "bank"')
    assert party == PartyFile(tmp_path / "party.toml", "bank", Network(), {}, Policy())


@pytest.mark.parametrize(
    ("bind", "advertise"),
    [
        ("bank.example.org:7341", "bank.example.org:7341"),
        ("127.0.0.1:7341", "127.0.0.1:7341"),
        ("[::1]:7341", "[::1]:7341"),
        ("0.0.0.0:7341", None),
        ("[::]:7341", None),
        ("127.0.0.1:0", None),
    ],
)
def test_what_others_dial_follows_from_bind_if_that_names_a_host(tmp_path, bind, advertise):
    """All addresses of a machine, or any free port, are nothing to dial."""
    assert parsed(tmp_path, f'name = "bank"\nnetwork.bind = "{bind}"').network == Network(bind, advertise)


REFUSED = {
    # unknown names
    'nane = "shop"': (2, "unknown section or key 'nane'; did you mean 'name'?"),
    "[netwrk]": (2, "unknown section or key 'netwrk'; did you mean 'network'?"),
    "[network]\nport = 1": (3, "unknown key 'port' in [network]; there are bind, advertise, authority"),
    "[network]\n\nadvertize = 1": (4, "unknown key 'advertize' in [network]; did you mean 'advertise'?"),
    '[data.a]\nsource = "a.csv"\nlabels = "y"': (4, "unknown key 'labels' in [data.a]; did you mean 'label'?"),
    '[data]\na = {source = "a.csv", lable = "y"}': (3, "unknown key 'lable' in [data.a]; did you mean 'label'?"),
    "[policy]\nminimum_row = 3": (3, "unknown key 'minimum_row' in [policy]; did you mean 'minimum_rows'?"),
    "[policy.budgets]": (2, "unknown section or key 'budgets' in [policy]; did you mean 'budget'?"),
    "[policy.budget.peer.shop]": (2, "unknown section or key 'peer' in [policy.budget]; did you mean 'peers'?"),
    "[policy.budget.peers.shop]\nepsilon = 1\ndelta_ = 1": (4, "unknown key 'delta_'"),
    '[network]\nlog = "json"': (3, "unknown key 'log' in [network]; it belongs at the top, before the first section"),
    'bind = "a:1"': (2, "unknown section or key 'bind'; it belongs in [network]"),
    '[data]\nsource = "a.csv"': (3, "source must be a section, written [data.source], got text"),
    '[data.a]\nsource = "a.csv"\nminimum_rows = 3': (
        4,
        "unknown key 'minimum_rows' in [data.a]; it belongs in [policy]",
    ),
    # missing names
    "[data.a]": (2, "source is missing in [data.a]: a .parquet or .csv file, a folder of them, duckdb:FILE, or"),
    "[policy.budget]\ndelta = 0.1": (2, "epsilon is missing in [policy.budget]"),
    "[policy.budget.peers.shop]": (2, "epsilon is missing in [policy.budget.peers.shop]"),
    # wrong values
    'log = "jsonl"': (2, "log: there is no 'jsonl'; did you mean 'json'?"),
    "network = 3": (2, "network must be a section, written [network], got a number"),
    "[network]\nbind = 7341": (3, 'bind must be "host:port" in quotes, with port 0 for any free one, got 7341'),
    '[network]\nbind = "host"': (3, 'bind must be "host:port" in quotes'),
    '[network]\nbind = "host:65536"': (3, "got 'host:65536'"),
    '[network]\nbind = "https://host:1"': (3, "bind must be"),
    '[network]\nadvertise = "0.0.0.0:1"': (3, "advertise must be"),
    '[network]\nadvertise = "host:0"': (3, "of a host that others can reach, got 'host:0'"),
    '[network]\nauthority = ""': (3, "authority must be text in quotes, got ''"),
    "[data.a]\nsource = 3": (3, "source must be a path or an address, in quotes"),
    '[data.""]\nsource = "a.csv"': (2, "the name of a dataset is empty"),
    '[data.a]\nsource = "a.csv"\ndrop = "x"': (4, "drop must be a list of column names, got 'x'"),
    '[data.a]\nsource = "a.csv"\ndrop = [\n"x",\n3]': (4, "drop must be a list of column names, got ['x', 3]"),
    "[policy]\nminimum_rows = 0": (3, "minimum_rows must be a whole number of at least 1, got 0"),
    "[policy]\nminimum_rows = 2.5": (3, "got 2.5"),
    "[policy]\nepsilon_per_run = -1": (3, "epsilon_per_run must be a number of at least 0, or inf, got -1"),
    '[policy]\nprotocols = ["vertical.secret_share"]': (3, "did you mean 'vertical.secret_shared'?"),
    '[policy]\nprotocols = "vertical.secret_shared"': (3, "protocols must be a list of protocols, got"),
    '[policy]\npeers = ["a/b"]': (3, "peers: a party's name is 1 to 63 letters"),
    '[policy]\napproved = ["abc"]': (3, "approved must be a list of hashes of proposals, each of 32 to 128 digits"),
    "[policy.budget]\nepsilon = 1\ndelta = 1": (4, "delta must be a number of at least 0 and below 1, got 1"),
    '[policy.budget]\nepsilon = "1"': (3, "epsilon must be a number of at least 0, or inf, got '1'"),
    "[policy.budget.peers.'a b']\nepsilon = 1": (2, "a party's name is 1 to 63 letters"),
    '[compute]\nbackend = "nowhere"': (3, 'backend must be "local", "ray" or the address of a Ray cluster, in quotes'),
    "[compute]\nactors = 2": (2, "backend is missing in [compute]"),
    '[compute]\nbackend = "ray"\nactors = 0': (4, "actors must be a whole number of at least 1, got 0"),
    '[compute]\nbackend = "ray"\nrows_in_object_store = 1': (4, "rows_in_object_store must be true or false, got 1"),
    # what does not fit together
    '[compute]\nbackend = "local"\nactors = 2': (4, 'actors is for actors of Ray, and backend is "local"'),
    '[compute]\nbackend = "ray"\npatience = 0': (2, "patience must be a number of seconds above 0"),
    "[policy.columns]\ncustomers = []": (3, "there is no dataset 'customers'; there is no [data.<dataset>] at all"),
    '[data.ab]\nsource = "a.csv"\n[policy.budget.datasets.abc]\nepsilon = 1': (4, "did you mean 'ab'?"),
    '[data.a]\nsource = "a.csv"\ncolumns = ["x"]\n[policy.columns]\na = ["z"]': (6, "'z' is not one of columns of"),
    '[data.a]\nsource = "a.csv"\nid = "x"\nlabel = "x"': (5, "'x' cannot be both id and label"),
    '[data.a]\nsource = "a.csv"\nlabel = "y"\nweight = "y"': (5, "'y' cannot be both label and weight"),
    '[data.a]\nsource = "a.csv"\nid = "x"\nlabel = "y"\nweight = "x"': (6, "'x' cannot be both id and weight"),
    '[data.a]\nsource = "a.csv"\nweight = "w"': (4, "weight is for rows with labels, and there is no label"),
    '[data.a]\nsource = "a.csv"\nlabel = "y"\nweight = "w"\ncolumns = ["w"]': (
        6,
        "columns has 'w', which is also named by weight",
    ),
    '[data.a]\nsource = "a.csv"\nweigth = "w"': (4, "unknown key 'weigth' in [data.a]; did you mean 'weight'?"),
    '[data.a]\nsource = "a.csv"\ncolumns = ["x"]\ndrop = ["x"]': (4, "columns has 'x', which is also named by drop"),
    '[data.a]\nsource = "a.csv"\nid = "x"\ncategorical = ["x"]': (5, "categorical has 'x', which is also named by id"),
    '[data.a]\nsource = "a.csv"\ncolumns = ["x"]\ncategorical = ["y"]': (5, "'y', which is not one of columns"),
    '[data.a]\nsource = "a.csv"\nquery = "SELECT 1"': (4, "query is for databases, and the source is a file or folder"),
    '[data.a]\nsource = "duckdb:a.db"': (3, "a database needs a query, which says in SQL what to read"),
    '[data.a]\nsource = "mysql://host/db"': (3, "mysql:// cannot be read from; a source is a path, duckdb:... and"),
    '[data.a]\nsource = "duckdb://a.db"': (3, "must be duckdb: and its path"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused_has_a_line_and_a_way_out(tmp_path, text):
    """One sentence: file, line, key, value, and the nearest name or what it must be."""
    line, sentence = REFUSED[text]
    with pytest.raises(JobError) as caught:
        parsed(tmp_path, f'name = "bank"\n{text}')
    assert str(caught.value).startswith(f"{tmp_path / 'party.toml'}, line {line}: ")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "name is missing at the top: what others call this party"),
        ("name = 3", "line 1: name must be the name of a party, in quotes, got 3"),
        ('name = "a b"', "line 1: name: a party's name is 1 to 63 letters"),
    ],
)
def test_a_party_needs_a_name(tmp_path, text, sentence):
    """One that can stand in a certificate."""
    with pytest.raises(JobError, match=re.escape(sentence)):
        parsed(tmp_path, text)


@pytest.mark.parametrize(
    "source",
    [
        "postgresql://reader:hunter2@db/crm",
        "postgres://reader:hunter2@db/crm",
        "POSTGRESQL://reader:hunter2@db/crm",
        "postgresql:reader:hunter2@db/crm",
        "postgresql://reader:hunter2/@db/crm",
        "postgresql://reader@db/crm?password=hunter2",
        "postgresql://reader@db/crm?a=b&pass%77ord=hunter2",
        "postgresql://reader@db/crm?a=b#&password=hunter2",
        "postgresql://reader@db:hunter2/crm",
        "host=db user=reader password=hunter2",
        "mysql://reader:hunter2@db/crm",
    ],
)
@pytest.mark.parametrize("form", ['"{}"', '["{}"]', '{{a = "{}"}}'])
def test_a_password_in_an_address_is_refused_and_not_repeated(tmp_path, source, form):
    """Wherever it stands; where servers are meant the error says where it belongs."""
    value = form.format(source)
    with pytest.raises(JobError, match="line 3: source") as caught:
        parsed(tmp_path, f'name = "bank"\n[data.a]\nsource = {value}\nquery = "SELECT 1"')
    assert "hunter2" not in str(caught.value)
    if form == '"{}"' and "mysql" not in source:
        assert "PGPASSWORD" in str(caught.value)
    with pytest.raises(JobError) as caught:
        parsed(tmp_path, f'name = "bank"\n[data]\nsource = {value}')
    assert "hunter2" not in str(caught.value)


# --- the template ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "network", [{}, {"bind": "0.0.0.0:7341", "advertise": "a.example:1"}, {"authority": Path("a'b.pem")}]
)
def test_the_template_is_read_as_it_is(tmp_path, network):
    """With the name and network that it was made for, no dataset, and the policy's defaults."""
    party = parsed(tmp_path, template("bank", **network))
    assert party.name == "bank"
    expected = {**network, **({"authority": tmp_path / network["authority"]} if "authority" in network else {})}
    assert party.network == Network(**expected)
    assert party.data == {}
    assert party.policy == Policy()


def test_the_examples_in_the_template_are_right(tmp_path):
    """With the comments taken away (and one source left of three) every key of the format is there, but for two."""
    text = re.sub(r"^# (?=\w+ = |\[)", "", template("bank"), flags=re.MULTILINE)
    text = re.sub(r"^source = .*(parquet|postgresql).*\n", "", text, flags=re.MULTILINE)
    party = parsed(tmp_path, text)
    assert party.data["customers"].source == "duckdb:customers.db"
    assert party.policy.budget_of_datasets == {"customers": Limits(5.0)}
    keys = {key for place, table in FORMAT.sections() for key, entry in table.entries.items() if isinstance(entry, Key)}
    assert [key for key in sorted(keys) if f"\n{key} = " not in text] == ["approved", "columns"]


def test_what_the_template_cannot_say():
    """A name that is none, an address that is none, a key that is none."""
    with pytest.raises(InvalidParameter, match="a party's name"):
        template('a" = 3')
    with pytest.raises(JobError, match=r"\[network\]: bind must be"):
        template("bank", bind="nowhere")
    with pytest.raises(InvalidParameter, match=re.escape("[network] has no 'bnd'; did you mean 'bind'?")):
        template("bank", bnd="a:1")


# --- laws ------------------------------------------------------------------------------------------------------------


def test_defaults_are_those_of_the_dataclasses():
    """What the reference and the editor say about a key that is left out is what happens."""
    owners = {(): PartyFile, ("network",): Network, ("data", "<dataset>"): Dataset, ("policy",): Policy}
    owners[("compute",)] = RayBackend
    for place, table in FORMAT.sections():
        owner = owners.get(place, Limits)
        for name, entry in table.entries.items():
            if isinstance(entry, Key) and not entry.needed and (owner, name) != (Limits, "epsilon"):
                default = owner.__dataclass_fields__[name].default
                assert (list(default) if isinstance(default, tuple) else default) == entry.default, name


def told(attempt, path) -> str:
    """What a HedgerowError says; the path itself if there is none."""
    try:
        attempt(path)
    except HedgerowError as problem:
        return str(problem)
    return str(path)


@given(st.text(max_size=100) | st.binary(max_size=100))
def test_any_text_is_read_or_refused(tmp_path_factory, text):
    """With a HedgerowError and no other exception."""
    path = tmp_path_factory.mktemp("any") / "party.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    assert str(path) in told(read_party_file, path)


VALUES = (
    "3",
    "-1",
    "inf",
    "nan",
    "true",
    '""',
    '"a"',
    "[]",
    '["a"]',
    "{}",
    "{a = 1}",
    "[[1]]",
    "2020-01-01",
    "1" * 400,
)


def changed(text: str, line: int, value: str) -> str:
    """The text with another value on one of its lines."""
    lines = text.splitlines()
    lines[line] = lines[line].split("=")[0] + f"= {value}" if "=" in lines[line] else value
    return "\n".join(lines)


@given(st.integers(0, len(WHOLE.splitlines()) - 1), st.sampled_from(VALUES) | st.text(max_size=8))
def test_any_value_in_any_place_is_read_or_refused(tmp_path_factory, line, value):
    """A valid file with one value exchanged: a party or a HedgerowError."""
    path = tmp_path_factory.mktemp("any") / "party.toml"
    path.write_text(changed(WHOLE, line, value), encoding="utf-8", errors="replace")
    assert str(path) in told(read_party_file, path)


@given(st.lists(st.tuples(st.integers(0, len(WHOLE.splitlines()) - 1), st.sampled_from(VALUES)), max_size=2))
def test_what_the_reader_takes_the_schema_takes_too(tmp_path_factory, changes):
    """An editor never marks as wrong what is right."""
    text = WHOLE
    for line, value in changes:
        text = changed(text, line, value)
    path = tmp_path_factory.mktemp("any") / "party.toml"
    path.write_text(text)
    if told(read_party_file, path) == str(path):
        jsonschema.Draft202012Validator(json_schema()).validate(tomllib.loads(text))


def test_every_section_of_the_format_is_of_a_known_sort():
    """Tables, keys, and tables by name: the reference page knows how to show each."""
    for _, table in FORMAT.sections():
        assert all(isinstance(entry, Table | Key | Each) for entry in table.entries.values())
