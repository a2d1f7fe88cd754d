"""Who learns what, protocol by protocol: the page src/hedgerow/protocols/README.md, written from the message classes.

    python tests/policy/who_learns_what.py

writes it anew. Nothing on the page is made up here: messages, directions and disclosures come from the classes that are
sent, the words around them from the docstring and the statement of each protocol. A test compares page and classes.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from hedgerow import protocols
from hedgerow.aborts import DATA_DEPENDENT, Reason
from hedgerow.engine.dtypes import MAX_BINS
from hedgerow.engine.losses import BoostingParams
from hedgerow.ledger import Disclosure, Public
from hedgerow.node.words import disclosure_of, way_of
from hedgerow.protocols.central import dpboost
from hedgerow.protocols.central.dpboost.plan import planned_event, statement_of
from hedgerow.protocols.central.dpboost.settings import DPBoostSettings
from hedgerow.protocols.central.gaussian import central
from hedgerow.protocols.services.align.roles import AligningJob
from hedgerow.protocols.services.explain.roles import ExplainingJob
from hedgerow.protocols.services.score.roles import ScoringJob
from hedgerow.protocols.services.score_closed.roles import ClosedScoringJob
from hedgerow.protocols.vertical.private_histograms.job import SMOOTH, PrivateHistogramsJob
from hedgerow.runtime.checkpoint import MESSAGES
from hedgerow.runtime.party import Abort
from hedgerow.runtime.protocol import Protocol, Settled, find, names, services
from hedgerow.schema import Schema
from hedgerow.transport.frames import Message, registered

PAGE = Path(protocols.__file__).with_name("README.md")
NODE_MODULES = (
    "hedgerow.node.desk",
    "hedgerow.node.digests",
    "hedgerow.node.greeting",
    "hedgerow.node.scoring",
    "hedgerow.node.serving",
    "hedgerow.node.together",
)
COMMAND = "python tests/policy/who_learns_what.py"

_KNOWING = "What each ends up knowing. "
_ASSUMING = "Honest but curious"


class Example(NamedTuple):
    """A run whose statement is shown: its options, and what its model would say about its training."""

    title: str
    parties: tuple[str, ...] = ("anna", "ben", "carla")
    options: Mapping[str, Any] = {}
    meta: Mapping[str, Any] = {}
    job: Any = None  # of a service, which trains nothing


_WHO: dict[str, Any] = {"parties": ("anna", "ben", "carla"), "run_id": "example"}
_MODEL: dict[str, Any] = {**_WHO, "label_holder": "anna", "model_run_id": "the model's"}
_AGES = Schema.from_public(bounds={"age": (0, 120)}, classes=[0, 1])
_SMOOTH = PrivateHistogramsJob(
    **_WHO,
    label_holder="anna",
    boosting=BoostingParams(min_child_weight=0.0),
    epsilon=2.0,
    delta=1e-6,
    schema=_AGES,
    policy=SMOOTH,
)

EXAMPLES = {
    "horizontal.secure_sum": (
        Example("with three parties"),
        Example(
            "with dp=(1, 1e-6)",
            options={"dp": (1.0, 1e-6), "schema": _AGES},
            meta={"privacy": {"epsilon": 1.0, "delta": 1e-6}},
        ),
        Example("with two owners", ("anna", "ben"), {"accept_no_masking": True}),
    ),
    "vertical.bucket_rr": (
        Example("with epsilon=4 and public edges", options={"epsilon": 4.0, "schema": _AGES}),
        Example("with epsilon=4 and quantiles for edges", ("anna", "ben"), {"epsilon": 4.0, "edges": "quantile"}),
    ),
    "vertical.noised_gradients": (
        Example("with epsilon=2 and delta=1e-5", options={"epsilon": 2.0, "delta": 1e-5}),
        Example("with per='message'", ("anna", "ben"), {"epsilon": 2.0, "delta": 1e-5, "per": "message"}),
    ),
    "vertical.homomorphic": (
        Example("with three parties"),
        Example("with dp=(2, 1e-5)", ("anna", "ben"), {"dp": (2.0, 1e-5), "schema": _AGES}),
    ),
    "vertical.masked_gradients": (
        Example(
            "with sigma1=0.5, sigma2=1 and C=4",
            options={"sigma1": 0.5, "sigma2": 1.0, "C": 4.0, "accept_known_leaks": True},
            meta={
                "label_recovery": {
                    "attack": "least squares of one message on [1, B]",
                    "measure": "accuracy",
                    "value": 1.0,
                    "chance": 0.7592,
                    "rows": 32561,
                    "by": "ben",
                }
            },
        ),
    ),
    "vertical.private_histograms": (
        Example(
            "with epsilon=2 and delta=1e-6",
            options={"epsilon": 2.0, "delta": 1e-6, "schema": _AGES},
            meta={"privacy": {"epsilon": 2.0, "delta": 1e-6, "accountant": "zCDP"}},
        ),
        Example(
            'with policy="smooth_then_trees"',
            meta={"privacy": {"epsilon": 2.0, "delta": 1e-6, "accountant": "Gaussian DP"}},
            job=_SMOOTH,
        ),
    ),
    "vertical.secret_shared": (Example("with three parties and a dealer"),),
    "vertical.mp_fedxgb": (Example("with three parties and a dealer", options={"accept_known_leaks": True}),),
    "vertical.aligning": (
        Example(
            "with three parties",
            meta={"n_ids": {"anna": 1000, "ben": 800, "carla": 900}, "n_common": 700},
            job=AligningJob(**_WHO, comparer="anna"),
        ),
    ),
    "vertical.scoring": (
        Example("with plain answers", job=ScoringJob(**_MODEL)),
        Example("with predict_epsilon=2", job=ScoringJob(**_MODEL, predict_epsilon=2.0)),
    ),
    "vertical.closed_scoring": (Example("with three parties and a dealer", job=ClosedScoringJob(**_MODEL)),),
    "vertical.explaining": (
        Example("with contributions", job=ExplainingJob(**_MODEL)),
        Example("with interactions", job=ExplainingJob(**_MODEL, what="interactions")),
        Example("with importances", job=ExplainingJob(**_MODEL, what="importances")),
    ),
}


def page() -> str:
    """The whole page."""
    origin = (
        f"Written by `{COMMAND}` from the classes of the messages; a test fails when the two differ. Every message "
        "that is sent or received is also in the ledger of the run, with the same words."
    )
    parts = ["# Who learns what", origin]
    listed = [find(name) for name in (*names(), *services())]
    parts += _legend([disclosure_of(kind) for protocol in listed for kind in (*protocol.messages, *protocol.later)])
    parts += _always()
    parts += _central()
    for protocol in listed:
        parts += _section(protocol)
    return "\n\n".join(parts) + "\n"


def _legend(disclosures: Iterable[Disclosure]) -> list[str]:
    """What the words for protection mean, by the classes they come from."""
    meaning = {d.protection: _first_paragraph(inspect.getdoc(type(d)) or "") for d in disclosures}
    return ["How something is protected:", _table(("protection", "meaning"), meaning.items())]


def _always() -> list[str]:
    """What holds for every protocol between parties."""
    stopping = (
        f"A party that stops early sends `{Abort.__name__}` to all peers in place of its next message. What they "
        f"learn: {disclosure_of(Abort).words}. The sentence of its error stays with the party itself."
    )
    reasons = [
        (str(int(reason)), reason.name.lower(), reason.sentence, "yes" if reason in DATA_DEPENDENT else "no")
        for reason in Reason
    ]
    taken_up = (
        "A run that was broken off can be taken up again, in a later attempt with keys and masks of its own "
        "(`runtime.checkpoint`). Then parties first tell each other, where the protocol needs it:"
    )
    return [
        "## Between parties, in every protocol",
        stopping,
        _table(("number", "reason", "the party stopped because", "can depend on protected rows"), reasons),
        taken_up,
        _messages(MESSAGES),
        "## Between the nodes of two organisations, before and after a run",
        _messages(node_messages()),
    ]


def node_messages() -> list[type[Message]]:
    """What nodes say to each other outside of protocols."""
    for module in NODE_MODULES:
        import_module(module)
    found = [kind for kind in registered().values() if kind.__module__.startswith("hedgerow.node.")]
    return sorted(found, key=lambda kind: NODE_MODULES.index(kind.__module__))


def _messages(kinds: Iterable[type[Message]]) -> str:
    rows = [
        (f"`{kind.__name__}`", str(way_of(kind)), disclosure_of(kind).of, disclosure_of(kind).protection)
        for kind in kinds
    ]
    return _table(("message", "from → to", "what the receiver learns", "protection"), rows)


def _central() -> list[str]:
    """The protocols for one table, in which no message is sent: who gets what in the end."""
    owner = "everything: the table is its own"
    pure = "about one row, only what epsilon allows"
    rows = [
        ("`central.gaussian`", owner, "about one row, only what (epsilon, delta) allows"),
        ("`central.dpboost`, `central.sequential`, `central.parallel`", owner, pure),
        ("`central.plain`", owner, "no limit: the model may remember rows"),
    ]
    schema = Schema.from_public(bounds={"age": (0, 120)}, classes=[0, 1])
    settings = DPBoostSettings(epsilon=1.0)
    stated = statement_of(settings, schema, planned_event(settings, schema), None)
    return [
        "## central: one table, a model to be released",
        "One party holds all rows and trains. No message is sent before the model is handed out, with its statement.",
        _table(("protocol", "what the owner learns", "what those learn who get the model"), rows),
        *(_paragraphs(inspect.getdoc(module) or "")[-1] for module in (central, dpboost)),
        "What a training with `central.dpboost` and epsilon = 1 states in the end:",
        _quoted(str(stated)),
    ]


def _section(protocol: Protocol) -> list[str]:
    paragraphs = _paragraphs(inspect.getdoc(_package_of(protocol)) or "")
    kinds = (*protocol.messages, *protocol.later)
    parts = [
        f"## {protocol.name}",
        _sentence(paragraphs[0].removeprefix(f"{protocol.name}: ")),
        "### Messages",
        _messages(kinds),
        "### What each role ends up knowing",
        *(p.removeprefix(_KNOWING) for p in paragraphs if p.startswith(_KNOWING)),
        "From messages, beside what is public:",
    ]
    parts += [_learned(role, kinds) for role in dict.fromkeys(way_of(kind).receiver for kind in kinds)]
    parts += [
        "### What this rests on, and what is not protected",
        *(p for p in paragraphs if p.startswith(_ASSUMING)),
    ]
    for example in EXAMPLES[protocol.name]:
        parts += [f"What a run {example.title} states in the end:", _quoted(_stated(protocol, example))]
    return parts


def _package_of(protocol: Protocol) -> ModuleType:
    """The package that holds all of a protocol."""
    return sys.modules[protocol.job.__module__.rpartition(".")[0]]


def _stated(protocol: Protocol, example: Example) -> str:
    boosting, holder = BoostingParams(), example.parties[0]
    settled = Settled(example.parties, "example", "classification", boosting, MAX_BINS, holder)
    job = example.job or protocol.job.from_user(example.options, settled)
    return str(protocol.statement(job, example.meta))


def _quoted(words: str) -> str:
    return "\n".join(f"> {line}  " for line in words.splitlines())


def _learned(role: str, kinds: Sequence[type[Message]]) -> str:
    learned = [
        f"- {disclosure_of(kind).words}"
        for kind in kinds
        if way_of(kind).receiver == role and not isinstance(disclosure_of(kind), Public)
    ]
    return "\n".join([f"**{_sentence(role)}**", "", *dict.fromkeys(learned)])


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _paragraphs(text: str) -> list[str]:
    """Paragraphs as single lines; indented ones (pictures) are left out."""
    return [" ".join(part.split()) for part in text.split("\n\n") if not part.startswith(" ")]


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def _first_paragraph(text: str) -> str:
    return _paragraphs(text)[0]


def main() -> None:
    """Write the page."""
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
