"""vertical.private_histograms claims that what parties see is uniform or has noise enough: runs and audits show it.

All runs of a group are over the same data. One party draws the same random bytes in all of them, and the others new
ones: what it receives must be uniform given all that it knows itself. All random bytes come from fixed seeds.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from hedgerow.attacks.central.audit import Trials, lower_bound
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.crypto.shares import Masked, joined
from hedgerow.engine.losses import BoostingParams
from hedgerow.engine.table import Column, Table
from hedgerow.privacy.discrete_gaussian import sample
from hedgerow.protocols.shares.columns import OneHotColumns, Sizes
from hedgerow.protocols.shares.mesh import Mesh
from hedgerow.protocols.shares.messages import AllColumns, Dealt, MaskedBins, MaskedWords
from hedgerow.protocols.vertical.private_histograms.job import PrivateHistogramsJob
from hedgerow.protocols.vertical.private_histograms.messages import (
    SmoothAsked,
    SmoothBinSums,
    SmoothLeafSums,
    SmoothMean,
    SmoothPositives,
    SmoothSides,
)
from hedgerow.protocols.vertical.private_histograms.plan import Plan
from hedgerow.protocols.vertical.private_histograms.smooth.groups import GroupSums
from hedgerow.protocols.vertical.private_histograms.spec import SPEC as PROTOCOL
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData
from hedgerow.schema import Schema
from hedgerow.testing.transcripts import identity_of
from hedgerow.transport.frames import peek
from hedgerow.transport.memory import MemoryNetwork
from hedgerow.transport.mtls import TrustStore
from hedgerow.transport.transcripts import Recording
from twins.openings import Opening, repeated_masks
from twins.uniformity import unlike_uniform

N_ROWS = 35
N_RUNS = 24
HOLDERS = ("anna", "ben", "carla")
SMALL = BoostingParams(n_iterations=2, max_depth=2, learning_rate=0.3, min_child_weight=0.0)
NAMES = ("a", "b", "c", "d")
SCHEMA = Schema.from_public(
    bounds=dict.fromkeys(NAMES[:3], (-3, 2)) | {"d": (-2, 2)},
    integers=list(NAMES),
    may_be_missing=["d"],
    classes=[0, 1],
)
"""Of few values, so that bins are the same in all runs, and as many for each column, missing values included."""
MANY_VALUES = Schema.from_public(bounds=dict.fromkeys(NAMES, (-3.0, 3.0)), may_be_missing=["d"], classes=[0, 1])


@cache
def make_data(*, complemented=False):
    """Three parties; with other labels and other columns if `complemented`."""
    rng = np.random.default_rng(9 if complemented else 4)
    values = dict(zip(NAMES, rng.normal(size=(4, N_ROWS)), strict=True))
    labels = (values["a"] + values["b"] > 0).astype(np.float64)
    values["d"] = np.where(rng.random(N_ROWS) < 0.2, np.nan, values["d"])

    def table(*names):
        return Table(tuple(Column(name, values[name]) for name in names), N_ROWS, names, has_names=True)

    return {
        "anna": PartyData(table("a"), 1 - labels if complemented else labels, (0, 1)),
        "ben": PartyData(table("b", "c")),
        "carla": PartyData(table("d")),
    }


def make_job(reveal="winner", **trees):
    """A job for the three."""
    boosting = replace(SMALL, **trees)
    return PrivateHistogramsJob(
        HOLDERS, "anna", "a run", boosting=boosting, max_bins=6, epsilon=2.0, reveal=reveal, schema=SCHEMA
    )


class Round(NamedTuple):
    """What all sent to each other, and what it makes."""

    parts: list[Masked]
    sent: list[np.ndarray]
    opened: list[np.ndarray]


def coins(name, number):
    """The random bytes of a party in a run."""
    return hashlib.sha256(f"{name} {number}".encode()).digest()


def run(job, data, numbers, watched="anna"):
    """One run in memory; `numbers` says which coins each party has. Records, and the rounds as one party sees them."""
    names = PROTOCOL.parties(job)
    network = MemoryNetwork(names, one_core=True)
    records = {name: Recording(network.endpoint(name)) for name in names}
    parties = {name: Party(records[name], identity_of(name), TrustStore()) for name in names}
    for name, party in parties.items():
        party.rng = SecureRandom.from_seed(coins(name, numbers.get(name, 0)))
    rounds, opens, reveals, receives = [], Mesh.masked, Mesh.reveal, Mesh._received
    got = []

    def received(self, *which):
        words = receives(self, *which)
        if self.me.name == watched:
            got[:] = words
        return words

    def keep(mesh, parts, opened):
        if mesh.me.name == watched:
            sent = list(got)
            sent.insert(HOLDERS.index(watched), joined(parts))
            rounds.append(Round(parts, [np.array(each) for each in sent], [np.array(each) for each in opened]))

    def masked(self, parts):
        opened = opens(self, parts)
        keep(self, parts, opened)
        return opened

    def reveal(self, kind, share, **how):
        value = reveals(self, kind, share, **how)
        keep(self, [Masked(f"noisy {kind.NAME}", share.words, share.kind)], [value])
        return value

    roles = {name: lambda name=name: PROTOCOL.play(parties[name], job, data.get(name)) for name in names}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Mesh, "masked", masked)
        patch.setattr(Mesh, "reveal", reveal)
        patch.setattr(Mesh, "_received", received)
        outcomes = network.run(roles)
    assert [outcome.error for outcome in outcomes.values() if outcome.error is not None] == []
    return SimpleNamespace(records=records, rounds=rounds)


def varied(receiver, n_runs, job=None):
    """Runs in which all but the receiver have new coins every time; the dealer, who draws noise, too."""
    others = [name for name in (*HOLDERS, "dealer") if name != receiver]
    return [
        run(job or make_job(), make_data(), dict.fromkeys(others, number), receiver) for number in range(1, n_runs + 1)
    ]


@cache
def group(receiver, reveal):
    """`varied`, made once."""
    return varied(receiver, N_RUNS, make_job(reveal))


def counting(parts):
    """Which bits of a round's message count, from the lowest of each byte; filling of packed bits does not."""
    masks = []
    for part in parts:
        mask = np.ones(8 * part.words.nbytes, np.bool_)
        mask[part.n_bits :] = part.n_bits is None
        masks.append(mask)
    return np.concatenate(masks)


def openings(done, receiver):
    """Words of each sender by themselves, and all together unless they are a release."""
    found = []
    for number, each in enumerate(done.rounds):
        start = 0
        for part, opened in zip(each.parts, each.opened, strict=True):
            end = start + part.words.nbytes
            words = {
                name: sent[start:end].view(part.kind.dtype).reshape(part.words.shape)
                for name, sent in zip(HOLDERS, each.sent, strict=True)
                if name != receiver
            }
            if not part.name.startswith("noisy"):
                words["all"] = opened
            for name, each_words in words.items():
                title = f"{part.name} {number} of {name}"
                if part.kind.is_xor:
                    bits = np.unpackbits(each_words.view(np.uint8).reshape(-1), count=part.n_bits, bitorder="little")
                    found.append(Opening(title, bits, "bits", 1))
                else:
                    found.append(Opening(title, each_words, "limbs" if part.kind.limbs else "sum"))
            start = end
    for sender in HOLDERS:
        bins = done.records[receiver].messages(MaskedBins, "received", sender) if sender != receiver else ()
        found += [Opening(f"bins of {sender}", message.words.view(np.uint32)) for message in bins]
    return found


# --- what is not a release is uniform --------------------------------------------------------------------------------


@pytest.mark.parametrize(("receiver", "reveal"), [("anna", "winner"), ("ben", "histogram")])
def test_what_a_party_receives_is_uniform(receiver, reveal):
    """Every bit of every sender's words, shares of releases included, over all runs, given the receiver's coins."""
    done = group(receiver, reveal)
    mask = np.concatenate([counting(each.parts) for each in done[0].rounds])
    for place, sender in enumerate(HOLDERS):
        if sender == receiver:
            continue
        words = np.stack([np.concatenate([each.sent[place] for each in one.rounds]) for one in done])
        assert words.shape[1] > 1_500
        assert unlike_uniform(words, mask) == [], sender
        bins = [one.records[receiver].messages(MaskedBins, "received", sender) for one in done]
        assert unlike_uniform(np.stack([np.concatenate([m.words for m in each]) for each in bins])) == []


@pytest.mark.parametrize(("receiver", "reveal"), [("anna", "winner"), ("ben", "histogram")])
def test_what_is_dealt_is_uniform(receiver, reveal):
    """But for headings and filling, which are the same for other labels and columns."""
    done = group(receiver, reveal)
    dealt = [one.records[receiver].messages(Dealt, "received", "dealer") for one in done]
    words = np.stack([np.concatenate([message.corrections for message in each]) for each in dealt])
    fixed = (words == words[0]).all(axis=0)
    assert fixed.mean() < 0.1
    assert unlike_uniform(words, ~np.repeat(fixed, 8)) == []
    other = run(make_job(reveal), make_data(complemented=True), dict.fromkeys((*HOLDERS, "dealer"), 99))
    theirs = other.records[receiver].messages(Dealt, "received", "dealer")
    assert (np.concatenate([message.corrections for message in theirs])[fixed] == words[0][fixed]).all()


@pytest.mark.parametrize(("receiver", "reveal"), [("anna", "winner"), ("ben", "histogram")])
def test_what_is_opened_is_under_a_mask_of_its_own(receiver, reveal):
    """All that parties open to each other but releases: uniform, and no two words move together between runs.

    Masks of single bits are those of tournaments, and are looked at with vertical.secret_shared.
    """
    seen = [openings(one, receiver) for one in group(receiver, reveal)]
    assert repeated_masks([[each for each in one if each.how != "bits"] for one in seen]) == []
    together = [[each for each in one if each.name.endswith("of all")] for one in seen]
    for kind in ("sum", "limbs", "bits") if reveal == "winner" else ("sum",):
        chosen = [[each.words.reshape(-1) for each in one if each.how == kind] for one in together]
        if kind == "bits":
            chosen = [[np.packbits(np.concatenate(bits)[: -(sum(map(len, bits)) % 8) or None])] for bits in chosen]
        words = np.stack([np.concatenate([each.view(np.uint8) for each in one]) for one in chosen])
        assert words.shape[1] > 100
        assert unlike_uniform(words) == [], kind


SMOOTH_WORDS = (MaskedBins, MaskedWords, SmoothSides, SmoothPositives, SmoothBinSums, SmoothLeafSums, SmoothMean)


def smooth_words(one, receiver, sender):
    """All masked words and shares of releases that a party received from another, in a row."""
    found = [
        message.words for kind in SMOOTH_WORDS for message in one.records[receiver].messages(kind, "received", sender)
    ]
    return np.concatenate(found)


@pytest.mark.parametrize("receiver", ["anna", "ben"])
def test_what_a_party_receives_is_uniform_with_smooth_then_trees(receiver):
    """The same for policy="smooth_then_trees": without noise, so that questions are the same in all runs."""
    job = replace(make_job(), policy="smooth_then_trees", epsilon=math.inf)
    done = varied(receiver, 8, job)
    for sender in HOLDERS:
        if sender != receiver:
            words = np.stack([smooth_words(one, receiver, sender) for one in done])
            assert words.shape[1] > 10_000
            assert unlike_uniform(words) == [], sender
    dealt = [one.records[receiver].messages(Dealt, "received", "dealer") for one in done]
    words = np.stack([np.concatenate([message.corrections for message in each]) for each in dealt])
    fixed = (words == words[0]).all(axis=0)
    assert fixed.mean() < 0.1
    assert unlike_uniform(words, ~np.repeat(fixed, 8)) == []
    hidden = [[each for each in openings(one, receiver) if each.name.startswith(("angles", "rows"))] for one in done]
    assert len(hidden[0]) > 500
    assert repeated_masks(hidden) == []


def test_unmasked_sides_are_found_with_smooth_then_trees(monkeypatch):
    """Control: a tree's sides that are sent as they are."""
    honest = GroupSums._expanded

    def bare(self, step, *how):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(step, "mask", lambda shape, *_: SimpleNamespace(words=np.zeros(shape, np.uint32)))
            return honest(self, step, *how)

    monkeypatch.setattr(GroupSums, "_expanded", bare)
    job = replace(make_job(), policy="smooth_then_trees", epsilon=math.inf)
    words = np.stack([smooth_words(one, "ben", "anna") for one in varied("ben", 6, job)])
    assert unlike_uniform(words)


def test_masks_that_are_missing_are_found(monkeypatch):
    """Control: columns with 16 bits of 32 masked, and rows of nodes with one bit of a word that is 0."""
    columns, opens = OneHotColumns.minus, Mesh.masked_rows

    def bare(self, kind, *hidden):
        return opens(self, kind, *[((x - a) & np.uint32(0xFFFFFFF7), np.zeros_like(a)) for x, a in hidden])

    monkeypatch.setattr(OneHotColumns, "minus", lambda own, masks, rows: columns(own, masks & np.uint32(0xFFFF), rows))
    monkeypatch.setattr(Mesh, "masked_rows", bare)
    done = varied("ben", 8, make_job(n_iterations=1))
    bins = [one.records["ben"].messages(MaskedBins, "received", "anna") for one in done]
    assert unlike_uniform(np.stack([np.concatenate([m.words for m in each]) for each in bins]))
    rows = [np.concatenate([each.sent[0] for each in one.rounds if each.parts[0].name == "rows"]) for one in done]
    assert "bits at place 3 of bytes are out of balance" in unlike_uniform(np.stack(rows))


def test_the_dealer_learns_sizes_only():
    """With the same coins, it receives the very same bytes for other labels and other columns, and sends the same."""
    one, other = (run(make_job(), make_data(complemented=flag), {}).records["dealer"] for flag in (False, True))
    assert [(p.direction, p.peer) for p in one.passed] == [(p.direction, p.peer) for p in other.passed]
    assert [p.frame for p in one.passed] == [p.frame for p in other.passed]
    assert len(one.passed) > 50


@pytest.mark.parametrize("epsilon", [50.0, math.inf])
def test_the_dealer_learns_sizes_only_with_smooth_then_trees(epsilon):
    """The same for policy="smooth_then_trees", with other bins, another share of positive rows, other trees."""
    job = replace(make_job(), policy="smooth_then_trees", epsilon=epsilon, schema=MANY_VALUES)
    other = dict(make_data(complemented=True))
    other["anna"] = replace(other["anna"], labels=(np.arange(N_ROWS) < 3).astype(np.float64))
    one, two = (run(job, data, {}) for data in (make_data(), other))
    asked = [done.records["ben"].messages(SmoothAsked, "received", "anna") for done in (one, two)]
    assert any(not np.array_equal(a.bins, b.bins) for a, b in zip(*asked, strict=True))
    assert any(not np.array_equal(a.features, b.features) for a, b in zip(*asked, strict=True))
    seen = [[(p.direction, p.peer, p.frame) for p in done.records["dealer"].passed] for done in (one, two)]
    assert seen[0] == seen[1]
    assert {peek(frame)[0] for direction, _, frame in seen[0] if direction == "received"} == {
        "vertical.private_histograms.smooth_sizes", "vertical.on_shares.seed", "vertical.shared_rows.level_done",
    }  # fmt: skip


def test_the_dealer_learns_numbers_of_bins_with_noise():
    """Where bins follow from counts, it hears how many there are: counts have noise of their owner."""
    job = replace(make_job(n_iterations=1), schema=MANY_VALUES, epsilon=50.0)
    found = set()
    for number in range(6):
        record = run(job, make_data(), dict.fromkeys(HOLDERS, number)).records["dealer"]
        (sizes,) = record.messages(AllColumns, "received", "anna")
        found.add(tuple(sizes.n_bins.tolist()))
        assert {p.peer for p in record.passed if p.direction == "received"} == set(HOLDERS)
    assert len(found) > 1


# --- releases tell no more than is claimed ---------------------------------------------------------------------------


class World(NamedTuple):
    """Labels, and which rows count."""

    labels: np.ndarray
    counts: np.ndarray


SIDES = np.array([[1, 1, 1, 1, 0, 0, 0, 0], [1, 0, 1, 0, 1, 0, 1, 0], [1, 0, 0, 0, 0, 0, 0, 0]], bool)
LABELS = np.array([1, 1, 1, 0, 0, 0, 1, 0])
BASE = World(LABELS, np.ones(8, int))
NEIGHBOURS = {
    "label": World(np.where(np.arange(8) == 0, 0, LABELS), BASE.counts),
    "row": World(LABELS, (np.arange(8) > 0).astype(int)),
}


class Mechanism:
    """The releases of one tree of one split, without shares: start, winner, leaves; and how likely each is.

    Columns have few values, so there are no counts; their share of the budget is not used.
    """

    def __init__(self, epsilon, delta, weaken=1.0):
        job = replace(make_job(n_iterations=1, max_depth=1), epsilon=epsilon, delta=delta)
        self.plan = Plan.of(job, Sizes(8, ((2,), (2,), (2,)), ((False,),) * 3))
        self.spending, self.weaken = self.plan.spending, weaken
        self.bits = self.plan.gradient_bits

    def sums(self, world, positives):
        """G and n of both sides of every split: [trials, splits, sides, 2], in units of gradients and rows."""
        share = np.clip(positives / 8, 1 / 16, 15 / 16)
        gradients = np.round(share[:, None] * 2**self.bits) - world.labels * 2**self.bits  # sigma(log odds) = share
        sides = np.stack([SIDES, ~SIDES], axis=1) * world.counts
        G = np.einsum("tr,csr->tcs", gradients, sides)
        n = np.broadcast_to(sides.sum(axis=2), G.shape)
        return np.stack([G, n], axis=-1)

    def utilities(self, sums):
        """In units of gradients."""
        return np.abs(sums[..., 0]).sum(axis=2)

    def run(self, world, n, random):
        """So many outcomes: the noisy start, the winner, and noisy sums of both leaves."""
        spending = self.spending

        def gaussian(sigma, shape):
            return sample(max(sigma / self.weaken, 0.1), int(np.prod(shape)), random).reshape(shape)

        positives = (world.labels * world.counts).sum() + gaussian(spending.start_sigma, n)
        sums = self.sums(world, positives)
        noise = spending.choice.draw((n, 3), random) / self.weaken
        winner = np.argmax(self.utilities(sums) + noise, axis=1)
        leaves = sums[np.arange(n), winner] * [1, spending.count_unit]
        return positives, winner, leaves + gaussian(spending.leaf_sigma, leaves.shape)

    def log_likelihood(self, world, outcome):
        """Of outcomes, but for what is the same in all worlds."""
        spending, (positives, winner, leaves) = self.spending, outcome
        found = -((positives - (world.labels * world.counts).sum()) ** 2) * self.weaken**2
        found = found / (2 * spending.start_sigma**2)
        sums = self.sums(world, positives)
        scores = self.utilities(sums) / (float(spending.choice.beta) * 2.0**self.bits / self.weaken)
        rows = np.arange(len(winner))
        found += scores[rows, winner] - np.log(np.exp(scores - scores.max(axis=1)[:, None]).sum(axis=1))
        found -= scores.max(axis=1)
        errors = leaves - sums[rows, winner] * [1, spending.count_unit]
        return found - (errors**2).sum(axis=(1, 2)) * self.weaken**2 / (2 * spending.leaf_sigma**2)

    def audit(self, other, n, seed):
        """The best test between two worlds, many times."""
        random = np.random.default_rng(seed)
        ratios = []
        for world in (other, BASE):
            outcome = self.run(world, n, random)
            ratios.append(self.log_likelihood(other, outcome) - self.log_likelihood(BASE, outcome))
        return lower_bound(Trials(*ratios), delta=self.spending.job.delta)


@pytest.mark.parametrize("what", ["label", "row"])
@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_an_audit_of_what_is_released(what, epsilon):
    """The best that anybody can do who knows all but one label, or all but one row, stays below the claim."""
    result = Mechanism(epsilon, 1e-3).audit(NEIGHBOURS[what], 30_000, seed=3)
    assert not result.refutes(epsilon)
    assert result.epsilon_lower < epsilon
    assert result.epsilon_lower > 0.15 * epsilon  # and the test is one: it does see a difference


def test_an_audit_finds_noise_that_is_too_small():
    """Control: a sixth of the noise."""
    result = Mechanism(1.0, 1e-3, weaken=6.0).audit(NEIGHBOURS["label"], 30_000, seed=3)
    assert result.refutes(1.0)
    assert math.isfinite(result.epsilon_lower)
