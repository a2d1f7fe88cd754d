"""A real browser for tests: the machine's own Chromium, without a network. What no page of ours may do fails the test.

    with chromium() as browser, opened(browser, path.as_uri(), PHONE, dark=True) as page:
        assert not sideways(page)

A page must write no error to the console, throw none, and ask no other machine for anything. Requests to other machines
are cut off before they leave, and fail the test when the page is closed.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

PHONE, LAPTOP = (390, 844), (1440, 900)
"""Pixels of a telephone and of a laptop."""
FLAGS = (
    "--no-sandbox",  # the tests may be run by root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
LOCAL = {"file", "data", "blob", "about"}


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """The browser; a test is skipped, and says why, where there is none."""
    programme = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if programme is None:
        pytest.skip("there is no chromium here; Debian's package of that name has it")
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; make setup installs it")
    with driver.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=programme, headless=True, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def opened(
    browser: Browser,
    address: str,
    size: tuple[int, int] = LAPTOP,
    *,
    dark: bool = False,
    may_fail: tuple[str, ...] = (),
    **more: Any,
) -> Iterator[Page]:
    """A page of its own, at an address. `may_fail` has parts of console errors that this test provokes."""
    width, height = size
    look = {"viewport": {"width": width, "height": height}, "color_scheme": "dark" if dark else "light"}
    problems: list[str] = []

    def let_pass(route: Route) -> None:
        found = urlsplit(route.request.url)
        if found.scheme in LOCAL or found.hostname == "127.0.0.1":
            route.continue_()
        else:
            problems.append(f"asks for {route.request.url}")
            route.abort()

    with contextlib.closing(browser.new_context(**look | more)) as context:
        context.route("**/*", let_pass)
        page = context.new_page()
        page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(address)
        yield page
        assert [each for each in problems if not any(part in each for part in may_fail)] == []


def sideways(page: Page) -> list[str]:
    """Elements that stick out at the right, if the page can be scrolled sideways."""
    return page.evaluate("""() => {
        const width = document.documentElement.clientWidth;
        if (document.documentElement.scrollWidth <= width) return [];
        const rolls = (e) => e && (getComputedStyle(e).overflowX === "auto" || rolls(e.parentElement));
        return [...document.querySelectorAll("body *")]
            .filter((e) => e.getBoundingClientRect().right > width + 1 && !rolls(e))
            .map((e) => `${e.tagName} ${e.className} ${e.textContent.slice(0, 40)}`).slice(0, 8);
    }""")


ROWS = 6


def shorten(page: Page) -> None:
    """Open all that opens, and leave the first few rows and entries of what is long: they are all made alike."""
    page.evaluate(f"""() => {{
        for (const each of document.querySelectorAll("details")) each.open = true;
        for (const each of document.querySelectorAll("tbody, ol, dl, main ul, pre"))
            while (each.children.length > {ROWS}) each.lastElementChild.remove();
    }}""")


def accessible(page: Page, *forgiven: str) -> list[str]:
    """What axe-core finds serious or critical, but for rules that are forgiven; an empty list is a good one."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    found = axe.Axe().run(page).response["violations"]
    return [
        f"{each['id']}: {each['help']}: {[node['html'][:120] for node in each['nodes'][:4]]}"
        for each in found
        if each["impact"] in ("serious", "critical") and each["id"] not in forgiven
    ]


def looks(page: Page, *, crossed: bool = False) -> Iterator[str]:
    """The page as a telephone and as a laptop show it, light and dark, one after the other.

    With `crossed` dark on a telephone and light on a laptop alone: axe-core takes its time, contrast does not depend
    on the size of a page, and its structure does not depend on colours.
    """
    for (width, height), schemes in ((PHONE, ("dark", "light")), (LAPTOP, ("light", "dark"))):
        page.set_viewport_size({"width": width, "height": height})
        for scheme in schemes[:1] if crossed else schemes:
            page.emulate_media(color_scheme=scheme)
            yield f"{width} pixels, {scheme}"


def by_keyboard(page: Page, most: int = 400) -> list[dict[str, Any]]:
    """What Tab reaches, from the top of the page until it leaves it: names, places in the page, who shows a focus."""
    reached: list[dict[str, Any]] = []
    for _ in range(most):
        page.keyboard.press("Tab")
        found = page.evaluate("""() => {
            const it = document.activeElement;
            if (!it || it === document.body) return null;
            const style = getComputedStyle(it);
            const place = [...document.querySelectorAll("*")].indexOf(it);
            const outline = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
            return { name: it.tagName, place, outline };
        }""")
        if found is None or (reached and found["place"] <= reached[0]["place"]):
            return reached
        reached.append(found)
    raise AssertionError(f"Tab does not leave the page after {most} stops")
