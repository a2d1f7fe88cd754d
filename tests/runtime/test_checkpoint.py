"""What a party keeps after every tree: written whole, read as if anybody had written it, agreed on by all parties."""

from __future__ import annotations

import contextlib
import hashlib
import stat
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.engine.losses import BoostingParams
from hedgerow.errors import InvalidInput, InvalidParameter, JobDiffers, PeerFailed, ProtocolError
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.spec import SPEC as PROTOCOL
from hedgerow.runtime.checkpoint import CheckpointFiles, Checkpoints, GoOnFrom, KeptTrees, packed, unpacked
from hedgerow.runtime.protocol import agreed
from hedgerow.runtime.running import in_memory, run_together
from hedgerow.transport.memory import MemoryNetwork
from twins.damage import as_often, damaged

JOB = SecretSharedJob(
    ("anna", "ben", "carla"), "anna", "a run", boosting=BoostingParams(n_iterations=9, min_child_weight=0.0), max_bins=8
)
NAMES = PROTOCOL.parties(JOB)
HOLDERS = JOB.parties


@dataclass(frozen=True)
class State:
    """Of all sorts that a state can hold."""

    scores: np.ndarray
    codes: np.ndarray
    name: str = "x"
    trees: tuple[int, ...] = ()
    rounds: dict[str, int] = field(default_factory=dict)
    params: BoostingParams | None = None
    deeper: tuple[np.ndarray, ...] = ()


@dataclass(frozen=True)
class Other:
    """Another state."""

    scores: np.ndarray


def state(n):
    """The state of after n trees."""
    rng = np.random.default_rng(n)
    return State(
        rng.normal(size=7).astype(np.float32),
        rng.integers(0, 255, size=(2, 5), dtype=np.uint8),
        f"tree {n}",
        tuple(range(n)),
        {"setup": n},
        BoostingParams(n_iterations=n + 1),
        (rng.normal(size=3), np.zeros((0, 2), np.int64)),
    )


def same(one, other):
    """Bit for bit."""
    assert one.scores.dtype == other.scores.dtype
    assert one.scores.tobytes() == other.scores.tobytes()
    assert np.array_equal(one.codes, other.codes)
    assert (one.name, one.trees, one.rounds, one.params) == (other.name, other.trees, other.rounds, other.params)
    assert [(a.dtype, a.shape, a.tobytes()) for a in one.deeper] == [
        (b.dtype, b.shape, b.tobytes()) for b in other.deeper
    ]


@pytest.fixture(params=["memory", "files"])
def kept(request, tmp_path):
    """Checkpoints of each sort."""
    return Checkpoints() if request.param == "memory" else CheckpointFiles(tmp_path / "kept", PROTOCOL, JOB, "ben")


@pytest.fixture
def files(tmp_path):
    """Checkpoints of ben in a folder, after two trees."""
    found = CheckpointFiles(tmp_path / "kept", PROTOCOL, JOB, "ben")
    for n in (1, 2):
        found.keep(n, state(n))
    return found


# --- keeping ---------------------------------------------------------------------------------------------------------


def test_a_state_comes_back_bit_for_bit(kept):
    """Arrays of all types and shapes, numbers, texts, and classes that write themselves."""
    kept.keep(3, state(3))
    same(kept.load(3, State), state(3))
    assert kept.load(3, State).scores.flags.writeable


def test_a_state_is_as_it_was_when_it_was_kept(kept):
    """What happens to the party's own arrays afterwards does not matter."""
    mine = state(1)
    kept.keep(1, mine)
    mine.scores[:] = 0.0
    same(kept.load(1, State), state(1))


def test_the_last_two_are_kept_and_what_was_there_before_the_first_tree(kept):
    """Parties may differ by one tree; what was drawn once is needed to the end."""
    for n in range(6):
        kept.keep(n, state(n))
        assert kept.trees == tuple(sorted({0, max(n - 1, 0), n}))
    same(kept.load(0, State), state(0))


def test_a_party_that_was_killed_before_it_forgot_a_state_tells_of_the_last_two(kept, monkeypatch):
    """A state is written before an older one is forgotten; peers refuse a list of more than two and the first."""
    for n in range(3):
        kept.keep(n, state(n))
    with monkeypatch.context() as killed:
        killed.setattr(kept, "forget", lambda _: None)
        kept.keep(3, state(3))
    assert sorted(kept.numbers()) == [0, 1, 2, 3]
    assert kept.trees == (0, 2, 3)
    kept.keep(4, state(4))
    assert sorted(kept.numbers()) == [0, 3, 4]


def test_what_is_kept_again_replaces_its_number_and_all_later_ones(kept):
    """A tree that is grown again is followed by its own, not by those of an earlier attempt."""
    for n in (3, 4):
        kept.keep(n, state(n))
    kept.keep(3, replace(state(3), name="again"))
    assert kept.trees == (3,)
    assert kept.load(3, State).name == "again"


def test_what_was_not_kept_is_named(kept):
    """Who asks for it reads what there is."""
    kept.keep(1, state(1))
    with pytest.raises(InvalidInput, match=r"nothing was kept after 2 trees, only after \[1\]"):
        kept.load(2, State)


def test_an_array_of_objects_is_refused(kept):
    """It could be written by pickle only."""
    with pytest.raises(InvalidParameter, match="array of objects"):
        kept.keep(1, Other(np.array([object()])))
    assert kept.trees == ()


# --- files -----------------------------------------------------------------------------------------------------------


def test_files_are_for_nobody_else(files):
    """The folder has mode 700, a file 600, and nothing half written lies beside it."""
    paths = sorted(files.folder.iterdir())
    assert [path.name for path in paths] == ["trees-1.kept", "trees-2.kept"]
    assert stat.S_IMODE(files.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o600}


def test_files_are_found_again(files):
    """By another object, as in another process."""
    again = CheckpointFiles(files.folder, PROTOCOL, JOB, "ben")
    assert again.trees == (1, 2)
    same(again.load(2, State), state(2))


@pytest.mark.parametrize(
    ("protocol", "job", "party", "named"),
    [
        (PROTOCOL, replace(JOB, run_id="another"), "ben", "job"),
        (PROTOCOL, replace(JOB, max_bins=9), "ben", "job"),
        (PROTOCOL, JOB, "carla", "party"),
    ],
)
def test_the_file_of_another_job_or_party_is_refused(files, protocol, job, party, named):
    """The error says what is different."""
    other = CheckpointFiles(files.folder, protocol, job, party)
    with pytest.raises(InvalidInput, match=rf"trees-2.kept is of another {named}"):
        other.load(2, State)


def test_a_file_under_the_name_of_another_is_refused(files):
    """Two files that were swapped are both refused."""
    one, two = (files.folder / f"trees-{n}.kept" for n in (1, 2))
    first = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(first)
    for n in (1, 2):
        with pytest.raises(InvalidInput, match="is of another trees"):
            files.load(n, State)


def test_another_sort_of_state_is_refused(files):
    """A role that wants something else than was kept reads so."""
    with pytest.raises(InvalidInput, match="is of another state"):
        files.load(2, Other)


def test_a_damaged_file_is_refused(files):
    """Wherever a byte differs, and wherever the file breaks off."""
    path = files.folder / "trees-2.kept"
    whole = path.read_bytes()
    for k in range(0, len(whole), 7):
        path.write_bytes(whole[:k] + bytes([whole[k] ^ 1]) + whole[k + 1 :])
        with pytest.raises(InvalidInput, match=r"trees-2\.kept is damaged"):
            files.load(2, State)
        path.write_bytes(whole[:k])
        with pytest.raises(InvalidInput, match=r"trees-2\.kept is damaged"):
            files.load(2, State)
    path.write_bytes(whole + b"x")
    with pytest.raises(InvalidInput, match=r"trees-2\.kept is damaged"):
        files.load(2, State)


@given(data=st.data())
@as_often(60)
def test_a_file_with_a_right_digest_is_not_believed_either(data):
    """Somebody may have written it: any value in any place of its heading, any byte of its arrays."""
    about = {"trees": 2}
    whole = packed(state(2), about)
    body = whole[40:]
    size = int.from_bytes(body[:8], "little")
    if data.draw(st.booleans()):
        heading = data.draw(damaged(body[8 : 8 + size], "json"))
        body = len(heading).to_bytes(8, "little") + heading + body[8 + size :]
    else:
        body = data.draw(damaged(body, "bytes"))
    with contextlib.suppress(InvalidInput):
        unpacked(whole[:8] + hashlib.sha256(body).digest() + body, State, about, "a file")


def test_a_file_that_cannot_be_written_leaves_the_old_one(files, monkeypatch):
    """A full disk costs nothing of what was kept before."""

    def full(_descriptor):
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        files.keep(2, state(5))
    assert len(list(files.folder.iterdir())) == 2
    same(files.load(2, State), state(2))


def test_other_files_in_the_folder_are_passed_over(files):
    """A name that is not one of ours is no state."""
    (files.folder / "notes.kept").write_text("x")
    assert files.trees == (1, 2)


# --- agreeing --------------------------------------------------------------------------------------------------------


def agreement(numbers, attempt=2, roles=None):
    """What each party goes on from, when each has kept the numbers given."""
    network = MemoryNetwork(NAMES)
    checkpoints = {name: Checkpoints() for name in NAMES if numbers.get(name) is not None}
    for name, found in checkpoints.items():
        for n in numbers[name]:
            found.keep(n, state(n))
    parties = in_memory(network, NAMES, checkpoints=checkpoints, attempt=attempt, deadline=30.0)
    for party in parties.values():
        party.join(agreed(PROTOCOL, JOB, attempt))

    def going_on(name):
        def live():
            try:
                return (roles or {}).get(name, lambda me: me.go_on(State, JOB))(parties[name])
            except BaseException as error:
                parties[name].abort(error)
                raise

        return live

    return network.run({name: going_on(name) for name in NAMES}), parties


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([(4, 5), (4, 5), (4, 5)], 5),
        ([(4, 5), (5, 6), (4, 5)], 5),
        ([(5, 6), (4, 5), (5, 6)], 5),
        ([(1,), (), (1,)], 0),
        ([(1,), None, (1,)], 0),
        ([None, None, None], 0),
        ([(0, 1), (0,), (0, 1)], 0),
        ([(0, 3, 4), (4, 5), (0, 3, 4)], 4),
    ],
)
def test_all_go_on_from_the_largest_number_that_everybody_has(numbers, expected):
    """Each with its own state; from the beginning if somebody has nothing. The dealer has no state and is told."""
    outcomes, parties = agreement(dict(zip(HOLDERS, numbers, strict=True)))
    assert parties["anna"].most_kept == max((n for each in numbers for n in each or ()), default=0)
    for name, outcome in outcomes.items():
        assert outcome.error is None
        n_trees, found = outcome.value
        assert n_trees == expected
        if expected and name in HOLDERS:
            same(found, state(expected))
        else:
            assert found is None


def test_a_first_attempt_says_nothing():
    """Nobody sends a message, whatever lies in the folder."""
    outcomes, parties = agreement(dict.fromkeys(NAMES, (1, 2)), attempt=1)
    assert [outcome.value for outcome in outcomes.values()] == [(0, None)] * len(NAMES)
    assert all(len(party.ledger) == 0 for party in parties.values())


def test_what_is_said_is_in_the_ledger():
    """Both messages, with what they disclose."""
    _, parties = agreement(dict.fromkeys(NAMES, (1, 2)))
    lines = parties["ben"].ledger.to_text()
    for kind in (KeptTrees, GoOnFrom):
        assert kind.discloses.of in " ".join(lines.split())


def test_a_number_that_a_party_has_not_kept_is_refused():
    """The first party cannot send others back to what they do not have."""

    def lying(me):
        for other in HOLDERS[1:]:
            me.recv(other, KeptTrees)
        me.send_all(NAMES[1:], GoOnFrom(7))

    outcomes, _ = agreement(dict.fromkeys(HOLDERS, (1, 2)), roles={"anna": lying})
    for name in HOLDERS[1:]:
        assert isinstance(outcomes[name].error, ProtocolError | PeerFailed)
    assert any("goes on from 7 trees" in str(outcome.error) for outcome in outcomes.values())


@pytest.mark.parametrize("trees", [[-1], [1, 2, 3, 4]])
def test_numbers_out_of_range_are_refused(trees):
    """A peer cannot have kept less than nothing, nor more than anybody keeps."""

    def lying(me):
        me.send("anna", KeptTrees(np.array(trees, np.int64)))

    outcomes, _ = agreement(dict.fromkeys(NAMES, (1, 2)), roles={"ben": lying})
    assert isinstance(outcomes["anna"].error, ProtocolError)
    assert "ben" in str(outcomes["anna"].error)


def test_the_attempt_is_part_of_what_parties_compare():
    """Those of two attempts have another job; in the first one it is as it was without attempts."""
    digests = [agreed(PROTOCOL, JOB, attempt) for attempt in (1, 2, 3)]
    assert len({each.digest for each in digests}) == 3
    assert digests[0] == agreed(PROTOCOL, JOB)
    assert "attempt" not in digests[0].fields
    with pytest.raises(JobDiffers, match="attempt"):
        digests[1].check("ben", digests[2], "anna")


def test_processes_need_files():
    """What a process keeps in memory is gone with it, so that is refused before one is started."""
    with pytest.raises(InvalidParameter, match="checkpoints of ben must be CheckpointFiles"):
        run_together(PROTOCOL, JOB, {}, transport="grpc", checkpoints={"ben": Checkpoints()})
