"""What a package index would show: links that work there, in the README and in the metadata of the wheel."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def hook():
    """The hook of the build backend, which lies beside pyproject.toml."""
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_without_an_address_nothing_links_to_files_beside_the_readme(hook):
    """Words stay, and links within the page."""
    text = hook.readme_for_an_index(README, None)
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert links == ["#which-protocol-for-whom"]
    assert "who learns what has the whole table" in text
    assert "```python" in text


def test_with_an_address_links_lead_there(hook):
    """Each file is one of this repository."""
    text = hook.readme_for_an_index(README, "https://code.example.org/hedgerow/")
    found = re.findall(r"\]\(https://code\.example\.org/hedgerow/([^)#]+)", text)
    assert len(found) > 40
    assert [name for name in found if not (ROOT / name).exists()] == []


def test_a_wheel_has_them(tmp_path):
    """As a build writes it, with the build backend that is installed."""
    build = "from hatchling.build import build_wheel; import sys; build_wheel(sys.argv[1])"
    env = {**os.environ, "HEDGEROW_REPOSITORY": "https://code.example.org/hedgerow"}
    subprocess.run([sys.executable, "-c", build, str(tmp_path)], cwd=ROOT, env=env, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        about = message_from_bytes(archive.read(name))
    assert "Documentation, https://code.example.org/hedgerow/docs/README.md" in about.get_all("Project-URL")
    assert about["Description-Content-Type"] == "text/markdown"
    assert "(https://code.example.org/hedgerow/docs/who_learns_what.md)" in about.get_payload()
