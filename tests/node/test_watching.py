"""`hedgerow run` as programs see it: metrics while it waits and trains, log lines as JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from hedgerow.cli.outcome import ExitCode
from hedgerow.node.home import Home
from twins.organisations import agreed_by_all, free_port, job_text, proposed, two_organisations

PARTIES = {"bank": "label holder", "shop": "feature holder"}


def started(home, *options):
    """The command, in the party's folder."""
    return subprocess.Popen(
        [sys.executable, "-m", "hedgerow.cli", "run", "--wait", "120", *options],
        cwd=home.path,
        env={name: value for name, value in os.environ.items() if not name.startswith("HEDGEROW_")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answered(port, process):
    """What /metrics says, as soon as the command listens there."""
    while process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                return answer.read().decode()
        except urllib.error.URLError:
            time.sleep(0.1)
    raise AssertionError(process.communicate())


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_run_tells_programs_how_it_goes(tmp_path):
    """The port answers while the partner is awaited and is gone afterwards; each log line names party and run."""
    homes = two_organisations(tmp_path)
    text = homes["bank"].party_toml.read_text()
    homes["bank"].party_toml.write_text(text.replace('name = "bank"', 'name = "bank"\nlog = "json"', 1))
    homes = {name: Home(home.path) for name, home in homes.items()}
    options = {"n_estimators": 2, "max_depth": 2, "epsilon": 4.0, "delta": 1e-6}
    proposal = proposed(homes["bank"], job_text("vertical.noised_gradients", options, PARTIES))
    agreed_by_all(homes, proposal)
    port = free_port()
    bank = started(homes["bank"], "--metrics", str(port))
    try:
        assert 'hedgerow_run_steps{party="bank"} 0' in answered(port, bank)
        shop = started(homes["shop"])
        _, told_shop = shop.communicate(timeout=240)
        _, told = bank.communicate(timeout=240)
    finally:
        bank.kill()
    assert (bank.returncode, shop.returncode) == (0, 0), (told, told_shop)
    assert f"Metrics: http://127.0.0.1:{port}/metrics" in told
    lines = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    assert lines
    assert {(line["party"], line["run_id"]) for line in lines} == {("bank", proposal.run_id)}
    assert lines[-1]["message"].startswith("the run is over")
    assert not [line for line in told_shop.splitlines() if line.startswith("{")]
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics")


@pytest.mark.timeout(300)
def test_a_run_can_be_stopped(tmp_path):
    """`cancel` ends it at both sides, each with a code of its own, and it is shown as one that can be taken up."""
    homes = two_organisations(tmp_path)
    options = {"n_estimators": 5000, "max_depth": 2, "epsilon": 4.0, "delta": 1e-6}
    proposal = proposed(homes["bank"], job_text("vertical.noised_gradients", options, PARTIES))
    agreed_by_all(homes, proposal)
    port = free_port()
    bank, shop = started(homes["bank"], "--metrics", str(port)), started(homes["shop"])
    try:
        while 'hedgerow_run_done{party="bank"} 0' in answered(port, bank):
            time.sleep(0.1)
        command = [sys.executable, "-m", "hedgerow.cli", "cancel"]
        cancelled = subprocess.run(command, check=True, capture_output=True, text=True, cwd=homes["bank"].path)
        assert f"(process {bank.pid})" in cancelled.stdout
        _, told = bank.communicate(timeout=120)
        _, told_shop = shop.communicate(timeout=120)
    finally:
        bank.kill()
        shop.kill()
    assert (bank.returncode, shop.returncode) == (ExitCode.INTERRUPTED, ExitCode.PEER), (told, told_shop)
    folder = homes["bank"].runs / proposal.run_id
    assert (folder / "failed.json").exists()
    assert not (folder / "run.json").exists()
