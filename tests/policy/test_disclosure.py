"""Words opened on shares are masked, or revealed under a type that says so; nothing is chosen by a string or default.

`grep -rnE "(send|send_all|reveal)[(]" src/hedgerow/protocols` lists all that parties tell each other.
"""

from __future__ import annotations

import ast
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest

from hedgerow.crypto.shares import SUM32, Masked, Share, masked
from hedgerow.errors import InvalidType
from hedgerow.runtime.protocol import find, names, services
from hedgerow.transport.frames import registered
from twins.conversation import Conversation


def called(tree, name):
    """All calls of a function or method of that name."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [node for node in found if getattr(node.func, "attr", getattr(node.func, "id", None)) == name]


def share():
    """Some words."""
    return Share(np.arange(3, dtype=np.uint32), SUM32)


@pytest.fixture(scope="module", autouse=True)
def _protocols():
    """All protocols, loaded in their own order, in which pages list their messages."""
    for name in (*names(), *services()):
        find(name)


def kind_of(name):
    """A class of messages."""
    return registered()[name]


def lonely_mesh():
    """A party that would fail if it sent anything."""
    return import_module("hedgerow.protocols.shares.mesh").Mesh(SimpleNamespace(name="anna"), ["anna", "ben"])


# --- at run time -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    ["vertical.on_shares.masked_words", "vertical.on_shares.dealt", "vertical.secret_shared.which_way", Masked, None],
)
def test_only_what_says_so_is_revealed(kind):
    """Messages under masks, messages that are no openings, and strings are refused before anything is sent."""
    kinds = [kind, kind_of(kind)] if isinstance(kind, str) else [kind]
    for each in kinds:
        with pytest.raises(InvalidType, match="a subclass of Revealed"):
            lonely_mesh().reveal(each, share())


@pytest.mark.parametrize("words", [share(), share().words, (share().words, SUM32), "winner"])
def test_only_masked_words_are_opened_without_a_name(words):
    """A share, an array or a name is no opening, neither by itself nor as a round of a talk."""

    def speak():
        return (yield [masked("x", share(), share()), words])

    with pytest.raises(InvalidType, match="only masked words can be opened"):
        lonely_mesh().masked([words])
    with pytest.raises(InvalidType, match="only masked words can be opened"):
        lonely_mesh().talk(speak())
    with pytest.raises(InvalidType, match="only masked words can be opened"):
        Conversation(speak())


# --- in the sources --------------------------------------------------------------------------------------------------


def revealed():
    """All classes of messages that can be revealed."""
    Revealed = import_module("hedgerow.protocols.shares.messages").Revealed
    return {kind.__name__: kind for kind in registered().values() if issubclass(kind, Revealed)}


def test_what_is_revealed_is_not_called_hidden():
    """Each class states what is learned; the one of masked words is not among them."""
    kinds = revealed()
    assert len(kinds) >= 14
    hidden = type(kind_of("vertical.on_shares.masked_words").discloses)
    assert "MaskedWords" not in kinds
    assert not any(isinstance(kind.discloses, hidden) for kind in kinds.values())


def test_every_reveal_names_its_type(package):
    """No table, no parameter and no variable stands between what is opened and what it is called."""
    sites = {
        f"{source.path}:{call.lineno}": call.args[0]
        for source in package
        if source.path.startswith("src/hedgerow/protocols/")
        for call in called(source.tree, "reveal")
    }
    assert len(sites) >= 15
    known = set(revealed())
    assert {place: ast.unparse(kind) for place, kind in sites.items() if ast.unparse(kind) not in known} == {}
    assert {ast.unparse(kind) for kind in sites.values()} == known


def test_masked_words_are_made_by_crypto_and_sent_by_the_mesh(package):
    """Who could put words of its own into `Masked` could open them under the harmless label."""
    made = {source.path for source in package if called(source.tree, "Masked")}
    assert {path for path in made if path.startswith("src/hedgerow/protocols/")} == set()
    sent = {source.path for source in package if called(source.tree, "MaskedWords")}
    assert {path for path in sent if not path.startswith("src/hedgerow/testing/")} == {
        "src/hedgerow/protocols/shares/mesh.py"
    }
