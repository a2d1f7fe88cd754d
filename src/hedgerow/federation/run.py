"""What a federated training leaves behind: model, ledgers, traffic, time, a statement - and how they are saved."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hedgerow._version import __version__
from hedgerow.errors import InvalidInput
from hedgerow.estimators.plain import BoostedTreesClassifier, BoostedTreesRegressor, load_model
from hedgerow.federation.alignment import Alignment
from hedgerow.federation.finished import Finished, read_heading, read_ledgers, read_what_it_took
from hedgerow.federation.vertical_model import VerticalModel
from hedgerow.runtime.protocol import TrainingRecord, find
from hedgerow.runtime.recording import FOLDER, LEDGERS
from hedgerow.runtime.saved_files import damage_told, whole_folder
from hedgerow.statement import Statement
from hedgerow.transport.mtls import check_party_names
from hedgerow.transport.transcripts import SUFFIX, SavedTranscripts, Transcript

if TYPE_CHECKING:
    from hedgerow.report.page import Page

FORMAT = 1
ABOUT = "run.json"
FILES = (
    *(ABOUT, "model.json", "model/parties.json", "model/*/part.json"),
    *("alignment/alignment.json", "alignment/*/rows.npy", "alignment/*/ledger.jsonl"),
    *(f"{LEDGERS}/*.jsonl", f"{FOLDER}/*{SUFFIX}", "report*.html"),
)
"""All that can be in the folder of a run; one that holds other files is not replaced."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Run(Finished):
    """One finished training."""

    protocol: str  # its name, as users write it
    model: BoostedTreesClassifier | BoostedTreesRegressor | VerticalModel  # the last where columns are split
    alignment: Alignment | None = None  # how the rows were found, where ids were compared
    transcripts: Mapping[str, Transcript] = field(default_factory=dict)  # of a recorded run; as sensitive as the data
    finished: str | None = None  # when it ended, ISO 8601 in UTC; runs saved before there was a date have none

    @property
    def meta(self) -> TrainingRecord:
        """What the model says about its training."""
        of_model = self.model.meta if isinstance(self.model, VerticalModel) else self.model.ensemble_.meta
        return cast("TrainingRecord", of_model)

    @property
    def evals_result(self) -> dict[str, dict[str, list[float]]]:
        """With early stopping, as XGBoost has it: "valid" -> metric -> its value after each iteration; else empty."""
        curve = self.meta.get("learning_curve")
        return {"valid": {metric: list(values) for metric, values in curve.items()}} if curve else {}

    @property
    def best_iteration(self) -> int | None:
        """With early stopping, the last iteration that was kept, counted from 0."""
        return self.meta.get("best_iteration")

    @property
    def rounds(self) -> dict[str, int]:
        """Rounds of messages to the coordinator and back: before the first tree, and for the trees."""
        return dict(self.meta.get("rounds", {}))

    @property
    def lost(self) -> dict[str, int]:
        """Parties that were lost on the way, and the number of the tree in which that was noticed."""
        return dict(self.meta.get("lost_owners", {}))

    def statement(self, party: str | None = None) -> Statement:
        """What holds after this run and what does not, in words (`str`) and as facts (`to_dict`).

        With `party` as that party can state it: only the label holder has what was counted where columns are split.
        """
        stated = find(self.protocol).statement(self.job, self._record(party))
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

    def _record(self, party: str | None) -> Mapping[str, Any]:
        """What a party knows about the training as a whole: the model's own record, or what all agreed on before it."""
        if party is None or not isinstance(self.model, VerticalModel) or party == self.model.label_holder:
            return self.meta
        own: Mapping[str, Any] = getattr(self.model.parts.get(party), "meta", {})  # a dealer has no part
        return {**find(self.protocol).expected(self.job), **own}

    def report(
        self,
        path: str | Path | None = None,
        party: str | None = None,
        *,
        X: Any = None,
        y: Any = None,
        attacks: Any = (),
    ) -> Page:
        """The run as a page for people who sign: of one party, with what it knows and no more, or of all together.

        With `path` it is written there, as one HTML file that needs nothing else. Rows `X`, as the model takes them,
        add contributions, and labels `y` how good the model is on them. `attacks` are outcomes of `attacks.registry`.
        """
        from hedgerow.report.of_run import told_of_run
        from hedgerow.report.sections import page

        outcomes = [each if isinstance(each, Mapping) else each.to_dict() for each in attacks]
        return page(told_of_run(self, party, X, y, attacks=outcomes), path)

    def _repr_html_(self) -> str:
        return self.report().fragment

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
        recorded run are transcripts/<party>.frames. All of it is for the eyes of the folder's owner only, and appears
        whole or not at all; another run that was saved there is replaced.
        """
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
        with whole_folder(folder, FILES) as place:
            if isinstance(self.model, VerticalModel):
                self.model.save(place / "model")
            else:
                self.model.save_model(place / "model.json")
            if self.alignment is not None:
                self.alignment.save(place / "alignment")
            (place / LEDGERS).mkdir()
            for party, ledger in self.ledgers.items():
                (place / LEDGERS / f"{party}.jsonl").write_text(ledger.to_json_lines())
            if self.transcripts:
                (place / FOLDER).mkdir()
            for party, transcript in self.transcripts.items():
                _bring(transcript, place / FOLDER / f"{party}{SUFFIX}", Path(folder).resolve())
            (place / ABOUT).write_text(json.dumps(about, indent=1))

    @classmethod
    def load(cls, folder: str | Path) -> Run:
        """The run that was saved in a folder. Transcripts are opened when they are asked for."""
        place = Path(folder)
        about = read_heading(place / ABOUT, "run", {"format": FORMAT})
        with damage_told(f"{place / ABOUT} is damaged"):
            protocol = find(about["protocol"])
            job = protocol.job.from_dict(about["job"])
            parties, recorded = list(about["parties"]), list(about.get("recorded", ()))
            for names in (parties, recorded):
                check_party_names(tuple(names))
            took = read_what_it_took(about)
        with damage_told(f"{place}: the model of the run is damaged"):
            vertical = protocol.partition == "columns"
            model = VerticalModel.load(place / "model") if vertical else load_model(place / "model.json")
        files = {party: place / LEDGERS / f"{party}.jsonl" for party in parties}
        found = cls(
            job=job,
            protocol=job.NAME,
            model=model,
            ledgers=read_ledgers(files, f"{place}: a ledger of the run is damaged"),
            alignment=Alignment.load(place / "alignment") if (place / "alignment").exists() else None,
            finished=about.get("finished"),
            transcripts=SavedTranscripts(place / FOLDER, recorded, job.run_id),
            **took,
        )
        with damage_told(f"{place}: what the model and the job say does not fit together"):
            found.statement()
        return found

    def __repr__(self) -> str:
        return f"Run({self.protocol!r}, {len(self.ledgers)} parties, {self.transport}, {self.seconds:.2f} s)"


def _bring(transcript: Transcript, path: Path, home: Path) -> None:
    """Into the folder that is to become `home`. What lies there gets a second name, and then loses the first."""
    if transcript.path is not None and transcript.path.resolve().parent.parent == home:
        try:
            os.link(transcript.path, path)
        except OSError:  # a disk without hard links
            pass
        else:
            return
    transcript.save(path)
