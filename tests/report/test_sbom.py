"""The bill of software: the main rules of CycloneDX 1.6, and the distributions that Hedgerow really needs."""

from __future__ import annotations

import json
import re
import tomllib
import uuid
from importlib.metadata import version
from pathlib import Path

import pytest

from hedgerow import __version__
from hedgerow.report.pack import sbom

PURL = re.compile(r"pkg:pypi/[a-z0-9](?:[a-z0-9-]*[a-z0-9])?@[0-9A-Za-z.%_-]+")
PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.fixture(scope="module")
def bill():
    """As it is written, after a round trip."""
    return json.loads(json.dumps(sbom.bill()))


def test_it_has_what_the_schema_asks_for(bill):
    """Format, version of the format, serial number as a URN, a positive version; components of known types."""
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["serialNumber"].startswith("urn:uuid:")
    uuid.UUID(bill["serialNumber"].removeprefix("urn:uuid:"))
    assert bill["version"] == 1
    main = bill["metadata"]["component"]
    assert (main["type"], main["name"], main["version"]) == ("application", "hedgerow", __version__)
    for each in bill["components"]:
        assert {"type", "name", "version", "bom-ref", "purl", "scope"} <= each.keys()
        assert each["type"] == "library"
        assert each["scope"] in ("required", "optional")


def test_the_official_schema_takes_it(bill):
    """CycloneDX's own JSON schema of version 1.6, strictly: no field that it does not know, and a mistake is found."""
    validation = pytest.importorskip("cyclonedx.validation.json")
    schema = pytest.importorskip("cyclonedx.schema")
    validator = validation.JsonStrictValidator(schema.SchemaVersion.V1_6)
    assert validator.validate_str(json.dumps(bill)) is None
    for wrong in ({"serialNumber": "1"}, {"colour": "green"}, {"components": [{"type": "library"}]}):
        assert validator.validate_str(json.dumps({**bill, **wrong})) is not None


def test_purls_and_licences_are_what_they_say(bill):
    """Each purl is one of the specification's, for this name and version; each expression one of SPDX."""
    packageurl = pytest.importorskip("packageurl")
    spdx = pytest.importorskip("license_expression").get_spdx_licensing()
    for each in (bill["metadata"]["component"], *bill["components"]):
        purl = packageurl.PackageURL.from_string(each["purl"])
        assert (purl.type, purl.name, purl.version) == ("pypi", each["name"], each["version"])
        assert purl.to_string() == each["purl"]
        for licence in each.get("licenses", []):
            assert "expression" not in licence or spdx.validate(licence["expression"]).errors == [], each["name"]


def test_references_are_unique_and_lead_somewhere(bill):
    """Every bom-ref stands once, every dependency is one of them, and each component says what it needs."""
    refs = [each["bom-ref"] for each in (bill["metadata"]["component"], *bill["components"])]
    assert len(refs) == len(set(refs))
    assert sorted(each["ref"] for each in bill["dependencies"]) == sorted(refs)
    for each in bill["dependencies"]:
        assert each.keys() == {"ref", "dependsOn"}
        assert each["ref"] in refs
        assert set(each["dependsOn"]) <= set(refs) - {each["ref"]}
        assert len(each["dependsOn"]) == len(set(each["dependsOn"]))


def test_names_and_versions_are_those_that_are_installed(bill):
    """A purl has the normalised name and the version, percent-encoded."""
    for each in bill["components"]:
        assert PURL.fullmatch(each["purl"]), each["purl"]
        assert each["version"] == version(each["name"])


def test_licences_have_one_of_the_two_shapes(bill):
    """One expression alone, or names."""
    for each in bill["components"]:
        shapes = [set(licence) for licence in each.get("licenses", [])]
        assert shapes == [{"expression"}] or all(shape == {"license"} for shape in shapes)


def test_all_that_hedgerow_needs_is_in_it_and_nothing_for_developing(bill):
    """Direct dependencies as required, what these need too; pytest and mypy are not there."""
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    direct = {re.match(r"[\w.-]+", need)[0].lower() for need in project["dependencies"]}
    scopes = {each["name"]: each["scope"] for each in bill["components"]}
    assert {name for name in direct if scopes.get(name) == "required"} == direct
    assert scopes["llvmlite"] == "required"  # numba's
    assert not {"pytest", "mypy", "ruff", "hypothesis", "mkdocs-material"} & scopes.keys()


def test_the_same_installation_gives_the_same_bytes():
    """There is no date and no random number in it."""
    assert json.dumps(sbom.bill()) == json.dumps(sbom.bill())
