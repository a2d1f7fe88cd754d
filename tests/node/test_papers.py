"""Proposals and answers: what is taken from a peer, what is not, and what nobody can change unseen."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.errors import HedgerowError, InvalidInput, InvalidParameter, JobError, PeerRefused
from hedgerow.node import documents, papers
from hedgerow.node.home import Home
from hedgerow.node.papers import MOST_PAPERS, Beginning, Papers, answer
from hedgerow.node.policy import RefusalCode
from hedgerow.node.proposal import Place, Proposal
from hedgerow.node.words import brings, view
from hedgerow.schema import Schema
from twins.damage import as_often, damaged
from twins.organisations import DEALT, HOLDERS, TREES, job_text, make_home, proposed, two_organisations

OPTIONS = {**TREES, "epsilon": 2.0, "delta": 1e-6}
JOB = job_text("vertical.noised_gradients", OPTIONS, HOLDERS)


@pytest.fixture
def both(tmp_path):
    """Two organisations, and what the bank proposes."""
    homes = two_organisations(tmp_path)
    return homes, proposed(homes["bank"], JOB)


def handed(homes, *, change=None, sender="bank", receiver="shop"):
    """What the receiver makes of the sender's papers, after somebody has changed them on their way."""
    document = json.loads(Papers(homes[sender]).for_peer(receiver))
    if change is not None:
        change(document)
    trust = homes[receiver].peers.trust_store([sender])
    return Papers(homes[receiver]).take(sender, json.dumps(document).encode(), trust)


def test_a_proposal_arrives_and_its_answer_goes_back(both):
    """Both have the same paper, with both answers, and its hash is the same everywhere."""
    homes, proposal = both
    (paper,), begins = handed(homes)
    assert (paper.proposal, paper.missing, begins) == (proposal, ("shop",), {})
    assert paper.proposal.hash == proposal.hash
    yes = answer(proposal, homes["shop"].identity(), "accept")
    Papers(homes["shop"]).keep(proposal, [yes])
    (paper,), _ = handed(homes, sender="shop", receiver="bank")
    assert paper.is_agreed
    assert handed(homes, sender="shop", receiver="bank") == ([], {})  # nothing is new


def test_everybody_derives_the_same_job(both):
    """Nothing but the document is needed, and it survives JSON; infinity too."""
    homes, proposal = both
    again = Proposal.from_dict(json.loads(json.dumps(proposal.to_dict())))
    assert again.job == proposal.job
    assert again.hash == proposal.hash
    endless = proposed(homes["bank"], job_text("vertical.noised_gradients", {**TREES, "epsilon": math.inf}, HOLDERS))
    assert Proposal.from_dict(json.loads(json.dumps(endless.to_dict()))).job.epsilon == math.inf


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("run_id", "no hex"),
        ("proposed_by", "nobody"),
        ("expires", "2001-01-01T00:00:00+00:00"),
        ("made", "yesterday"),
        ("protocol", "vertical.nothing"),
        ("task", "guessing"),
        ("parties", []),
        ("params", {"epsilon": -1.0}),
        ("params", {"no_such_thing": 1}),
        ("matching", {"minimum": 0}),
        ("version", 2),
        ("format", "hedgerow invitation"),
        ("surplus", 1),
    ],
)
def test_a_proposal_that_cannot_be_is_refused(both, name, value):
    """Whoever wrote it, and before anything is kept."""
    homes, _ = both

    def change(document):
        document["papers"][0]["proposal"][name] = value

    with pytest.raises(PeerRefused, match="papers that bank handed over"):
        handed(homes, change=change)
    assert Papers(homes["shop"]).all() == []


def test_a_changed_proposal_is_not_the_signed_one(both):
    """Any change makes another hash, for which nobody has signed."""
    homes, _ = both

    def change(document):
        document["papers"][0]["proposal"]["params"]["epsilon"] = 50.0

    with pytest.raises(PeerRefused, match="answer to another proposal"):
        handed(homes, change=change)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("says", "refuse"),
        ("says", "perhaps"),
        ("code", 3),
        ("at", "2026-01-01T00:00:00+00:00"),
        ("party", "shop"),
        ("signature", "AAAA"),
        ("signature", "not base64"),
        ("certificate", "nothing"),
        ("surplus", 1),
    ],
)
def test_a_changed_answer_is_refused(both, name, value):
    """What a party signed cannot be turned into something else on its way."""
    homes, _ = both

    def change(document):
        document["papers"][0]["answers"][0][name] = value

    with pytest.raises(PeerRefused):
        handed(homes, change=change)


def test_a_proposal_needs_its_proposers_signature(both):
    """Nobody can propose in another's name."""
    homes, _ = both

    def change(document):
        document["papers"][0]["answers"] = []

    with pytest.raises(PeerRefused, match="has not signed"):
        handed(homes, change=change)


def test_an_answer_in_anothers_name_is_refused(both, tmp_path):
    """Neither with another key, nor with another certificate of the same name."""
    homes, proposal = both
    stranger = make_home(tmp_path / "elsewhere", "bank", None, listens=False)
    forged = answer(proposal, stranger.identity(), "accept")

    def change(document):
        document["papers"][0]["answers"] = [forged]

    with pytest.raises(PeerRefused, match="another certificate than the proposal names"):
        handed(homes, change=change)


def test_a_proposal_for_another_certificate_is_refused(both):
    """Somebody who takes another certificate for ours does not talk to us."""
    homes, proposal = both
    places = tuple(
        replace(place, fingerprint="sha256:" + "0" * 64) if place.name == "shop" else place
        for place in proposal.parties
    )
    other = replace(proposal, parties=places)
    Papers(homes["bank"]).keep(other, [answer(other, homes["bank"].identity(), "accept")])
    with pytest.raises(PeerRefused, match="for the certificate of shop"):
        handed(homes)


def test_a_refusal_stands(both):
    """Who accepted may refuse later, and not the other way round."""
    homes, proposal = both
    papers, identity = Papers(homes["bank"]), homes["bank"].identity()
    papers.keep(proposal, [answer(proposal, identity, "refuse", RefusalCode.BUDGET)])
    assert papers.get(proposal.hash).refused_by == {"bank": RefusalCode.BUDGET}
    papers.keep(proposal, [answer(proposal, identity, "accept")])
    assert papers.get(proposal.hash).refused_by == {"bank": RefusalCode.BUDGET}


def test_too_many_papers_are_refused(both):
    """A peer cannot fill the disk."""
    homes, _ = both

    def change(document):
        document["papers"] *= MOST_PAPERS + 1

    with pytest.raises(PeerRefused, match=f"more than {MOST_PAPERS}"):
        handed(homes, change=change)


def test_papers_do_not_pile_up(both, monkeypatch):
    """Nor can it over several meetings: what is open between the two is bounded."""
    homes, _ = both
    monkeypatch.setattr(papers, "MOST_PAPERS", 2)
    for _ in range(2):
        handed(homes)
        (proposal,) = Papers(homes["bank"])._folder.iterdir()
        shutil.rmtree(proposal)
        proposed(homes["bank"], JOB)
    with pytest.raises(PeerRefused, match="more than 2 that are open"):
        handed(homes)
    assert len(Papers(homes["shop"]).all()) == 2


def test_what_could_not_be_read_again_is_not_kept(both):
    """An answer that fits a message and not a file would make every later look at the papers fail."""
    homes, proposal = both
    identity = homes["bank"].identity()

    def change(document):
        long = answer(proposal, identity, "accept")
        del long["signature"]
        long["certificate"] = "x" * 70_000 + "\n" + long["certificate"]
        document["papers"][0]["answers"] = [documents.sign(long, identity)]

    with pytest.raises(PeerRefused, match="an answer takes more than"):
        handed(homes, change=change)
    assert Papers(homes["shop"]).all() == []


@pytest.fixture(scope="module")
def on_their_way(tmp_path_factory):
    """Two organisations, and the bytes that one hands the other."""
    homes = two_organisations(tmp_path_factory.mktemp("papers"))
    proposed(homes["bank"], JOB)
    return homes["shop"], Papers(homes["bank"]).for_peer("shop", {"0" * 32: Beginning(1, False)})


@given(data=st.data())
@as_often(40)
def test_papers_that_were_changed_are_taken_or_refused(on_their_way, data):
    """Any value in any place, any byte: one kind of error, that names the peer, and then nothing was written."""
    shop, whole = on_their_way
    try:
        Papers(shop).take("bank", data.draw(damaged(whole, "json")), shop.peers.trust_store(["bank"]))
    except PeerRefused as problem:
        assert "bank" in str(problem)  # noqa: PT017 - most are refused, and then in words
        assert list(shop.proposals.iterdir()) == []
    else:
        Papers(shop).all()
        for folder in shop.proposals.iterdir():
            shutil.rmtree(folder)


@pytest.mark.parametrize("begin", [{"a": 1}, {"a": {"attempt": 0, "has_rows": True}}, {"a": {"attempt": 1}}, []])
def test_attempts_that_cannot_be_are_refused(both, begin):
    """A number from a peer is checked before it is used."""
    homes, _ = both

    def change(document):
        document["begin"] = begin

    with pytest.raises(PeerRefused):
        handed(homes, change=change)


def test_what_both_begin_is_the_later_attempt():
    """And rows count as matched only if both have them."""
    assert Beginning(2, True).joined(Beginning(3, False)) == Beginning(3, False)
    assert Beginning(2, True).joined(Beginning(1, True)) == Beginning(2, True)


@given(content=st.binary(max_size=300) | st.text(max_size=200).map(str.encode))
@settings(max_examples=60)
def test_anything_at_all_is_taken_or_refused(tmp_path_factory, content):
    """Bytes of a peer never lead to another kind of error."""
    home = _one_home(tmp_path_factory)
    try:
        Papers(home).take("shop", content, home.peers.trust_store([]))
    except HedgerowError as problem:
        assert "shop" in str(problem)  # noqa: PT017 - most are refused, and then in words


_HOMES: dict[str, Home] = {}


def _one_home(factory):
    if "bank" not in _HOMES:
        _HOMES["bank"] = Home.create(factory.mktemp("fuzzed") / "bank", "bank")
    return _HOMES["bank"]


def test_a_file_that_was_changed_is_found(both):
    """On this party's own disk, too: the folder's name is the hash."""
    homes, proposal = both
    path = homes["bank"].proposals / proposal.hash / "proposal.json"
    document = json.loads(path.read_text())
    document["params"]["max_depth"] = 8
    documents.write(path, document)
    with pytest.raises(InvalidInput, match="not what its hash stands for"):
        Papers(homes["bank"]).get(proposal.hash)


def test_the_one_that_is_meant_is_found(both):
    """By the beginning of its hash or run id; without one, if there is no other."""
    homes, proposal = both
    papers = Papers(homes["bank"])
    for start in (None, proposal.hash[:6], proposal.run_id[:6]):
        assert papers.find(start).proposal == proposal
    proposed(homes["bank"], JOB)
    with pytest.raises(InvalidParameter, match="say which of 2 proposals"):
        papers.find(None)
    with pytest.raises(InvalidParameter, match="no proposal begins with it"):
        papers.find("zz")


def test_neither_listens(tmp_path):
    """It is said when the proposal is made, with the way out."""
    homes = two_organisations(tmp_path)
    for home in homes.values():
        text = home.party_toml.read_text()
        lines = [line for line in text.splitlines() if not line.startswith(("bind", "advertise"))]
        home.party_toml.write_text("\n".join(lines))
    with pytest.raises(JobError, match="neither has an address to be dialled at"):
        proposed(Home(homes["bank"].path), JOB)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (JOB.replace("[parties.bank]", "[parties.office]"), "does not name bank"),
        (JOB.replace("[parties.shop]", "[parties.stranger]"), "stranger is not paired"),
        (JOB.replace('role = "label holder"', 'role = "feature holder"'), "hold the labels"),
        (JOB.replace("epsilon = 2.0", "epsilon = -2.0"), "epsilon must be"),
        (JOB.replace("noised_gradients", "secret_shared"), "epsilon"),
    ],
)
def test_a_job_that_cannot_be_is_refused_with_its_file(tmp_path, text, said):
    """The sentence names what to change."""
    homes = two_organisations(tmp_path)
    with pytest.raises(HedgerowError, match=said):
        proposed(homes["bank"], text)


def test_a_dealer_is_asked_for(tmp_path):
    """A protocol that needs a party more says which, and how to add it."""
    homes = two_organisations(tmp_path)
    with pytest.raises(JobError, match=r"needs a party 'dealer' as dealer: add \[parties.dealer\]"):
        proposed(homes["bank"], job_text("vertical.secret_shared", TREES, HOLDERS))


def test_a_proposal_is_never_there_without_its_proposers_answer(both, monkeypatch):
    """Also not for a moment, in which another peer could be handed it."""
    homes, proposal = both
    papers, write = Papers(homes["shop"]), documents.write

    def looked_at(*args):
        write(*args)
        assert all("bank" in paper.answers for paper in papers.all())

    monkeypatch.setattr(documents, "write", looked_at)
    handed(homes)
    assert [paper.proposal.hash for paper in papers.all()] == [proposal.hash]


def test_every_party_can_read_a_proposal(tmp_path):
    """Also a dealer, who has no rows to match, and of whom nothing leaves the house by that."""
    homes = two_organisations(tmp_path, "notary")
    proposal = proposed(homes["bank"], job_text("vertical.secret_shared", TREES, DEALT))
    for name, home in homes.items():
        seen = view(proposal, home)
        assert any(line.startswith("  " + name) for line in seen.lines())
        assert ("vertical.blinded_ids" in str(seen.to_dict()["leaves"])) == (name != "notary")


def test_who_reads_a_proposal_with_dp_is_told_what_it_does_not_cover(tmp_path):
    """vertical.homomorphic: the guarantee with its epsilon, that there is none for all that is told, and why."""
    homes = two_organisations(tmp_path)
    columns = [column.name for column in view_of_shop(homes).table.columns]
    Schema.from_public(bounds=dict.fromkeys(columns, (-10.0, 10.0))).save(homes["bank"].path / "schema.json")
    options = {**TREES, "max_depth": 2, "dp": (2.0, 1e-6), "schema": "schema.json", "min_rows_per_sum": 20}
    proposal = proposed(homes["bank"], job_text("vertical.homomorphic", options, HOLDERS))
    assert (proposal.job.dp, proposal.job.boosting.min_rows_per_sum) == ((2.0, 1e-6), 20)
    words = " ".join(" ".join(view(proposal, homes["shop"]).lines()).split())
    assert "there is no epsilon for your rows: vertical.homomorphic tells exactly which way rows go" in words
    assert "no split tells apart: epsilon = 2 and delta = 1e-6" in words
    assert "in every node of 20 rows or more" in words


def view_of_shop(homes):
    """What the shop brings."""
    plain = proposed(homes["bank"], job_text("vertical.homomorphic", TREES, HOLDERS))
    return brings(plain, homes["shop"]).data


def test_who_dials_follows_from_the_addresses(both):
    """The party without an address dials; of two that have one, the one that the protocol lets listen is dialled."""
    _, proposal = both
    links = proposal.job.links
    address = proposal.place("bank").address
    assert proposal.dials("shop", links) == {"bank": address}
    assert proposal.dials("bank", links) == {}
    places = [replace(proposal.place("bank"), address=None), replace(proposal.place("shop"), address="shop.example:1")]
    turned = replace(proposal, parties=tuple(places))
    assert turned.dials("bank", links) == {"shop": "shop.example:1"}
    assert turned.dials("shop", links) == {}
    assert isinstance(places[0], Place)
