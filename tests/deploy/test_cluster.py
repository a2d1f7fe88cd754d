"""The manifests and the chart: the fields that matter, and that both say the same."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hedgerow._version import __version__
from hedgerow.node.party_file import read_party_file
from twins.documented import options_of

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed; make setup installs it")
DEPLOY = Path(__file__).parents[2] / "deploy"
MANIFESTS = DEPLOY / "kubernetes" / "hedgerow.yaml"
CHART = DEPLOY / "helm" / "hedgerow"
EXPRESSION = re.compile(r"\{\{ \.(Values|Release)\.(\w+)(?: \| (quote|toJson))? \}\}")
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


def rendered(values: dict[str, Any], release: str) -> str:
    """The chart's templates, which use nothing but names of values, as helm would fill them in."""

    def fill(match: re.Match[str]) -> str:
        value = {"Values": values, "Release": {"Name": release}}[match[1]][match[2]]
        return json.dumps(value) if match[3] else str(value)

    texts = [EXPRESSION.sub(fill, path.read_text()) for path in sorted((CHART / "templates").glob("*.yaml"))]
    assert not [text for text in texts if "{{" in text]
    return "\n---\n".join(texts)


def objects(text: str) -> dict[str, Any]:
    """The objects of a stream by kind; no two are of the same."""
    found = [each for each in yaml.safe_load_all(text) if each]
    assert len({each["kind"] for each in found}) == len(found)
    return {each["kind"]: each for each in found}


def values() -> dict[str, Any]:
    """The chart's own."""
    return yaml.safe_load((CHART / "values.yaml").read_text())


@pytest.fixture(params=["manifests", "chart"])
def found(request):
    """The objects, as they are written and as the chart makes them."""
    return objects(MANIFESTS.read_text() if request.param == "manifests" else rendered(values(), "bank"))


def test_versions_and_kinds(found):
    """What a cluster of today knows, and no Secret: that is made by hand."""
    assert {kind: each["apiVersion"] for kind, each in found.items()} == {
        "ConfigMap": "v1",
        "Service": "v1",
        "StatefulSet": "apps/v1",
    }


def test_one_port(found):
    """One containerPort, to which the one port of the service leads, and at which party.toml listens."""
    pod = found["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (port,) = container["ports"]
    (outside,) = found["Service"]["spec"]["ports"]
    assert outside["targetPort"] == port["name"]
    assert outside["port"] == port["containerPort"] == 7341
    assert not any(each.get("ports") for each in pod["initContainers"])
    assert f':{port["containerPort"]}"' in found["ConfigMap"]["data"]["party.toml"]


def test_probes_call_a_verb_that_is_there(found):
    """All three, and none reaches over the network."""
    (container,) = found["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    for name in PROBES:
        program, verb, *options = container[name]["exec"]["command"]
        assert (program, verb) == ("hedgerow", "status")
        assert set(options) <= options_of(verb)
        assert container[name]["timeoutSeconds"] >= 10


def test_nobody_is_root_and_nothing_is_writable_but_volumes(found):
    """Of every container; what it writes to is a volume of its own."""
    pod = found["StatefulSet"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    for container in (*pod["initContainers"], *pod["containers"]):
        context = container["securityContext"]
        assert context["runAsNonRoot"] is context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]
        assert re.fullmatch(r"hedgerow:\d+\.\d+\.\d+", container["image"])


def test_secrets_are_files(found):
    """The passphrase is mounted for the first container alone; no variable has it; the other gets a copy in memory."""
    pod = found["StatefulSet"]["spec"]["template"]["spec"]
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert volumes["secret"]["secret"] == {"secretName": "bank-passphrase", "defaultMode": 0o400}
    assert volumes["unlocked"]["emptyDir"]["medium"] == "Memory"
    (first,), (second,) = pod["initContainers"], pod["containers"]
    assert "secret" in {mount["name"] for mount in first["volumeMounts"]}
    assert "secret" not in {mount["name"] for mount in second["volumeMounts"]}
    for container in (first, second):
        assert not any("PASSPHRASE" in each["name"] or "valueFrom" in each for each in container["env"])
    known = {*volumes, "home"}
    assert {mount["name"] for each in (first, second) for mount in each["volumeMounts"]} <= known


def test_a_party_is_one_pod(found):
    """Two on one home would be one party twice."""
    spec = found["StatefulSet"]["spec"]
    assert spec["replicas"] == 1
    (claim,) = spec["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == found["Service"]["spec"]["selector"] == labels


def test_the_party_file_is_one(found, tmp_path):
    """Hedgerow reads it, and it has the name that `init` is called with."""
    path = tmp_path / "party.toml"
    path.write_text(found["ConfigMap"]["data"]["party.toml"])
    party = read_party_file(path)
    (first,) = found["StatefulSet"]["spec"]["template"]["spec"]["initContainers"]
    assert f"hedgerow init {party.name} " in first["args"][0]
    assert set(re.findall(r"(--[\w-]+)", first["args"][0])) <= options_of("init")
    assert party.log == "json"


def test_the_first_container_makes_a_home(found, tmp_path):
    """Its script, run by a shell with this machine's folders, makes an encrypted key once and leaves it alone then."""
    (first,) = found["StatefulSet"]["spec"]["template"]["spec"]["initContainers"]
    script = first["args"][0]
    for place in ("/run/secrets/hedgerow", "/run/hedgerow", "/etc/hedgerow"):
        (tmp_path / place[1:]).mkdir(parents=True, exist_ok=True)
    script = re.sub(r"(/run/secrets/hedgerow|/run/hedgerow|/etc/hedgerow)/", rf"{tmp_path}\1/", script)
    script = script.replace("hedgerow init", '"$PYTHON" -m hedgerow.cli init')
    (tmp_path / "run/secrets/hedgerow/passphrase").write_text("correct horse battery\n")
    (tmp_path / "run/secrets/hedgerow/passphrase").chmod(0o440)
    (tmp_path / "etc/hedgerow/party.toml").write_text(found["ConfigMap"]["data"]["party.toml"])
    home = tmp_path / "home"
    environment = _environment(HEDGEROW_HOME=str(home))
    keys = []
    for _ in range(2):
        (tmp_path / "run/hedgerow/passphrase").unlink(missing_ok=True)  # the pod's memory is new
        subprocess.run([*first["command"], script], check=True, env=environment, capture_output=True)
        keys.append((home / "key.pem").read_bytes())
    assert keys[0] == keys[1]
    assert b"ENCRYPTED" in keys[0]
    assert read_party_file(home / "party.toml").log == "json"
    (container,) = found["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    probe = [environment["PYTHON"], "-m", "hedgerow.cli", *container["livenessProbe"]["exec"]["command"][1:]]
    answered = subprocess.run(probe, check=True, env=environment, capture_output=True, text=True)
    assert json.loads(answered.stdout)["name"] == "bank"


def _environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHON": sys.executable, **more}


def test_the_chart_says_what_the_manifests_say():
    """With its own values, and bank as the name of the release, it makes the same objects."""
    assert objects(rendered(values(), "bank")) == objects(MANIFESTS.read_text())


def test_every_value_is_used_and_every_use_has_a_value():
    """None is without effect, and none is missing."""
    texts = "".join(path.read_text() for path in (CHART / "templates").glob("*.yaml"))
    assert {match[2] for match in EXPRESSION.finditer(texts) if match[1] == "Values"} == set(values())


def test_other_values_arrive():
    """Another party, image, port and command are where they belong."""
    mine = {**values(), "party": "shop", "image": "registry.example.org/hedgerow:0.1.0", "port": 9000}
    mine["command"] = ["hedgerow", "run"]
    found = objects(rendered(mine, "shop"))
    pod = found["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == mine["image"]
    assert container["command"] == mine["command"]
    assert container["ports"][0]["containerPort"] == found["Service"]["spec"]["ports"][0]["port"] == 9000
    assert "hedgerow init shop " in pod["initContainers"][0]["args"][0]
    assert found["Service"]["metadata"]["name"] == "shop"


def test_the_chart_has_our_version():
    """Chart, image and package go together."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = re.match(r"\d+\.\d+\.\d+", __version__)[0]
    assert chart["apiVersion"] == "v2"
    assert chart["appVersion"] == version
    assert values()["image"] == f"hedgerow:{version}"


@pytest.mark.skipif(
    shutil.which("helm") is None, reason="helm is not installed; the templates are filled in by a helper"
)
def test_helm_renders_the_same():
    """The helper of these tests does what helm does."""
    made = subprocess.run(["helm", "template", "bank", str(CHART)], check=True, capture_output=True, text=True)
    assert objects(made.stdout) == objects(rendered(values(), "bank"))
    subprocess.run(["helm", "lint", "--strict", str(CHART)], check=True, capture_output=True)
