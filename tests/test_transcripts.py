"""Transcripts of recorded runs: what is kept, in memory and over processes, the file format, and what is refused."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest

from hedgerow.errors import FrameError, InvalidInput, InvalidParameter
from hedgerow.federation.federation import Federation
from hedgerow.federation.run import Run
from hedgerow.protocols.vertical.bucket_rr.messages import Buckets, ColumnKinds, OwnSplits
from hedgerow.transport.emulate import Link
from hedgerow.transport.frames import peek
from hedgerow.transport.transcripts import (
    NOTED,
    RECEIVED,
    SENT,
    Passed,
    Replaying,
    SavedTranscripts,
    Transcript,
    TranscriptFile,
)

FAST = {"n_estimators": 2, "max_depth": 2, "epsilon": 4.0, "edges": "quantile"}


def federation(n_rows=120):
    """A bank with labels and a column, a shop with two columns."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(n_rows, 3))
    labels = (values.sum(axis=1) > 0).astype(int)
    return Federation.vertical({"bank": values[:, :1], "shop": values[:, 1:]}, labels=("bank", labels))


def fit(**how):
    """A small recorded run."""
    return federation().fit("vertical.bucket_rr", **(FAST | {"record": True} | how))


def assert_as_in_ledgers(run):
    """Every frame of a ledger is in the transcript, in order, with its size; and nothing else but notes."""
    assert set(run.transcripts) == set(run.ledgers)
    for party, ledger in run.ledgers.items():
        words = {SENT: "disclosed", RECEIVED: "learned"}
        passed = [
            (words[direction], peer, *peek(frame), len(frame))
            for direction, peer, frame in run.transcripts[party]
            if direction != NOTED
        ]
        assert passed == [(line.direction, line.peer, line.message, line.version, line.n_bytes) for line in ledger]
        assert len(passed) > 3


# --- recorded runs ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run():
    """A recorded run in memory."""
    return fit()


def test_a_recorded_run_keeps_every_frame(run):
    """Transcripts of all parties have exactly the messages that are in their ledgers, and can be decoded."""
    assert_as_in_ledgers(run)
    received = run.transcript("bank").messages(Buckets, RECEIVED, "shop")
    sent = run.transcript("shop").messages(Buckets, SENT, "bank")
    assert len(received) == len(sent) == 1
    assert (received[0].packed == sent[0].packed).all()
    assert run.transcript("bank").messages(ColumnKinds, RECEIVED, "nobody") == []
    assert OwnSplits.NAME in run.transcript("shop").kinds()


def test_without_record_nothing_is_kept():
    """The default: no transcripts, and who asks for one is told how to get them."""
    run = fit(record=False)
    assert run.transcripts == {}
    with pytest.raises(InvalidInput, match=r"this run was not recorded.*fit\(\.\.\., record=True\)"):
        run.transcript("bank")


def test_recording_does_not_change_the_run():
    """Without noise to draw, the model of a recorded run is that of another one."""
    models = [fit(epsilon=float("inf"), record=record).model.parts["bank"].to_dict() for record in (True, False)]
    for model in models:
        model.pop("run_id")
    assert models[0] == models[1]


@pytest.mark.parametrize("to_folder", [False, True])
def test_processes_are_recorded_too(tmp_path, to_folder):
    """Over mutual TLS and an emulated link, in memory or straight into a folder: plain frames, as in the ledgers."""
    record = tmp_path if to_folder else True
    run = fit(transport="grpc", record=record, link=Link(0.001))
    assert_as_in_ledgers(run)
    assert [path.name for path in sorted(tmp_path.rglob("*.frames"))] == ["bank.frames", "shop.frames"] * to_folder


def test_a_run_is_recorded_into_a_folder(tmp_path):
    """Files are there without `save`; saving to the same folder keeps them, saving elsewhere copies them."""
    run = fit(record=tmp_path / "a")
    file = tmp_path / "a" / "transcripts" / "shop.frames"
    before = file.read_bytes()
    run.save(tmp_path / "a")
    run.save(tmp_path / "b")
    assert file.read_bytes() == before == (tmp_path / "b" / "transcripts" / "shop.frames").read_bytes()
    assert file.stat().st_mode & 0o077 == 0
    assert (tmp_path / "a" / "transcripts").stat().st_mode & 0o077 == 0


def test_a_run_that_fails_leaves_no_whole_transcript(tmp_path):
    """What was written until then has no end, and is refused for that."""

    def stop(*_):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        fit(record=tmp_path, on_progress=stop)
    with pytest.raises(InvalidInput, match=r"breaks off .* its run did not come to its end"):
        list(Transcript.open(tmp_path / "transcripts" / "bank.frames"))


def test_a_saved_run_has_the_same_transcripts(run, tmp_path):
    """They are opened when asked for, read as a stream, and are the same frames."""
    run.save(tmp_path)
    again = Run.load(tmp_path)
    assert isinstance(again.transcripts, SavedTranscripts)
    for party in ("bank", "shop"):
        assert list(again.transcript(party)) == list(run.transcript(party))
        assert again.transcript(party).peers == run.transcript(party).peers
    (tmp_path / "transcripts" / "shop.frames").unlink()
    assert len(list(Run.load(tmp_path).transcript("bank"))) > 3
    with pytest.raises(InvalidInput, match=r"shop\.frames: the transcript cannot be read: No such file"):
        Run.load(tmp_path).transcript("shop")
    with pytest.raises(InvalidInput, match="no transcript of 'club', only of bank, shop"):
        Run.load(tmp_path).transcript("club")


def test_a_run_that_was_saved_without_transcripts_has_none(tmp_path):
    """Also if its folder held those of a run before it."""
    fit().save(tmp_path)
    fit(record=False).save(tmp_path)
    with pytest.raises(InvalidInput, match="was not recorded"):
        Run.load(tmp_path).transcript("bank")
    about = tmp_path / "run.json"
    about.write_text(about.read_text().replace('"recorded": [],', ""))  # as versions before this wrote it
    with pytest.raises(InvalidInput, match="was not recorded"):
        Run.load(tmp_path).transcript("bank")


def test_transcripts_of_other_runs_are_refused(run, tmp_path):
    """The file says whose it is and of which run."""
    run.save(tmp_path / "one")
    fit().save(tmp_path / "two")
    folders = [tmp_path / name / "transcripts" for name in ("one", "two")]
    (folders[0] / "shop.frames").replace(folders[1] / "shop.frames")
    with pytest.raises(InvalidInput, match=r"this is the transcript of shop in run '\w+', not that of shop in run"):
        Run.load(tmp_path / "two").transcript("shop")
    (folders[1] / "shop.frames").write_bytes((folders[1] / "bank.frames").read_bytes())
    with pytest.raises(InvalidInput, match="transcript of bank in run"):
        Run.load(tmp_path / "two").transcript("shop")


def test_record_must_be_a_folder_or_a_truth_value():
    """Anything else is a mistake in the call."""
    with pytest.raises(InvalidParameter, match="record must be True, False or a folder, got 3"):
        fit(record=3)


# --- files -----------------------------------------------------------------------------------------------------------

PASSED = [
    Passed(SENT, "ben", b"first"),
    Passed(RECEIVED, "carla", b""),
    Passed(NOTED, "anna", b"own"),
    Passed(RECEIVED, "ben", bytes(range(256)) * 40),
]


@pytest.fixture
def file(tmp_path):
    """A transcript of four records."""
    path = tmp_path / "anna.frames"
    Transcript("anna", ["ben", "carla"], PASSED, "run 7").save(path)
    return path


def test_a_file_is_as_documented(file):
    """Byte by byte, from the description in transport/transcripts.py."""
    data = file.read_bytes()
    opening = b"HDGRTRNS" + struct.pack("<HH", 1, 4)
    for text in (b"run 7", b"anna", b"ben", b"carla"):
        opening += bytes([len(text)]) + text
    pieces = [opening]
    pieces += [
        struct.pack("<BBHQ", code, 0, peer, len(frame)) + frame
        for code, peer, frame in ((1, 1, PASSED[0].frame), (2, 2, b""), (3, 0, b"own"), (2, 1, PASSED[3].frame))
    ]
    pieces.append(struct.pack("<BBHQ", 0, 0, 0, 4))
    expected, checksum = b"", 0
    for piece in pieces:
        checksum = zlib.crc32(piece, checksum)
        expected += piece + struct.pack("<I", checksum)
    assert data == expected
    read = Transcript.open(file)
    assert (read.party, read.peers, read.run_id) == ("anna", ("ben", "carla"), "run 7")
    assert list(read) == PASSED == list(read)


def test_every_cut_is_noticed(file):
    """A file that ends anywhere before its end is refused, also where a record ends."""
    data = file.read_bytes()
    for size in [*range(120), *range(len(data) - 40, len(data))]:
        file.write_bytes(data[:size])
        with pytest.raises(InvalidInput, match=r"anna\.frames: the transcript breaks off"):
            list(Transcript.open(file))
    file.write_bytes(data + b"x")
    with pytest.raises(InvalidInput, match="something after the end"):
        list(Transcript.open(file))


def test_every_changed_byte_is_noticed(file):
    """Wherever it is: the records before it are given out, the broken one is not."""
    data = file.read_bytes()
    for place in [*range(120), *range(200, len(data), 211), *range(len(data) - 16, len(data))]:
        file.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        read = []
        with pytest.raises(InvalidInput, match=r"anna\.frames"):
            read.extend(Transcript.open(file))
        assert read == PASSED[: len(read)]


def test_exchanged_records_are_noticed(file, tmp_path):
    """Two whole records in the other order: checksums go by all that came before."""
    path = tmp_path / "twins"
    Transcript("anna", ["ben"], [Passed(SENT, "ben", b"one"), Passed(SENT, "ben", b"two")]).save(path)
    data = path.read_bytes()
    size = 12 + 3 + 4
    start = len(data) - 16 - 2 * size
    path.write_bytes(data[:start] + data[start + size :][:size] + data[start : start + size] + data[-16:])
    with pytest.raises(InvalidInput, match="record 1 of the transcript is damaged"):
        list(Transcript.open(path))
    assert file.exists()


def test_other_files_are_refused(tmp_path):
    """Foreign bytes, and a version that is not known."""
    path = tmp_path / "x.frames"
    path.write_bytes(b"PK\x03\x04 and so on and on")
    with pytest.raises(InvalidInput, match=r"x\.frames is no transcript"):
        Transcript.open(path)
    path.write_bytes(b"HDGRTRNS" + struct.pack("<HH", 2, 2) + bytes(20))
    with pytest.raises(InvalidInput, match="transcripts of format 2 cannot be read, only 1"):
        Transcript.open(path)


def test_a_file_that_is_being_written_has_no_end(tmp_path):
    """So nobody takes it for a whole one; after `close` it is."""
    path = tmp_path / "anna.frames"
    file = TranscriptFile(path, "anna", ["ben"])
    file.add(PASSED[0])
    file._file.flush()
    with pytest.raises(InvalidInput, match="breaks off in record 2"):
        list(Transcript.open(path))
    file.close()
    assert list(Transcript.open(path)) == PASSED[:1]


def test_a_replay_gives_each_peers_frames_in_order():
    """Notes and sent frames are left out; when there is nothing more, that is an error."""
    replay = Replaying(Transcript("anna", ["ben", "carla"], [*PASSED, Passed(RECEIVED, "ben", b"last")]))
    assert replay.recv("ben", 1.0) == PASSED[3].frame
    assert replay.recv("carla", 1.0) == b""
    assert replay.recv("ben", 1.0) == b"last"
    with pytest.raises(FrameError, match="no further frame from ben"):
        replay.recv("ben", 1.0)
