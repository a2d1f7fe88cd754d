"""vertical.secret_shared claims that a party gets what follows from its result, and uniform words: real runs show it.

All runs of a group are over the same data. One party draws the same random bytes in all of them, and the others new
ones: what it receives must be uniform given all that it knows itself, not only by itself. All random bytes come from
fixed seeds, so the tests end the same way every time; for other seeds false alarms have a probability below 1e-9.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields, replace
from functools import cache
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from hedgerow.crypto import dealing, lifting
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.losses import BoostingParams
from hedgerow.engine.table import Column, Table
from hedgerow.protocols.shares import messages as common
from hedgerow.protocols.shares.columns import OneHotColumns
from hedgerow.protocols.vertical.common import messages as agreement
from hedgerow.protocols.vertical.secret_shared import label_holder, messages, own_rows
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.shape import shape_of
from hedgerow.protocols.vertical.secret_shared.spec import SPEC as PROTOCOL
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData
from hedgerow.testing.transcripts import identity_of
from hedgerow.transport.frames import decode, peek
from hedgerow.transport.memory import MemoryNetwork
from hedgerow.transport.mtls import TrustStore
from hedgerow.transport.transcripts import Recording
from twins.openings import Opening, repeated_masks
from twins.simulated_shares import (
    Leaked,
    Simulated,
    counting_bits,
    dealt_by_itself,
    ideal,
    reader_masks,
    rounds_of,
    without_others,
)
from twins.uniformity import most, unlike_each_other, unlike_uniform

N_ROWS = 77  # bits of rows do not fill their last byte
N_RUNS = 64
N_COMPLEMENTED = 24
HOLDERS = ("anna", "ben", "carla")
KINDS = {
    kind.NAME: kind
    for module in (common, messages, agreement)
    for kind in vars(module).values()
    if getattr(kind, "NAME", None) and kind.__module__ == module.__name__
}
SMALL = BoostingParams(n_iterations=2, max_depth=2, learning_rate=0.3, min_child_weight=0.0)


def table_of(**columns):
    """A table of these columns."""
    listed = tuple(Column(name, values) for name, values in columns.items())
    return Table(listed, N_ROWS, tuple(columns), has_names=True)


@cache
def make_data(*, complemented=False):
    """Three parties whose columns all have a part in the label; two of these have gaps."""
    rng = np.random.default_rng(4)
    a, b, c, d = rng.normal(size=(4, N_ROWS))
    signal = 1.2 * a + 1.2 * b + 1.3 * d + 0.5 * rng.normal(size=N_ROWS)
    labels = (signal > 0.1).astype(np.float64)
    gaps = rng.random((2, N_ROWS)) < 0.1
    own = table_of(a=a)
    return {
        "anna": PartyData(own, 1 - labels if complemented else labels, (0, 1)),
        "ben": PartyData(table_of(b=b, c=np.where(gaps[0], np.nan, c))),
        "carla": PartyData(table_of(d=np.where(gaps[1], np.nan, d))),
    }


def make_job(**changes):
    """A job for the three."""
    return SecretSharedJob(HOLDERS, "anna", "a run", boosting=replace(SMALL, **changes), max_bins=4)


def coins(name, number):
    """The random bytes of a party in a run."""
    return hashlib.sha256(f"{name} {number}".encode()).digest()


def run(job, data, numbers):
    """One run in memory; `numbers` says which coins each party has. Parts, records and parties."""
    names = PROTOCOL.parties(job)
    network = MemoryNetwork(names, one_core=True)
    records = {name: Recording(network.endpoint(name)) for name in names}
    parties = {name: Party(records[name], identity_of(name), TrustStore()) for name in names}
    for name, party in parties.items():
        party.rng = SecureRandom.from_seed(coins(name, numbers.get(name, 0)))
    roles = {name: lambda name=name: PROTOCOL.play(parties[name], job, data.get(name)) for name in names}
    outcomes = network.run(roles)
    assert [outcome.error for outcome in outcomes.values() if outcome.error is not None] == []
    parts = {name: outcome.value for name, outcome in outcomes.items()}
    return SimpleNamespace(parts=parts, records=records, parties=parties)


def varied(receiver, n_runs, first=1, *, job=None, data=None):
    """The receiver's records of runs in which all others have new coins every time."""
    others = [name for name in HOLDERS if name != receiver]
    job, data = job or make_job(), data or make_data()
    runs = (run(job, data, dict.fromkeys(others, number)) for number in range(first, first + n_runs))
    return [each.records[receiver] for each in runs]


@cache
def group(receiver, *, complemented=False):
    """`varied` for the whole set of runs, made once. The complemented ones share no coins with the others."""
    n_runs, first = (N_COMPLEMENTED, 1001) if complemented else (N_RUNS, 1)
    return varied(receiver, n_runs, first, data=make_data(complemented=complemented))


@cache
def one_run():
    """A run whose coins are those with which the simulator is compared."""
    return run(make_job(), make_data(), {})


def leaked_to(name, records):
    """The sizes that a party knows: the label holder those of all columns, feature holders those of their own."""
    shapes = {other: records["anna"].messages(messages.ColumnShapes, "received", other)[0] for other in HOLDERS[1:]}
    sizes = records["ben"].messages(messages.Sizes, "received")[0]
    return Leaked(sizes, {other: shape for other, shape in shapes.items() if name in {"anna", other}})


@cache
def shape_and_levels():
    """The public shape, and (tree, level) of all levels that were played."""
    played = one_run()
    trees = ideal(played.parts, make_job(), make_data())
    levels = [(tree, level) for tree, found in enumerate(trees) for level in range(len(found))]
    return leaked_to("anna", played.records).shape(make_job()), levels


def received(record):
    """All messages in order: (sender, message)."""
    frames = [(passed.peer, passed.frame) for passed in record.passed if passed.direction == "received"]
    return [(peer, decode(frame, KINDS[peek(frame)[0]])) for peer, frame in frames]


def masked_bytes(record):
    """(sender, kind, field) -> all bytes that are said to be masked, of all messages together.

    That is all arrays of what is declared as hidden; one share of a handle alone; and the sides of rows before they are
    put together with what makes them readable.
    """
    found = {}
    for sender, message in received(record):
        kind = type(message)
        names = [field.name for field in fields(kind) if isinstance(getattr(message, field.name), np.ndarray)]
        if not isinstance(kind.discloses, common.Hidden):
            names = {messages.WinnerShare: ["words"], messages.WhichWay: ["hidden"]}.get(kind, [])
        for name in names:
            found.setdefault((sender, kind, name), []).append(getattr(message, name).reshape(-1))
    return {key: np.concatenate(pieces) for key, pieces in found.items()}


def over_runs(records):
    """The same as [runs, bytes]."""
    all_runs = [masked_bytes(record) for record in records]
    keys = set.intersection(*(set(each) for each in all_runs))
    return {key: np.stack([each[key] for each in all_runs]) for key in keys}


@cache
def expected_of_dealer(receiver):
    """Which bits of what is dealt are not random, and what they are: headings and filling, from seeds that are new."""
    sizes = leaked_to(receiver, one_run().records).sizes
    dealt = []
    for number in range(12):
        seeds = {name: coins(f"seed of {name}", number) for name in HOLDERS}
        parcels = dealt_by_itself(make_job(), sizes, seeds)[receiver]
        dealt.append(np.concatenate([parcel.corrections for parcel in parcels]))
    is_fixed = (np.stack(dealt) == dealt[0]).all(axis=0)
    return ~np.repeat(is_fixed, 8), dealt[0][is_fixed]


def counting(receiver, kind, n_bytes):
    """Which bits are random: all, but for what the dealer's headings say and for filling of packed bits."""
    if kind is common.Dealt:
        return expected_of_dealer(receiver)[0]
    if kind is common.MaskedWords:
        shape, levels = shape_and_levels()
        rounds = [pieces for _, level in levels for pieces in list(rounds_of(shape, level))[:-1]]
        return np.concatenate([counting_bits(pieces) for pieces in rounds])
    return np.ones(8 * n_bytes, np.bool_)


# --- masked messages are uniform -------------------------------------------------------------------------------------


@pytest.mark.parametrize("receiver", HOLDERS)
def test_what_is_masked_is_uniform_to_its_receiver(receiver):
    """Every bit at every place over all runs, and all bytes together, given the receiver's own random bytes."""
    found = over_runs(group(receiver))
    kinds = {kind for _, kind, _ in found}
    from_label_holder = {messages.LevelInput} if receiver != "anna" else {messages.MaskedColumns, messages.WhichWay}
    assert kinds == {common.Dealt, common.MaskedWords, messages.WinnerShare} | from_label_holder
    for (sender, kind, name), words in found.items():
        mask = counting(receiver, kind, words.shape[1])
        assert len(mask) == 8 * words.shape[1], (sender, kind, name)
        assert unlike_uniform(words, mask) == [], (sender, kind, name)
        rest = np.unpackbits(words, axis=1, bitorder="little")[:, ~mask]
        if kind is common.Dealt:
            assert (np.packbits(rest, axis=1, bitorder="little") == expected_of_dealer(receiver)[1]).all()
        else:
            assert not rest.any()
            assert rest.shape[1] < 0.02 * len(mask)


@pytest.mark.parametrize("receiver", HOLDERS)
def test_limits_of_leaves_are_checked_under_masks(receiver):
    """With min_child_weight and min_samples_leaf, no message is of another kind, and every bit is uniform."""
    job = make_job(n_iterations=1, max_depth=1, min_child_weight=2.0, min_samples_leaf=12)
    records = varied(receiver, 32, job=job)
    found = over_runs(records)
    assert {kind for _, kind, _ in found} <= {kind for _, kind, _ in over_runs(group(receiver))}
    shape = shape_of(job, run(job, make_data(), {}).records["ben"].messages(messages.Sizes, "received")[0])
    assert shape.limits.n_checks == 4
    mask = np.concatenate([counting_bits(pieces) for pieces in list(rounds_of(shape, 0))[:-1]])
    for (sender, kind, name), words in found.items():
        if kind is not common.Dealt:
            counted = mask if kind is common.MaskedWords else np.ones(8 * words.shape[1], np.bool_)
            assert unlike_uniform(words, counted) == [], (sender, kind, name)


def break_masks(monkeypatch):
    """Leave out a part of the mask in each kind of message; nobody notices but who looks at the bytes."""
    columns, gradients, lifted = OneHotColumns.minus, own_rows.OwnRows.minus, lifting.hidden

    def short(masks):
        return masks & np.uint32(0xFFFF)

    def lift(step, x, name, *, is_first):
        drawn = lifted(step, x, name, is_first=is_first)
        return drawn._replace(words=drawn.words & np.uint32(0xFFFFFFF7))

    monkeypatch.setattr(OneHotColumns, "minus", lambda own, masks, rows: columns(own, short(masks), rows))
    monkeypatch.setattr(own_rows.OwnRows, "minus", lambda own, nodes, masks: gradients(own, nodes, short(masks)))
    monkeypatch.setattr(label_holder, "hidden_input", lambda members, _masks: members)
    monkeypatch.setattr(lifting, "hidden", lift)


def test_masks_that_are_too_short_are_found(monkeypatch):
    """Control: with 16 bits of 32 masked, with rows that are not masked at all, with one bit of a word that is 0."""
    break_masks(monkeypatch)
    job = make_job(n_iterations=1, max_depth=1)
    broken = {"anna": {(messages.MaskedColumns, "words")}, "ben": {(messages.LevelInput, "sums")}}
    broken["ben"] |= {(messages.LevelInput, "rows")}
    for receiver, names in broken.items():
        records = varied(receiver, 16, job=job)
        found = {key[1:]: unlike_uniform(words) for key, words in over_runs(records).items() if key[0] != "dealer"}
        assert all(found[name] for name in names)
        lifts = [record.messages(common.MaskedWords, "received", "carla")[0].words for record in records]
        assert "bits at place 3 of bytes are out of balance" in unlike_uniform(np.stack(lifts))


# --- no mask is used twice -------------------------------------------------------------------------------------------


def openings(record, levels, *, with_bits=True):
    """All words that a party sees under masks: each sender's by themselves, and all together where they are opened.

    Not the answers about sides: the label holder can make them of what it knows, and the simulator does.
    """
    shape, _ = shape_and_levels()
    others = [name for name in HOLDERS if name != record.name]
    found = []

    def bits(name, words, n_bits=None):
        if with_bits:
            found.append(Opening(name, np.unpackbits(words.reshape(-1), count=n_bits, bitorder="little"), "bits", 1))

    for sender in others:
        columns = record.messages(messages.MaskedColumns, "received", sender)
        found += [Opening(f"columns of {sender}", message.words.view(np.uint32)) for message in columns]
        for number, message in enumerate(record.messages(messages.LevelInput, "received", sender)):
            found.append(Opening(f"gradients {number}", message.sums.view(np.uint32)))
            bits(f"rows {number}", message.rows)
        for number, message in enumerate(record.messages(messages.WhichWay, "received", sender)):
            bits(f"sides {number} of {sender}", message.hidden)
        for number, message in enumerate(record.messages(messages.WinnerShare, "received", sender)):
            found.append(Opening(f"winner {number} of {sender}", message.words.view(np.uint32)))
    sent = {name: record.messages(common.MaskedWords, "received", name) for name in others}
    sent["all"] = record.messages(common.MaskedWords, "sent", others[0])
    rounds = [(key, pieces) for key in levels for pieces in list(rounds_of(shape, key[1]))[:-1]]
    for number, (key, pieces) in enumerate(rounds):
        start = 0
        for piece in pieces:
            end = start + piece.n_bytes
            words = {name: listed[number].words[start:end].view(piece.kind.dtype) for name, listed in sent.items()}
            words = {name: w.reshape(piece.kind.words_shape(piece.n)) for name, w in words.items()}
            words["all"] = piece.kind.total(list(words.values()))
            for name, each in words.items():
                title = f"{piece.name} {key} {number} of {name}"
                if piece.kind.is_xor:
                    bits(title, each, piece.n_bits)
                else:
                    found.append(Opening(title, each, "limbs" if piece.kind.limbs else "sum"))
            start = end
    return found


@cache
def seen_by(receiver):
    """The openings of all runs of a group."""
    _, levels = shape_and_levels()
    return [openings(record, levels) for record in group(receiver)]


@pytest.mark.parametrize("receiver", HOLDERS)
def test_no_mask_is_used_twice(receiver):
    """No two words that a party sees move together between runs, in all levels of all trees."""
    seen = seen_by(receiver)
    assert sum(opening.words.size for opening in seen[0]) > 10_000
    assert repeated_masks(seen) == []


@pytest.mark.parametrize("receiver", HOLDERS)
def test_what_is_opened_together_is_uniform(receiver):
    """Not only each party's words: what they make together is under a mask too, of words and of single bits."""
    for kind in ("sum", "limbs", "bits"):
        chosen = [
            np.concatenate(
                [each.words.reshape(-1) for each in run if each.how == kind and each.name.endswith(" of all")]
            )
            for run in seen_by(receiver)
        ]
        words = np.stack(chosen)
        if kind == "bits":
            words = np.packbits(words[:, : words.shape[1] // 8 * 8], axis=1, bitorder="little")
        assert words.shape[1] > 100
        assert unlike_uniform(words.view(np.uint8)) == [], kind


@pytest.mark.parametrize("forgotten", ["tree", "level"])
def test_a_label_that_is_used_twice_is_found(monkeypatch, forgotten):
    """Control: words of one tree are used for the next, or those of the root for its children. Trees are the same."""
    heading = dealing._heading
    monkeypatch.setattr(dealing, "_heading", lambda label: heading(label._replace(**{forgotten: 0})))
    _, levels = shape_and_levels()
    runs = [run(make_job(), make_data(), dict.fromkeys(HOLDERS, number)) for number in range(1, 5)]
    for receiver in HOLDERS[:2]:
        seen = [openings(each.records[receiver], levels, with_bits=False) for each in runs]
        assert len(repeated_masks(seen)) > 200
    assert runs[0].parts["ben"].to_dict() == one_run().parts["ben"].to_dict()


# --- all else follows from the result --------------------------------------------------------------------------------


class Forest(NamedTuple):
    """Parameters, and who has nodes in the trees that they make: -1 means that some are leaves early."""

    changes: dict
    owners: set


FORESTS = {
    "full": Forest({}, {0, 1, 2}),
    "uneven": Forest({"max_depth": 3, "min_gain": 0.3}, {-1, 0, 1, 2}),
    "stumps": Forest({"max_depth": 3, "min_gain": 1e6}, {-1}),
}


@cache
def run_of(forest):
    """A run with these trees."""
    return one_run() if forest == "full" else run(make_job(**FORESTS[forest].changes), make_data(), {})


def opened_winners(record):
    """What a party's own share of each level's handles makes with the others'."""
    others = [name for name in HOLDERS if name != record.name]
    shares = [record.messages(messages.WinnerShare, "received", name) for name in others]
    shares.append(record.messages(messages.WinnerShare, "sent", others[0]))
    totals = [sum(share.words.view(np.uint32) for share in level) for level in zip(*shares, strict=True)]
    return np.concatenate(totals)


def by_sender(listed):
    """sender -> its messages in order."""
    return {sender: [message for name, message in listed if name == sender] for sender, _ in listed}


def form(message):
    """The kind of a message, and the sizes of its arrays."""
    arrays = [getattr(message, field.name) for field in fields(message)]
    return type(message), [array.shape for array in arrays if isinstance(array, np.ndarray)]


def in_clear(message):
    """What anybody can read in it: all of it but bytes under masks and shares."""
    covered = {messages.WinnerShare: {"words"}, messages.WhichWay: {"hidden", "answers"}}.get(type(message), set())
    is_hidden = isinstance(message.discloses, common.Hidden)
    shown = {}
    for field in fields(message):
        value = getattr(message, field.name)
        if field.name not in covered and not (is_hidden and isinstance(value, np.ndarray)):
            shown[field.name] = value.tolist() if isinstance(value, np.ndarray) else value
    return shown


def readable_sides(job, shape, trees, listed):
    """What the label holder reads in all answers, with its own masks: (tree, level, place) -> [nodes, bytes]."""
    seed = SecureRandom.from_seed(coins("anna", 0)).bytes(32)
    got = by_sender(listed)
    found = {}
    for place, name in enumerate(HOLDERS[1:], start=1):
        answers = (message for message in got[name] if isinstance(message, messages.WhichWay))
        for tree, levels in enumerate(trees):
            for level, nodes in enumerate(levels):
                won = [k for k, node in enumerate(nodes) if node.owner == place]
                if won:
                    b, z = reader_masks(job, shape, seed, got["dealer"], tree, level)[place]
                    message = next(answers)
                    found[tree, level, place] = message.answers ^ (b[won] & message.hidden) ^ z[won]
        assert next(answers, None) is None
    return found


@pytest.mark.parametrize("forest", FORESTS)
@pytest.mark.parametrize("name", HOLDERS)
def test_a_simulator_that_knows_the_result_can_play_all_others(name, forest):
    """Uniform words, sizes and the party's own result: its role ends with the same part, and cannot tell.

    What it received has the same form as in a real run, message by message, and what can be read in it is the same.
    """
    job, data, real = make_job(**FORESTS[forest].changes), make_data(), run_of(forest)
    place = HOLDERS.index(name)
    trees = without_others(ideal(real.parts, job, data), place)
    owners = {node.owner for levels in trees for nodes in levels for node in nodes}
    assert owners == FORESTS[forest].owners
    leaked = leaked_to(name, real.records)
    shape = leaked.shape(job)
    me = Simulated(name, job, leaked, trees, coins(name, 0), coins("simulator", 0))
    part = PROTOCOL.play(me, job, data[name])
    assert part.to_dict() == real.parts[name].to_dict()
    listed = received(real.records[name])
    simulated, got = by_sender(me.received), by_sender(listed)
    assert set(simulated) == set(got)
    for sender, each in got.items():
        assert [form(message) for message in simulated[sender]] == [form(message) for message in each]
        assert [in_clear(message) for message in simulated[sender]] == [in_clear(message) for message in each]
    opened = opened_winners(real.records[name])
    imitated = np.concatenate(me.winners)
    known = ~np.isin(shape.owners(opened), list({1, 2} - {place}))
    assert np.array_equal(shape.owners(opened), shape.owners(imitated))
    assert np.array_equal(opened[known], imitated[known])
    if name == "anna":
        seen, wanted = (readable_sides(job, shape, trees, each) for each in (listed, me.received))
        assert seen.keys() == wanted.keys()
        for (tree, level, winner), sides in seen.items():
            left = [node.left for node in trees[tree][level] if node.owner == winner]
            assert np.array_equal(sides, np.packbits(np.stack(left), axis=1))
            assert np.array_equal(sides, wanted[tree, level, winner])


def test_a_simulator_with_another_result_is_noticed():
    """Control: if the simulator is told other winners or other rows, the party ends with another part."""
    job, data, real = make_job(), make_data(), one_run()
    for name in HOLDERS:
        trees = without_others(ideal(real.parts, job, data), HOLDERS.index(name))
        leaked = leaked_to(name, real.records)
        if name == "anna":
            foreign = next(node for levels in trees for nodes in levels for node in nodes if node.owner > 0)
            row = np.flatnonzero(foreign.left)[0]
            foreign.left[row] = False
        else:
            place = HOLDERS.index(name)
            mine = [nodes for levels in trees for nodes in levels if any(node.owner == place for node in nodes)]
            for nodes in mine:
                nodes[:] = [node._replace(owner=0) for node in nodes]
        me = Simulated(name, job, leaked, trees, coins(name, 0), coins("simulator", 0))
        assert PROTOCOL.play(me, job, data[name]).to_dict() != real.parts[name].to_dict()


@pytest.mark.parametrize("receiver", HOLDERS)
def test_handles_of_others_are_uniform_and_fresh_in_every_node(receiver):
    """Over all runs every handle of the winner is equally likely, and that of one node says nothing about another's."""
    shape, _ = shape_and_levels()
    opened = np.stack([opened_winners(record) for record in group(receiver)])
    owners = shape.owners(opened)
    assert (owners == owners[0]).all()
    own = owners[0] == HOLDERS.index(receiver)
    assert (opened[:, own] == opened[0, own]).all()
    n_tested = 0
    for place in {1, 2} - {HOLDERS.index(receiver)}:
        n = shape.candidates[place - 1]
        handles = opened[:, owners[0] == place].astype(np.int64) - shape.first_handle(place)
        pairs = [handles[:, i] - handles[:, j] for i in range(handles.shape[1]) for j in range(i)]
        for drawn in (*handles.T, *pairs):
            counts = np.bincount(drawn % n, minlength=n)
            expected = N_RUNS / n
            assert ((counts - expected) ** 2 / expected).sum() < most(n - 1)
            assert N_RUNS * (n - 1) > most(n - 1)  # what a handle that is always the same would give
            n_tested += 1
    assert n_tested


# --- labels do not show ----------------------------------------------------------------------------------------------


def test_other_labels_with_the_same_trees_look_the_same_to_a_feature_holder():
    """All labels complemented: every gradient changes its sign, no split does, and nothing that it gets looks other."""
    others = run(make_job(), make_data(complemented=True), {})
    assert others.parts["ben"].to_dict() == one_run().parts["ben"].to_dict()
    leaves, mirrored = (each.parts["anna"].ensemble.trees[0].value for each in (one_run(), others))
    assert np.allclose(leaves, -mirrored, atol=1e-3)
    assert np.abs(leaves - mirrored).max() > 0.1
    some, rest = over_runs(group("ben")[:N_COMPLEMENTED]), over_runs(group("ben", complemented=True))
    assert some.keys() == rest.keys()
    for key, words in some.items():
        assert unlike_each_other(words, rest[key]) == [], key


def test_labels_under_short_masks_look_different(monkeypatch):
    """Control: with 16 bits of 32 masked the signs of gradients show, and the comparison says so."""
    break_masks(monkeypatch)
    job = make_job(n_iterations=1, max_depth=1)
    some, rest = (
        over_runs(varied("ben", 16, 1 + 100 * complemented, job=job, data=make_data(complemented=complemented)))
        for complemented in (False, True)
    )
    assert unlike_each_other(some["anna", messages.LevelInput, "sums"], rest["anna", messages.LevelInput, "sums"])
    assert (
        unlike_each_other(some["dealer", common.Dealt, "corrections"], rest["dealer", common.Dealt, "corrections"])
        == []
    )


# --- the dealer ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("forest", FORESTS)
def test_the_dealer_learns_sizes_and_how_fast_it_goes(forest):
    """By everybody's books: one message of sizes, a seed of each, and a sign for each level, whatever the trees are."""
    job, real = make_job(**FORESTS[forest].changes), run_of(forest)
    books = {name: party.ledger for name, party in real.parties.items()}
    learned = {name: [line.message for line in books["dealer"].lines("learned", name)] for name in HOLDERS}
    n_levels = job.depth * job.boosting.n_iterations
    done = [messages.LevelDone.NAME] * n_levels
    assert learned["anna"] == [messages.Sizes.NAME, common.Seed.NAME, *done]
    assert learned["ben"] == learned["carla"] == [common.Seed.NAME]
    for name in HOLDERS:
        assert [line.message for line in books[name].lines("disclosed", "dealer")] == learned[name]
        assert any(line.message == common.MaskedWords.NAME for line in books[name].lines("disclosed"))
    record = real.records["dealer"]
    seeds = {name: record.messages(common.Seed, "received", name)[0].seed for name in HOLDERS}
    assert seeds == {name: SecureRandom.from_seed(coins(name, 0)).bytes(32) for name in HOLDERS}
    alone = dealt_by_itself(job, record.messages(messages.Sizes, "received")[0], seeds)
    for name in HOLDERS:
        dealt = record.messages(common.Dealt, "sent", name)
        assert [in_clear(message) for message in dealt] == [in_clear(message) for message in alone[name]]
        for one, other in zip(dealt, alone[name], strict=True):
            assert np.array_equal(one.corrections, other.corrections)
