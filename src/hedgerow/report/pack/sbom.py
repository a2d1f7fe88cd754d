"""The software that a run was made with, as CycloneDX has it: Hedgerow, and what it needs, as installed here.

    document = bill()          # CycloneDX 1.6, JSON-able

Components are the distributions that Hedgerow's own metadata asks for, and those that these ask for, as far as they are
installed: `importlib.metadata` knows them. Extras that are for use (databases, data frames) are in it as optional where
they are there; what is for developing Hedgerow is not. The bill has no date and its serial number follows from what is
in it, so the same installation gives the same bytes.
"""

from __future__ import annotations

import platform
import re
import uuid
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Any
from urllib.parse import quote

from hedgerow import __version__
from hedgerow.errors import InvalidInput

FORMAT, SPEC_VERSION = "CycloneDX", "1.6"
SCHEMA = "http://cyclonedx.org/schema/bom-1.6.schema.json"
OWN = "hedgerow"
FOR_DEVELOPING = frozenset({"bench", "dev", "docs", "experiments"})
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
_MOST_LICENCE = 64  # characters; what is longer is a text and no name


def bill() -> dict[str, Any]:
    """What is installed now. InvalidInput if Hedgerow is not: then nothing says what it needs."""
    found = _installed()
    components = [_component(each, is_optional) for name, (each, is_optional) in sorted(found.items()) if name != OWN]
    main = {**_component(found[OWN][0], False), "type": "application", "version": __version__}
    del main["scope"]
    ref = main["bom-ref"] = main["purl"] = _purl(OWN, __version__)
    needs = [
        {"ref": ref if name == OWN else _ref(each), "dependsOn": sorted({*_needed_refs(each, found, ref)})}
        for name, (each, _) in sorted(found.items())
    ]
    body = {
        "version": 1,
        "metadata": {
            "component": main,
            "properties": [
                {"name": "hedgerow:python", "value": platform.python_version()},
                {"name": "hedgerow:platform", "value": f"{platform.system()} {platform.machine()}"},
            ],
        },
        "components": components,
        "dependencies": needs,
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, repr(body))
    heading = {
        "$schema": SCHEMA,
        "bomFormat": FORMAT,
        "specVersion": SPEC_VERSION,
        "serialNumber": f"urn:uuid:{serial}",
    }
    return {**heading, **body}


def _installed() -> dict[str, tuple[Distribution, bool]]:
    """Normalised name -> distribution, and whether it is there for an extra alone."""
    try:
        own = distribution(OWN)
    except PackageNotFoundError:
        raise InvalidInput("Hedgerow is not installed as a package here, so nothing says what it needs") from None
    found: dict[str, tuple[Distribution, bool]] = {OWN: (own, False)}
    waiting = [(name, extra is not None) for name, extra in _requirements(own) if extra not in FOR_DEVELOPING]
    while waiting:
        name, is_optional = waiting.pop()
        if name in found and (is_optional or not found[name][1]):
            continue
        try:
            each = distribution(name)
        except PackageNotFoundError:  # of another platform, or of an extra that is not installed
            continue
        found[name] = (each, is_optional)
        waiting += [(needed, is_optional) for needed, extra in _requirements(each) if extra is None]
    return found


def _requirements(each: Distribution) -> Iterator[tuple[str, str | None]]:
    """Names that a distribution asks for, each with the extra that it is for, or None."""
    for line in each.requires or ():
        wanted, _, marker = line.partition(";")
        name, extra = _REQUIREMENT.match(wanted), _EXTRA.search(marker)
        if name is not None:
            yield _normal(name[1]), None if extra is None else extra[1]


def _needed_refs(each: Distribution, found: dict[str, tuple[Distribution, bool]], own: str) -> Iterator[str]:
    for name, extra in _requirements(each):
        if name in found and name != OWN and (extra is None or (_name(each) == OWN and extra not in FOR_DEVELOPING)):
            yield _ref(found[name][0])
        elif name == OWN and _name(each) != OWN and extra is None:
            yield own


def _component(each: Distribution, is_optional: bool) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": "library",
        "bom-ref": _ref(each),
        "name": _name(each),
        "version": each.version,
        "scope": "optional" if is_optional else "required",
        "purl": _ref(each),
    }
    licences = _licences(each)
    return {**made, "licenses": licences} if licences else made


def _licences(each: Distribution) -> list[dict[str, Any]]:
    """As an expression where the metadata has one, else by name; CycloneDX takes one or the other."""
    metadata = each.metadata
    if "License-Expression" in metadata:
        return [{"expression": metadata["License-Expression"]}]
    kinds = [line.rpartition(" :: ")[2] for line in metadata.get_all("Classifier", []) if line.startswith("License ::")]
    given = metadata["License"].strip() if "License" in metadata else ""
    if not kinds and given and given != "UNKNOWN" and len(given) <= _MOST_LICENCE and "\n" not in given:
        kinds = [given]
    return [{"license": {"name": kind}} for kind in sorted(set(kinds))]


def _name(each: Distribution) -> str:
    return _normal(each.metadata["Name"])


def _ref(each: Distribution) -> str:
    return _purl(_name(each), each.version)


def _normal(name: str) -> str:
    """As package indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{quote(name, safe='')}@{quote(version, safe='')}"
