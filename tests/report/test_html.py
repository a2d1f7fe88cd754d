"""The builder: what comes from data stays text, and what a report must not hold cannot be written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.report.html import Markup, joined, tag, text
from twins.pages import HOSTILE, parsed


@given(st.text(), st.text())
def test_any_text_comes_back_as_it_was_shown(inside, attribute):
    """Whatever a name is, it is one text of one element, and one attribute: nothing of it becomes markup."""
    made = tag("p", inside, title=attribute)
    made.encode()  # no half characters
    (element,) = parsed(made).children
    assert element.name == "p"
    assert list(element.attributes) == ["title"]
    assert all(isinstance(child, str) for child in element.children)
    shown = inside.replace("\r", " ")
    printable = [(a, b) for a, b in zip(shown, "".join(element.children), strict=True) if a.isprintable()]
    assert all(a == b for a, b in printable)


def test_markup_is_put_in_once_and_not_escaped_again():
    """Elements nest, iterables are flattened, None is nothing, numbers are text."""
    made = tag("ul", (tag("li", name) for name in ("a<b", 3)), None, class_="x", hidden=True, id=None)
    assert made == '<ul class="x" hidden><li>a&lt;b</li><li>3</li></ul>'
    assert joined("<", Markup("<br>")) == "&lt;<br>"


def test_characters_that_hide_others_are_shown_as_such():
    """Text that would run backwards, or rewrite a line, is replaced by a sign."""
    assert (
        text("a\u202eb\x1b[2Kc\ud800")
        == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}[2Kc\N{REPLACEMENT CHARACTER}"
    )
    assert text("two\nlines") == "two\nlines"


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("script", {}),
        ("iframe", {}),
        ("img", {}),
        ("p onclick", {}),
        ("p", {"onclick": "x"}),
        ("p", {"ONload": "x"}),
        ("p", {"style": "x"}),
        ("a", {"href": "https://example.org"}),
        ("a", {"href": "javascript:alert(1)"}),
        ("a", {"src": "#x"}),
        ("p", {"x y": "z"}),
    ],
)
def test_what_a_report_must_not_hold_is_refused(name, attributes):
    """Scripts, handlers, addresses outside the page, and names that are none."""
    with pytest.raises(ValueError, match=r"a report has no|must stay inside"):
        tag(name, "x", **attributes)


def test_a_hostile_name_stays_a_name():
    """A column that is called like a script is one text."""
    (element,) = parsed(tag("td", HOSTILE, title=HOSTILE)).children
    assert element.text == HOSTILE
    assert element.attributes == {"title": HOSTILE}
