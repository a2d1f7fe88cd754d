"""Ledgers: what is written down, how it is shown and stored, and that two books that differ are found out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.errors import HedgerowError
from hedgerow.ledger import (
    Disclosure,
    Exact,
    Kind,
    Ledger,
    LedgerMismatch,
    Line,
    Public,
    Result,
    Sealed,
    SecureSum,
    reconcile,
)

PARTIES = ("hub", "bank", "shop")
PROTECTED = SecureSum("sums per bin").protection
SUMS = Kind("test.sums", 3, "sums per bin", PROTECTED)
SPLITS = Kind("test.splits", 1, "the splits", "part of the result")
KEYS = Kind("test.keys", 1, "a key", "public")
KINDS = {kind.message: kind for kind in (SUMS, SPLITS, KEYS)}

pairs = st.sampled_from([(a, b) for a in PARTIES for b in PARTIES if a != b])
messages = st.tuples(pairs, st.sampled_from(sorted(KINDS)), st.integers(0, 2**40))
talks = st.lists(messages, min_size=1, max_size=12)


def books_of(talk):
    """The ledgers of all parties after ((sender, receiver), message, bytes), ... went over the wire."""
    books = {name: Ledger(name) for name in PARTIES}
    for (sender, receiver), message, n_bytes in talk:
        books[sender].write("disclosed", receiver, KINDS[message], n_bytes)
        books[receiver].write("learned", sender, KINDS[message], n_bytes)
    return books


@pytest.fixture
def book():
    """The bank's book after two messages to the hub, one back, and one to the shop."""
    bank = Ledger("bank")
    bank.write("disclosed", "hub", SUMS, 1_000, {"mechanism": "gaussian", "sigma": 2.5})
    bank.write("learned", "hub", SPLITS, 70)
    bank.write("disclosed", "hub", SUMS, 234)
    bank.write("disclosed", "shop", KEYS, 32)
    return bank


# --- writing ---------------------------------------------------------------------------------------------------------


def test_lines_hold_what_was_written(book):
    """Each line has its direction, peer, message, version, bytes, and the words of its disclosure."""
    first = next(iter(book))
    event = {"mechanism": "gaussian", "sigma": 2.5}
    assert first == Line("disclosed", "hub", 1, "test.sums", 3, 1_000, "sums per bin", PROTECTED, event)
    assert len(book) == 4
    assert repr(book) == "Ledger('bank', 4 lines)"


def test_numbers_count_per_direction_and_peer(book):
    """The first message to each peer and the first one from it are both number 1."""
    assert [(line.direction, line.peer, line.number) for line in book] == [
        ("disclosed", "hub", 1),
        ("learned", "hub", 1),
        ("disclosed", "hub", 2),
        ("disclosed", "shop", 1),
    ]


def test_lines_of_one_direction_and_peer(book):
    """Asked for a direction all peers' lines come, asked for a peer too only that peer's; in order."""
    assert [line.n_bytes for line in book.lines("disclosed")] == [1_000, 234, 32]
    assert [line.n_bytes for line in book.lines("disclosed", "hub")] == [1_000, 234]
    assert [line.n_bytes for line in book.lines("learned", "hub")] == [70]
    assert book.lines("learned", "shop") == []


def test_events_are_those_of_the_own_noise(book):
    """Only noise in what this party disclosed counts, not what a peer says about its own."""
    book.write("learned", "hub", SUMS, 8, {"mechanism": "gaussian", "sigma": 9.0})
    assert book.events() == [{"mechanism": "gaussian", "sigma": 2.5}]


@pytest.mark.parametrize(
    ("disclosure", "words"),
    [
        (Public("a key"), "a key (public)"),
        (Exact("a count"), "a count (in the clear)"),
        (SecureSum("sums"), "sums (only the sum over all owners, against an honest-but-curious coordinator)"),
        (SecureSum("sums", against="everybody"), "sums (only the sum over all owners, against everybody)"),
        (Sealed("a share"), "a share (sealed for another party)"),
        (Result("a split"), "a split (part of the result)"),
    ],
)
def test_every_disclosure_says_how_it_is_protected(disclosure, words):
    """What it is comes first, then what protects it."""
    assert disclosure.words == words


def test_a_disclosure_of_no_kind_cannot_be_made():
    """Every disclosure says how it is protected; the base class does not, so there are none of it."""
    with pytest.raises(TypeError, match="abstract"):
        Disclosure("something")


# --- showing ---------------------------------------------------------------------------------------------------------


def test_summary_adds_up_messages_of_a_kind(book):
    """One entry per direction, peer and message, in the order in which they first came."""
    entries = book.summary()
    assert [(e["direction"], e["peer"], e["message"], e["messages"], e["bytes"]) for e in entries] == [
        ("disclosed", "hub", "test.sums", 2, 1_234),
        ("learned", "hub", "test.splits", 1, 70),
        ("disclosed", "shop", "test.keys", 1, 32),
    ]
    assert entries[1]["what"] == "the splits"
    assert entries[1]["protection"] == "part of the result"


def test_the_table_for_people(book):
    """Words are flush left under their headings, numbers flush right with thousands apart."""
    short = [line._replace(protection="a sum" if line.message == "test.sums" else "public") for line in book]
    assert Ledger("bank", short).to_text().splitlines() == [
        "Ledger of bank",
        "           with  message      count  bytes  what          protection",
        "disclosed  hub   test.sums        2  1,234  sums per bin  a sum",
        "learned    hub   test.splits      1     70  the splits    public",
        "disclosed  shop  test.keys        1     32  a key         public",
    ]


def test_an_empty_ledger_can_be_shown():
    """A party that has said and heard nothing has a table with a heading only, and no JSON lines."""
    assert [line.split() for line in Ledger("bank").to_text().splitlines()] == [
        ["Ledger", "of", "bank"],
        ["with", "message", "count", "bytes", "what", "protection"],
    ]
    assert Ledger("bank").to_json_lines() == ""
    assert Ledger("bank").summary() == []


# --- JSON lines ------------------------------------------------------------------------------------------------------


def test_json_lines_are_one_object_per_message(book):
    """Each line can be read by itself, and says whose book it is from."""
    rows = [json.loads(row) for row in book.to_json_lines().splitlines()]
    assert [row["party"] for row in rows] == ["bank"] * 4
    assert rows[0]["event"] == {"mechanism": "gaussian", "sigma": 2.5}
    assert rows[1] == {"party": "bank", **list(book)[1]._asdict()}


def test_a_ledger_read_back_goes_on_where_it_was(book):
    """Numbers of later messages follow those that were stored."""
    again = Ledger.from_json_lines("bank", book.to_json_lines())
    for each in (book, again):
        each.write("disclosed", "hub", SUMS, 5)
    assert list(again) == list(book)
    assert list(again)[-1].number == 3


@pytest.mark.parametrize("text", ["{", "7", "[]", "null", "{}", '{"party": "bank"}', "\n"])
def test_what_is_no_ledger_is_refused(book, text):
    """The error names the party and the line."""
    with pytest.raises(LedgerMismatch, match="line 5 of the ledger of bank cannot be read"):
        Ledger.from_json_lines("bank", book.to_json_lines() + text)


def test_another_partys_ledger_is_refused(book):
    """A book cannot be passed off as somebody else's."""
    with pytest.raises(LedgerMismatch, match="line 1 of the ledger of shop belongs to bank"):
        Ledger.from_json_lines("shop", book.to_json_lines())


@settings(deadline=None)
@given(talks)
def test_json_lines_keep_everything(talk):
    """A book that was stored and read back has the same lines."""
    for name, book in books_of(talk).items():
        assert list(Ledger.from_json_lines(name, book.to_json_lines())) == list(book)


# --- reconciling -----------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(talks)
def test_books_about_the_same_talk_agree(talk):
    """Whatever was said by whom to whom, in any order, sender's and receiver's books fit."""
    reconcile(books_of(talk))


CHANGES = {
    "message": lambda line: line._replace(message="test.other"),
    "version": lambda line: line._replace(version=line.version + 1),
    "bytes": lambda line: line._replace(n_bytes=line.n_bytes + 1),
    "what": lambda line: line._replace(what="nothing of interest"),
    "protection": lambda line: line._replace(protection="public"),
}


def changed(line, how):
    """The line with one thing in it other than before."""
    other = CHANGES[how](line)
    return other if other != line else line._replace(protection="none")


@settings(deadline=None, max_examples=200)
@given(talks, st.data())
def test_any_tampering_with_one_line_is_found(talk, data):
    """One line left out, altered or added in one party's book, be it the sender's or the receiver's: LedgerMismatch."""
    books = books_of(talk)
    culprit = data.draw(st.sampled_from([name for name in PARTIES if len(books[name])]))
    lines = list(books[culprit])
    place = data.draw(st.integers(0, len(lines) - 1))
    what = data.draw(st.sampled_from(["left out", "added", *CHANGES]))
    if what == "left out":
        del lines[place]
    elif what == "added":
        lines.insert(place, lines[place])
    else:
        lines[place] = changed(lines[place], what)
    with pytest.raises(LedgerMismatch):
        reconcile(books | {culprit: Ledger(culprit, lines)})


TALK = [(("bank", "hub"), "test.sums", 80), (("hub", "bank"), "test.splits", 7), (("bank", "hub"), "test.sums", 90)]


@pytest.mark.parametrize(
    ("whose", "keep", "why"),
    [
        ("hub", [0, 1], "bank disclosed 2 messages to hub, who learned 1 of them"),
        ("bank", [0, 1], "bank disclosed 1 messages to hub, who learned 2 of them"),
        ("hub", [0, 2], "hub disclosed 0 messages to bank, who learned 1 of them"),
        ("hub", [1, 2], r"message 1 from bank to hub: bank wrote \(1, 'test.sums', 3, 80"),
    ],
)
def test_a_missing_line_is_named(whose, keep, why):
    """The error says between whom, how many each has, or which message is the first to differ."""
    books = books_of(TALK)
    lines = list(books[whose])
    books[whose] = Ledger(whose, [lines[k] for k in keep])
    with pytest.raises(LedgerMismatch, match=why):
        reconcile(books)


def test_an_altered_line_is_shown_as_both_wrote_it():
    """Both versions of the message stand in the error."""
    books = books_of(TALK)
    lines = list(books["hub"])
    books["hub"] = Ledger("hub", [*lines[:2], lines[2]._replace(n_bytes=91)])
    with pytest.raises(LedgerMismatch, match=r"message 2 from bank to hub: bank wrote .* 90, .*, hub wrote .* 91, "):
        reconcile(books)


def test_messages_with_those_whose_book_is_not_there_are_left_aside():
    """A party that was lost has no book to compare with; the others' books must fit all the same."""
    books = books_of([*TALK, (("shop", "hub"), "test.keys", 9)])
    del books["shop"]
    reconcile(books)
    del books["hub"]
    reconcile(books)


def test_a_mismatch_is_an_error_of_ours():
    """It can be caught like every other error, and by those who expect an assertion."""
    assert issubclass(LedgerMismatch, HedgerowError)
    assert issubclass(LedgerMismatch, AssertionError)
