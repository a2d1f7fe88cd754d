"""Pages as such: one file that fetches and runs nothing, landmarks and headings in order, small after a long run."""

from __future__ import annotations

import re
import stat
from itertools import pairwise

import pytest

from hedgerow.ledger import Exact, Ledger
from hedgerow.report.page import CSP, fragment
from hedgerow.report.sections import page
from hedgerow.report.style import ROOT, sheet
from hedgerow.report.told import Passed
from twins.pages import (
    HOSTILE,
    NOISY,
    STATEMENT,
    everything,
    kind,
    owners_and_coordinator,
    parsed,
    told,
    two_parties,
    written,
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """One of each sort, as text."""
    return {name: path.read_text() for name, path in written(tmp_path_factory.mktemp("pages")).items()}


def test_pages_fetch_and_run_nothing(pages):
    """No script, no handler, no address outside the page; and the browser is told so."""
    for name, html in pages.items():
        tree = parsed(html)
        assert not tree.all("script", "img", "iframe", "link", "object", "form", "base"), name
        for element in tree.walk():
            for attribute, value in element.attributes.items():
                assert not attribute.startswith("on"), (name, attribute)
                assert attribute != "href" or value.startswith("#"), (name, value)
                assert attribute not in ("src", "style", "srcset", "action"), (name, attribute)
        policy = [each for each in tree.all("meta") if each.attributes.get("http-equiv") == "Content-Security-Policy"]
        assert [each.attributes["content"] for each in policy] == [CSP]
        assert not re.search(r"url\(|@import|https?:", tree.first("style").text)


def test_pages_can_be_read_by_ear_and_by_keyboard(pages):
    """Landmarks, one title, headings without gaps, tables with captions and scopes, pictures with words."""
    for name, html in pages.items():
        tree = parsed(html)
        assert tree.first("html").attributes["lang"] == "en"
        assert [len(tree.all(each)) for each in ("header", "nav", "main", "footer", "h1")] == [1] * 5, name
        levels = [int(each.name[1]) for each in tree.all("h1", "h2", "h3", "h4")]
        assert levels[0] == 1
        assert all(after <= before + 1 for before, after in pairwise(levels)), name
        for table in tree.all("table"):
            assert table.first("caption").text
            assert all(each.attributes["scope"] in ("row", "col") and each.text for each in table.all("th")), table.text
        for svg in tree.all("svg"):
            assert svg.attributes.get("aria-hidden") == "true" or svg.first("title").text, name
        for section in tree.first("main").children:
            named = section.attributes.get("aria-label") or tree.by_id(section.attributes["aria-labelledby"]).text
            assert named


def test_links_lead_somewhere_and_ids_are_unique(pages):
    """Every link, and every name that an element refers to, is there once."""
    for name, html in pages.items():
        tree = parsed(html)
        ids = [each.attributes["id"] for each in tree.walk() if "id" in each.attributes]
        assert len(set(ids)) == len(ids), name
        wanted = [each.attributes["href"][1:] for each in tree.all("a")]
        wanted += [i for each in tree.walk() for i in (each.attributes.get("aria-labelledby") or "").split()]
        assert set(wanted) <= set(ids), name


def test_an_arrow_opens_to_its_ledger_lines():
    """The target of an arrow lies inside what opens, so that following the link opens it."""
    tree = parsed(page(told(two_parties(), "shop")).html)
    for link in tree.first("main").first("svg").all("a"):
        target = link.attributes["href"][1:]
        (around,) = [d for d in tree.all("details") if any(e.attributes.get("id") == target for e in d.walk())]
        assert around.children[0].name == "summary"
        assert around.children[1].attributes["id"] == target
        assert around.children[1].first("table")


def test_hostile_names_stay_names(pages):
    """Parties, columns and peers that are called like scripts appear under that name, and nothing of them is markup."""
    tree = parsed(pages["hostile"])
    assert HOSTILE in tree.first("main").text
    expected = {element.name for element in parsed(pages["everything"]).walk()}
    assert {element.name for element in tree.walk()} == expected


def test_notebooks_keep_their_looks():
    """Every rule of the style is for what is inside the report; two outputs do not share names."""
    selectors = [
        each.strip()
        for rule in re.findall(r"([^{}]+)\{", re.sub(r"@media[^{]+\{", "", sheet()))
        for each in rule.split(",")
    ]
    assert selectors
    assert all(each.startswith(f".{ROOT}") for each in selectors), selectors
    one, two = (parsed(page(everything(name))._repr_html_()) for name in ("shop", "till"))
    ids = [{e.attributes["id"] for e in tree.walk() if "id" in e.attributes} for tree in (one, two)]
    assert ids[0].isdisjoint(ids[1])
    links = {e.attributes["href"][1:] for e in one.all("a")}
    assert links <= ids[0]


def test_statement_and_ledger_show_themselves():
    """In a notebook: every sentence of a statement, every kind of message of a ledger."""
    shown = parsed(STATEMENT._repr_html_()).text
    for sentence in (*STATEMENT.guarantee, *STATEMENT.not_covered, *STATEMENT.assumed_of_parties):
        assert sentence in shown
    book = two_parties().books["shop"]
    shown = parsed(book._repr_html_()).text
    assert "gradients of rows (randomised by its owner; the event in the ledger says how much) 30 720 kB" in shown
    assert parsed(Ledger("nobody")._repr_html_()).text
    assert "a &lt; b" in fragment("a < b")


class CountedLedger(Ledger):
    """One that counts how often it is read."""

    read = 0

    def entries(self):
        """As the book has them."""
        CountedLedger.read += 1
        return super().entries()


def test_a_page_does_not_grow_with_the_run():
    """64 owners and 200 trees: under 2 MB, no more elements than after 2 trees, and every book is read once."""
    long, short = owners_and_coordinator(64, 200), owners_and_coordinator(64, 2)
    made = page(told(long, None)).html
    assert len(made.encode()) < 2_000_000
    assert len(list(parsed(made).walk())) == len(list(parsed(page(told(short, None)).html).walk()))
    counted = {}
    for party, book in short.books.items():
        counted[party] = CountedLedger(party)
        counted[party]._written = book._written
    CountedLedger.read = 0
    page(told(Passed("The training", "a", short.cast, counted), None)).html  # noqa: B018 - making it is what counts
    assert CountedLedger.read == len(counted)


def test_64_owners_stay_readable():
    """The picture has two boxes and two arrows, and the list below it names every owner once opened."""
    tree = parsed(page(told(owners_and_coordinator(64, 2), None)).html)
    who = tree.by_id("who")
    assert len(who.first("svg").all("a")) == 2
    assert "64 owners" in who.seen
    assert "owner_63" not in who.seen
    assert "owner_63" in who.text


def test_a_file_is_for_its_owner_and_written_as_a_whole(tmp_path):
    """Nobody else may read it; another one is replaced; nothing is left beside it."""
    made = page(everything())
    for _ in range(2):
        path = made.save(tmp_path / "new" / "report.html")
        assert path.read_text() == made.html
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["report.html"]


def test_sections_without_facts_are_left_out():
    """Nothing is made up: a report without curves, attacks or budgets has no headings for them."""
    headings = [section.heading for section in page(told(two_parties(), "shop")).sections]
    assert headings == ["At a glance", "Who learned what", "Traffic", "The whole statement", "How to repeat it"]
    headings = [section.heading for section in page(everything()).sections]
    assert {"The model", "How good it is", "Attacks", "Budget"} <= set(headings)


def _luminance(colour):
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one, two):
    light, dark = sorted((_luminance(one), _luminance(two)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("where", ["", "@media (prefers-color-scheme: dark)", "@media print"])
def test_colours_can_be_told_from_the_paper(where):
    """Light, dark and printed: text has a contrast of 4.5 (WCAG AA), lines and bars of 3."""
    rules = sheet()[sheet().index(where) :]
    colours = dict(
        re.findall(r"--([\w-]+): (#[0-9a-f]{6});", rules[rules.index("--paper") : rules.index("--bar-2") + 20])
    )
    for paper in ("paper", "card"):
        for text in ("ink", "quiet", "strong", "c-clear", "c-noise", "c-result", "c-covered", "c-public"):
            assert _contrast(colours[text], colours[paper]) >= 4.5, (text, paper)
        for line in ("bar", "bar-2"):
            assert _contrast(colours[line], colours[paper]) >= 3, (line, paper)
    assert _contrast(colours["warn"], colours["warn-paper"]) >= 4.5


def test_the_first_screen_shows_one_message_of_each_protection():
    """What left: the largest kind in the clear, then the largest with noise; the rest is counted by protection."""
    book = Ledger("bank")
    for k in range(4):
        book.write("disclosed", "shop", kind(f"a.clear_{k}", Exact(f"clear thing {k}")), 100 * (k + 1))
    book.write("disclosed", "shop", NOISY, 50)
    facts = told(
        Passed("The training", "a", {"bank": "label holder", "shop": "feature holder"}, {"bank": book}), "bank"
    )
    seen = parsed(page(facts).html).by_id("first").seen
    assert seen.index("clear thing 3") < seen.index("gradients of rows") < seen.index("clear thing 2")
    assert "2 more: 2 in the clear" in seen
    assert "clear thing 1" not in seen
