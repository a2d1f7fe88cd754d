"""The page "who learns what" is what the messages say, and every message says what it discloses and to whom."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from hedgerow.errors import ProtocolError
from hedgerow.ledger import Disclosure, Exact
from hedgerow.runtime.checkpoint import MESSAGES
from hedgerow.runtime.party import Abort
from hedgerow.runtime.protocol import find, names, services
from hedgerow.transport.frames import Message, registered
from policy.who_learns_what import COMMAND, PAGE, disclosure_of, node_messages, page, way_of


def all_messages():
    """Every message class of the package, once all protocols are loaded."""
    for name in (*names(), *services()):
        find(name)
    node_messages()
    return [kind for kind in registered().values() if kind.__module__.startswith("hedgerow.")]


def test_page_is_up_to_date():
    """The page in the repository is the one that the classes give."""
    assert PAGE.read_text() == page(), f"run {COMMAND}"


def test_every_message_states_its_way_and_its_disclosure():
    """No message lacks a docstring that begins with sender and receiver, nor a disclosure in words."""
    kinds = all_messages()
    assert len(kinds) > 10
    for kind in kinds:
        assert way_of(kind).sender != way_of(kind).receiver
        assert disclosure_of(kind).of
        assert disclosure_of(kind).protection


def test_every_message_is_on_the_page():
    """Each message class belongs to a protocol or to nodes, and is on the page with what its receiver learns."""
    protocols = [find(name) for name in (*names(), *services())]
    listed = [kind for protocol in protocols for kind in (*protocol.messages, *protocol.later)] + node_messages()
    assert {*listed, Abort, *MESSAGES} == set(all_messages())
    text = page()
    assert disclosure_of(Abort).words in text
    for kind in listed:
        assert f"| `{kind.__name__}` | " in text
        assert disclosure_of(kind).of in text


def test_page_says_what_is_not_protected():
    """Beside the tables there are the assumptions and the gaps."""
    text = page()
    assert text.count("### What this rests on, and what is not protected") == len((*names(), *services()))
    assert "Honest but curious" in text
    assert "Not covered:" in text
    assert "A sum over owners can still single out a record" in text


def test_a_message_that_says_nothing_is_found():
    """Without a way or a disclosure there is no page."""

    @dataclass(frozen=True, slots=True)
    class Silent(Message, name="test.silent_message", version=1):
        number: int

    @dataclass(frozen=True, slots=True)
    class Spoken(Message, name="test.spoken_message", version=1):
        """Label holder to owners: as it should be."""

        discloses = Exact("a number")
        number: int

    with pytest.raises(ProtocolError, match="Silent does not state what it discloses"):
        disclosure_of(Silent)
    with pytest.raises(ProtocolError, match="docstring of Silent must begin with its way"):
        way_of(Silent)
    assert isinstance(disclosure_of(Spoken), Disclosure)
    assert tuple(way_of(Spoken)) == ("label holder", "owner", False)
