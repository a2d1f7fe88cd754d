"""`hedgerow status`: who is paired, what was proposed, what runs and what has run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hedgerow.cli.outcome import Outcome, aligned, print_lines, verb
from hedgerow.cli.run import running_pid
from hedgerow.cli.unlocking import HomeOption
from hedgerow.errors import plain

if TYPE_CHECKING:
    from hedgerow.node.home import Home


@verb("The same as JSON on stdout.")
def status(*, home: HomeOption = None) -> Outcome:
    """Show this party's peers, proposals and runs, as they are on its own disk. Nobody is asked.

    Example: hedgerow status
    """
    from hedgerow.node.budgets import to_look_at
    from hedgerow.node.home import Home
    from hedgerow.node.papers import Papers

    place = Home.find(home)
    peers = [place.peers.get(name) for name in place.peers.names()]
    with to_look_at(place.budget, place.party_file.policy) as budgets:
        states = [state._asdict() for state in budgets.states()]
    result = {
        "command": "status",
        "name": place.name,
        "home": place.path,
        "fingerprint": place.certificate.fingerprint,
        "peers": [
            {"name": peer.name, "address": peer.address, "fingerprint": peer.certificate.fingerprint} for peer in peers
        ],
        "proposals": [
            {
                "hash": paper.proposal.hash,
                "protocol": paper.proposal.protocol,
                "proposed_by": paper.proposal.proposed_by,
                "expires": paper.proposal.expires,
                "state": paper.state,
                "run": _state_of_run(place, paper.proposal.run_id),
            }
            for paper in Papers(place).all()
        ],
        "budgets": states,
    }
    return Outcome(result, lambda: print_lines(_lines(result)))


def _state_of_run(home: Home, run_id: str) -> dict[str, Any]:
    folder = home.runs / run_id
    for name, state in (("run.json", "over"), ("failed.json", "failed")):
        if (folder / name).exists():
            message = _told_in(folder / name).get("message")
            return {"state": state, "folder": folder, "message": None if message is None else plain(str(message))}
    if (folder / "progress.json").exists():
        told = _told_in(folder / "progress.json")
        about = {key: told[key] for key in ("done", "total") if isinstance(told.get(key), int)}
        is_running = running_pid(folder) is not None
        return {"state": "running" if is_running else "broken off", "folder": folder, **about}
    return {"state": "not begun"}


def _told_in(path: Path) -> dict[str, Any]:
    """What a file of a run says."""
    from hedgerow.runtime.saved_files import damage_told, read_object

    with damage_told(f"{path} is damaged"):
        return read_object(path)


def _lines(result: dict[str, Any]) -> list[str]:
    lines = [f"{result['name']} in {result['home']}", "", "Peers"]
    peers = [(peer["name"], peer["address"] or "dials only", peer["fingerprint"][:23]) for peer in result["peers"]]
    lines += [f"  {line}" for line in aligned(peers, 3)] if peers else ["  none; see hedgerow pair --help"]
    lines += ["", "Proposals"]
    rows = [
        (each["hash"][:12], each["protocol"], f"by {each['proposed_by']}", each["state"], _told(each["run"]))
        for each in result["proposals"]
    ]
    lines += [f"  {line}" for line in aligned(rows, 5)] if rows else ["  none"]
    for state in result["budgets"]:
        used = f"{state['spent_epsilon']:.3g} of {state['epsilon']:.3g}"
        lines += ["", f"Budget {state['limit']}: epsilon {used} spent"]
    return lines


def _told(run: dict[str, Any]) -> str:
    if run["state"] == "running" and run.get("total"):
        return f"running, {run.get('done', 0)} of {run['total']}"
    return f"run {run['state']}" + (f": {run['message']}" if run.get("message") else "")
