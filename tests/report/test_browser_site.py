"""The documentation as a site, in a real browser: a handful of its pages, in every look."""

from __future__ import annotations

import http.server
import os
import subprocess
import sys
import threading
from functools import partial

import pytest

from twins.browser import LAPTOP, PHONE, accessible, opened, sideways
from twins.documented import ROOT

PAGES = ("", "watching/", "reference/report/", "tutorials/two_organisations/", "who_learns_what/", "results/mp_fedxgb/")
OF_THE_THEME = ("aria-dialog-name", "scrollable-region-focusable")
"""Rules of axe-core that mkdocs-material breaks by its own markup: the search has no name, tables roll without keys."""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Nothing: a test has nobody to read it."""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Where it is served, built as `make docs` builds it."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed; make docs installs it")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.mark.long
@pytest.mark.parametrize(("size", "dark"), [(PHONE, True), (LAPTOP, False)], ids=["telephone, dark", "laptop, light"])
@pytest.mark.parametrize("name", PAGES)
def test_every_look_of_a_page_of_the_site(browser, site, name, size, dark):
    """Nothing is fetched from elsewhere or sticks out at the side, pictures load, axe-core finds nothing serious."""
    with opened(browser, site + name, size, dark=dark) as shown:
        assert shown.locator("body").get_attribute("data-md-color-scheme") == ("slate" if dark else "default")
        broken = "[...document.images].filter((each) => !each.complete || !each.naturalWidth).map((each) => each.src)"
        assert shown.evaluate(broken) == []
        assert sideways(shown) == []
        assert accessible(shown, *OF_THE_THEME) == []
