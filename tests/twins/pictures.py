"""The pictures of the documentation, made anew by a real browser: `make pictures`.

The report is that of the bank in `hedgerow demo`: Adult, whose columns three parties have. The live page is that of a
bank whose run is under way. Both are as the commands write them; nothing is drawn by hand.
"""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from hedgerow import Federation
from hedgerow.cli.demo import HOLDERS, LABEL_HOLDER, VERTICAL_PARAMS
from hedgerow.datasets import adult_schema, load_adult
from hedgerow.report.of_run import told_of_run
from hedgerow.report.sections import page
from twins.browser import chromium, opened
from twins.homes import simplify
from twins.organisations import agreed_by_all, bank_and_shop, customers, job_text, make_home, pair_all, proposed
from twins.watched import half_way, watching

DOCS = Path(__file__).parents[2] / "docs"
SIZE = (1120, 800)
"""Pixels: as wide as a page gets, and a screen high."""


def take(shown: Page, name: str, height: float) -> None:
    """The page from its top, as WebP, which takes half of the bytes."""
    clip = {"x": 0, "y": 0, "width": SIZE[0], "height": height, "scale": 1}
    asked = {"format": "webp", "quality": 80, "clip": clip, "captureBeyondViewport": True}
    answer = shown.context.new_cdp_session(shown).send("Page.captureScreenshot", asked)
    (DOCS / f"{name}.webp").write_bytes(base64.b64decode(answer["data"]))


def report(browser: Browser, folder: Path) -> None:
    """The first screen, and the picture of who learned what."""
    people, incomes = load_adult("train")
    federation = Federation.vertical(
        {holder: people.select(columns) for holder, columns in HOLDERS.items()}, labels=(LABEL_HOLDER, incomes)
    )
    options = {"epsilon": 4.0, "schema": adult_schema(), "buckets": 64, "random_state": 1, **VERTICAL_PARAMS}
    run = federation.fit("vertical.bucket_rr", **options)
    place = page(told_of_run(run, LABEL_HOLDER)).save(folder / "report.html")
    with opened(browser, place.as_uri(), SIZE) as shown:
        until = shown.locator("#who").bounding_box()
        end = until["y"] + until["height"] if until else SIZE[1]
        take(shown, "report", end)


def live(browser: Browser, folder: Path) -> None:
    """A page half way through a run, with what has left."""
    tables = bank_and_shop(customers(n_rows=4_000))
    policy = "[policy.budget]\nepsilon = 20.0\ndelta = 1e-5"
    homes = {
        "bank": make_home(folder, "bank", tables["bank"], listens=True, label="bad", policy=policy),
        "shop": make_home(folder, "shop", tables["shop"], listens=False),
    }
    pair_all(homes)
    options = {"n_estimators": 30, "max_depth": 4, "learning_rate": 0.2, "epsilon": 4.0, "delta": 1e-6}
    roles = {"bank": "label holder", "shop": "feature holder"}
    proposal = proposed(homes["bank"], job_text("vertical.noised_gradients", options, roles))
    agreed_by_all(homes, proposal)
    with watching(homes["bank"]) as address, opened(browser, address, SIZE) as shown:
        with half_way(homes, proposal, 21):
            shown.get_by_text("21 of 30", exact=True).wait_for()
            take(shown, "watching", SIZE[1])
        shown.get_by_text("It is over.").wait_for()


def main() -> None:
    """Write both."""
    with (
        pytest.MonkeyPatch.context() as patch,
        chromium() as browser,
        tempfile.TemporaryDirectory() as folder,
    ):
        simplify(patch)
        report(browser, Path(folder))
        live(browser, Path(folder))


if __name__ == "__main__":
    main()
