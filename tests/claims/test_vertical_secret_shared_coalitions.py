"""vertical.secret_shared claims that parties may put together all they saw, as long as the dealer is not one of them.

Two kinds of coalitions, of three and of four parties: all feature holders against the label holder, and the label
holder with all feature holders but one. All members draw the same random bytes in all runs of a group and outsiders new
ones, so whatever members can add, subtract or look up of their own is the same in all runs: what is uniform here is
uniform given all that they know. All random bytes come from fixed seeds, so the tests end the same way every time.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields
from functools import cache
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from hedgerow.crypto.csprng import KEY_BYTES, SecureRandom
from hedgerow.crypto.dealing import Hand, Label
from hedgerow.engine.binning import BinMapper
from hedgerow.engine.losses import BoostingParams
from hedgerow.engine.table import Column, Table
from hedgerow.protocols.shares import messages as common
from hedgerow.protocols.shares.messages import Dealt, Hidden, MaskedWords, Seed
from hedgerow.protocols.vertical.common import messages as agreement
from hedgerow.protocols.vertical.secret_shared import messages
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.messages import LevelInput, MaskedColumns, WhichWay, WinnerShare
from hedgerow.protocols.vertical.secret_shared.shape import COLUMNS, HISTOGRAMS
from hedgerow.protocols.vertical.secret_shared.spec import SPEC as PROTOCOL
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData
from hedgerow.testing.transcripts import identity_of
from hedgerow.transport.frames import decode, peek
from hedgerow.transport.memory import MemoryNetwork
from hedgerow.transport.mtls import TrustStore
from hedgerow.transport.transcripts import Recording
from twins.openings import Opening, repeated_masks
from twins.simulated_coalition import Coalition, known_together
from twins.simulated_shares import Leaked, counting_bits, dealt_by_itself, ideal, reader_masks, rounds_of
from twins.uniformity import most, unlike_each_other, unlike_uniform

N_ROWS = 77  # bits of rows do not fill their last byte
N_RUNS = 16
NAMES = ("anna", "ben", "carla", "dora")
SMALL = BoostingParams(n_iterations=2, max_depth=2, learning_rate=0.3, min_child_weight=0.0)
TOGETHER = {
    "features of 3": (3, ("ben", "carla")),
    "all but one of 3": (3, ("anna", "ben")),
    "features of 4": (4, ("ben", "carla", "dora")),
    "all but one of 4": (4, ("anna", "ben", "carla")),
    "two of 4": (4, ("anna", "carla")),
}
"""How many parties there are, and which of them work together."""

KINDS = {
    kind.NAME: kind
    for module in (common, messages, agreement)
    for kind in vars(module).values()
    if getattr(kind, "NAME", None) and kind.__module__ == module.__name__
}
MASKED = {MaskedWords: ("words",), LevelInput: ("sums", "rows"), MaskedColumns: ("words",), WhichWay: ("hidden",)}
MASKED |= {WinnerShare: ("words",)}


def table_of(**columns):
    """A table of these columns."""
    return Table(tuple(Column(*each) for each in columns.items()), N_ROWS, tuple(columns), has_names=True)


@cache
def make_data(n_parties, changed=None):
    """Columns that all have a part in the label, some of them with gaps; each feature holder also has one of noise.

    `changed` is a party with other data that lead to the same trees. The label holder's are complemented labels; a
    feature holder's are its columns in another order, and another column of noise.
    """
    rng = np.random.default_rng(4)
    own, *signals = rng.normal(size=(n_parties, N_ROWS))
    margin = 1.2 * own + 1.25 * sum(signals) + 0.5 * rng.normal(size=N_ROWS)
    labels = (margin > 0.1).astype(np.float64)
    data = {"anna": PartyData(table_of(a=own), 1 - labels if changed == "anna" else labels, (0, 1))}
    for name, signal in zip(NAMES[1:], signals, strict=False):
        some, other = rng.normal(size=(2, N_ROWS))
        gaps = rng.random(N_ROWS) < 0.1
        if name == changed:
            data[name] = PartyData(table_of(noise=np.where(gaps, np.nan, other), signal=np.where(gaps, np.nan, signal)))
        else:
            data[name] = PartyData(table_of(signal=np.where(gaps, np.nan, signal), noise=np.where(gaps, np.nan, some)))
    return data


def make_job(n_parties):
    """A small job."""
    return SecretSharedJob(NAMES[:n_parties], "anna", "a run", boosting=SMALL, max_bins=4)


def coins(name, number):
    """The random bytes of a party in a run."""
    return hashlib.sha256(f"{name} {number}".encode()).digest()


def run(n_parties, numbers, changed=None):
    """One run in memory; `numbers` says which coins each party has. Parts and records."""
    job, data = make_job(n_parties), make_data(n_parties, changed)
    names = PROTOCOL.parties(job)
    network = MemoryNetwork(names, one_core=True)
    records = {name: Recording(network.endpoint(name)) for name in names}
    roles = {}
    for name, record in records.items():
        party = Party(record, identity_of(name), TrustStore())
        party.rng = SecureRandom.from_seed(coins(name, numbers.get(name, 0)))
        roles[name] = lambda name=name, party=party: PROTOCOL.play(party, job, data.get(name))
    outcomes = network.run(roles)
    assert [outcome.error for outcome in outcomes.values() if outcome.error is not None] == []
    return SimpleNamespace(parts={name: each.value for name, each in outcomes.items()}, records=records)


def outsiders_of(n_parties, members):
    """Everybody else but the dealer."""
    return [name for name in NAMES[:n_parties] if name not in members]


@cache
def group(together, *, changed=None):
    """Runs in which outsiders have new coins every time. With other data no coins are those of the first group."""
    n_parties, members = TOGETHER[together]
    first = 1001 if changed else 1
    outside = outsiders_of(n_parties, members)
    return [run(n_parties, dict.fromkeys(outside, first + k), changed) for k in range(N_RUNS)]


@cache
def one_run(n_parties):
    """A run with the members' coins, and those of outsiders with which the simulator is compared."""
    return run(n_parties, {})


def leaked_to(members, n_parties):
    """The sizes that members know: of all columns if the label holder is one of them, else of their own."""
    records = one_run(n_parties).records
    names = NAMES[1:n_parties]
    shapes = {name: records["anna"].messages(messages.ColumnShapes, "received", name)[0] for name in names}
    sizes = records["ben"].messages(messages.Sizes, "received")[0]
    return Leaked(sizes, {name: shape for name, shape in shapes.items() if "anna" in members or name in members})


@cache
def shape_and_rounds(n_parties):
    """The public shape, and what is sent in all rounds of all levels, but for shares of handles."""
    job = make_job(n_parties)
    shape = leaked_to(NAMES, n_parties).shape(job)
    trees = ideal(one_run(n_parties).parts, job, make_data(n_parties))
    levels = [level for found in trees for level in range(len(found))]
    return shape, [pieces for level in levels for pieces in list(rounds_of(shape, level))[:-1]]


# --- what a coalition sees -------------------------------------------------------------------------------------------


def view(played, together):
    """All masked bytes that members get from outsiders and the dealer: (sender, kind or member, field) -> bytes."""
    n_parties, members = TOGETHER[together]
    found = {}
    for sender in outsiders_of(n_parties, members):
        for kind, names in MASKED.items():
            got = [played.records[name].messages(kind, "received", sender) for name in members]
            got = [listed for listed in got if listed]
            for name in names if got else ():
                one, *rest = [np.concatenate([getattr(m, name).reshape(-1) for m in listed]) for listed in got]
                assert all(np.array_equal(one, other) for other in rest)  # nobody is told anything else
                found[sender, kind, name] = one
    for member in members:
        dealt = played.records[member].messages(Dealt, "received", "dealer")
        found["dealer", member, "corrections"] = np.concatenate([message.corrections for message in dealt])
    return found


@cache
def seen_by(together):
    """The same over all runs, [runs, bytes]."""
    views = [view(played, together) for played in group(together)]
    assert all(each.keys() == views[0].keys() for each in views)
    return {key: np.stack([each[key] for each in views]) for key in views[0]}


@cache
def known_of_dealt(together):
    """Of what the dealer sends to each member, the bytes that follow from the members' seeds, and what they are.

    Made without any run: a dealer by itself, with the members' seeds and others for outsiders.
    """
    n_parties, members = TOGETHER[together]
    draws = []
    for number in range(12):
        seeds = {name: SecureRandom.from_seed(coins(name, 0)).bytes(KEY_BYTES) for name in members}
        seeds |= {name: coins(f"seed of {name}", number) for name in outsiders_of(n_parties, members)}
        dealt = dealt_by_itself(make_job(n_parties), leaked_to(members, n_parties).sizes, seeds)
        draws.append({name: np.concatenate([parcel.corrections for parcel in dealt[name]]) for name in members})
    first = draws[0]
    return {name: (np.stack([draw[name] for draw in draws]) == first[name]).all(axis=0) for name in members}, first


def counting(together, key, n_bytes):
    """Which bits are to be uniform."""
    if key[0] == "dealer":
        return ~np.repeat(known_of_dealt(together)[0][key[1]], 8)
    if key[1] is MaskedWords:
        _, rounds = shape_and_rounds(TOGETHER[together][0])
        return np.concatenate([counting_bits(pieces) for pieces in rounds])
    return np.ones(8 * n_bytes, np.bool_)


def opened(played, together):
    """What all words of a round make together: piece by piece, (name, kind, words)."""
    n_parties, members = TOGETHER[together]
    record = played.records[members[0]]
    others = [name for name in NAMES[:n_parties] if name != record.name]
    sent = [record.messages(MaskedWords, "received", name) for name in others]
    sent.append(record.messages(MaskedWords, "sent", others[0]))
    found = []
    for number, (pieces, *words) in enumerate(zip(shape_and_rounds(n_parties)[1], *sent, strict=True)):
        start = 0
        for piece in pieces:
            end = start + piece.n_bytes
            parts = [each.words[start:end].view(piece.kind.dtype) for each in words]
            parts = [part.reshape(piece.kind.words_shape(piece.n)) for part in parts]
            found.append((f"{piece.name} {number}", piece, piece.kind.total(parts)))
            start = end
    return found


@pytest.mark.parametrize("together", TOGETHER)
def test_what_outsiders_and_dealer_send_is_uniform_to_a_coalition(together):
    """Every bit at every place; what is not uniform of what is dealt follows from the members' own seeds."""
    members = TOGETHER[together][1]
    found = seen_by(together)
    kinds = {key[1] for key in found if key[0] != "dealer"}
    inputs = {MaskedColumns, WhichWay} if "anna" in members else {LevelInput}
    assert kinds == {MaskedWords, WinnerShare} | inputs
    for key, words in found.items():
        mask = counting(together, key, words.shape[1])
        assert mask.any(), key
        assert unlike_uniform(words, mask) == [], key
        rest = words[:, ~mask.reshape(-1, 8).any(axis=1)]
        if key[0] == "dealer":
            is_known, known = known_of_dealt(together)
            assert (rest == known[key[1]][is_known[key[1]]]).all()


@pytest.mark.parametrize("together", TOGETHER)
def test_what_is_opened_is_uniform_to_a_coalition(together):
    """The sum of all words: members can take their own masks off it, which are the same in all runs."""
    runs = [opened(played, together) for played in group(together)]
    for is_xor in (False, True):
        rows = [
            np.concatenate([w.reshape(-1).view(np.uint8) for _, piece, w in each if piece.kind.is_xor == is_xor])
            for each in runs
        ]
        pieces = [piece for _, piece, _ in runs[0] if piece.kind.is_xor == is_xor]
        assert unlike_uniform(np.stack(rows), counting_bits(pieces)) == []


def as_openings(played, together):
    """(outsiders' words, what is opened), both with all that the dealer sends to members: for `repeated_masks`."""
    found, totals = [], []
    for key, words in view(played, together).items():
        if key[0] == "dealer":
            whole = words[: len(words) // 4 * 4].view(np.uint32)
            is_known = known_of_dealt(together)[0][key[1]][: 4 * len(whole)].reshape(-1, 4).any(axis=1)
            dealt = Opening(f"dealt to {key[1]}", whole[~is_known])
            found.append(dealt)
            totals.append(dealt)
        elif key[1] in (MaskedColumns, WinnerShare) or key[2] == "sums":
            found.append(Opening(f"{key[1].NAME} of {key[0]}", words.view(np.uint32)))
    for name, piece, words in opened(played, together):
        if not piece.kind.is_xor:
            totals.append(Opening(name, words, "limbs" if piece.kind.limbs else "sum"))
    n_parties, members = TOGETHER[together]
    for sender in outsiders_of(n_parties, members):
        got = played.records[members[0]].messages(MaskedWords, "received", sender)
        for number, (pieces, message) in enumerate(zip(shape_and_rounds(n_parties)[1], got, strict=True)):
            start = 0
            for piece in pieces:
                words = message.words[start : start + piece.n_bytes]
                start += piece.n_bytes
                if not piece.kind.is_xor:
                    shaped = words.view(piece.kind.dtype).reshape(piece.kind.words_shape(piece.n))
                    title = f"{piece.name} {number} of {sender}"
                    found.append(Opening(title, shaped, "limbs" if piece.kind.limbs else "sum"))
    return found, totals


@pytest.mark.parametrize("together", TOGETHER)
def test_no_mask_covers_two_words_that_a_coalition_sees(together):
    """No two words move together between runs, of outsiders, of what is opened, and of what was dealt to any member."""
    for seen in zip(*(as_openings(played, together) for played in group(together)[:5]), strict=True):
        assert sum(opening.words.size for opening in seen[0]) > 10_000
        assert repeated_masks(seen) == []


def handles_of(played, together):
    """The opened handles of all nodes."""
    n_parties, members = TOGETHER[together]
    record = played.records[members[0]]
    others = [name for name in NAMES[:n_parties] if name != record.name]
    shares = [record.messages(WinnerShare, "received", name) for name in others]
    shares.append(record.messages(WinnerShare, "sent", others[0]))
    return np.concatenate([sum(s.words.view(np.uint32) for s in level) for level in zip(*shares, strict=True)])


@pytest.mark.parametrize("together", TOGETHER)
def test_handles_of_outsiders_are_uniform_to_a_coalition(together):
    """Whose split won is the same in all runs, and members' handles are; an outsider's are drawn anew in every node."""
    n_parties, members = TOGETHER[together]
    shape, _ = shape_and_rounds(n_parties)
    handles = np.stack([handles_of(played, together) for played in group(together)]).astype(np.int64)
    owners = shape.owners(handles)
    assert (owners == owners[0]).all()
    outside = [NAMES.index(name) for name in outsiders_of(n_parties, members)]
    known = ~np.isin(owners[0], [place for place in outside if place])
    assert (handles[:, known] == handles[0, known]).all()
    for place in outside:
        n = shape.candidates[place - 1] if place else 1
        drawn = (handles[:, owners[0] == place] - shape.first_handle(place)) if place else handles[:, :0]
        assert place == 0 or drawn.shape[1]
        differences = [a - b for a, b in pairwise(drawn.T)]
        for each in (*drawn.T, *differences):
            counts = np.bincount(each % n, minlength=n)
            assert ((counts - N_RUNS / n) ** 2 / (N_RUNS / n)).sum() < most(n - 1) < N_RUNS * (n - 1)


# --- all else follows from what members end up with ------------------------------------------------------------------


def by_sender(listed):
    """sender -> messages in order."""
    return {sender: [message for name, message in listed if name == sender] for sender, _ in listed}


def shown(message):
    """The kind, the sizes of arrays, and what anybody can read in it."""
    covered = {WinnerShare: {"words"}, WhichWay: {"hidden", "answers"}}.get(type(message), set())
    is_hidden = isinstance(message.discloses, Hidden)
    found = [type(message)]
    for field in fields(message):
        value = getattr(message, field.name)
        is_array = isinstance(value, np.ndarray)
        if is_array and (is_hidden or field.name in covered):
            found.append(value.shape)
        else:
            found.append(value.tolist() if is_array else value)
    return found


@pytest.mark.parametrize("together", TOGETHER)
def test_a_simulator_that_knows_the_members_results_can_play_all_outsiders(together):
    """Uniform words, sizes and results: all members end with their parts of the real run, and cannot tell.

    Message by message, what they get has the form of a real run, and what can be read in it is the same.
    """
    n_parties, members = TOGETHER[together]
    job, data, real = make_job(n_parties), make_data(n_parties), one_run(n_parties)
    places = [NAMES.index(name) for name in members]
    trees = known_together(ideal(real.parts, job, data), places)
    known = {name: coins(name, 0) for name in members}
    simulated = Coalition(members, job, leaked_to(members, n_parties), trees, known, coins("simulator", 0))
    parts = simulated.play({name: data[name] for name in members})
    for name in members:
        assert parts[name].to_dict() == real.parts[name].to_dict()
        frames = [each for each in real.records[name].passed if each.direction == "received"]
        got = by_sender([(each.peer, decode(each.frame, KINDS[peek(each.frame)[0]])) for each in frames])
        imitated = by_sender(simulated.members[name].received)
        assert imitated.keys() == got.keys()
        for sender, listed in got.items():
            assert [shown(message) for message in imitated[sender]] == [shown(message) for message in listed]
    shape = shape_and_rounds(n_parties)[0]
    handles, made = handles_of(real, together), np.concatenate(simulated.winners)
    assert np.array_equal(shape.owners(handles), shape.owners(made))
    of_members = np.isin(shape.owners(handles), [*places, 0, -1])
    assert np.array_equal(handles[of_members], made[of_members])
    if "anna" in members:
        assert_sides_are_those_of_the_trees(job, real, trees, outsiders_of(n_parties, members))


def assert_sides_are_those_of_the_trees(job, real, trees, outside):
    """What the label holder reads in outsiders' answers is which rows went left, and nothing about any other row."""
    record = real.records["anna"]
    dealt = record.messages(Dealt, "received", "dealer")
    seed = SecureRandom.from_seed(coins("anna", 0)).bytes(KEY_BYTES)
    shape, _ = shape_and_rounds(len(job.holders))
    for name in outside:
        place, answers = NAMES.index(name), iter(record.messages(WhichWay, "received", name))
        for tree, levels in enumerate(trees):
            for level, nodes in enumerate(levels):
                won = [k for k, node in enumerate(nodes) if node.owner == place]
                if won:
                    b, z = reader_masks(job, shape, seed, dealt, tree, level)[place]
                    answer = next(answers)
                    left = np.packbits(np.stack([nodes[k].left for k in won]), axis=1)
                    assert np.array_equal(answer.answers ^ (b[won] & answer.hidden) ^ z[won], left)
        assert next(answers, None) is None


@pytest.mark.parametrize("together", ["features of 3", "all but one of 3"])
def test_a_simulator_with_another_result_is_noticed_by_members(together):
    """Control: if it is told other winners or other rows, members end with other parts."""
    n_parties, members = TOGETHER[together]
    job, data, real = make_job(n_parties), make_data(n_parties), one_run(n_parties)
    trees = known_together(ideal(real.parts, job, data), [NAMES.index(name) for name in members])
    outside = [NAMES.index(name) for name in outsiders_of(n_parties, members)]
    if "anna" in members:
        node = next(node for levels in trees for nodes in levels for node in nodes if node.owner in outside)
        node.left[np.flatnonzero(node.left)[0]] = False
    else:
        trees = [[[n._replace(owner=0) for n in nodes] for nodes in levels] for levels in trees]
    known = {name: coins(name, 0) for name in members}
    simulated = Coalition(members, job, leaked_to(members, n_parties), trees, known, coins("simulator", 0))
    parts = simulated.play({name: data[name] for name in members})
    assert all(parts[name].to_dict() != real.parts[name].to_dict() for name in members if name in ("anna", "carla"))


# --- outsiders' data do not show -------------------------------------------------------------------------------------


@pytest.mark.parametrize("together", ["features of 3", "all but one of 3", "features of 4", "all but one of 4"])
def test_other_data_of_an_outsider_look_the_same_to_a_coalition(together):
    """Labels complemented, or a feature holder's columns in another order and one of them new: the same trees.

    Members end with the same parts, and nothing that they get looks other.
    """
    n_parties, members = TOGETHER[together]
    (changed,) = outsiders_of(n_parties, members)
    others, some = group(together, changed=changed), group(together)
    for name in members:
        assert others[0].parts[name].to_dict() == some[0].parts[name].to_dict()
    one, other = make_data(n_parties)[changed], make_data(n_parties, changed)[changed]
    table, another = (BinMapper.fit(each.table, 4).transform(each.table) for each in (one, other))
    assert (table != another).mean() > 0.5 or not np.array_equal(one.labels, other.labels)
    views = [[view(played, together) for played in runs] for runs in (some, others)]
    for key in views[0][0]:
        assert unlike_each_other(*(np.stack([each[key] for each in seen]) for seen in views)) == [], key
    totals = [
        np.stack([np.concatenate([w.reshape(-1).view(np.uint8) for *_, w in opened(p, together)]) for p in runs])
        for runs in (some, others)
    ]
    assert unlike_each_other(*totals) == []


# --- controls: what a dealer that takes sides makes of it ------------------------------------------------------------


@pytest.mark.parametrize("together", ["features of 3", "all but one of 3"])
def test_an_outsider_whose_seed_is_known_is_found_by_all_tests(together):
    """Control: with the outsider's random bytes given away, words do not move, are not uniform, and show its data."""
    n_parties, members = TOGETHER[together]
    (changed,) = outsiders_of(n_parties, members)
    known, others = ([run(n_parties, {}, each)] * N_RUNS for each in (None, changed))
    for one, other in zip(*(as_openings(played[0], together) for played in (known, others)), strict=True):
        assert len(repeated_masks([one, other, one])) > 1000
    inputs = (changed, LevelInput, "sums") if changed == "anna" else (changed, MaskedColumns, "words")
    one, other = (np.stack([view(played, together)[inputs] for played in runs]) for runs in (known, others))
    assert unlike_uniform(one)
    assert unlike_each_other(one, other)


def test_dealer_and_label_holder_together_read_every_column():
    """Control: X = E + A. The dealer knows A, the label holder E: all bins of all values of a party that is honest."""
    n_parties = 3
    real, (shape, _) = one_run(n_parties), shape_and_rounds(n_parties)
    seed = real.records["dealer"].messages(Seed, "received", "carla")[0].seed
    (hidden,) = real.records["anna"].messages(MaskedColumns, "received", "carla")
    sums, size = shape.scales.sums, (shape.bins[1], N_ROWS)
    mask = Hand(seed, 2, n_parties, lane=COLUMNS).step(Label()).mask(size, sums, (2,)).words
    read = hidden.words.view(sums.dtype).reshape(size) + mask
    table = make_data(n_parties)["carla"].table
    mapper = BinMapper.fit(table, 4)
    bins = [np.arange(feature.n_value_bins)[:, None] for feature in mapper.features]
    codes = mapper.transform(table)
    assert np.array_equal(read, np.concatenate([column == each for column, each in zip(codes, bins, strict=True)]))


@pytest.mark.parametrize("reader", ["ben", "carla"])
def test_dealer_and_one_feature_holder_together_read_every_label(reader):
    """Control: y = F + B. The dealer knows B, any feature holder F: signs of first gradients are the labels."""
    n_parties = 3
    real, (shape, _) = one_run(n_parties), shape_and_rounds(n_parties)
    seed = real.records["dealer"].messages(Seed, "received", "anna")[0].seed
    first = real.records[reader].messages(LevelInput, "received", "anna")[0]
    sums, size = shape.scales.sums, (2, N_ROWS)
    mask = Hand(seed, 0, n_parties, lane=HISTOGRAMS).step(Label()).mask(size, sums, (0,)).words
    gradients = (first.sums.view(sums.dtype).reshape(size) + mask)[0].view(np.int32)
    assert np.array_equal(gradients < 0, make_data(n_parties)["anna"].labels == 1)
