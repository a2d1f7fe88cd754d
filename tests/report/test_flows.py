"""What ledgers say, as kinds of messages and arrows: nothing is lost, nothing is added, many owners are one."""

from __future__ import annotations

import pytest

from hedgerow.ledger import Disclosure, Exact, Kind, Ledger
from hedgerow.protocols.services.align.messages import Blinded
from hedgerow.protocols.shares.messages import Hidden
from hedgerow.protocols.vertical.private_histograms.messages import NoisyInside
from hedgerow.report.flows import PROTECTIONS, arrows, by_kind, flows, groups, protection_of
from twins.pages import owners_and_coordinator, two_parties


def test_flows_add_up_to_the_ledger():
    """One party's book: every message and every byte is in one flow, sent or received."""
    book = two_parties().books["shop"]
    found = flows({"shop": book})
    assert sum(flow.number for flow in found) == len(book)
    assert sum(flow.n_bytes for flow in found) == sum(entry[3] for entry in book.entries())
    assert {(flow.sender, flow.receiver) for flow in found} == {("bank", "shop"), ("shop", "bank")}


def test_a_message_in_two_books_is_counted_once():
    """Of books of both sides the sender's counts; where one is missing, the other speaks."""
    passed = owners_and_coordinator(3, 2)
    whole = flows(passed.books)
    assert sum(flow.number for flow in whole) == 3 * (1 + 2 * 5 * 2)
    alone = flows({"coordinator": passed.books["coordinator"]})
    assert sum(flow.number for flow in alone) == sum(flow.number for flow in whole)
    assert {flow.with_noise for flow in alone if flow.receiver == "coordinator"} == {None}


def test_many_owners_are_one_group():
    """64 owners are one box with two arrows; four parties are shown by name, and so is the party itself."""
    passed = owners_and_coordinator(64, 1)
    found = arrows(passed.flows, groups(passed.cast))
    assert [(arrow.sender, arrow.receiver) for arrow in found] == [
        ("coordinator", "64 owners"),
        ("64 owners", "coordinator"),
    ]
    assert sum(arrow.number for arrow in found) == sum(flow.number for flow in passed.flows)
    few = owners_and_coordinator(4, 1).cast
    assert groups(few) == {party: party for party in few}
    assert groups(passed.cast, own="owner_07")["owner_07"] == "owner_07"
    assert groups(passed.cast, own="owner_07")["owner_08"] == "63 owners"


def test_an_arrow_is_as_open_as_what_is_protected_least_in_it():
    """One message in the clear makes it clear, however many are covered."""
    passed = owners_and_coordinator(3, 1)
    passed.books["owner_00"].write("disclosed", "coordinator", Kind("a.x", 1, "x", Exact.PROTECTION), 5)
    kinds = {(arrow.sender, arrow.receiver): arrow.kind for arrow in arrows(flows(passed.books), {})}
    assert kinds["owner_00", "coordinator"] == "clear"
    assert kinds["owner_01", "coordinator"] == "covered"


def test_kinds_are_summed_over_parties():
    """By kind of message, numbers and bytes stay what they were."""
    passed = owners_and_coordinator(5, 2)
    kinds = by_kind(passed.flows)
    assert sorted(flow.message for flow in kinds) == ["a.go_ahead", "a.histogram", "a.next_step"]
    assert sum(flow.n_bytes for flow in kinds) == sum(flow.n_bytes for flow in passed.flows)


def _all_of(kind: type[Disclosure]) -> list[type[Disclosure]]:
    return [each for sub in kind.__subclasses__() for each in (sub, *_all_of(sub))]


def test_every_protection_has_its_colour():
    """Each way of protecting that a message class can state is known by its words, and none is taken for another."""
    assert {Blinded, Hidden, NoisyInside} <= set(_all_of(Disclosure))
    expected = {
        "Public": "public",
        "Exact": "clear",
        "Result": "result",
        "Randomised": "noise",
        "NoisyInside": "noise",
        **dict.fromkeys(("SecureSum", "Sealed", "Encrypted", "Blinded", "Hidden", "Shared"), "covered"),
    }
    found = {each.__name__: protection_of(each("x").protection) for each in _all_of(Disclosure)}
    assert found == {name: expected[name] for name in found}
    assert set(found.values()) <= set(PROTECTIONS)


@pytest.mark.parametrize("words", ["", "trust me", "IN THE CLEAR", "public, more or less"])
def test_words_that_nobody_knows_count_as_clear(words):
    """A protection that the page does not know is shown as none."""
    assert protection_of(words) == "clear"
    assert protection_of(Ledger.__doc__ or "") == "clear"
