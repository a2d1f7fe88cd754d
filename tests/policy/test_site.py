"""The site shows what a code host shows: links out of docs/ lead to pages, and nothing is fetched from elsewhere."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="make docs installs it")
HOOK = Path(__file__).parents[2] / "docs" / "_site" / "outside.py"


@pytest.fixture(scope="module")
def hook():
    """The hook, loaded by its path as mkdocs does."""
    spec = importlib.util.spec_from_file_location("outside", HOOK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_are_turned_to_where_files_are_in_the_site(hook):
    """Out of docs/, into docs/, and within it; addresses, anchors and code stay as they are."""
    page = (
        "[a](../../CONTRIBUTING.md#start) [b](../../src/hedgerow/x.py) [c](central_dp.md) "
        "[d](https://example.org) [e](#top)"
    )
    assert hook.turned(page, "docs/protocols/page.md") == (
        "[a](../repository/CONTRIBUTING.md#start) [b](../repository/src/hedgerow/x.py.md) [c](central_dp.md) "
        "[d](https://example.org) [e](#top)"
    )
    assert hook.turned("[a](docs/README.md) [b](LICENSE)", "README.md") == "[a](../README.md) [b](LICENSE.md)"
    code = "```\n[a](../../x.py)\n```"
    assert hook.turned(code, "docs/protocols/page.md") == code


def test_every_page_that_is_linked_is_found(hook):
    """Links are read from where the page is; those in code are not."""
    assert hook.links("[a](../x.md#b)\n```\n[c](d.md)\n```\n", "docs/page.md") == ["x.md"]


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://example.org/a.js"></script>',
        "<script async src=//example.org/a.js></script>",
        '<link rel="stylesheet" href="https://example.org/font.css">',
        '<img alt="a" src="http://example.org/a.png">',
        '<pre class="mermaid"><code>',
    ],
)
def test_what_would_be_fetched_from_elsewhere_is_found(hook, html):
    """Scripts, styles, pictures, and a diagram that needs a script."""
    assert hook.FETCHED.search(html)


@pytest.mark.parametrize("html", ['<script src="assets/a.js">', '<a href="https://example.org">', '<img src="a.svg">'])
def test_what_is_shipped_or_only_linked_is_left_alone(hook, html):
    """Own files, and links that a reader may follow."""
    assert not hook.FETCHED.search(html)


def test_the_site_is_built_strictly(texts):
    """`make docs` fails on a warning; with --quiet mkdocs counts none, and a dead anchor passes."""
    recipe = texts["Makefile"].split("\ndocs: ")[1].split("\n\n")[0]
    assert "mkdocs build --strict" in recipe
    assert "--quiet" not in recipe
    assert "anchors: warn" in texts["mkdocs.yml"]
