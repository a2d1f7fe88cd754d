"""Who meets whom before a run: those who begin the same one, and who is started anew from the beginning."""

from __future__ import annotations

import threading

import pytest

from hedgerow.errors import DeadlineExceeded
from hedgerow.node.desk import Node
from hedgerow.node.papers import Beginning
from twins.homes import answering
from twins.organisations import two_organisations

RUN = "ab" * 16


@pytest.fixture
def homes(tmp_path):
    """A bank and a shop."""
    return two_organisations(tmp_path)


def meeting(home, beginning, seconds):
    """A thread in which a party meets its peer, and what it comes to."""
    found = []

    def meet():
        with Node(home, home.identity()) as node:
            found.append(node.meet(RUN, beginning, node.peers, seconds))

    thread = threading.Thread(target=meet)
    thread.start()
    return thread, found


def test_what_all_can_begin(homes):
    """The later attempt, with rows if both have them."""
    thread, found = meeting(homes["shop"], Beginning(3, has_rows=True), 60.0)
    with Node(homes["bank"], homes["bank"].identity()) as node:
        assert node.meet(RUN, Beginning(2, has_rows=False), ["shop"], 60.0) == Beginning(3, has_rows=False)
    thread.join()
    assert found == [Beginning(3, has_rows=False)]


def test_only_who_begins_the_same_run_is_met(homes):
    """A peer that is at its desk for something else, as to accept a proposal, is not taken for one that begins."""
    with (
        answering(homes["shop"], "bank"),
        Node(homes["bank"], homes["bank"].identity()) as node,
        pytest.raises(DeadlineExceeded, match="shop"),
    ):
        node.meet(RUN, Beginning(1, has_rows=True), ["shop"], 3.0)


def test_who_is_started_anew_is_met_twice_again(homes):
    """Killed after the first meeting: the other one does not take the next for its second, and go on alone."""
    thread, found = meeting(homes["bank"], Beginning(1, has_rows=True), 60.0)
    with Node(homes["shop"], homes["shop"].identity()) as killed:
        killed._beginning[RUN] = Beginning(1, has_rows=True)
        killed.exchange(homes["shop"].peers.get("bank"), 60.0)
    with Node(homes["shop"], homes["shop"].identity()) as anew:
        assert anew.meet(RUN, Beginning(1, has_rows=True), ["bank"], 60.0) == Beginning(1, has_rows=True)
    thread.join()
    assert found == [Beginning(1, has_rows=True)]


def test_who_is_done_tells_who_comes(homes):
    """A run that is over at one party is not begun by the other one."""
    thread, found = meeting(homes["shop"], Beginning(1, has_rows=True), 60.0)
    with Node(homes["bank"], homes["bank"].identity()) as node:
        assert node.tell_over(RUN, Beginning(1, has_rows=True, is_over=True), ["shop"], 60.0)
    thread.join()
    assert [each.is_over for each in found] == [True]
