"""The parts of a report, one function each: facts in, a section of a page out. `told.py` says what the facts are.

The first screen answers five questions, in this order, for somebody who knows neither boosting nor cryptography; all
else is below it. Sentences about protection are those of the statement and of the ledgers, word for word.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate
from os import PathLike

from hedgerow.ledger import Ledger
from hedgerow.report import charts
from hedgerow.report.charts import count, size
from hedgerow.report.flows import PROTECTIONS, Arrow, Flow, arrows, by_kind, groups
from hedgerow.report.html import Markup, joined, tag
from hedgerow.report.page import Page, Section
from hedgerow.report.picture import legend, picture
from hedgerow.report.told import Passed, Told
from hedgerow.statement import PrivacyStatement, Statement

GUARANTEED, NOT_COVERED = "What is guaranteed?", "What does it not cover?"
TRAINED, WITH_WHOM, LEFT = "What was trained?", "With whom?", "What left?"
QUESTIONS = (GUARANTEED, NOT_COVERED, TRAINED, WITH_WHOM, LEFT)
"""The first screen, from left to right."""
WIDE = (GUARANTEED, NOT_COVERED, LEFT)
"""Whose answers are long."""

FIRST = 3
"""Sentences of the statement on the first screen; the rest opens."""

NOTHING = "Nothing. There is no noise and no protocol in this training: the model may remember single rows."
EVERYTHING = "Anything that the model, its predictions or this report tell about the rows."

FROM_ROWS = (
    "Numbers that were computed from rows (how good the model is, contributions, attacks) have no noise, and no "
    "guarantee covers them. Leave them out of a page that leaves the house."
)

ROLES = {
    "label holder": "has the labels",
    "feature holder": "has columns",
    "owner": "has rows",
    "coordinator": "adds up",
    "dealer": "deals random numbers, without data of its own",
    "comparer": "compares blinded ids",
    "party": "has ids",
}
"""What parties do, in plain words."""

VERDICTS = {
    "holds": "this attack does not get beyond what the statement allows",
    "BROKEN": "beyond what the statement allows: its claim is false",
    "inconclusive": "beyond it, but what columns say is counted too: another attack decides",
    "as stated": "nothing is promised against it, and the statement says so",
    "not scored": "the truth was not given, so nothing was counted",
    "not run": "the attack does not take this run, or needs more",
}
"""What an attack came to, in plain words."""


def page(told: Told, path: str | PathLike[str] | None = None) -> Page:
    """The whole report, written to a file if one is given; sections that have nothing to say are left out."""
    made: list[Section | None] = [first_screen(told)]
    made += [who_learned_what(passed, told.party, k) for k, passed in enumerate(told.passed)]
    made += [
        traffic(told),
        model(told),
        quality(told),
        attacks(told),
        budgets(told),
        whole_statement(told),
        repeat(told),
    ]
    found = Page(told.title, [each for each in made if each is not None], told.subtitle)
    if path is not None:
        found.save(path)
    return found


# --- the first screen ------------------------------------------------------------------------------------------------


def first_screen(told: Told) -> Section:
    """The warning, if there is one, and the five questions."""
    answers = {
        GUARANTEED: _guarantee(told),
        NOT_COVERED: _listed(_gaps(told)),
        TRAINED: tag("p", " ".join(told.trained)),
        WITH_WHOM: _with_whom(told),
        LEFT: _left(told),
    }
    cards = [
        tag(
            "div",
            tag("h2", question),
            answers[question],
            class_=f"card{' half' * (question in WIDE)}{' guarantee' * (question == GUARANTEED)}",
        )
        for question in QUESTIONS
    ]
    body = joined(warning(told.statement), tag("div", cards, class_="first"), _for_whom(told))
    return Section("first", "At a glance", body, shows_heading=False)


def warning(statement: Statement | None) -> Markup | None:
    """The stamp of a statement, with its reasons."""
    if statement is None or not statement.stamp:
        return None
    reasons = statement.reasons if isinstance(statement, PrivacyStatement) else ()
    return tag("p", ": ".join([statement.stamp, *(["; ".join(reasons)] if reasons else [])]), ".", class_="stamp")


def _for_whom(told: Told) -> Markup:
    """Who may read the page, and what on it no guarantee covers."""
    words = []
    if told.passed:
        whose = (told.party, f"{told.party} knows") if told.party else ("whoever may see all of it", "all parties know")
        words.append(f"This page shows what {whose[1]}, and is for {whose[0]}.")
    if told.is_from_rows:
        words.append(FROM_ROWS)
    return tag("p", " ".join(words), class_="quiet for-whom") if words else Markup()


def _guarantee(told: Told) -> Markup:
    if told.statement is None:
        return tag("p", told.guarantee_instead or NOTHING)
    sentences = [tag("p", sentence) for sentence in told.statement.guarantee]
    more = tag("details", tag("summary", f"{len(sentences) - FIRST} more"), sentences[FIRST:])
    whole = tag("p", tag("a", "The whole statement", href="#statement"), class_="small")
    return joined(sentences[:FIRST], more if len(sentences) > FIRST else None, whole)


def _gaps(told: Told) -> Sequence[str]:
    """What the statement ends with."""
    if told.statement is None:
        return [EVERYTHING]
    *_, (_, gaps) = told.statement.sections()
    return list(gaps)


def _listed(sentences: Sequence[object], what: str = "more") -> Markup:
    """The first few as a list; the others open."""
    more = [tag("li", sentence) for sentence in sentences[FIRST:]]
    opened = tag("details", tag("summary", f"{len(more)} {what}"), tag("ul", more)) if more else None
    return joined(tag("ul", (tag("li", sentence) for sentence in sentences[:FIRST])), opened)


def _with_whom(told: Told) -> Markup:
    if not told.cast:
        return tag("p", "With nobody: one table, in one place.")
    cast = told.cast
    shown: dict[str, list[str]] = {}
    for party, group in groups(cast).items():
        shown.setdefault(group, []).append(party)
    entries = []
    for group, members in shown.items():
        role, is_one = cast[members[0]], members == [group]
        own = ", whose report this is" if group == told.party else ""
        named = f" ({role}{own})" if is_one and (role != group or own) else ""
        does = ROLES.get(role, role) if is_one else f"{', '.join(members[:FIRST])} and {len(members) - FIRST} more"
        entries.append(tag("li", tag("strong", group), f"{named}: {does}"))
    return tag("ul", entries)


def _left(told: Told) -> Markup:
    if not told.passed:
        alone = "Nothing was sent: the training ran on one table, on one machine."
        return tag("p", "The model does not say; the ledgers of its run do." if told.cast else alone)
    sent = [f for passed in told.passed for f in passed.flows if told.party in (None, f.sender)]
    whose = "between all parties" if told.party is None else f"from {told.party}"
    total = f"{count(sum(f.number for f in sent), 'message')}, {size(sum(f.n_bytes for f in sent))} {whose}."
    secret = _one_of_each_first([f for f in by_kind(sent) if f.kind != "public"])
    if not secret:
        return joined(tag("p", total), tag("p", "All of it is public: parameters, positions, who takes part."))
    receivers = {key: _names(f.receiver for f in sent if (f.message, f.what) == key) for key in map(_key, secret)}
    lines = [joined(f"to {receivers[_key(f)]}: {f.what} ", tag("em", f"({f.protection})")) for f in secret]
    more = Counter(f.kind for f in secret[FIRST:])
    kinds = ", ".join(f"{more[kind]} {words.partition(':')[0]}" for kind, words in PROTECTIONS.items() if more[kind])
    return joined(tag("p", total), _listed(lines, f"more: {kinds}"))


def _one_of_each_first(kinds: Iterable[Flow]) -> list[Flow]:
    """The largest kind of each protection, the weakest protection first; then the second largest of each; and so on."""
    order = list(PROTECTIONS)
    found, so_far = [], Counter[str]()
    for flow in sorted(kinds, key=lambda f: -f.n_bytes):
        found.append((so_far[flow.kind], order.index(flow.kind), flow))
        so_far[flow.kind] += 1
    return [flow for *_, flow in sorted(found, key=lambda each: each[:2])]


def _key(flow: Flow) -> tuple[str, str]:
    return flow.message, flow.what


def _names(given: Iterable[str]) -> str:
    names = list(dict.fromkeys(given))
    return ", ".join(names) if len(names) <= FIRST else f"{len(names)} parties"


# --- who learned what ------------------------------------------------------------------------------------------------


def who_learned_what(passed: Passed, own: str | None, number: int = 0) -> Section:
    """The picture, and for each arrow the lines of the ledger."""
    id_ = f"who{number or ''}"  # an arrow has a hyphen and its own number after it
    group_of = groups(passed.cast, own)
    between = arrows(passed.flows, group_of)
    roles = {group: passed.cast[party] for party, group in group_of.items()}
    roles |= {end: "" for arrow in between for end in (arrow.sender, arrow.receiver) if end not in roles}
    place = {name: k for k, name in enumerate(roles)}
    hub = own or next(iter(roles), None)  # there and back, party by party
    between.sort(key=lambda a: (place[a.receiver if a.sender == hub else a.sender], a.sender != hub, place[a.receiver]))
    heading = "Who learned what" if number == 0 else f"Who learned what: {passed.name.lower()}"
    whose = "The books of all parties." if own is None else f"From the book of {own}."
    took = "" if passed.seconds is None else f" It took {passed.seconds:,.{0 if passed.seconds > 10 else 2}f} seconds."
    drawn = tag(
        "figure",
        picture(id_, between, roles, own),
        tag(
            "figcaption",
            "Each arrow opens what is listed under its number. Colours show what is protected least in it.",
        ),
        legend(),
    )
    listed = [_way(f"{id_}-{k}", k, arrow) for k, arrow in enumerate(between, start=1)]
    about = tag("p", f"{passed.name}, by {passed.protocol}. {whose}{took}", class_="quiet")
    return Section(id_, heading, joined(about, tag("div", drawn, tag("div", listed), class_="figures ways")))


def _way(id_: str, number: int, arrow: Arrow) -> Markup:
    """One arrow: its messages, kind by kind, and party by party where it stands for many."""
    kinds = by_kind(arrow.flows)
    noisy = any(f.with_noise for f in kinds)
    rows = [
        (
            _in_words(f.message),
            joined(f.what, " ", tag("em", f"({f.protection})")),
            f"{f.number:,}",
            size(f.n_bytes),
            *([f"{f.with_noise or 0:,}"] if noisy else []),
        )
        for f in kinds
    ]
    caption = f"From {arrow.sender} to {arrow.receiver}, by kind of message"
    table = charts.table(
        caption,
        ("message", "what it tells, and its protection", "number", "bytes", *["with noise"] * noisy),
        rows,
        n_left=2,
        wide=1,
    )
    there = {f.kind for f in kinds}
    marks = [
        (tag("span", words.partition(":")[0], class_=f"mark {kind}"), " ")
        for kind, words in PROTECTIONS.items()
        if kind in there and (kind != "public" or len(there) == 1)
    ]
    summary = tag(
        "summary",
        f"{number}. {arrow.sender} → {arrow.receiver}: {count(arrow.number, 'message')}, {size(arrow.n_bytes)} ",
        marks,
    )
    return tag("details", summary, tag("div", table, _party_by_party(caption, arrow), id=id_))


def _in_words(message: str) -> str:
    """The name of a kind of messages, without its protocol."""
    return message.rpartition(".")[2].replace("_", " ")


def _party_by_party(caption: str, arrow: Arrow) -> Markup | None:
    """What an arrow of a group holds, for each of its parties."""
    number, n_bytes = Counter[str](), Counter[str]()
    for f in arrow.flows:
        one = f.sender if arrow.sender != f.sender else f.receiver
        number[one] += f.number
        n_bytes[one] += f.n_bytes
    if len(number) == 1:
        return None
    rows = [(one, f"{n:,}", size(n_bytes[one])) for one, n in number.items()]
    table = charts.table(f"{caption}, party by party", ("party", "messages", "bytes"), rows)
    return tag("details", tag("summary", "Party by party"), table)


def traffic(told: Told) -> Section | None:
    """Bytes in the order of the messages, and by kind of message. Ledgers have no clock, so there is no time axis."""
    if not told.passed:
        return None
    parts = []
    passed = told.passed[0]
    if told.party is not None:
        parts.append(_in_order(passed.books[told.party]))
    else:
        group_of, total = groups(passed.cast), Counter[str]()
        for flow in passed.flows:
            total[group_of.get(flow.sender, flow.sender)] += flow.n_bytes
        parts.append(charts.bars("Bytes sent, by party", ("party", "bytes"), dict(total), "bytes"))
    kinds: Counter[str] = Counter()
    for flow in passed.flows:
        kinds[_in_words(flow.message)] += flow.n_bytes
    parts.append(charts.bars("Bytes by kind of message, both ways", ("message", "bytes"), dict(kinds), "bytes"))
    note = tag(
        "p", "Ledgers number messages and do not time them, so the order of messages stands for time.", class_="quiet"
    )
    return Section("traffic", "Traffic", joined(note, tag("div", parts, class_="figures")))


def _in_order(book: Ledger) -> Markup:
    entries = [(direction == "disclosed", n_bytes) for direction, _, _, n_bytes, _ in book.entries()]
    out = [0, *accumulate(n_bytes if is_sent else 0 for is_sent, n_bytes in entries)]
    back = [0, *accumulate(0 if is_sent else n_bytes for is_sent, n_bytes in entries)]
    shown = charts.thinned(range(len(out)))
    drawn = [
        charts.Line(name, [(k, totals[k]) for k in shown])
        for name, totals in ((f"sent by {book.party}", out), (f"received by {book.party}", back))
    ]
    summary = f"After {count(len(entries), 'message')}: {size(out[-1])} sent, {size(back[-1])} received."
    axes = (
        charts.Axis("messages so far, in their order", 0, None, "count"),
        charts.Axis("bytes so far", 0, None, "bytes"),
    )
    return charts.lines("order", "Traffic in the order of messages", summary, *axes, drawn)


# --- the model -------------------------------------------------------------------------------------------------------


def model(told: Told) -> Section | None:
    """Learning curves, importances, contributions: of the reader's own columns."""
    parts: list[Markup] = []
    for k, (metric, curves) in enumerate(told.curves.items()):
        drawn = [charts.Line(c.name, list(enumerate(c.values, start=1))) for c in curves if len(c.values)]
        if drawn:
            last = ", ".join(f"{line.name} {line.points[-1][1]:.4g}" for line in drawn)
            axes = charts.Axis("rounds of boosting", None, None, "count"), charts.Axis(metric)
            parts.append(charts.lines(f"curve-{k}", f"Learning curve: {metric}", f"At the end: {last}.", *axes, drawn))
    for ranked in told.ranked:
        shown = dict(sorted(ranked.values.items(), key=lambda item: -item[1])[:MOST_COLUMNS])
        left = len(ranked.values) - len(shown)
        note = " ".join(filter(None, [ranked.note, f"{left} columns with less are not shown." if left else ""]))
        bars = charts.bars(ranked.caption, ("column", ranked.measure), shown, ranked.unit)
        parts.append(tag("div", bars, tag("p", note, class_="quiet small") if note else None))
    return Section("model", "The model", tag("div", parts, class_="figures")) if parts else None


MOST_COLUMNS = 30
"""Of a ranking on a page."""


def quality(told: Told) -> Section | None:
    """Scores, ROC and calibration on rows whose labels the reader has."""
    found = told.quality
    if found is None:
        return None
    scores = [(name, f"{value:.4f}") for name, value in found.scores.items()]
    parts = []
    if found.roc:
        share_of = ("rows of the other class that are taken for it", "rows of the second class that are found")
        parts.append(
            charts.lines(
                "roc",
                "ROC curve",
                "The further above the dashed diagonal, which is chance, the better.",
                charts.Axis(share_of[0], 0, 1),
                charts.Axis(share_of[1], 0, 1),
                [charts.Line("ROC", list(found.roc))],
                even=True,
            )
        )
    if found.calibration:
        points = [(predicted, seen) for predicted, seen, _ in found.calibration]
        fewest = min(n for _, _, n in found.calibration)
        ends = (0, 1) if max(max(p) for p in points) <= 1 and min(min(p) for p in points) >= 0 else (None, None)
        parts.append(
            charts.lines(
                "calibration",
                "Calibration",
                f"On the diagonal, predictions are right on average. {len(points)} groups of {fewest:,} rows or more.",
                charts.Axis("mean prediction", *ends),
                charts.Axis(found.calibrated, *ends),
                [charts.Line("calibration", points, dots=True)],
                even=True,
            )
        )
    table = charts.table(f"On {found.rows}", ("score", "value"), scores)
    return Section(
        "quality", "How good it is", joined(tag("div", table, class_="narrow"), tag("div", parts, class_="figures"))
    )


# --- attacks, budgets ------------------------------------------------------------------------------------------------


def attacks(told: Told) -> Section | None:
    """What our own attacks came to, beside what the statement allows."""
    if not told.attacks:
        return None
    rows = []
    for outcome in told.attacks:
        value = outcome.get("value")
        result = (
            ""
            if value is None
            else f"{outcome['measure']} {value['estimate']:.3f} ({value['low']:.3f} to {value['high']:.3f})"
        )
        verdict = str(outcome["verdict"])
        mark = tag("span", verdict, class_="verdict bad" if verdict == "BROKEN" else "verdict")
        words = joined(outcome["target"], *([": ", outcome["found"]] if outcome.get("found") else []))
        numbers = ("" if outcome.get(name) is None else f"{outcome[name]:.3f}" for name in ("chance", "ceiling"))
        rows.append((outcome["attack"], joined(outcome["attacker"]), words, result, *numbers, mark))
    head = ("attack", "by", "against", "result", "chance", "allowed", "verdict")
    meanings = [
        tag("li", tag("strong", verdict), f": {VERDICTS[verdict]}")
        for verdict in dict.fromkeys(str(outcome["verdict"]) for outcome in told.attacks)
        if verdict in VERDICTS
    ]
    body = joined(
        charts.table("Attacks on what parties really received", head, rows, n_left=3, wide=2), tag("ul", meanings)
    )
    return Section("attacks", "Attacks", body)


def budgets(told: Told) -> Section | None:
    """What is spent of each limit, and what is left."""
    if not told.budgets:
        return None
    rows = [
        (
            each.name,
            charts.bar(each.spent_epsilon / each.epsilon if each.epsilon else 1.0),
            _amount(each.spent_epsilon, each.spent_delta),
            _amount(max(each.epsilon - each.spent_epsilon, 0.0), max(each.delta - each.spent_delta, 0.0)),
            _amount(each.epsilon, each.delta),
        )
        for each in told.budgets
    ]
    table = charts.table(
        "Privacy budgets: all runs together", ("limit", "used", "spent", "left", "in all"), rows, n_left=2
    )
    return Section("budget", "Budget", table)


def _amount(epsilon: float, delta: float) -> str:
    return f"epsilon {epsilon:.3g}" + (f", delta {delta:.2g}" if delta else "")


# --- the statement, and how to repeat it -----------------------------------------------------------------------------


def whole_statement(told: Told) -> Section | None:
    """Every sentence of the statement, in its order."""
    if told.statement is None:
        return None
    note = tag("p", told.statement_note, class_="quiet") if told.statement_note else None
    return Section("statement", "The whole statement", joined(note, statement_part(told.statement)))


def statement_part(statement: Statement) -> Markup:
    """The statement as it is, for a page or a notebook."""
    parts = []
    for title, sentences in statement.sections():
        told = list(sentences)
        if told and title:
            parts += [tag("h3", title.rstrip(":")), tag("ul", (tag("li", sentence) for sentence in told))]
        else:
            parts += [tag("p", sentence) for sentence in told]
    return joined(warning(statement), parts)


def ledger_part(ledger: Ledger) -> Markup:
    """One party's book, for a notebook."""
    peers = dict.fromkeys([ledger.party, *(entry[1] for entry in ledger.entries())], "")
    passed = Passed(f"Ledger of {ledger.party}", count(len(ledger), "line"), peers, {ledger.party: ledger})
    return who_learned_what(passed, ledger.party).body


def repeat(told: Told) -> Section:
    """Versions, digests, commands and the settings that all parties agreed on."""
    facts = [(tag("dt", name), tag("dd", tag("code", value))) for name, value in told.facts.items()]
    commands = tag("pre", "\n".join(told.commands)) if told.commands else None
    settings = None
    if told.settings:
        listing = json.dumps(told.settings, indent=1, default=str, ensure_ascii=False)
        settings = tag("details", tag("summary", "All settings"), tag("pre", listing, class_="settings"))
    again = tag("p", told.again) if told.again else None
    return Section("repeat", "How to repeat it", joined(again, tag("dl", facts, class_="facts"), commands, settings))
