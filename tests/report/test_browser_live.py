"""The live page in a real browser, at a real `hedgerow watch`: a run passes by, and nothing can be done to it."""

from __future__ import annotations

import contextlib
import re
import threading

import pytest

from hedgerow.node.watching import Watch
from hedgerow.report.live.door import LiveDoor, Told
from twins.browser import PHONE, accessible, by_keyboard, looks, opened, shorten, sideways
from twins.homes import simplify
from twins.organisations import HOLDERS, TREES, agreed_by_all, job_text, proposed, two_organisations
from twins.watched import half_way, watching

REFUSED = "Failed to load resource"
"""What Chromium writes to the console when a request is turned away, as these tests want it."""


@pytest.fixture
def agreed(tmp_path, monkeypatch):
    """Two organisations that have agreed on a run, which has not begun."""
    simplify(monkeypatch)
    homes = two_organisations(tmp_path, policy="[policy.budget]\nepsilon = 50.0\ndelta = 1e-5")
    options = {**TREES, "epsilon": 4.0, "delta": 1e-6}
    proposal = proposed(homes["bank"], job_text("vertical.noised_gradients", options, HOLDERS))
    agreed_by_all(homes, proposal)
    return homes, proposal


def test_a_run_passes_by_without_reload(browser, agreed):
    """The page is opened before the run, shows it half way with what has left, and says when it is over."""
    homes, proposal = agreed
    with watching(homes["bank"]) as address, opened(browser, address) as shown:
        shown.get_by_text("live", exact=True).wait_for()
        shown.get_by_text("No run has begun here.").wait_for()
        shown.evaluate("window.opened_once = true")
        with half_way(homes, proposal, 2) as go_on:
            shown.get_by_text("2 of 3", exact=True).wait_for()
            shown.locator("#kinds tbody").get_by_text("the gradient of every row, which shows its label").wait_for()
            assert shown.locator("#passing li").count() > 2
            go_on.set()
        shown.get_by_text("It is over.").wait_for()
        assert re.search(r"epsilon [\d.]+ of 50\.0 spent", shown.locator("#budgets").inner_text())
        assert shown.evaluate("window.opened_once")


def test_every_look_of_the_page(browser, story):
    """After a run: nothing sticks out at the side, and axe-core finds nothing serious; keys reach all that opens."""
    with watching(story.homes["bank"]) as address, opened(browser, address) as shown:
        shown.get_by_text("It is over.").wait_for()
        reached = by_keyboard(shown)
        assert [each["name"] for each in reached if not each["outline"]] == []
        assert [each["place"] for each in reached] == sorted(each["place"] for each in reached)
        assert {"DIV", "SUMMARY"} <= {each["name"] for each in reached}
        shorten(shown)
        for look in looks(shown):
            assert sideways(shown) == [], look
        for look in looks(shown, crossed=True):
            assert accessible(shown) == [], look


def test_a_wrong_token_gets_nothing(browser, story):
    """The page says that it is not let in, and shows nothing of the party; the right address opens it."""
    with watching(story.homes["bank"]) as address:
        place, _, token = address.partition("#")
        for wrong in ("", "#", f"#{token[:-1]}", "#%E2%82%AC", "#%"):
            with opened(browser, place + wrong, PHONE, may_fail=(REFUSED,)) as shown:
                shown.get_by_text("not let in", exact=True).wait_for()
                assert "Open the address that hedgerow watch printed" in shown.locator("#trouble").inner_text()
                assert "bank" not in shown.locator("body").inner_text()
        with opened(browser, place, may_fail=(REFUSED,)) as shown:
            shown.get_by_text("not let in", exact=True).wait_for()
            shown.goto(address)
            shown.get_by_text("It is over.").wait_for()


def test_it_can_only_be_read(browser, story):
    """There is nothing to press or to fill in, and what a script of the page could send is refused."""
    with watching(story.homes["bank"]) as address, opened(browser, address, may_fail=(REFUSED,)) as shown:
        shown.get_by_text("It is over.").wait_for()
        assert shown.locator("button, input, select, textarea, form, a[href]").count() == 0
        asked = (
            "(method) => fetch('/events', {method, headers: {Authorization: 'Bearer ' + token}}).then((a) => a.status)"
        )
        assert [shown.evaluate(asked, method) for method in ("POST", "PUT", "DELETE")] == [405] * 3


@contextlib.contextmanager
def served(home, token, port=0):
    """The port, in this process."""
    with Told(Watch(home)) as told, LiveDoor(port, told, token) as door:
        thread = threading.Thread(target=door.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield door.port
        finally:
            told.close()
            door.shutdown()
            thread.join()


def test_a_page_whose_server_goes_says_so_and_comes_back(browser, story):
    """With the same token it goes on by itself; with a new one, as after a restart, it asks for the new address."""
    home = story.homes["bank"]
    with contextlib.ExitStack() as first:
        port = first.enter_context(served(home, "one"))
        with opened(browser, f"http://127.0.0.1:{port}/#one", may_fail=(REFUSED,)) as shown:
            shown.get_by_text("live", exact=True).wait_for()
            first.close()
            shown.get_by_text("not connected").wait_for()
            with served(home, "one", port):
                shown.get_by_text("live", exact=True).wait_for()
                assert shown.locator("#kinds tbody tr").count() > 2
            shown.get_by_text("not connected").wait_for()
            with served(home, "two", port):
                shown.get_by_text("has an old one").wait_for()
                shown.evaluate("location.hash = '#two'")
                shown.get_by_text("live", exact=True).wait_for()
