"""Pages of tests: facts for reports without a training, and HTML read back as a tree. A browser can open them too.

for name, path in written(folder).items(): ...        # a page of each sort, as files
tree = parsed(page.html); tree.all("table"); tree.first("main").text
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from hedgerow.ledger import Exact, Kind, Ledger, Public, Randomised, Result, SecureSum
from hedgerow.report.sections import page
from hedgerow.report.told import Budget, Curve, Passed, Quality, Ranked, Told
from hedgerow.statement import Statement

HOSTILE = '<script>alert("1")</script>"><img src=x onerror=alert(2)>'
VOID = {"meta", "br", "hr"}


# --- reading a page back ---------------------------------------------------------------------------------------------


@dataclass
class Element:
    """One element, with its children in order; texts are strings."""

    name: str
    attributes: dict[str, str | None] = field(default_factory=dict)
    children: list[Element | str] = field(default_factory=list)

    def walk(self, *, closed: bool = True) -> Iterator[Element]:
        """It and all inside it; without `closed` not what a reader must open first."""
        yield self
        for child in self.children:
            hidden = self.name == "details" and not closed and isinstance(child, Element) and child.name != "summary"
            if isinstance(child, Element) and not hidden:
                yield from child.walk(closed=closed)

    def all(self, *names: str) -> list[Element]:
        """Those of some names, in the order of the page."""
        return [each for each in self.walk() if each.name in names]

    def first(self, name: str) -> Element:
        """The first of a name."""
        return self.all(name)[0]

    def by_id(self, id_: str) -> Element:
        """The one with this id."""
        (found,) = [each for each in self.walk() if each.attributes.get("id") == id_]
        return found

    @property
    def text(self) -> str:
        """All words in it, with single spaces."""
        return " ".join("".join(_texts(self, closed=True)).split())

    @property
    def seen(self) -> str:
        """The words that show before anything is opened."""
        return " ".join("".join(_texts(self, closed=False)).split())


def _texts(element: Element, *, closed: bool) -> Iterator[str]:
    for child in element.children:
        if isinstance(child, str):
            yield child
        elif closed or element.name != "details" or child.name == "summary":
            yield from _texts(child, closed=closed)
    if element.name in ("p", "li", "td", "th", "h1", "h2", "h3", "summary", "div", "dt", "dd"):
        yield " "


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("")
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = Element(tag, dict(attrs))
        assert len(found.attributes) == len(attrs), f"{tag} has an attribute twice"
        self._open[-1].children.append(found)
        if tag not in VOID:
            self._open.append(found)

    def handle_endtag(self, tag: str) -> None:
        assert self._open[-1].name == tag, f"</{tag}> ends <{self._open[-1].name}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)


def parsed(html: str) -> Element:
    """The tree of a page or a fragment; AssertionError if elements are not nested as they should be."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert reader._open == [reader.root]
    return reader.root


# --- facts without a training ----------------------------------------------------------------------------------------


def kind(name: str, disclosure: Any) -> Kind:
    """As a message class has it."""
    return Kind(name, 1, disclosure.of, disclosure.protection)


GO, HISTOGRAM = (
    kind("a.go_ahead", Public("how many trees there will be")),
    kind("a.histogram", SecureSum("sums of bins")),
)
STEP, NOISY = kind("a.next_step", Result("where nodes are split")), kind("a.noisy", Randomised("gradients of rows"))
SPLITS = kind("a.splits", Exact("which way rows go"))
STATEMENT = Statement(
    "a.protocol",
    ("One label: epsilon = 4.", "It is e^4 times as likely at most.", "Noise was drawn once.", "bank has the labels."),
    ("All followed the protocol.",),
    ("Labels are independent.",),
    ("columns of others", "what the model remembers", "repeated runs", "time"),
)


def owners_and_coordinator(n_owners: int, n_trees: int) -> Passed:
    """What the books of many owners and a coordinator say after some trees of depth 5."""
    cast = {"coordinator": "coordinator", **{f"owner_{k:02d}": "owner" for k in range(n_owners)}}
    books = {party: Ledger(party) for party in cast}
    for owner in list(cast)[1:]:
        for sender, receiver, what, size, times in (
            ("coordinator", owner, GO, 90, 1),
            (owner, "coordinator", HISTOGRAM, 24_000, 5 * n_trees),
            ("coordinator", owner, STEP, 700, 5 * n_trees),
        ):
            for _ in range(times):
                books[sender].write("disclosed", receiver, what, size)
                books[receiver].write("learned", sender, what, size)
    return Passed("The training", "a.protocol", cast, books, 12.5)


def two_parties(party: str = "shop", peer: str = "bank") -> Passed:
    """One party's book about another."""
    book = Ledger(party)
    book.write("learned", peer, GO, 90)
    for _ in range(30):
        book.write("learned", peer, NOISY, 24_000)
        book.write("disclosed", peer, SPLITS, 3_000)
    return Passed("The training", "a.protocol", {peer: "label holder", party: "feature holder"}, {party: book}, 3.25)


def told(main: Passed, party: str | None, **more: Any) -> Told:
    """Facts of a report."""
    about = {
        "title": f"Report of {party or 'all parties together'}",
        "subtitle": "a.protocol",
        "protocol": "a.protocol",
        "party": party,
        "trained": ["One model to tell classes apart, by a.protocol."],
        "cast": main.cast,
        "passed": [main],
        "statement": STATEMENT,
        "facts": {"Hedgerow": "0.1.0", "run": "3f9a" * 8},
        "commands": ["hedgerow ledger RUN"],
        "settings": {"epsilon": 4.0, "parties": list(main.cast)},
    }
    return Told(**about | more)


def everything(party: str = "shop", name: str = "basket") -> Told:
    """A report with every section."""
    outcome = {
        "attack": "noised_labels",
        "attacker": party,
        "target": "labels of bank",
        "found": "a guess for each row",
        "verdict": "holds",
        "measure": "AUC",
        "value": {"estimate": 0.61, "low": 0.57, "high": 0.66, "confidence": 0.9999},
        "chance": 0.5,
        "ceiling": 0.8,
    }
    return told(
        two_parties(party),
        party,
        ranked=[Ranked("Columns: questions", "questions", {name: 12.0, "visits": 3.0}, "", "A note.")],
        curves={"log loss": [Curve("train", [0.6 / (1 + k / 9) for k in range(300)]), Curve("valid", [0.6, 0.4, 0.3])]},
        quality=Quality(
            "1,000 rows",
            {"AUC": 0.91, "accuracy": 0.85},
            [(0.0, 0.0), (0.1, 0.6), (0.3, 0.9), (1.0, 1.0)],
            [(0.05, 0.04, 100), (0.3, 0.35, 100), (0.9, 0.93, 100)],
        ),
        attacks=[outcome],
        budgets=[Budget("all", 10.0, 1e-5, 4.0, 1e-6), Budget("peer:bank", 4.0, 1e-5, 4.0, 1e-6)],
        again="A second run gives another model.",
        passed=[two_parties(party), replace(two_parties(party), name="Matching rows by ids")],
    )


def written(folder: Path) -> dict[str, Path]:
    """A page of each sort, as files: what a browser is to look at."""
    many = owners_and_coordinator(64, 4)
    mesh = {name: Ledger(name) for name in ("bank", "registry", "employer", "dealer")}
    for sender, book in mesh.items():
        for receiver, other in mesh.items():
            if sender != receiver:
                book.write("disclosed", receiver, SPLITS if sender == "bank" else HISTOGRAM, 800)
                other.write("learned", sender, SPLITS if sender == "bank" else HISTOGRAM, 800)
    cast = {"bank": "label holder", "registry": "feature holder", "employer": "feature holder", "dealer": "dealer"}
    pages = {
        "everything": everything(),
        "hostile": everything(HOSTILE, HOSTILE),
        "owners": told(many, None),
        "coordinator": told(
            Passed("The training", "a", many.cast, {"coordinator": many.books["coordinator"]}), "coordinator"
        ),
        "mesh": told(Passed("The training", "a.protocol", cast, mesh), None),
    }
    return {name: page(facts).save(folder / f"{name}.html") for name, facts in pages.items()}
