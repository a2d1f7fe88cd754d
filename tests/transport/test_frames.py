"""Frames: what is written is read back, and whatever else arrives is one typed error."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import random
import struct
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hedgerow.errors import FrameError, InvalidInput, InvalidType, TransportError, VersionMismatch
from hedgerow.transport import frames
from hedgerow.transport.frames import (
    Bools,
    Float32s,
    Float64s,
    Int32s,
    Int64s,
    Message,
    UInt8s,
    UInt64s,
    decode,
    encode,
    peek,
    registered,
    schema,
)


@dataclass(frozen=True, slots=True)
class Everything(Message, name="test.everything", version=3):
    """A field of each kind."""

    discloses = "nothing"
    yes: bool
    count: int
    rate: float
    title: str
    blob: bytes
    names: tuple[str, ...]
    a: UInt64s
    b: Int64s
    c: Int32s
    d: UInt8s
    e: Bools
    f: Float32s
    g: Float64s


@dataclass(frozen=True, slots=True)
class Sums(Message, name="test.sums", version=1):
    """One array."""

    values: UInt64s


@dataclass(frozen=True, slots=True)
class Nothing(Message, name="test.nothing", version=1):
    """No field at all."""


@dataclass(frozen=True, slots=True)
class Answer(Message, name="test.answer", version=1):
    """One text."""

    words: str


@dataclass(frozen=True, slots=True)
class Flags(Message, name="test.flags", version=1):
    """One bool, and an array of them."""

    one: bool
    many: Bools


@dataclass(frozen=True, slots=True)
class Names(Message, name="test.names", version=1):
    """Some texts."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Share(Message, name="test.share", version=1):
    """A field with a rule."""

    percent: int

    def __post_init__(self) -> None:
        if self.percent > 100:
            raise InvalidInput(f"percent must be at most 100, got {self.percent}")


ARRAYS = {"a": np.uint64, "b": np.int64, "c": np.int32, "d": np.uint8, "e": np.bool_, "f": np.float32, "g": np.float64}


def an_example():
    """A message with something in each field."""
    rng = np.random.default_rng(7)
    shapes = [(2, 3, 2), (4,), (3,), (5,), (3, 3), (), (2, 0, 3)]
    arrays = {
        name: rng.integers(0, 2, size=shape).astype(dtype)
        for (name, dtype), shape in zip(ARRAYS.items(), shapes, strict=True)
    }
    return Everything(True, -7, 0.25, "Größe", b"\x00\xff\x01", ("a", "", "ж"), **arrays)


def bits(value):
    """A value as something that is equal only if every bit and the type are."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    return type(value), struct.pack("<d", value) if isinstance(value, float) else value


shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
everything = st.builds(
    Everything,
    yes=st.booleans(),
    count=st.integers(-(2**63), 2**63 - 1),
    rate=st.floats(),
    title=st.text(),
    blob=st.binary(),
    names=st.lists(st.text()).map(tuple),
    **{name: hnp.arrays(dtype, shapes) for name, dtype in ARRAYS.items()},
)


@settings(deadline=None)
@given(everything)
def test_decoding_undoes_encoding(message):
    """Every field comes back with its type, its shape and all of its bits, aligned and read-only."""
    received = decode(encode(message), Everything)
    for field in dataclasses.fields(Everything):
        value = getattr(received, field.name)
        assert bits(value) == bits(getattr(message, field.name))
        if isinstance(value, np.ndarray):
            assert value.flags.aligned
            assert value.flags.c_contiguous
            assert not value.flags.writeable
    assert peek(encode(message)) == ("test.everything", 3)


def test_arrays_are_aligned_within_the_frame_and_not_copied():
    """Whatever stands before it, an array begins at a multiple of 8 bytes of the frame, and is not copied out of it."""
    for title in ("", "a", "abcdefg"):
        frame = encode(dataclasses.replace(an_example(), title=title))
        begin = np.frombuffer(frame, np.uint8).__array_interface__["data"][0]
        received = decode(frame, Everything)
        for name in ARRAYS:
            offset = getattr(received, name).__array_interface__["data"][0] - begin
            if getattr(received, name).size:
                assert offset % 8 == 0
                assert 0 < offset < len(frame)
                assert np.shares_memory(getattr(received, name), np.frombuffer(frame, np.uint8))


def test_arrays_in_any_memory_order_are_written_by_value():
    """Transposed, reversed, strided and Fortran-ordered arrays arrive with the same elements."""
    base = np.arange(24, dtype=np.uint64).reshape(4, 6)
    for array in (base.T, base[::-1], base[:, ::2], np.asfortranarray(base), base[1:3]):
        assert np.array_equal(decode(encode(Sums(array)), Sums).values, array)


def test_a_frame_keeps_what_the_array_held_when_it_was_written():
    """Changing an array after it was encoded changes nothing in the frame."""
    values = np.arange(3, dtype=np.uint64)
    frame = encode(Sums(values))
    values[:] = 0
    assert decode(frame, Sums).values.tolist() == [0, 1, 2]


def test_memoryviews_are_read_in_place_only_if_they_are_aligned_and_lasting():
    """A view into bytes is used as it lies; a misaligned one or one into a bytearray is copied first."""
    frame = encode(Sums(np.arange(5, dtype=np.uint64)))
    for offset in range(17):
        carrier = bytes(offset) + frame
        received = decode(memoryview(carrier)[offset:], Sums).values
        assert received.tolist() == [0, 1, 2, 3, 4]
        assert received.flags.aligned
        assert np.shares_memory(received, np.frombuffer(carrier, np.uint8)) == (offset % 8 == 0)
    buffer = bytearray(frame)
    for view in (memoryview(buffer), memoryview(buffer).toreadonly()):
        received = decode(view, Sums).values
        buffer[-8:] = b"\xff" * 8
        assert received[-1] == 4
        buffer[:] = frame


def test_messages_without_fields_are_frames_too():
    """A message may say all by its name."""
    assert decode(encode(Nothing()), Nothing) == Nothing()


# --- strictness ------------------------------------------------------------------------------------------------------


def mutated(rng, frame):
    """A frame with one to three random injuries."""
    data = bytearray(frame)
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(6)
        if kind == 0 and at < len(data):  # flip a bit
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(data):  # another byte
            data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif kind == 2:  # cut a piece out, mostly a short one
            del data[at : at + rng.choice((1, 4, 8, rng.randrange(len(frame))))]
        elif kind == 3:  # insert
            data[at:at] = rng.randbytes(rng.choice((1, 4, 8)))
        elif kind == 4:  # splice a piece of the frame itself over another place
            source, length = rng.randrange(len(frame)), rng.randrange(1, 40)
            data[at : at + length] = frame[source : source + length]
        else:  # a number that is likely to be a special case
            number = rng.choice((0, 1, 4, 5, 255, 2**31 - 1, 2**31, 2**32 - 8, 2**32 - 1))
            data[at & ~3 : (at & ~3) + 4] = number.to_bytes(4, "little")
    return bytes(data)


@pytest.mark.long
def test_a_hundred_thousand_mutations():
    """A mutated frame is a FrameError, a VersionMismatch, or the one frame of a valid message; never anything else."""
    rng = random.Random(20)
    frame = encode(an_example())
    seen = {FrameError: 0, VersionMismatch: 0, Everything: 0}
    for _ in range(100_000):
        injured = mutated(rng, frame)
        try:
            message = decode(injured, Everything)
        except (FrameError, VersionMismatch) as error:
            seen[type(error)] += 1
        else:
            seen[Everything] += 1
            assert encode(message) == injured
        with contextlib.suppress(FrameError, VersionMismatch):
            peek(injured)
    assert min(seen.values()) > 100, seen  # the injuries reach all three


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_noise_is_no_frame(noise):
    """Random bytes are refused, alone and after a good beginning."""
    with pytest.raises(FrameError):
        decode(noise, Sums)
    frame = encode(Sums(np.zeros(4, np.uint64)))
    if noise:
        with pytest.raises(FrameError):
            decode(frame + noise, Sums)


def test_every_cut_is_noticed():
    """No beginning of a frame is a frame."""
    frame = encode(an_example())
    for length in range(len(frame)):
        with pytest.raises(FrameError):
            decode(frame[:length], Everything)


def test_another_message_is_named():
    """A frame of another class says which it is and which was expected."""
    with pytest.raises(FrameError, match=r"expected test\.sums, got test\.nothing"):
        decode(encode(Nothing()), Sums)


def test_another_version_is_named():
    """Another version of the same message, or of the frames, is a mismatch that names both."""
    frame = encode(Sums(np.zeros(1, np.uint64)))
    with pytest.raises(VersionMismatch, match=r"test\.sums: the peer speaks version 9, this is version 1"):
        decode(frame[:6] + b"\x09\x00" + frame[8:], Sums)
    with pytest.raises(VersionMismatch, match=r"frames of version 2, this is version 1"):
        decode(frame[:4] + b"\x02\x00" + frame[6:], Sums)


def test_other_fields_under_the_same_version_are_refused():
    """A field with another name is not silently taken for ours."""
    with pytest.raises(FrameError, match=r"fields are not those of version 1"):
        decode(encode(Sums(np.zeros(1, np.uint64))).replace(b"values", b"valves"), Sums)


def injured_head(message, index, number):
    """The frame of a message with one number of its head replaced, counted in 4-byte words."""
    plan = frames._plan_of(type(message))
    at = len(plan.opening) + 4 * index
    frame = encode(message)
    return frame[:at] + number.to_bytes(4, "little") + frame[at + 4 :]


@pytest.mark.parametrize(
    ("index", "number", "complaint"),
    [
        (0, 5, "5 dimensions, at most 4"),
        (0, 1, "1 dimensions announced"),
        (1, 3, "does not take 48 bytes"),
        (3, 1, "2 dimensions announced"),
        (5, 40, "does not take 40 bytes"),
        (5, 2**32 - 1, "does not take 4294967295 bytes"),
    ],
)
def test_shapes_must_fit_their_bytes(index, number, complaint):
    """Dimensions, their number and the length of an array must agree."""
    with pytest.raises(FrameError, match=complaint):
        decode(injured_head(Sums(np.zeros((2, 3), np.uint64)), index, number), Sums)


def test_huge_shapes_cost_nothing():
    """An array that claims to be larger than its frame is refused before memory is taken for it."""
    frame = injured_head(Sums(np.zeros(2, np.uint64)), 1, 2**29 - 1)
    frame = frame[:-20] + (8 * (2**29 - 1)).to_bytes(4, "little") + frame[-16:]
    with pytest.raises(FrameError, match="4294967288 bytes announced, 16 left"):
        decode(frame, Sums)


def test_impossible_shapes_of_nothing_are_refused():
    """An array without elements may still have dimensions that no array can have."""
    frame = encode(Sums(np.zeros((0, 1, 1, 1), np.uint64)))
    shape = struct.pack("<4I", 0, 2**32 - 1, 2**32 - 1, 2**32 - 1)
    with pytest.raises(FrameError, match="no array has shape"):
        decode(frame[:-20] + shape + frame[-4:], Sums)


def test_bools_are_0_or_1():
    """Any other byte is refused, for a single bool as for an array."""
    with pytest.raises(FrameError, match="a bool is 0 or 1, got 2"):
        decode(injured_head(Flags(True, np.zeros(0, np.bool_)), 0, 2), Flags)
    frame = encode(Flags(True, np.ones((2, 4), np.bool_)))
    with pytest.raises(FrameError, match="a bool is 0 or 1"):
        decode(frame[:-1] + b"\x02", Flags)


@pytest.mark.parametrize("body", [b"\xff" * 8, b"\xc0\x80abcdef", b"\xed\xa0\x80abcde"])
def test_texts_are_strict_utf_8(body):
    """Stray bytes, overlong forms and surrogates are refused."""
    frame = encode(Answer("8 bytes."))
    with pytest.raises(FrameError, match=r"test\.answer\.words: not UTF-8"):
        decode(frame[:-8] + body, Answer)


def test_padding_is_zero():
    """A byte that no field owns may not carry anything."""
    frame = encode(Answer("abc"))
    assert decode(frame, Answer).words == "abc"
    with pytest.raises(FrameError, match="padding is not zero"):
        decode(frame[:-1] + b"!", Answer)


@pytest.mark.parametrize(("index", "number"), [(0, 3), (0, 0), (0, 2**32 - 1), (1, 7), (1, 2**32 - 1)], ids=str)
def test_texts_must_add_up(index, number):
    """The number of texts, their lengths and the length of all must agree."""
    with pytest.raises(FrameError, match=r"test\.names\.names"):
        decode(injured_head(Names(("ab", "cdef")), index, number), Names)


def test_rules_of_a_class_hold_for_what_is_received():
    """A value that the class itself refuses is a FrameError on the receiving side."""
    frame = encode(Share(100))
    at = len(frames._plan_of(Share).opening)
    with pytest.raises(FrameError, match=r"test\.share: percent must be at most 100, got 101"):
        decode(frame[:at] + (101).to_bytes(8, "little"), Share)


def test_errors_are_transport_errors():
    """Whoever catches TransportError catches all that a bad frame can cause."""
    assert issubclass(FrameError, TransportError)
    assert issubclass(VersionMismatch, TransportError)


# --- limits ----------------------------------------------------------------------------------------------------------


def test_frames_have_a_limit_on_both_sides():
    """A frame beyond the limit is neither written nor read; one at the limit is."""
    message = Sums(np.zeros(100, np.uint64))
    frame = encode(message)
    assert encode(message, max_bytes=len(frame)) == frame
    decode(frame, Sums, max_bytes=len(frame))
    with pytest.raises(InvalidInput, match=rf"test\.sums: the frame would have {len(frame)} bytes"):
        encode(message, max_bytes=len(frame) - 1)
    with pytest.raises(FrameError, match=rf"a frame of {len(frame)} bytes, the limit is {len(frame) - 1}"):
        decode(frame, Sums, max_bytes=len(frame) - 1)


def test_the_default_limit_is_256_mib():
    """An array of 256 MiB is refused before it is copied."""
    assert frames.MAX_FRAME_BYTES == 256 * 1024 * 1024
    with pytest.raises(InvalidInput, match="limit is 268435456"):
        encode(Sums(np.zeros(32 << 20, np.uint64)))


def test_texts_have_limits_on_both_sides(monkeypatch):
    """Length of a text, number of texts, and their length together."""
    sent = [Answer("12345678"), Names(("a", "b", "c")), Names(("12345678",))]
    written = [encode(message) for message in sent]
    monkeypatch.setattr(frames, "MAX_TEXT_BYTES", 7)
    monkeypatch.setattr(frames, "MAX_TEXTS", 2)
    for message, frame in zip(sent, written, strict=True):
        with pytest.raises(InvalidInput, match="fit into a frame"):
            encode(message)
        with pytest.raises(FrameError):
            decode(frame, type(message))


@pytest.mark.parametrize(
    ("change", "error", "complaint"),
    [
        ({"yes": 1}, InvalidType, "yes must be bool, got int"),
        ({"count": 1.0}, InvalidType, "count must be int, got float"),
        ({"count": 2**63}, InvalidInput, "count must fit into 64 bits"),
        ({"count": -(2**63) - 1}, InvalidInput, "count must fit into 64 bits"),
        ({"rate": "1"}, InvalidType, "rate must be float, got str"),
        ({"title": b"x"}, InvalidType, "title must be text, got bytes"),
        ({"title": "\ud800"}, InvalidInput, "title cannot be written as UTF-8"),
        ({"blob": bytearray(1)}, InvalidType, "blob must be bytes, got bytearray"),
        ({"names": ["a"]}, InvalidType, "names must be texts, got list"),
        ({"names": ("a", 1)}, InvalidType, "names must be texts"),
        ({"a": [1]}, InvalidType, "a must be array of uint64, got list"),
        ({"a": np.zeros(1, np.int64)}, InvalidType, "a must be array of uint64, got array of int64"),
        ({"a": np.zeros(1, ">u8")}, InvalidType, "a must be array of uint64, got array of >u8"),
        ({"a": np.ma.zeros(1, np.uint64)}, InvalidType, "a must be array of uint64, got MaskedArray"),
        ({"a": np.zeros((1,) * 5, np.uint64)}, InvalidInput, "a has 5 dimensions, at most 4"),
        ({"a": np.zeros((0, 2**32), np.uint64)}, InvalidInput, "dimension does not fit into 32 bits"),
    ],
)
def test_wrong_values_are_refused_when_they_are_written(change, error, complaint):
    """A sender's mistake is found on its own side, and the field is named."""
    with pytest.raises(error, match=complaint):
        encode(dataclasses.replace(an_example(), **change))


def test_numpy_numbers_are_numbers():
    """Scalars that come out of numpy need no conversion; they arrive as Python's own."""
    received = decode(
        encode(dataclasses.replace(an_example(), yes=np.True_, count=np.int32(4), rate=np.float32(0.5))), Everything
    )
    assert (received.yes, received.count, received.rate) == (True, 4, 0.5)
    assert [type(x) for x in (received.yes, received.count, received.rate)] == [bool, int, float]


def test_not_a_number_keeps_its_bits():
    """NaN and infinities arrive as they were sent; a protocol decides what it makes of them."""
    received = decode(encode(dataclasses.replace(an_example(), rate=math.nan)), Everything)
    assert math.isnan(received.rate)


# --- classes ---------------------------------------------------------------------------------------------------------


def test_classes_are_registered_by_name():
    """The registry holds the class that is in use, not the one that dataclass(slots=True) replaced."""
    assert registered()["test.everything"] is Everything
    assert (Everything.NAME, Everything.VERSION, Everything.discloses) == ("test.everything", 3, "nothing")
    assert "test.none" not in registered()
    with pytest.raises(TypeError):
        registered()["test.none"] = Nothing


def test_fields_have_words_for_documentation():
    """Kinds of fields can be listed without a message at hand."""
    assert schema(Flags) == {"one": "bool", "many": "array of bool"}
    assert list(schema(Everything)) == [field.name for field in dataclasses.fields(Everything)]


def test_two_classes_cannot_have_one_name():
    """A name stands for one class; the class that had it first keeps it."""
    with pytest.raises(InvalidInput, match=r"Thief and .*Sums are both called 'test\.sums'"):

        class Thief(Message, name="test.sums", version=2):
            pass

    assert registered()["test.sums"] is Sums


def test_a_class_may_be_loaded_again():
    """The same class from the same place replaces itself, with or without slots."""
    made = []
    for slots in (True, False, True):

        @dataclass(frozen=True, slots=slots)
        class Again(Message, name="test.again", version=1):
            number: int

        made.append(Again)
        assert registered()["test.again"] is Again
    assert [decode(encode(cls(4)), cls).number for cls in made] == [4, 4, 4]


@pytest.mark.parametrize("name", ["", "Upper", "two words", "a..b", ".a", "a.", "1a", "ä", "a" * 65])
def test_names_of_messages_are_plain(name):
    """Names travel in frames and stand in documentation: lower case, digits, underscores, dots."""
    with pytest.raises(InvalidInput, match="name is words in lower case"):
        type("Bad", (Message,), {}, name=name, version=1)


def test_name_and_version_are_needed():
    """A class without them is no message, even if its base has them."""
    with pytest.raises(InvalidType, match="needs a name and a version"):
        type("Bad", (Message,), {})
    with pytest.raises(InvalidType, match="needs a name and a version"):
        type("Bad", (Sums,), {})
    with pytest.raises(InvalidType, match="needs a name and a version"):
        type("Bad", (Message,), {}, name="test.bad")
    for version in (0, 65536):
        with pytest.raises(InvalidInput, match="version is between 1 and 65535"):
            type("Bad", (Message,), {}, name="test.bad", version=version)


def test_fields_must_be_of_known_kinds():
    """A class with a field that no frame can hold says so when it is first used."""

    @dataclass(frozen=True, slots=True)
    class Odd(Message, name="test.odd", version=1):
        things: dict[str, int]

    @dataclass(frozen=True, slots=True)
    class Keyed(Message, name="test.keyed", version=1):
        thing: int = dataclasses.field(kw_only=True)

    class Plain(Message, name="test.plain", version=1):
        thing: int

    with pytest.raises(InvalidType, match=r"test\.odd\.things has a type that no frame can hold: dict"):
        encode(Odd({}))
    with pytest.raises(InvalidType, match=r"test\.keyed\.thing must be a positional field"):
        encode(Keyed(thing=1))
    with pytest.raises(InvalidType, match=r"Plain must be a dataclass"):
        decode(b"", Plain)


def test_a_message_may_extend_another():
    """A subclass has its own frames, with the fields of its base first."""

    @dataclass(frozen=True, slots=True)
    class More(Sums, name="test.more", version=1):
        tree: int

    encode(Sums(np.zeros(1, np.uint64)))
    received = decode(encode(More(np.ones(2, np.uint64), 5)), More)
    assert (received.values.tolist(), received.tree) == ([1, 1], 5)


def test_frames_are_as_documented():
    """The bytes of a small message, written out by hand."""
    assert sys.byteorder == "little"
    opening = b"HDGR" + struct.pack("<HHBB", 1, 1, len("test.sums"), 1) + b"test.sums" + b"\x06values\x07\x01"
    head = struct.pack("<6I", 1, 2, 0, 0, 0, 16)
    body = struct.pack("<2Q", 5, 2**64 - 1)
    padding = bytes(-(len(opening) + len(head)) % 8)
    assert encode(Sums(np.array([5, 2**64 - 1], np.uint64))) == opening + padding + head + body
