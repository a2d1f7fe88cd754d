"""Proposals and what parties answered to them, in a party's folder and on the way between two parties.

    proposals/<hash>/proposal.json
    proposals/<hash>/answers/<party>.json      accept or refuse, signed by that party

An answer is a signature of the proposal's hash. A proposal without its proposer's own answer is nobody's, and is not
taken. What comes from a peer is checked before it is written: sizes, seats, certificates, signatures. So a file that is
here says what its signer said, and a run begins when all have accepted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from hedgerow.errors import HedgerowError, InvalidInput, InvalidParameter, PeerRefused, plain
from hedgerow.node import documents
from hedgerow.node.policy import RefusalCode
from hedgerow.node.proposal import Proposal
from hedgerow.runtime.saved_files import private_folder
from hedgerow.transport.mtls import Certificate, Identity, TrustStore

if TYPE_CHECKING:
    from hedgerow.node.home import Home

ANSWER = "hedgerow answer"
MOST_BYTES = 1 << 20
"""Of all papers that one peer hands over."""
MOST_ATTEMPTS = 1000
MOST_PAPERS = 64
"""Open proposals that are handed over, and that are taken from one peer."""
Says = Literal["accept", "refuse"]
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "proposal": str,
    "party": str,
    "says": str,
    "code": (int, type(None)),
    "at": str,
    "certificate": str,
    "signature": str,
}


class Beginning(NamedTuple):
    """A run that a party is about to begin, or that is over for it."""

    attempt: int
    has_rows: bool  # that were matched before
    is_over: bool = False  # everybody has kept its result
    met: int = 0  # how often it has met the peer for this, since its process began

    @classmethod
    def read(cls, told: Any) -> Beginning:
        """From what a peer says."""
        read = cls(**told)
        if [type(value) for value in read] != [int, bool, bool, int] or not 1 <= read.attempt <= MOST_ATTEMPTS:
            raise ValueError(f"an attempt is a number up to {MOST_ATTEMPTS}, rows are there or not, it is over or not")
        return read

    def joined(self, other: Beginning) -> Beginning:
        """What both can begin: the later attempt, with rows if both have them; nothing if it is over for one."""
        attempt, has_rows = max(self.attempt, other.attempt), self.has_rows and other.has_rows
        return Beginning(attempt, has_rows, self.is_over or other.is_over)


_NOTHING: Mapping[str, Beginning] = MappingProxyType({})


@dataclass(frozen=True)
class Paper:
    """A proposal, with the answers that are known here."""

    proposal: Proposal
    answers: Mapping[str, Mapping[str, Any]]  # party -> its signed answer

    @property
    def missing(self) -> tuple[str, ...]:
        """Who has not answered yet."""
        return tuple(place.name for place in self.proposal.parties if place.name not in self.answers)

    @property
    def refused_by(self) -> dict[str, RefusalCode]:
        """Who refused, and the reason that it gave."""
        refused = {name: said["code"] for name, said in self.answers.items() if said["says"] == "refuse"}
        return {name: RefusalCode(code) for name, code in refused.items()}

    @property
    def is_agreed(self) -> bool:
        """Whether everybody has accepted."""
        return not self.missing and not self.refused_by

    @property
    def state(self) -> str:
        """In a word or two, for people."""
        if self.refused_by:
            return "refused by " + ", ".join(self.refused_by)
        return "agreed" if self.is_agreed else "waiting for " + ", ".join(self.missing)


def answer(proposal: Proposal, identity: Identity, says: Says, code: RefusalCode | None = None) -> dict[str, Any]:
    """What a party answers, signed with its key."""
    if (says == "refuse") != (code is not None):
        raise InvalidParameter("a refusal has a code, and an acceptance has none")
    document = {
        "format": ANSWER,
        "version": documents.VERSION,
        "proposal": proposal.hash,
        "party": identity.certificate.names[0],
        "says": says,
        "code": None if code is None else int(code),
        "at": documents.stamp(),
        "certificate": identity.certificate.pem.decode(),
    }
    return documents.sign(document, identity)


def check_answer(document: Mapping[str, Any], proposal: Proposal, trust: TrustStore | None = None) -> None:
    """PeerRefused or InvalidInput unless it is an answer to this proposal, by the party that it names.

    That party is who shows the certificate that the proposal names; with `trust`, one that is accepted here as well.
    """
    wanted = {"format": str, "version": int, **_FIELDS}
    version = document.get("version")
    if type(version) is int and version != documents.VERSION:
        raise InvalidInput(
            f"it is an answer of version {version}, and this program reads version {documents.VERSION}; "
            "bring both programs to one version"
        )
    if document.keys() != wanted.keys() or not all(isinstance(document[key], kind) for key, kind in wanted.items()):
        raise InvalidInput("an answer to a proposal lacks fields, has others, or has one of a wrong type")
    if (document["format"], document["version"]) != (ANSWER, documents.VERSION):
        raise InvalidInput(f"an answer is not a {ANSWER} of version {documents.VERSION}")
    if document["proposal"] != proposal.hash:
        raise PeerRefused("an answer to another proposal")
    if document["says"] not in ("accept", "refuse") or (document["says"] == "refuse") != (document["code"] is not None):
        raise InvalidInput(f"an answer says {plain(repr(document['says']))} with the code {document['code']!r}")
    if document["code"] is not None and document["code"] not in set(RefusalCode):
        raise InvalidInput(f"an answer refuses with the code {document['code']}, which means nothing here")
    documents.moment(document["at"], "at")
    place = proposal.place(document["party"])
    certificate = Certificate.from_pem(document["certificate"].encode())
    if certificate.fingerprint != place.fingerprint:
        raise PeerRefused(f"the answer of {place.name} is signed with another certificate than the proposal names")
    if trust is not None:
        trust.check(place.name, certificate)
    documents.verify(document, certificate)


def read_paper(folder: Path, hash_: str | None = None) -> Paper:
    """The proposal in a folder, which must have this hash if one is given, and all answers; signatures are checked."""
    place = folder / "proposal.json"
    with documents.told_of(place):
        proposal = Proposal.from_dict(json.loads(documents.read_bounded(place, MOST_BYTES)))
        if hash_ not in (None, proposal.hash):
            raise InvalidInput("what it says is not what its hash stands for")
    answers = {}
    for path in sorted((folder / "answers").glob("*.json")):
        with documents.told_of(path):
            document = json.loads(documents.read_bounded(path, documents.MOST_BYTES))
            check_answer(document, proposal)
            answers[document["party"]] = document
    return Paper(proposal, answers)


class Papers:
    """The papers in a party's folder."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._folder = home.proposals

    def all(self) -> list[Paper]:
        """Every proposal, the newest first."""
        hashes = [path.parent.name for path in self._folder.glob("*/proposal.json")]
        return sorted((self.get(each) for each in hashes), key=lambda paper: paper.proposal.made, reverse=True)

    def get(self, hash_: str) -> Paper:
        """The one with this hash, as it is on the disk now."""
        return read_paper(self._folder / hash_, hash_)

    def find(self, start: str | None = None) -> Paper:
        """By the beginning of a hash or of a run id; without one, the only open proposal."""
        papers = self.all()
        if start is None:
            papers = [paper for paper in papers if not paper.refused_by and not self._has_run(paper)]
        else:
            papers = [p for p in papers if p.proposal.hash.startswith(start) or p.proposal.run_id.startswith(start)]
        if len(papers) == 1:
            return papers[0]
        listed = ", ".join(f"{paper.proposal.hash[:12]} ({paper.state})" for paper in papers[:8])
        if start is None:
            problem = f"say which of {len(papers)} proposals: {listed}" if papers else "there is no open proposal"
        else:
            problem = f"{len(papers)} proposals begin with it: {listed}" if papers else "no proposal begins with it"
        raise InvalidParameter(f"{problem}; hedgerow status lists them" + ("" if start is None else f", got {start!r}"))

    def keep(self, proposal: Proposal, answers: Iterable[Mapping[str, Any]]) -> Paper:
        """Write down a proposal and answers, all of which have been checked.

        The proposal comes last: somebody else may look meanwhile, and must not find it without its proposer's answer.
        """
        folder = private_folder(self._folder / proposal.hash)
        private_folder(folder / "answers")
        for document in answers:
            path = folder / "answers" / f"{document['party']}.json"
            if not path.exists() or _may_follow(path, document):
                documents.write(path, document)
        if not (folder / "proposal.json").exists():
            documents.write(folder / "proposal.json", proposal.to_dict())
        return self.get(proposal.hash)

    def _has_run(self, paper: Paper) -> bool:
        return (self._home.runs / paper.proposal.run_id / "run.json").exists()

    # --- between two parties -----------------------------------------------------------------------------------------

    def open_with(self, peer: str) -> list[str]:
        """Hashes of proposals in which the peer has a seat, and that may still run."""
        papers = [paper for paper in self.all() if not self._has_run(paper) and not _is_over(paper.proposal)]
        return [each.proposal.hash for each in papers if peer in [place.name for place in each.proposal.parties]]

    def for_peer(self, peer: str, beginning: Mapping[str, Beginning] = _NOTHING) -> bytes:
        """What a peer may have: open proposals in which both have a seat, all answers, and runs that begin now."""
        begin = {run_id: each._asdict() for run_id, each in beginning.items()}
        papers = map(self.get, self.open_with(peer))
        told = [{"proposal": each.proposal.to_dict(), "answers": list(each.answers.values())} for each in papers]
        while len(content := documents.canonical({"begin": begin, "papers": told[:MOST_PAPERS]})) > MOST_BYTES:
            told.pop()
        return content

    def take(self, peer: str, content: bytes, trust: TrustStore) -> tuple[list[Paper], dict[str, Beginning]]:
        """What a peer handed over, checked and written down: papers that are new or have new answers; runs it begins.

        PeerRefused, naming the peer, if anything in it is not as it should be: nothing is kept then.
        """
        try:
            found = json.loads(content)
            entries, begin = found["papers"], found["begin"]
            if not isinstance(entries, list) or not isinstance(begin, dict) or sorted(found) != ["begin", "papers"]:
                raise ValueError("they are not a list of papers and of runs")  # noqa: TRY301 - told below, as all
            if max(len(entries), len(begin)) > MOST_PAPERS:
                raise ValueError(f"there are more than {MOST_PAPERS}")  # noqa: TRY301 - as above
            read = [self._checked(peer, entry, trust) for entry in entries]
            new = {proposal.hash for proposal, _ in read if not (self._folder / proposal.hash).exists()}
            if len(new) + len(self.open_with(peer)) > MOST_PAPERS:
                raise ValueError(f"there are more than {MOST_PAPERS} that are open")  # noqa: TRY301 - as above
            begins = {run_id: Beginning.read(each) for run_id, each in begin.items()}
        except HedgerowError as problem:
            raise PeerRefused(f"the papers that {peer} handed over are refused: {plain(str(problem))}") from problem
        except (ValueError, KeyError, TypeError, RecursionError) as problem:
            raise PeerRefused(f"the papers that {peer} handed over cannot be read: {plain(str(problem))}") from None
        changed = []
        for proposal, answers in read:
            known = (self._folder / proposal.hash / "proposal.json").exists()
            before = self.get(proposal.hash).answers if known else {}
            after = self.keep(proposal, answers)
            if after.answers != before:
                changed.append(after)
        return changed, begins

    def _checked(
        self, peer: str, entry: Mapping[str, Any], trust: TrustStore
    ) -> tuple[Proposal, list[Mapping[str, Any]]]:
        proposal = Proposal.from_dict(entry["proposal"])
        own = proposal.place(self._home.name)
        proposal.place(peer)
        if own.fingerprint != self._home.certificate.fingerprint:
            raise PeerRefused(f"a proposal that takes {own.fingerprint} for the certificate of {own.name}")
        answers: list[Mapping[str, Any]] = list(entry["answers"])
        if len(answers) > len(proposal.parties):
            raise InvalidInput("more answers than parties")
        for document in answers:
            # Who is no peer of this party is known by the certificate that everybody signs for.
            is_peer = document["party"] in proposal.peers_of(own.name)
            check_answer(document, proposal, trust if is_peer else None)
        _check_fits(proposal.to_dict(), MOST_BYTES, "a proposal")
        for document in answers:
            _check_fits(document, documents.MOST_BYTES, "an answer")
        if proposal.proposed_by not in [document["party"] for document in answers]:
            raise PeerRefused(f"a proposal that {plain(proposal.proposed_by)} has not signed")
        if any(document["party"] == own.name for document in answers) and not (self._folder / proposal.hash).exists():
            raise PeerRefused("a proposal that is said to be answered here, and is not known")
        return proposal, answers


def _check_fits(document: Mapping[str, Any], most: int, what: str) -> None:
    """InvalidInput for what could be written down here, and never be read again."""
    documents.check_can_be_read(document)
    if len(documents.text_of(document)) > most:
        raise InvalidInput(f"{what} takes more than {most:,} bytes")


def _may_follow(path: Path, document: Mapping[str, Any]) -> bool:
    """Whoever accepted may still refuse, before the run; a refusal stands."""
    before = json.loads(documents.read_bounded(path, documents.MOST_BYTES))
    return bool(before["says"] == "accept" and document["says"] == "refuse")


def _is_over(proposal: Proposal) -> bool:
    try:
        proposal.check_now()
    except HedgerowError:
        return True
    return False
