"""Two organisations with a network between them that is slow, breaks, or lets nobody through but a proxy.

Over loopback everywhere, with a proxy that tests can cut; in network namespaces where the machine allows them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from hedgerow.node.audit import verify
from twins import cut_link
from twins.cut_link import CutLink
from twins.namespaces import Networks, Unavailable
from twins.offices import Office, ended, run_all, wait_for_trees
from twins.organisations import (
    HOLDERS,
    agreed_by_all,
    bank_and_shop,
    customers,
    free_port,
    make_home,
    pair_all,
    proposed,
)
from twins.stories import Story, check_same_model

pytestmark = pytest.mark.timeout(600)  # several commands each, which start slowly on a busy machine
PORT = 7341
PEER = 8  # the exit code for what another party, or the way to it, is to blame for
SHORT_GRACE = 4.0


class Sites:
    """A bank that listens at `bind` and can be dialled at `advertise`, and a shop; both have agreed on a run."""

    def __init__(self, folder, bind, advertise, *, n_trees, around=None, grace=None):
        tables, around = bank_and_shop(customers()), around or {}
        self.homes = {
            "bank": make_home(
                folder, "bank", tables["bank"], listens=True, label="bad", bind=bind, advertise=advertise
            ),
            "shop": make_home(folder, "shop", tables["shop"], listens=False),
        }
        pair_all(self.homes)
        self.offices = {
            name: Office(folder / name, home=home.path, around=around.get(name, ()), grace=grace)
            for name, home in self.homes.items()
        }
        trees = {"n_estimators": n_trees, "max_depth": 3, "random_state": 5}
        self.story = Story("vertical.noised_gradients", HOLDERS, {"epsilon": "inf"}, trees)
        self.proposal = proposed(self.homes["bank"], self.story.job)
        agreed_by_all(self.homes, self.proposal)

    def start(self, *, first, pause=0.0):
        """`hedgerow run` at both, one of them some seconds after the other."""
        running = {first: self.offices[first].start("run", "--json")}
        time.sleep(pause)
        (second,) = set(self.offices) - {first}
        running[second] = self.offices[second].start("run", "--json")
        return running

    def wait(self, n_trees):
        """Until both have kept this many trees."""
        for home in self.homes.values():
            wait_for_trees(home.runs / self.proposal.run_id, n_trees)

    def check(self, said, attempts):
        """Both came to the end in this attempt, with the model of one program; their trails say as much."""
        assert {each["attempts"] for each in said.values()} == {attempts}
        check_same_model(self.homes, self.proposal, self.story)
        for home in self.homes.values():
            assert verify(home.audit).findings == ()
            assert home.audit.read_text().count('"run_failed"') == attempts - 1

    def check_broken(self, running):
        """Both end with the code for another party, in words that name it."""
        said = ended(running, dict.fromkeys(running, PEER))
        for name, other in (("bank", "shop"), ("shop", "bank")):
            assert said[name]["error"]["exit_code"] == PEER
            assert other in said[name]["error"]["message"]


@contextmanager
def proxied(folder, **how):
    """Sites on this machine, with a proxy between them that can be cut."""
    bind = f"127.0.0.1:{free_port()}"
    with CutLink(bind) as link:
        yield Sites(folder, bind, link.address, **how), link


@pytest.mark.long
def test_a_lost_connection_is_not_noticed(tmp_path):
    """Through a proxy, with the shop there first: a broken connection, and silence, within the grace period."""
    with proxied(tmp_path, n_trees=400) as (sites, link):
        running = sites.start(first="shop", pause=6.0)
        sites.wait(20)
        before = link.connections_made
        link.cut()
        time.sleep(2.0)
        link.restore()
        sites.wait(150)
        link.stall()
        time.sleep(2.0)
        link.restore()
        sites.check(ended(running), attempts=1)
        assert link.connections_made > before


@pytest.mark.long
def test_a_link_that_stays_cut_ends_the_run_and_resume_takes_it_up(tmp_path):
    """With the bank there first: both sides say what happened, and go on when the link is back."""
    with proxied(tmp_path, n_trees=300, grace=SHORT_GRACE) as (sites, link):
        running = sites.start(first="bank", pause=6.0)
        sites.wait(20)
        link.cut()
        sites.check_broken(running)
        link.restore()
        sites.check(run_all(sites.offices, "resume"), attempts=2)


NGINX = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr;
{module}
events {{}}
stream {{
    log_format passed "$status $bytes_received";
    access_log {folder}/passed.log passed;
    server {{ listen {listen}; proxy_pass {target}; }}
}}
"""
MODULE = Path("/usr/lib/nginx/modules/ngx_stream_module.so")  # where Debian puts it; others have it built in


@contextmanager
def nginx(folder, listen, target):
    """nginx that passes what comes to one address on to another, as it is; skips, in words, where there is none."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        pytest.skip("nginx is not installed (Debian's packages nginx and libnginx-mod-stream)")
    module = f"load_module {MODULE};" if MODULE.exists() else ""
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(folder=folder, module=module, listen=listen, target=target))
    command = [program, "-c", str(config), "-e", "stderr", "-p", str(folder)]
    tried = subprocess.run([*command, "-t"], check=False, capture_output=True, text=True)
    if "unknown directive" in tried.stderr:
        pytest.skip("nginx is installed without streams (Debian's package libnginx-mod-stream)")
    assert tried.returncode == 0, tried.stderr
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


@pytest.mark.long
def test_nginx_passes_tls_through(tmp_path):
    """A reverse proxy as many have it, before the bank and without its key: the shop dials it, and all is the same."""
    bind, listen = (f"127.0.0.1:{free_port()}" for _ in range(2))
    with nginx(tmp_path, listen, bind):
        sites = Sites(tmp_path, bind, listen, n_trees=15)
        sites.check(ended(sites.start(first="shop", pause=3.0)), attempts=1)
    passed = [line.split() for line in (tmp_path / "passed.log").read_text().splitlines()]
    assert max(int(n_bytes) for status, n_bytes in passed if status == "200") > 10_000


# --- network namespaces ----------------------------------------------------------------------------------------------


@pytest.fixture
def networks():
    """A network for each, and one between them."""
    try:
        with Networks() as made:
            yield made
    except Unavailable as why:
        pytest.skip(str(why))


def sites_in(networks, folder, advertise=None, **how):
    """Sites in their networks; without `advertise` the bank is dialled where it listens."""
    bind = f"{networks.address('bank')}:{PORT}"
    around = {name: networks.inside(name) for name in HOLDERS}
    return Sites(folder, bind, advertise or bind, around=around, **how)


def refuses(networks, name, other):
    """Whether nobody can be dialled in a network from the other one."""
    dial = f"import socket; socket.create_connection(({networks.address(name)!r}, {PORT}), 5)"
    tried = subprocess.run([*networks.inside(other), sys.executable, "-c", dial], check=False, capture_output=True)
    return b"Error" in tried.stderr


@pytest.mark.long
def test_a_wire_that_is_pulled_out_for_a_while(tmp_path, networks):
    """The run goes on where it was; meanwhile nothing listens at the shop, which nobody can dial."""
    sites = sites_in(networks, tmp_path, n_trees=400)
    running = sites.start(first="shop")
    sites.wait(20)
    assert networks.listening("shop") == []
    assert len(networks.listening("bank")) == 1
    assert refuses(networks, "shop", "bank")
    assert not refuses(networks, "bank", "shop")
    networks.cut("shop")
    time.sleep(4.0)
    networks.restore("shop")
    sites.check(ended(running), attempts=1)


@pytest.mark.long
def test_a_wire_that_stays_out(tmp_path, networks):
    """Packets vanish without a word: both sides notice, say so, and go on when the wire is in again."""
    sites = sites_in(networks, tmp_path, n_trees=300, grace=SHORT_GRACE)
    running = sites.start(first="bank")
    sites.wait(20)
    networks.cut("shop")
    sites.check_broken(running)
    networks.restore("shop")
    sites.check(run_all(sites.offices, "resume"), attempts=2)


@pytest.mark.long
def test_latency(tmp_path, networks):
    """A round trip of 30 ms makes a run slower, and changes nothing else."""
    try:
        networks.delay("shop", 15.0)
    except Unavailable as why:
        pytest.skip(f"{why}; the proxy below delays as much")
    sites = sites_in(networks, tmp_path, n_trees=15)
    sites.check(ended(sites.start(first="bank")), attempts=1)


@pytest.mark.long
def test_a_proxy_is_the_only_way(tmp_path, networks):
    """Nobody passes packets on; a proxy that sees bytes of TLS, and takes 15 ms, is dialled in the bank's place."""
    networks.route(passes=False)
    assert refuses(networks, "bank", "shop")
    listen = f"{networks.middle('shop')}:{PORT}"
    program = [sys.executable, str(Path(cut_link.__file__)), listen, f"{networks.address('bank')}:{PORT}", "0.015"]
    proxy = subprocess.Popen([*networks.inside("middle"), *program])
    try:
        sites = sites_in(networks, tmp_path, advertise=listen, n_trees=15)
        sites.check(ended(sites.start(first="shop")), attempts=1)
    finally:
        proxy.kill()
        proxy.wait()
