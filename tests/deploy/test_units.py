"""The systemd unit: hardened, writes to the home alone, and accepted by systemd where that is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hedgerow.cli.outcome import ExitCode
from twins.documented import options_of

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
DROP_INS = ("hedgerow-passphrase.conf", "hedgerow-serve.conf")
HARDENED = {
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectKernelModules": "yes",
    "ProtectControlGroups": "yes",
    "RestrictNamespaces": "yes",
    "RestrictSUIDSGID": "yes",
    "CapabilityBoundingSet": "",
    "SystemCallArchitectures": "native",
    "UMask": "0077",
    "LimitCORE": "0",
    "User": "hedgerow",
    "Restart": "no",
}


def settings(name: str) -> dict[str, list[str]]:
    """All values of each key of a unit."""
    found: dict[str, list[str]] = {}
    for line in (UNITS / name).read_text(encoding="utf-8").splitlines():
        if match := re.fullmatch(r"([A-Za-z]+)=(.*)", line):
            found.setdefault(match[1], []).append(match[2])
    return found


def test_the_unit_is_hardened():
    """Each of these is set, once, to what protects."""
    unit = settings("hedgerow@.service")
    assert {key: unit.get(key) for key in HARDENED} == {key: [value] for key, value in HARDENED.items()}


def test_it_writes_to_its_home_and_cache_alone():
    """The home of the instance, readable by nobody else; kernels are kept where systemd has made room for them."""
    unit = settings("hedgerow@.service")
    assert unit["ReadWritePaths"] == ["/var/lib/hedgerow/%i"]
    assert unit["StateDirectory"] == unit["CacheDirectory"] == ["hedgerow/%i"]
    assert unit["StateDirectoryMode"] == unit["CacheDirectoryMode"] == ["0700"]
    assert "NUMBA_CACHE_DIR=/var/cache/hedgerow/%i" in unit["Environment"][0]
    assert "HEDGEROW_HOME=/var/lib/hedgerow/%i" in unit["Environment"][0]


def test_compiled_kernels_may_run():
    """The one protection that numba cannot live with is left out, and the file says so."""
    assert "MemoryDenyWriteExecute" not in settings("hedgerow@.service")
    assert "# MemoryDenyWriteExecute is left out on purpose" in (UNITS / "hedgerow@.service").read_text()


def test_commands_are_verbs_that_take_what_they_are_given():
    """What it does without settings, and the option by which the passphrase comes."""
    unit = settings("hedgerow@.service")
    assert "HEDGEROW_COMMAND=status" in unit["Environment"][0]
    assert options_of("status")
    assert "--passphrase-file" in options_of("run")
    assert settings("hedgerow-passphrase.conf")["ExecStart"][-1].startswith(unit["ExecStart"][0])


def test_only_a_partners_absence_starts_a_service_again():
    """Every exit code but that of another party waits for somebody to read it."""
    prevented = settings("hedgerow-serve.conf")["RestartPreventExitStatus"][0].split()
    codes = {int(code) for code in ExitCode} - {ExitCode.OK, ExitCode.INTERRUPTED, ExitCode.PEER}
    assert {int(code) for code in prevented} >= codes
    assert str(int(ExitCode.PEER)) not in prevented


def test_no_secret_is_in_a_unit():
    """A passphrase comes from a file that root alone can read, and from no variable of the unit."""
    for name in ("hedgerow@.service", *DROP_INS):
        assert "HEDGEROW_PASSPHRASE" not in (UNITS / name).read_text(encoding="utf-8")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("drop_ins", [(), DROP_INS[:1], DROP_INS])
def test_systemd_accepts_it(tmp_path, drop_ins):
    """systemd's own check of an instance finds nothing, with and without the drop-ins."""
    place = tmp_path / "hedgerow@bank.service"
    shutil.copy(UNITS / "hedgerow@.service", place)
    folder = tmp_path / "hedgerow@bank.service.d"
    folder.mkdir()
    for name in drop_ins:
        shutil.copy(UNITS / name, folder)
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(place)], check=False, capture_output=True, text=True
    )
    if "Failed to" in checked.stderr and "connect" in checked.stderr:
        pytest.skip(f"systemd-analyze cannot work here: {checked.stderr.strip()}")
    about_us = [line for line in checked.stderr.splitlines() if "hedgerow" in line]
    assert (checked.returncode, about_us) == (0, [])
