"""What a run will take before it begins: seconds, memory, rounds and bytes, from small runs of the very same job.

    found = estimate(cast, rows={"bank": 50_000, "shop": 50_000}, link=Link(round_trip=0.01, bandwidth=1e8))
    found.seconds, found.rounds, found.parties["shop"].bytes_sent

Nothing is modelled by hand, so nothing here can drift away from the protocols. The job is played on made-up rows, by
processes over mutual TLS as `rehearse` does, with few trees and a part of the rows. For a given number of columns, bins
and levels, bytes, rounds and work grow linearly with rows and with trees, so four such probes give

    f(share of the rows, trees) = a + b share + c trees + d share trees

at every corner exactly, and what lies beyond by extension. The larger share is all of the rows, if that many fit into
the seconds that the estimate may take; then only trees are extended, from as many as still fit, and a short job is
probed as a whole. That is worth its time: the work is linear, but extending 1 and 4 trees to 12 multiplies every
disturbance of the clock by four. Extending rows is less certain: blocks of rows, and trees that end early, are not
linear. Probes are measured on this machine, with all parties on it, and kept in the party's folder, for the same job
of the same version.

Rounds are the longest chain of messages each of which waits for the one before: every link of it costs half a round
trip. What a link adds is found by sending the messages of the probes, as the ledgers have them, over a link of that
latency and bandwidth, and added to what the same probes took here: no work is assumed to overlap with waiting.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hedgerow._version import __version__
from hedgerow.codec import AsJson
from hedgerow.errors import HedgerowError
from hedgerow.ledger import Meter, Traffic
from hedgerow.node import documents
from hedgerow.node.costs import Size
from hedgerow.node.links import longest_chain
from hedgerow.node.made_up import Cast, make_up
from hedgerow.node.peaks import LONGEST_NAME, peaks_of_processes
from hedgerow.runtime.progress import OnProgress
from hedgerow.transport.emulate import Link

FEW_TREES, MORE_TREES = 1, 4
FEWEST_ROWS = 1_000
"""Of a probe: with fewer, trees are smaller than the real ones."""
SECONDS = 60.0
"""What an estimate may take, about; most take less."""
_GROWTH = 4.0  # of the share of rows, from probe to probe
_REPETITIONS, _PATIENCE = 3, 0.1  # a probe is run this often, if that takes no more than this share of the time
_MOST_CACHE, _MOST_KEPT = 4 << 20, 200  # bytes, and probes


@dataclass(frozen=True)
class OfParty(AsJson):
    """What one party sends, receives and needs."""

    bytes_sent: float = 0
    bytes_received: float = 0
    messages_sent: float = 0
    memory: float = 0  # bytes, the peak of its process; 0 where the system does not tell


@dataclass(frozen=True)
class Probe(AsJson):
    """A run of the job with a part of its rows and few trees, as it was measured; or as it is predicted."""

    share: float
    trees: int
    seconds: float  # of work, and of messages on this machine
    waiting: float  # what the link would add
    rounds: float
    parties: Mapping[str, OfParty]
    took: float = 0.0  # seconds, with starting processes


@dataclass(frozen=True)
class Estimate:
    """What the whole run will take."""

    rows: Mapping[str, int]
    trees: int
    link: Link | None
    whole: Probe  # predicted
    probes: tuple[Probe, ...] = field(default=())

    @property
    def seconds(self) -> float:
        """From the first message to the last result."""
        return self.whole.seconds + self.whole.waiting

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        link = None if self.link is None else {**asdict(self.link)}
        return {
            "rows": dict(self.rows),
            "trees": self.trees,
            "link": link,
            "seconds": self.seconds,
            "seconds_of_work": self.whole.seconds,
            "seconds_of_link": self.whole.waiting,
            "rounds": round(self.whole.rounds),
            "parties": {
                name: {key: round(value) for key, value in asdict(about).items()}
                for name, about in self.whole.parties.items()
            },
            "probes": [{"share": p.share, "trees": p.trees, "seconds": p.seconds} for p in self.probes],
        }


def estimate(
    cast: Cast,
    rows: Mapping[str, int],
    *,
    link: Link | None = None,
    seconds: float = SECONDS,
    cache: Path | None = None,
    on_progress: OnProgress | None = None,
) -> Estimate:
    """What a run with these numbers of rows will take; the estimate itself takes about this many seconds, or less.

    `on_progress` is told the seconds that went into probes, and about how many there will be.
    """
    job = _Job(cast, dict(rows), link, _Kept(cache), seconds)

    def probe(share: float, trees: int) -> Probe:
        found = job.probe(share, trees)
        if on_progress is not None:
            on_progress(round(job.spent), round(job.spent + _left(found, job.trees, seconds - job.spent)))
        return found

    smallest = min(1.0, FEWEST_ROWS / max(min(rows.values()), 1))
    few, more = min(FEW_TREES, job.trees), min(MORE_TREES, job.trees)
    probe(smallest, few)  # the first one compiles, and starts what starts processes
    probed = [probe(smallest, more)]
    while probed[-1].share < 1.0:
        share, cost = _next_share(probed)
        # With few trees the larger shares are probed as well, in less time.
        if len(probed) > 1 and job.spent + 2 * cost > seconds:
            break
        probed.append(probe(share, more))
    shares = [1.0] if probed[-1].share == 1.0 else [each.share for each in probed[-2:]]
    if shares == [1.0]:
        more = _most_trees(probe(1.0, few), probed[-1], job.trees, seconds - job.spent)
    corners = {(share, n): probe(share, n) for share in shares for n in (few, more)}
    whole = _extended(corners, shares, (few, more), job.trees)
    if on_progress is not None:
        on_progress(round(job.spent), round(job.spent))
    return Estimate(dict(rows), job.trees, link, whole, tuple(corners.values()))


def predicted_size(cast: Cast, rows: Mapping[str, int]) -> tuple[str, Size]:
    """The protocol and the size of the job, for the cost model, which takes no probes."""
    job = _Job(cast, dict(rows), None, _Kept(None), 0.0)
    return job.protocol, job.size()


def _left(last: Probe, trees: int, seconds: float) -> float:
    """How long probing goes on, about: until the whole job has been probed, or the time is over."""
    return min(max(seconds, 0.0), last.took + last.seconds * (trees / (last.share * last.trees) - 1.0))


def _most_trees(few: Probe, more: Probe, trees: int, seconds: float) -> int:
    """How many trees can be probed in these seconds; fewer than twice as many as before are not worth it."""
    if few.trees == more.trees:
        return more.trees
    per_tree = max(more.seconds - few.seconds, 1e-9) / (more.trees - few.trees)
    fitting = int(min(more.trees + (seconds - more.took) / per_tree, trees))
    return fitting if fitting == trees or fitting >= 2 * more.trees else more.trees


def _next_share(probed: list[Probe]) -> tuple[float, float]:
    """Which share of the rows to probe next, and how long that may take: all of them, once two probes tell how long."""
    last = probed[-1]
    if len(probed) == 1:
        share = min(1.0, _GROWTH * last.share)
        return share, last.took + last.seconds * (share / last.share - 1.0)
    before = probed[-2]
    slope = max(last.seconds - before.seconds, 0.0) / (last.share - before.share)
    cost = last.took + slope * (1.0 - last.share)
    share = 1.0 if cost <= _GROWTH * last.took else min(1.0, _GROWTH * last.share)
    return share, last.took + slope * (share - last.share)


# --- probes ----------------------------------------------------------------------------------------------------------


class _Kept:
    """Probes in a file, by what was probed."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._found: dict[str, Any] = {}
        if path is not None and path.exists():
            with suppress(HedgerowError, ValueError, TypeError, RecursionError):  # what is lost is measured again
                found = json.loads(documents.read_bounded(path, _MOST_CACHE))
                self._found = found if isinstance(found, dict) else {}

    def get(self, key: str) -> Probe | None:
        with suppress(KeyError, HedgerowError):
            return Probe.from_dict(self._found[key])
        return None

    def put(self, key: str, probe: Probe) -> None:
        self._found[key] = asdict(probe)
        for old in list(self._found)[:-_MOST_KEPT]:
            del self._found[old]
        if self._path is not None:
            documents.write(self._path, self._found)


class _Job:
    """The job whose probes are run."""

    def __init__(self, cast: Cast, rows: dict[str, int], link: Link | None, kept: _Kept, seconds: float) -> None:
        self._cast, self._rows, self._link, self._kept = cast, rows, link, kept
        self._patience = _PATIENCE * seconds
        self.spent = 0.0
        self._probed: dict[tuple[float, int], Probe] = {}
        chosen = (
            make_up(cast, min(FEWEST_ROWS, *rows.values())).federation.plan(cast.job.protocol, **cast.params).chosen
        )
        self.protocol = chosen.protocol.name
        self._params = {**chosen.options, **chosen.trees}
        self.trees = int(chosen.trees["max_iter"])

    def size(self) -> Size:
        """All of it, with parties on this machine."""
        is_rows = self._cast.label_holder is None
        columns = [len(schema.columns) for schema in self._cast.schemas.values()]
        return Size(
            rows=sum(self._rows.values()) if is_rows else max(self._rows.values()),
            columns=max(columns) if is_rows else sum(columns),
            parties=len(columns),
            trees=self.trees,
            depth=int(self._params["max_depth"]),
            bins=int(self._params["max_bins"]),
        )

    def probe(self, share: float, trees: int) -> Probe:
        """Measured once; where the file has it, not even that."""
        key = self._key(share, trees)
        found = self._probed.get((share, trees)) or self._kept.get(key)
        if found is None:
            found = self._measured(share, trees)
            self._kept.put(key, found)
        self._probed[share, trees] = found
        return found

    def _measured(self, share: float, trees: int) -> Probe:
        """Short runs are measured several times, each on other rows: trees, and whose columns split them, differ."""
        runs: list[Probe] = []
        while not runs or (len(runs) < _REPETITIONS and (len(runs) + 1) * runs[-1].took < self._patience):
            runs.append(self._played(share, trees, seed=len(runs)))
            self.spent += runs[-1].took
        parties = {}
        for name in runs[0].parties:
            counts = [asdict(run.parties[name]) for run in runs]
            parties[name] = OfParty(**{key: statistics.fmean(each[key] for each in counts) for key in counts[0]})
        return Probe(
            share,
            trees,
            statistics.median(run.seconds for run in runs),
            statistics.fmean(run.waiting for run in runs),
            statistics.fmean(run.rounds for run in runs),
            parties,
            statistics.median(run.took for run in runs),
        )

    def _played(self, share: float, trees: int, seed: int) -> Probe:
        made = make_up(self._cast, {name: max(round(share * n), 1) for name, n in self._rows.items()}, seed)
        began = time.perf_counter()
        with peaks_of_processes() as peaks:
            run = made.federation.fit(self.protocol, transport="grpc", **{**self._params, "max_iter": trees})
        took = time.perf_counter() - began
        aligned = run.alignment
        books = [*([] if aligned is None else [aligned.ledgers]), run.ledgers]
        waits = [0.0 if self._link is None else longest_chain(each, self._link).seconds for each in books]
        parties = {}
        for name in run.ledgers:
            traffic = Traffic.sum(Meter(each[name]).total() for each in books if name in each)
            sizes = (traffic.bytes_sent, traffic.bytes_received, traffic.messages_sent)
            parties[name] = OfParty(*sizes, memory=peaks.get(name[:LONGEST_NAME], 0))
        seconds = run.seconds + (0.0 if aligned is None else aligned.seconds)
        rounds = sum(longest_chain(each).rounds for each in books)
        return Probe(share, trees, seconds, sum(waits), rounds, parties, took)

    def _key(self, share: float, trees: int) -> str:
        about = {
            "version": __version__,
            "protocol": self.protocol,
            "params": repr(sorted(self._params.items(), key=lambda item: item[0])),
            "columns": {name: [repr(column) for column in s.columns] for name, s in self._cast.schemas.items()},
            "rows": self._rows,
            "matching": repr(self._cast.job.matching),
            "link": repr(self._link),
            "cores": os.cpu_count(),
            "share": share,
            "trees": trees,
        }
        return hashlib.sha256(documents.canonical(about)).hexdigest()


def _extended(
    corners: Mapping[tuple[float, int], Probe], shares: list[float], counts: tuple[int, int], trees: int
) -> Probe:
    """The probe of all rows and all trees, by the plane through the corners; nothing gets less with more of it."""
    few, more = counts
    by_trees = []
    for share in shares:
        one, other = corners[share, few], corners[share, more]
        by_trees.append(_between(one, other, (trees - few) / (more - few) if more > few else 0.0))
    if len(by_trees) == 1:
        return by_trees[0]
    small, large = by_trees
    return _between(small, large, (1.0 - shares[0]) / (shares[1] - shares[0]))


def _between(one: Probe, other: Probe, place: float) -> Probe:
    """On the line through two probes: 0 is the first, 1 the second, and more lies beyond."""

    def at(a: float, b: float) -> float:
        return max(a + place * (b - a), min(a, b), 0.0)

    parties = {}
    for name, about in one.parties.items():
        pairs = zip(asdict(about).values(), asdict(other.parties[name]).values(), strict=True)
        parties[name] = OfParty(*(at(a, b) for a, b in pairs))
    return Probe(
        at(one.share, other.share),
        max(one.trees, other.trees),
        at(one.seconds, other.seconds),
        at(one.waiting, other.waiting),
        at(one.rounds, other.rounds),
        parties,
    )
