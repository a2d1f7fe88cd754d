"""What a federated training leaves behind: model, ledgers, traffic, time, a statement - and how they are saved."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hedgerow._version import __version__
from hedgerow.alignment import Alignment
from hedgerow.errors import InvalidInput
from hedgerow.estimators import load_model
from hedgerow.ledger import Ledger, reconcile
from hedgerow.protocols.protocol import Statement, find
from hedgerow.records import FOLDER, transcripts_folder
from hedgerow.statement import Statement as Stated
from hedgerow.transport.meter import Meter
from hedgerow.transport.transcripts import SUFFIX, SavedTranscripts, Transcript
from hedgerow.vertical_model import VerticalModel

FORMAT = 1


@dataclass(frozen=True)
class Run:
    """One finished training. `seconds` is from the first protocol message to the model, without starting processes."""

    protocol: str
    transport: str
    job: Any
    model: Any  # an estimator, or where columns are split a VerticalModel
    ledgers: Mapping[str, Ledger]
    meters: Mapping[str, Meter]
    seconds: float
    alignment: Alignment | None = None  # how the rows were found, where ids were compared
    transcripts: Mapping[str, Transcript] = field(default_factory=dict)  # of a recorded run; as sensitive as the data
    finished: str | None = (
        None  # when it ended, ISO 8601 in UTC; runs that were saved before there was a date have none
    )

    @property
    def meta(self) -> dict[str, Any]:
        """What the model says about its training."""
        found: dict[str, Any] = self.model.meta if isinstance(self.model, VerticalModel) else self.model.ensemble_.meta
        return found

    @property
    def traffic(self) -> dict[str, Any]:
        """Bytes and messages of each party: in all, by peer and by kind of message, sent and received."""
        return {party: meter.to_dict() for party, meter in self.meters.items()}

    @property
    def rounds(self) -> dict[str, int]:
        """Rounds of messages to the coordinator and back: before the first tree, and for the trees."""
        return dict(self.meta.get("rounds", {}))

    @property
    def lost(self) -> dict[str, int]:
        """Parties that were lost on the way, and the number of the tree in which that was noticed."""
        return dict(self.meta.get("lost_owners", {}))

    def statement(self) -> Statement | Stated:
        """What holds after this run and what does not, in words (`str`) and as facts (`to_dict`)."""
        stated = find(self.protocol).statement(self.job, self.meta)
        if not isinstance(stated, Stated):
            return stated
        stated = replace(stated, date=self.finished)
        if self.alignment is None:
            return stated
        matched = self.alignment.statement()
        return replace(
            stated,
            guarantee=(*stated.guarantee, "Before the training, rows were matched by ids:", *matched.guarantee),
            not_covered=(*stated.not_covered, *(gap for gap in matched.not_covered if gap not in stated.not_covered)),
            facts={**stated.facts, "aligning": dict(matched.facts)},
        )

    def reconcile(self) -> None:
        """LedgerMismatch unless everything that one party says it disclosed is what the other says it learned."""
        reconcile({party: ledger for party, ledger in self.ledgers.items() if party not in self.lost})

    def transcript(self, party: str) -> Transcript:
        """What one party sent and received. InvalidInput if the run was not recorded, or nobody has that name."""
        if not self.transcripts:
            raise InvalidInput("this run was not recorded, so there are no transcripts: fit(..., record=True)")
        if party not in self.transcripts:
            raise InvalidInput(f"there is no transcript of {party!r}, only of {', '.join(self.transcripts)}")
        return self.transcripts[party]

    def save(self, folder: str | Path) -> None:
        """Write the run into a folder: run.json, one ledger per party as JSON lines, and the model.

        The model is model.json, or where columns are split a folder `model` with one part per party. Transcripts of a
        recorded run are transcripts/<party>.frames, for the eyes of the folder's owner only.
        """
        place = Path(folder)
        (place / "ledgers").mkdir(parents=True, exist_ok=True)
        if isinstance(self.model, VerticalModel):
            self.model.save(place / "model")
        else:
            self.model.save_model(place / "model.json")
        if self.alignment is not None:
            self.alignment.save(place / "alignment")
        for party, ledger in self.ledgers.items():
            (place / "ledgers" / f"{party}.jsonl").write_text(ledger.to_json_lines())
        for party, transcript in self.transcripts.items():
            transcript.save(transcripts_folder(place) / f"{party}{SUFFIX}")
        about = {
            "format": FORMAT,
            "version": __version__,
            "protocol": self.protocol,
            "transport": self.transport,
            "job": self.job.to_dict(),
            "parties": list(self.ledgers),
            "recorded": list(self.transcripts),
            "seconds": self.seconds,
            "finished": self.finished,
            "traffic": self.traffic,
            "statement": self.statement().to_dict(),
        }
        (place / "run.json").write_text(json.dumps(about, indent=1))

    @classmethod
    def load(cls, folder: str | Path) -> Run:
        """The run that was saved in a folder. Transcripts are opened when they are asked for."""
        place = Path(folder)
        try:
            about = json.loads((place / "run.json").read_text())
        except (OSError, ValueError) as problem:
            raise InvalidInput(f"{place} holds no saved run: {problem}") from problem
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise InvalidInput(f"{place / 'run.json'} is not a run of a kind that this version can read")
        protocol = find(about["protocol"])
        vertical = protocol.partition == "columns"
        job = protocol.job_from_dict(about["job"])
        return cls(
            protocol=about["protocol"],
            transport=about["transport"],
            job=job,
            model=VerticalModel.load(place / "model") if vertical else load_model(place / "model.json"),
            ledgers={
                party: Ledger.from_json_lines(party, (place / "ledgers" / f"{party}.jsonl").read_text())
                for party in about["parties"]
            },
            meters={party: Meter.from_dict(meter) for party, meter in about["traffic"].items()},
            seconds=float(about["seconds"]),
            alignment=Alignment.load(place / "alignment") if (place / "alignment").exists() else None,
            finished=about.get("finished"),
            transcripts=SavedTranscripts(place / FOLDER, about.get("recorded", ()), job.run_id),
        )

    def __repr__(self) -> str:
        return f"Run({self.protocol!r}, {len(self.ledgers)} parties, {self.transport}, {self.seconds:.2f} s)"
