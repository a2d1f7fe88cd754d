"""What pages say about protection: every protocol has its section, and no page says more of delta than is proved."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hedgerow.cli.job_file import PROTOCOLS
from hedgerow.runtime.protocol import names, services

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
CHANCE_OF_DELTA = re.compile(r"unlucky cases|total chance of (at most )?delta|with (a )?probability (of )?1 - delta")
"""How delta is often read, and what (epsilon, delta) does not say."""


def sections(page: str) -> dict[str, str]:
    """Heading -> the text below it, up to the next heading."""
    parts = re.split(r"^(#+ .+)$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def without_section(page: str) -> set[str]:
    """Protocols and services that no heading of the page names, or whose section is empty."""
    told = {
        name for heading, text in sections(page).items() if text.strip() for name in re.findall(r"`([^`]+)`", heading)
    }
    return {*PROTOCOLS, *names(), *services()} - told


def test_every_protocol_has_its_section_in_the_threat_model():
    """A protocol or service that is registered and not on the page is found; so is one whose section is empty."""
    page = (ROOT / "docs" / "threat_model.md").read_text(encoding="utf-8")
    assert without_section(page) == set()
    assert without_section(page.replace("### `vertical.bucket_rr`", "### Buckets")) == {"vertical.bucket_rr"}
    assert without_section(page.split("### `vertical.explaining`")[0] + "### `vertical.explaining`\n") == {
        "vertical.explaining"
    }


def test_the_threat_model_speaks_of_secure_sum_with_and_without_noise():
    """They protect different things against different parties."""
    page = (ROOT / "docs" / "threat_model.md").read_text(encoding="utf-8")
    headings = [heading for heading in sections(page) if "`horizontal.secure_sum`" in heading]
    assert headings == ["### `horizontal.secure_sum` without `dp`", "### `horizontal.secure_sum` with `dp`"]


@pytest.mark.parametrize("page", ["README.md", "docs/README.md"])
def test_the_threat_model_is_found_from_the_front_pages(page):
    """Both link to it."""
    assert "threat_model.md)" in (ROOT / page).read_text(encoding="utf-8")


def test_no_page_takes_delta_for_the_chance_of_bad_outcomes():
    """P[S] <= e^epsilon P'[S] + delta is about sets: outcomes beyond e^epsilon can be far likelier than delta."""
    said = {
        page.relative_to(ROOT).as_posix(): found
        for page in PAGES
        if (found := CHANCE_OF_DELTA.search(" ".join(page.read_text(encoding="utf-8").split())))
    }
    assert said == {}
    assert CHANCE_OF_DELTA.search("apart from unlucky cases of a total chance of 1e-6")
