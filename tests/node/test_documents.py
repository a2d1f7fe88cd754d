"""Documents: what is signed, what is read, and how files are replaced."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.errors import InvalidInput, PeerRefused
from hedgerow.node import documents
from hedgerow.transport.mtls import Identity

BANK, SHOP = Identity.create("bank"), Identity.create("shop")
PLAIN = {"format": "letter", "version": 1, "words": "hello"}
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(st.text(max_size=5), values, max_size=4)


@given(objects)
def test_a_document_has_one_form(document):
    """The order of keys does not matter, and a round trip through JSON changes nothing."""
    turned = dict(reversed(document.items()))
    assert documents.canonical(document) == documents.canonical(turned)
    assert documents.canonical(json.loads(documents.canonical(document))) == documents.canonical(document)


@given(objects, objects)
def test_two_documents_have_two_forms(one, other):
    """Only equal documents are written alike, so a signature is of one document alone."""
    same = documents.canonical(one) == documents.canonical(other)
    assert same == (json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True))


def test_a_signature_is_of_one_document_by_one_key():
    """A changed word, another format, another key, no signature and half of one are all refused."""
    signed = documents.sign(PLAIN, BANK)
    documents.verify(signed, BANK.certificate)
    for damaged in (
        {**signed, "words": "hallo"},
        {**signed, "format": "bill"},
        {**signed, "more": 1},
        {**signed, "signature": signed["signature"][:-8]},
        {**signed, "signature": "%%%"},
        {**signed, "signature": 7},
        PLAIN,
    ):
        with pytest.raises(PeerRefused):
            documents.verify(damaged, BANK.certificate)
    with pytest.raises(PeerRefused):
        documents.verify(signed, SHOP.certificate)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "damaged, or not a letter"),
        ("[1]", "is not a letter"),
        ('{"format": "bill", "version": 1, "words": "x"}', "is not a letter"),
        ('{"format": "letter", "version": 2, "words": "x"}', "version 2"),
        ('{"format": "letter", "version": true, "words": "x"}', "version True"),
        ('{"format": "letter", "words": "x"}', "version None"),
        ('{"format": "letter", "version": 1}', "'words' is missing"),
        ('{"format": "letter", "version": 1, "words": 1}', "words has the wrong type, int"),
        ('{"format": "letter", "version": 1, "words": "x", "more": 1}', "'more' is unknown"),
        ('{"format": "letter", "version": 1, "words": "x", "words": "y"}', "stands there twice"),
        ("[" * 5_000, "damaged"),
        ('{"a": "' + "x" * documents.MOST_BYTES + '"}', "more than 65,536 bytes"),
    ],
)
def test_what_is_not_the_document_is_refused(text, words, tmp_path):
    """Another format or version, a key too many, too few, twice or of another type, and too much of anything."""
    path = tmp_path / "letter.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match=words):
        documents.read(path, "letter", {"words": str})


def test_bytes_that_are_no_text_are_refused(tmp_path):
    """A file that is not even text is an error about the file."""
    (tmp_path / "letter.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="damaged"):
        documents.read(tmp_path / "letter.json", "letter", {})


def test_a_file_appears_whole_and_private(tmp_path):
    """It has its mode whatever the umask, replaces what was there, and leaves nothing beside it."""
    before = os.umask(0)
    try:
        for words in ("one", "two"):
            documents.write(tmp_path / "letter.json", {**PLAIN, "words": words})
    finally:
        os.umask(before)
    assert documents.read(tmp_path / "letter.json", "letter", {"words": str})["words"] == "two"
    assert (tmp_path / "letter.json").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["letter.json"]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    """If the disk is full in the middle, what was there stays."""
    documents.write(tmp_path / "letter.json", PLAIN)

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(documents.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        documents.write(tmp_path / "letter.json", {**PLAIN, "words": "other"})
    assert documents.read(tmp_path / "letter.json", "letter", {"words": str})["words"] == "hello"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("text", ["", "yesterday", "2026-05-04", "2026-05-04T10:00:00", "9999-12-31T23:59:59-23:59"])
def test_dates_without_a_zone_are_refused(text):
    """A moment is the same for both organisations, so its zone must be there."""
    with pytest.raises(InvalidInput, match=r"letter\.json, made: .* is not a date with its zone"):
        documents.moment(text, "letter.json, made")


def test_a_moment_survives_the_round_trip():
    """To the second."""
    now = documents.now().replace(microsecond=0)
    assert documents.moment(documents.stamp(now), "here") == now
