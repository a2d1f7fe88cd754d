"""Reports and packs in a real browser: telephone, laptop, paper, light and dark, by keyboard and by screen reader."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hedgerow import Federation, PrivateBoostingClassifier, Schema
from hedgerow.report.of_node import told_of_node
from hedgerow.report.pack.files import put_together
from hedgerow.report.pack.subject import of_home
from hedgerow.report.sections import QUESTIONS, page
from twins.browser import LAPTOP, PHONE, accessible, by_keyboard, looks, opened, shorten, sideways
from twins.organisations import TREES, customers
from twins.pages import everything, owners_and_coordinator, told

REAL = ("node bank", "node shop", "federation", "central", "owners")
QUICK = ("node bank", "owners", "pack")
LONG = ("node shop", "federation", "central", "everything", "hostile", "stamped", "mesh")


@pytest.fixture(scope="module")
def pages(story, tmp_path_factory):
    """Addresses: reports of real runs and of made-up ones, and a pack."""
    from twins.pages import written

    folder = tmp_path_factory.mktemp("pages")
    table, columns = customers(), ["x0", "x1", "x2", "x3", "x4"]
    labels = table.column("bad").to_numpy()
    run = Federation.vertical(
        {"bank": table.select(columns[:2]), "shop": table.select(columns[2:])}, labels=("bank", labels)
    ).fit("vertical.noised_gradients", epsilon=4.0, delta=1e-6, **TREES)
    schema = Schema.from_public(bounds=dict.fromkeys(columns, (-4, 4)), classes=[0, 1])
    private = PrivateBoostingClassifier(epsilon=1.0, delta=1e-6, schema=schema)
    private.fit(table.select(columns), labels)
    made = {
        **{f"node {name}": page(told_of_node(home, story.proposal.run_id)) for name, home in story.homes.items()},
        "federation": run.report(),
        "central": private.report(X=table.select(columns), y=labels),
        "owners": page(told(owners_and_coordinator(64, 4), None)),
        "stamped": page(replace(everything(), statement=replace(everything().statement, stamp="THIS RUN LEAKS"))),
    }
    found = {name: each.save(folder / f"{name.replace(' ', '_')}.html") for name, each in made.items()}
    found["pack"] = folder / "pack.html"
    found["pack"].write_bytes(put_together(of_home(story.homes["bank"], story.proposal.run_id))["pack.html"])
    return {name: path.as_uri() for name, path in {**written(folder / "made_up"), **found}.items()}


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.long) for name in LONG)])
def test_every_look_of_a_page(browser, pages, name):
    """In each: nothing sticks out at the side, and axe-core finds nothing serious, with all that opens opened."""
    with opened(browser, pages[name]) as shown:
        shown.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        for look in looks(shown):
            assert sideways(shown) == [], look
        shorten(shown)
        for look in looks(shown, crossed=True):
            assert accessible(shown) == [], look


@pytest.mark.parametrize("name", ["node bank", "owners", "mesh", "pack"])
def test_everything_is_reached_by_keyboard(browser, pages, name):
    """Tab goes through all links and all that opens, in the order of the page, and one sees where it is."""
    with opened(browser, pages[name]) as shown:
        reached = by_keyboard(shown)
        wanted = shown.evaluate(
            "[...document.querySelectorAll('a[href], summary')].filter((e) => e.checkVisibility()).length"
        )
        assert sum(each["name"] in ("A", "a", "SUMMARY") for each in reached) == wanted
        assert [each["place"] for each in reached] == sorted(each["place"] for each in reached)
        assert [each for each in reached if not each["outline"]] == []


def test_keys_skip_to_the_report_and_open_what_opens(browser, pages):
    """The first link skips the contents, Enter opens what is closed, and an arrow's link opens its messages."""
    with opened(browser, pages["node bank"]) as shown:
        shown.keyboard.press("Tab")
        assert shown.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
        shown.keyboard.press("Enter")
        assert shown.evaluate("location.hash") == "#main"
        more = shown.locator(".first summary").first
        more.focus()
        shown.keyboard.press("Enter")
        assert shown.locator(".first details[open]").count() == 1
        arrow = shown.locator("#who svg a").first
        messages = shown.locator(arrow.get_attribute("href"))
        assert not messages.is_visible()
        arrow.focus()
        shown.keyboard.press("Enter")
        assert messages.is_visible()


@pytest.mark.parametrize("name", REAL)
def test_five_questions_are_answered_above_the_fold(browser, pages, name):
    """A laptop shows all answers at once; a telephone the guarantee first, and all within two screens and a half."""
    with opened(browser, pages[name]) as shown:
        for look, screens in ((LAPTOP, 1.0), (PHONE, 2.5)):
            shown.set_viewport_size({"width": look[0], "height": look[1]})
            cards = shown.locator("#first .card")
            assert [each.strip() for each in cards.locator("h2").all_inner_texts()] == list(QUESTIONS)
            ends = [card.bounding_box() for card in cards.all()]
            assert max(box["y"] + box["height"] for box in ends) <= screens * look[1], look
            assert ends[0]["y"] + ends[0]["height"] <= look[1], look


def test_a_stamp_is_seen_before_everything(browser, pages):
    """Above the guarantee, on a telephone too."""
    with opened(browser, pages["stamped"], PHONE) as shown:
        stamp = shown.locator(".stamp").first
        assert "THIS RUN LEAKS" in stamp.inner_text()
        assert stamp.bounding_box()["y"] < min(PHONE[1] / 2, shown.locator(".card").first.bounding_box()["y"])


@pytest.mark.parametrize("name", ["node bank", "owners", "pack"])
def test_paper_has_what_the_screen_has_closed(browser, pages, name):
    """Printed from a dark screen: dark on white, without links to click, and messages of every arrow are there."""
    with opened(browser, pages[name], dark=True) as shown:
        assert shown.pdf(format="A4", print_background=True).startswith(b"%PDF")
        shown.emulate_media(media="print")
        assert not shown.locator("nav").is_visible()
        assert shown.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        for table in shown.locator("main table").all():
            assert table.is_visible() or table.evaluate("(e) => e.closest('figure') !== null")


def test_hostile_names_run_nothing(browser, pages):
    """Parties and columns that are called like scripts are shown as they are called."""
    with opened(browser, pages["hostile"]) as shown:
        shown.on("dialog", lambda dialog: pytest.fail(dialog.message))
        assert "<script>alert(" in shown.locator("h1").inner_text()
        assert shown.locator("script, img").count() == 0
