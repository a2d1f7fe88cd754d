"""What a run will take: chains of messages counted from ledgers, and probes extended to all rows and trees."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from hedgerow.cli import telling
from hedgerow.errors import InvalidParameter
from hedgerow.ledger import Kind, Ledger
from hedgerow.node import estimate as module
from hedgerow.node.estimate import OfParty, Probe, estimate
from hedgerow.node.job_file import JobFile, Seat
from hedgerow.node.links import link_of, longest_chain, told_bytes
from hedgerow.node.made_up import Cast, cast_of, make_up, plain_columns
from hedgerow.transport.emulate import Link
from twins.homes import answering, free_port, make_home, pair, write_job

KIND = Kind("test.message", 1, "nothing", "public")
EPSILON = {"epsilon": 4.0, "delta": 1e-6}


def books(*messages: tuple[str, str, int]) -> dict[str, Ledger]:
    """Ledgers of parties that send these messages one after the other: from, to, bytes."""
    names = {name for message in messages for name in message[:2]}
    found = {name: Ledger(name) for name in names}
    for sender, receiver, size in messages:
        found[sender].write("disclosed", receiver, KIND, size)
        found[receiver].write("learned", sender, KIND, size)
    return found


def cast(protocol: str = "vertical.noised_gradients", trees: int = 6, **options: Any) -> Cast:
    """A bank with labels and a shop, with three columns each."""
    seats = {"bank": Seat("label holder"), "shop": Seat("feature holder")}
    given = {"n_estimators": trees, "max_depth": 2, "max_bins": 16, **(options or EPSILON)}
    job = JobFile(Path("job.toml"), protocol, MappingProxyType(seats), options=MappingProxyType(given))
    return cast_of(job, {name: plain_columns(name, 3) for name in seats})


# --- chains ----------------------------------------------------------------------------------------------------------


def test_rounds_are_the_longest_chain() -> None:
    """Answers wait for questions; two messages that cross count once."""
    assert longest_chain(books(("a", "b", 1), ("b", "a", 1), ("a", "b", 1))).rounds == 3
    assert longest_chain(books(("a", "b", 1), ("a", "b", 1), ("a", "b", 1))).rounds == 1
    crossing = {name: Ledger(name) for name in "ab"}
    for name, peer in ("ab", "ba"):
        crossing[name].write("disclosed", peer, KIND, 1)
    for name, peer in ("ab", "ba"):
        crossing[name].write("learned", peer, KIND, 1)
    assert longest_chain(crossing).rounds == 1
    assert longest_chain({}).rounds == 0


def test_a_link_costs_half_a_round_trip_for_each_message_of_a_chain() -> None:
    """And the time that its bytes take, one message of a direction after the other."""
    link = Link(round_trip=2.0, bandwidth=8.0)  # a byte per second
    assert longest_chain(books(("a", "b", 3), ("b", "a", 4)), link).seconds == pytest.approx(1 + 3 + 1 + 4)
    assert longest_chain(books(("a", "b", 3), ("a", "b", 4)), link).seconds == pytest.approx(3 + 4 + 1)
    assert longest_chain(books(("a", "b", 3), ("a", "c", 4)), link).seconds == pytest.approx(4 + 1)


def test_what_a_link_adds_is_what_an_emulated_one_adds() -> None:
    """The chain of a real run's ledgers is a lower bound of what the emulated link makes of the same run."""
    federation = make_up(cast(trees=2), 200).federation
    options = {"n_estimators": 2, "max_depth": 2, **EPSILON}
    link = Link(round_trip=0.02)
    run = federation.fit("vertical.noised_gradients", link=link, **options)
    chain = longest_chain(run.ledgers, link)
    assert chain.seconds == pytest.approx(chain.rounds * 0.01)
    assert run.seconds >= chain.seconds


@pytest.mark.parametrize(
    ("text", "link"),
    [
        ("100Mbit/10ms", Link(0.01, 1e8)),
        ("1.5 gbit/s / 0.2s", Link(0.2, 1.5e9)),
        ("56kbit/120 ms", Link(0.12, 56e3)),
    ],
)
def test_links_are_read(text: str, link: Link) -> None:
    """Bandwidth and round trip, with their units."""
    assert (link_of(text).round_trip, link_of(text).bandwidth) == pytest.approx((link.round_trip, link.bandwidth))


@pytest.mark.parametrize("text", ["", "100", "100Mbit", "10ms/100Mbit", "0Mbit/1ms", "1..2Mbit/1ms", "1Mbit/1h"])
def test_what_is_not_a_link_is_refused(text: str) -> None:
    """With an example of one."""
    with pytest.raises(InvalidParameter):
        link_of(text)


def test_bytes_are_told_with_three_digits() -> None:
    """From bytes to terabytes."""
    assert [told_bytes(n) for n in (0, 12, 1_234, 5.6e7, 2e12)] == ["0 B", "12 B", "1.23 kB", "56 MB", "2 TB"]


# --- estimates -------------------------------------------------------------------------------------------------------


def test_bytes_and_rounds_come_near(tmp_path: Path) -> None:
    """With all rows probed, bytes and rounds of more trees are within a tenth of what the run then sends."""
    given = cast("vertical.secret_shared", trees=8, dealer="notary")
    found = estimate(given, {"bank": 600, "shop": 600}, link=Link(0.01), seconds=60, cache=tmp_path / "kept.json")
    run = make_up(given, 600, seed=7).federation.fit("vertical.secret_shared", **given.params)
    sent = {name: meter.total().bytes_sent for name, meter in run.meters.items()}
    told = {name: about.bytes_sent for name, about in found.whole.parties.items()}
    assert sum(told.values()) == pytest.approx(sum(sent.values()), rel=0.1)
    assert found.whole.rounds == pytest.approx(longest_chain(run.ledgers).rounds, rel=0.1)
    assert found.whole.waiting == pytest.approx(0.005 * found.whole.rounds)
    assert set(told) == {"bank", "shop", "notary"}
    assert found.trees == 8
    assert max(probe.share for probe in found.probes) == 1.0
    assert found.seconds > 0


def test_asking_again_measures_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes are kept by what was probed; a damaged file is measured again, not believed."""
    kept = tmp_path / "kept.json"
    first = estimate(cast(trees=2), {"bank": 300, "shop": 300}, cache=kept)
    with monkeypatch.context() as patch:
        patch.setattr(module, "peaks_of_processes", None)  # without it nothing can be measured
        again = estimate(cast(trees=2), {"bank": 300, "shop": 300}, cache=kept)
        with pytest.raises(TypeError):
            estimate(cast(trees=2), {"bank": 301, "shop": 301}, cache=kept)
    assert again == first
    kept.write_text("[")
    assert estimate(cast(trees=2), {"bank": 300, "shop": 300}, cache=kept).whole.parties.keys() == {"bank", "shop"}


def test_probes_are_extended_by_the_plane_through_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever grows linearly with rows, with trees and with both is extended without error."""

    def law(share: float, trees: int) -> float:
        return 5 + 7 * share + 11 * trees + 13 * share * trees

    class Lawful:
        trees, spent = 10, 0.0

        def __init__(self, *_: Any) -> None:
            pass

        def probe(self, share: float, trees: int) -> Probe:
            value = law(share, trees)
            party = OfParty(value, 2 * value, 3 * value, 4 * value)
            return Probe(share, trees, value, value, value, {"bank": party}, took=value)

    monkeypatch.setattr(module, "_Job", Lawful)
    found = estimate(cast(), {"bank": 1_000_000}, seconds=0.0)
    assert max(probe.share for probe in found.probes) < 1.0
    expected = law(1.0, 10)
    assert found.whole.rounds == pytest.approx(expected)
    assert found.seconds == pytest.approx(2 * expected)
    about = found.whole.parties["bank"]
    assert (about.bytes_sent, about.memory) == pytest.approx((expected, 4 * expected))


def test_what_there_is_time_for_is_measured_and_not_extended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that fits into the time is probed with all its trees; less time, fewer trees; progress ends at its end."""
    asked: list[tuple[float, int]] = []

    class Clocked:
        trees = 100

        def __init__(self, *_: Any) -> None:
            self.spent = 0.0

        def probe(self, share: float, trees: int) -> Probe:
            took = 1.0 + share * trees * 0.1
            if (share, trees) not in asked:
                asked.append((share, trees))
                self.spent += took
            return Probe(share, trees, took - 1.0, 0.0, trees, {}, took=took)

    monkeypatch.setattr(module, "_Job", Clocked)
    for seconds, most_trees in ((60.0, 100), (10.0, 60), (5.0, 4)):
        asked.clear()
        told: list[tuple[int, int]] = []
        found = estimate(
            cast(), {"bank": 4_000}, seconds=seconds, on_progress=lambda *step, told=told: told.append(step)
        )
        trees = max(trees for _, trees in asked)
        assert most_trees // 2 <= trees <= most_trees
        assert found.seconds == pytest.approx(10.0)
        assert found.whole.rounds == pytest.approx(100)
        assert told[-1][0] == told[-1][1]
        assert all(done <= total for done, total in told)


def test_the_command(tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and columns of this party itself are looked up, those of others given; the result has every party."""
    home = make_home(tmp_path, "bank", label="paid")
    path = write_job(home, "vertical.noised_gradients", ("bank", "shop"), n_estimators=2, max_depth=2, **EPSILON)
    args = ("estimate", path, "--home", home.path, "--columns", "shop=2", "--link", "100Mbit/10ms")
    monkeypatch.setattr(telling, "SHORTEST", 0.0)
    shown = run(*args)
    assert "seconds of probing: " in shown.stderr
    text = shown.stdout
    assert run(*args, "--quiet").output == ""
    answered = run(*args, "--json")
    told = answered.json
    assert answered.stderr == ""
    assert told["rows"] == {"bank": 300, "shop": 300}
    assert set(told["parties"]) == {"bank", "shop"}
    assert told["parties"]["bank"]["bytes_sent"] == told["parties"]["shop"]["bytes_received"]
    assert told["seconds"] == pytest.approx(told["seconds_of_work"] + told["seconds_of_link"])
    assert "300 rows, 2 trees" in text
    assert "--columns takes PARTY=N" in run("estimate", path, "--home", home.path, "--columns", "3", code=2).stderr
    other = run("estimate", path, "--columns", "bank=2", "--columns", "shop=2", code=2)
    assert "nobody holds the labels" in other.stderr


def test_the_round_trip_to_a_peer_is_measured(tmp_path: Path, run: Any) -> None:
    """With --peer the link is the one to a node that is up, and only its bandwidth is taken as given."""
    bank = make_home(tmp_path, "bank", bind=f"127.0.0.1:{free_port()}", label="paid")
    shop = make_home(tmp_path, "shop")
    pair(bank, shop)
    path = write_job(shop, "vertical.noised_gradients", ("bank", "shop"), n_estimators=1, max_depth=2, **EPSILON)
    path.write_text(path.read_text().replace("[parties.bank]", '[parties.bank]\nrole = "label holder"'))
    args = ("estimate", path, "--home", shop.path, "--columns", "bank=2", "--peer", "bank", "--json")
    with answering(bank, "shop"):
        told = run(*args, "--link", "1Gbit/5s").json
    assert told["link"]["round_trip"] != 5.0
    assert told["link"]["bandwidth"] == 1e9
    assert told["seconds_of_link"] > 0
