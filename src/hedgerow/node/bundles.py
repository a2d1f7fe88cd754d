"""What a party hands to an auditor after a run: all that it takes to repeat it, in one folder.

    write(home, "3f9a", "bundle")              # by the beginning of the run's id
    bundle = Bundle.read("bundle")             # by the auditor, who believes none of it

    proposal.json  answers/<party>.json        what all parties have signed
    audit.jsonl                                the party's trail, up to the end of the run
    opening.json                               what opens its commitments: the salt, and which columns were read
    inputs.arrow  rows.npy                     these columns, all rows; which of the rows were matched, in their order
    part.json or model.json                    what it has of the model

**Whoever has a bundle has the party's data.** A party without data has no table and no part in its bundle.

The table is read again from the party's source, and is written only if it is the one that the trail has a commitment
to. The trail ends with the run: what happened later is not the auditor's business, and trails that were handed over on
different days would know of different runs.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from hedgerow.errors import InvalidInput, JobError
from hedgerow.node import commitments
from hedgerow.node.audit_lines import RUN_ENDED
from hedgerow.node.commitments import Opening
from hedgerow.node.documents import read_bounded
from hedgerow.node.inputs import Inputs
from hedgerow.node.papers import Paper, read_paper
from hedgerow.node.playing import RESULTS
from hedgerow.node.trained import Trained
from hedgerow.runtime.saved_files import damage_told, whole_folder

if TYPE_CHECKING:
    from hedgerow.node.home import Home
    from hedgerow.node.proposal import Proposal

TRAIL, TABLE, ROWS = "audit.jsonl", "inputs.arrow", "rows.npy"
PAPERS = ("proposal.json", "answers/*.json")
FILES = (*PAPERS, TRAIL, commitments.FILE, TABLE, ROWS, *RESULTS)
MOST_BYTES = 4 << 30
"""Of a part or a model."""


def check_repeatable(proposal: Proposal) -> None:
    """JobError, with the reason, if a training of this job gives another model each time."""
    spec = proposal.chosen.protocol
    drawn = spec.drawn(proposal.job)
    if drawn is not None:
        raise JobError(
            f"the run {proposal.run_id[:12]} cannot be repeated: {spec.name}, as it was run, draws {drawn} at random, "
            "and that stays in the model"
        )


def write(home: Home, run: str, out: str | Path) -> Bundle:
    """Put together what an auditor needs of this party. InvalidInput if its table is not what it was."""
    trained = Trained.find(home, run)
    check_repeatable(trained.proposal)
    if not (trained.folder / commitments.FILE).exists():
        raise InvalidInput(f"{trained.folder} has no {commitments.FILE}: nothing was committed to when it was played")
    opening = Opening.read(trained.folder / commitments.FILE)
    inputs = None if opening.how is None else Inputs.again(opening.how, home)
    if inputs is not None and opening.with_inputs(inputs).inputs != opening.inputs:
        raise InvalidInput(
            f"the dataset {inputs.how.dataset} is not what it was when the run {opening.run_id[:12]} began: its "
            "columns, types, values or order of rows are others. Put it back as it was, and export again"
        )
    with whole_folder(out, FILES) as place:
        papers = home.proposals / trained.proposal.hash
        for pattern in PAPERS:
            for path in papers.glob(pattern):
                (place / path.relative_to(papers)).parent.mkdir(exist_ok=True)
                shutil.copyfile(path, place / path.relative_to(papers))
        (place / TRAIL).write_bytes(_until_the_end(home.audit, opening.run_id))
        for name in (commitments.FILE, ROWS, *RESULTS):
            if (trained.folder / name).exists():
                shutil.copyfile(trained.folder / name, place / name)
        if inputs is not None:
            inputs.save(place / TABLE)
    return Bundle.read(out)


def _until_the_end(trail: Path, run_id: str) -> bytes:
    """The trail up to the line that says that the run is over."""
    with damage_told(f"the trail {trail} cannot be read"):
        kept = []
        with trail.open("rb") as file:
            for line in file:
                kept.append(line)
                entry = json.loads(line)
                if entry["kind"] == RUN_ENDED and entry["facts"]["run_id"] == run_id:
                    return b"".join(kept)
    raise InvalidInput(f"the trail {trail} does not say that the run {run_id[:12]} came to its end")


@dataclass(frozen=True)
class Bundle:
    """One party's folder, as anybody may have written it. What is wrong with a file shows when it is read."""

    folder: Path
    opening: Opening

    @classmethod
    def read(cls, folder: str | Path) -> Self:
        """InvalidInput if the folder does not say whose it is, and of which run."""
        place = Path(folder)
        if not (place / commitments.FILE).is_file():
            raise InvalidInput(
                f"{place} is not a bundle: it has no {commitments.FILE}; hedgerow audit export makes one"
            )
        return cls(place, Opening.read(place / commitments.FILE))

    @property
    def party(self) -> str:
        """Whose it is said to be."""
        return self.opening.party

    @property
    def trail(self) -> Path:
        """The file."""
        return self.folder / TRAIL

    @cached_property
    def paper(self) -> Paper:
        """What was signed; every signature is checked."""
        return read_paper(self.folder)

    @cached_property
    def inputs(self) -> Inputs:
        """What the party brought."""
        if self.opening.how is None:
            raise InvalidInput(f"{self.folder} has no table: it does not say which columns were read")
        return Inputs.load(self.opening.how, self.folder / TABLE)

    @property
    def result(self) -> Path | None:
        """The file with what the party has of the model."""
        return next((path for name in RESULTS if (path := self.folder / name).is_file()), None)

    def result_bytes(self) -> bytes:
        """What is in it. InvalidInput if there is none."""
        if self.result is None:
            raise InvalidInput(f"{self.folder} has neither {' nor '.join(RESULTS)}")
        return read_bounded(self.result, MOST_BYTES)
