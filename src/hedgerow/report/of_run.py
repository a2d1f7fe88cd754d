"""The report of a run that one program has played: of one party, or of somebody who has everybody's books.

A party's report is made of what that party would have at home, and of nothing else: its own ledger, its own columns,
the job that all agreed on, and the statement as it can make it. What the label holder's record says, such as how many
columns another party sent, stays with the label holder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hedgerow._version import __version__
from hedgerow.errors import InvalidParameter
from hedgerow.federation.alignment import take_rows
from hedgerow.federation.run import Run
from hedgerow.federation.vertical_model import VerticalModel
from hedgerow.protocols.vertical.common.parts import LabelHolderPart, OwnerPart, Part
from hedgerow.protocols.vertical.common.shared_parts import SharedLeavesPart
from hedgerow.report.charts import count, moment
from hedgerow.report.measure import (
    MOST_EXPLAINED,
    contributions_of_model,
    importances,
    mean_contributions,
    quality_of_classes,
    quality_of_numbers,
)
from hedgerow.report.of_model import IN_ITS_RUN, measured_on, trained_words
from hedgerow.report.told import Curve, Passed, Quality, Ranked, Told
from hedgerow.runtime.protocol import FEATURE_HOLDER, LABEL_HOLDER, OWN, Protocol, find
from hedgerow.transport.mtls import check_party_names

STAND_INS = "Gains are stand-ins made from leaf values: the model has no exact ones (share_cover=True has them)."
AS_AGREED = (
    "This is what {party} can state: what all agreed on, for a run that came to its end, and what its own part of the "
    "model says. {holder} has the statement with all that was counted in the run."
)
"""For parties whose role ends without the record of the training."""


def told_of_run(
    run: Run,
    party: str | None = None,
    X: Any = None,
    y: Any = None,
    *,
    attacks: Sequence[Mapping[str, Any]] = (),
    quality: Quality | None = None,
    place: str = "RUN",
    digests: Mapping[str, str] | None = None,
) -> Told:
    """All that one party can tell of a run, or all together; `place` is the folder it is saved in, for commands."""
    cast: Mapping[str, str] = run.job.cast
    if party is not None and party not in run.ledgers:
        check_party_names((party,))
        raise InvalidParameter(f"party={party!r} has no ledger in this run; there are {', '.join(run.ledgers)}")
    spec = find(run.protocol)
    measured, curves = _measured(run, party, X, y)
    title = f"Report of {party}" if party else "Report of all parties together"
    return Told(
        title=title,
        subtitle=f"{run.protocol}, run {run.job.run_id[:12]}{f', {moment(run.finished)}' if run.finished else ''}",
        protocol=run.protocol,
        party=party,
        trained=_trained(run, spec, party),
        cast=cast,
        passed=list(_passed(run, party)),
        statement=run.statement(party),
        statement_note=note_on_statement(spec, run.job, party),
        ranked=[*ranked_of(run.model, run.job, party), *_contributed(run, party, X)],
        curves=curves,
        quality=quality or measured,
        is_from_rows=X is not None or quality is not None or bool(attacks),
        attacks=[seen_by(party, outcome) for outcome in attacks],
        again=repeatable(spec, run.job),
        facts={
            "Hedgerow": __version__,
            "protocol": run.protocol,
            "run": run.job.run_id,
            "digest of the job": job_digest(run.job),
            "transport": run.transport,
            "ended": run.finished or "not written down",
            **(digests or {}),
        },
        commands=[
            f"hedgerow ledger {place}{f' --party {party}' if party else ''}",
            *([f"hedgerow attack {place}"] if run.transcripts else []),
        ],
        settings=settings_of(run.job),
    )


def told_of_parts(model: VerticalModel) -> Told:
    """What a model in parts tells by itself, to somebody who has all parts."""
    protocol = model.asking.protocol
    holder, others = model.label_holder, [name for name in model.parties if name != model.label_holder]
    return Told(
        title="Model in parts",
        subtitle=f"{protocol}, run {model.asking.run_id[:12]}",
        protocol=protocol,
        party=None,
        trained=[
            f"{count(model.n_iter_, 'round')} of boosting.",
            *(w for p in model.parts.values() for w in own_words(p)),
        ],
        cast={holder: LABEL_HOLDER, **dict.fromkeys(others, FEATURE_HOLDER)},
        guarantee_instead=IN_ITS_RUN.format(protocol=protocol),
        ranked=ranked_of(model, None, None),
        facts={"Hedgerow": __version__, "run": model.asking.run_id},
    )


# --- what all reports of runs share ----------------------------------------------------------------------------------


def settings_of(job: Any) -> dict[str, Any]:
    """The job as all parties agreed on it, without folders of their own."""
    return {name: value for name, value in job.to_dict().items() if name not in OWN}


def job_digest(job: Any) -> str:
    """SHA-256 of the job, the same at every party."""
    return hashlib.sha256(json.dumps(settings_of(job), sort_keys=True, default=str).encode()).hexdigest()


def repeatable(spec: Protocol, job: Any) -> str:
    """Whether the same rows give the same model."""
    drawn = spec.drawn(job)
    if drawn is None:
        return "The same rows and settings give the same model, bit for bit."
    return f"A second run gives another model. Drawn at random: {drawn}."


def note_on_statement(spec: Protocol, job: Any, party: str | None) -> str:
    """Where a party's statement comes from, if it is not that of the run's record."""
    if party is None or spec.partition == "rows" or party == spec.parties(job)[0]:
        return ""
    return AS_AGREED.format(party=party, holder=spec.parties(job)[0])


def seen_by(party: str | None, outcome: Mapping[str, Any]) -> Mapping[str, Any]:
    """An attack as one party may see it: verdict and numbers, and what was found if it is the attacker."""
    return outcome if party in (None, outcome["attacker"]) else {**outcome, "found": None}


def agreed_words(spec: Protocol, job: Any) -> list[str]:
    """What was trained, as the job has it."""
    what = "to predict a number" if getattr(job, "task", "") == "regression" else "to tell classes apart"
    divided = "each owner has some of the rows" if spec.partition == "rows" else "each party has some of the columns"
    return [f"One model {what}, by {job.NAME}: {divided}."]


def own_words(part: Part | None) -> list[str]:
    """What a party brought."""
    if part is None:
        return []
    names = [feature.name for feature in part.features]
    some = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    return [f"{part.party} brought {count(len(names), 'column')}{f': {some}' if names else ''}."]


def of_part(part: Part) -> list[Ranked]:
    """Importances of a party's own columns, as far as its part of the model says."""
    names = [feature.name for feature in part.features]
    if isinstance(part, LabelHolderPart):
        return [_gains_of_label_holder(part, names)]
    if isinstance(part, OwnerPart):
        counts = np.bincount(part.questions.column, minlength=len(names))
    elif isinstance(part, SharedLeavesPart):
        columns = np.concatenate([np.zeros(0, np.int32), *(tree.column for tree in part.trees)])
        counts = np.bincount(columns[columns >= 0], minlength=len(names))
    else:
        return []
    values = dict(zip(names, counts.astype(float).tolist(), strict=True))
    note = "What a split gains is not known to this party."
    caption = f"Columns of {part.party}: how many different questions the model asks about each"
    return [Ranked(caption, "questions", values, "", note)]


def _gains_of_label_holder(part: LabelHolderPart, names: Sequence[str]) -> Ranked:
    """Own columns one by one; those of others as one each, since their splits are known by number only."""
    gains, kind = part.ensemble.importances("gain"), "gain"
    if not gains.sum() > 0:
        gains, kind = part.ensemble.importances("count"), "number"
    total = float(gains.sum()) or 1.0
    values = dict(zip(names, (gains[: part.n_own] / total).tolist(), strict=True))
    for party, n_handles in part.handles.items():
        first = part.first_column(party)
        values[f"all columns of {party}"] = float(gains[first : first + n_handles].sum()) / total
    note = "Columns of other parties are not known by name here, so each party is one entry."
    return Ranked(f"Columns of {part.party}: share of the {kind} of all splits", "share", values, "share", note)


def ranked_of(model: Any, job: Any, party: str | None) -> list[Ranked]:
    """Importances of columns as one party knows them, or of everybody's part one list each."""
    if not isinstance(model, VerticalModel):
        return [importances(model.ensemble_, "" if getattr(job, "shares_cover", True) else STAND_INS)]
    parts = model.parts if party is None else {party: model.parts[party]} if party in model.parts else {}
    return [ranked for part in parts.values() for ranked in of_part(part)]


# --- pieces ----------------------------------------------------------------------------------------------------------


def _passed(run: Run, party: str | None) -> list[Passed]:
    found = []
    both = ((run, "The training"), (run.alignment, "Matching rows by ids"))
    for done, name in both:
        if done is not None and party in (None, *done.ledgers):
            books = {each: book for each, book in done.ledgers.items() if party in (None, each)}
            found.append(Passed(name, done.job.NAME, done.job.cast, books, done.seconds))
    return found


def _trained(run: Run, spec: Protocol, party: str | None) -> list[str]:
    words = agreed_words(spec, run.job)
    if not isinstance(run.model, VerticalModel):
        return [*words, *trained_words(run.model)]
    if party is None or party == run.model.label_holder:
        words.append(f"{count(run.model.n_iter_, 'round')} of boosting.")
    return [*words, *own_words(run.model.parts.get(party or ""))]


def _contributed(run: Run, party: str | None, X: Any) -> list[Ranked]:
    """From the service that explains rows, in which each party learns of its own columns."""
    model = run.model
    if X is None or (isinstance(model, VerticalModel) and model.is_shared):
        return []
    if not isinstance(model, VerticalModel):
        return [contributions_of_model(model.ensemble_, X)]
    found = VerticalModel.contributions(
        model, {name: take_rows(rows, np.arange(min(len(rows), MOST_EXPLAINED))) for name, rows in X.items()}
    )
    return [
        mean_contributions(each.values, each.columns, f" of columns of {name}")
        for name, each in found.items()
        if party in (None, name)
    ]


def _measured(run: Run, party: str | None, X: Any, y: Any) -> tuple[Quality | None, Mapping[str, Sequence[Curve]]]:
    model = run.model
    if not isinstance(model, VerticalModel):
        return measured_on(model, X, y)
    if y is None:
        return None, {}
    if X is None:
        raise InvalidParameter("y needs X: labels are compared with what the model predicts for their rows")
    if party not in (None, model.label_holder):
        raise InvalidParameter(
            f"y is for the report of {model.label_holder}, which has the labels and learns the scores; leave it out of "
            f"that of {party}"
        )
    if model.target.classes is None:
        numbers = model.predict(X)
        return quality_of_numbers(numbers, y, f"{len(numbers):,} rows"), {}
    shares = model.predict_proba(X)
    return quality_of_classes(shares, model.classes_, y, f"{len(shares):,} rows"), {}
