"""`hedgerow serve`: a standing scoring service, until it is told to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hedgerow.cli.outcome import Outcome, not_done, verb
from hedgerow.cli.telling import say
from hedgerow.cli.unlocking import HomeOption, PassphraseFileOption, unlocked
from hedgerow.errors import JobError

if TYPE_CHECKING:
    from hedgerow.node.desk import Node
    from hedgerow.node.serving_book import Book
    from hedgerow.node.trained import OwnRows, Trained

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="The beginning of a run's id; see hedgerow status.")]


@verb("What was done as JSON on stdout, when it has ended.")
def serve(
    run: RunArgument,
    *,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DATASET",
            help="Rows by id: a dataset of party.toml, a file or a folder.",
            show_default="as trained",
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Label holder: where programs ask for scores, 127.0.0.1:8080."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read the rows and check what serving needs; listen and dial nowhere.")
    ] = False,
    home: HomeOption = None,
    passphrase_file: PassphraseFileOption = None,
) -> Outcome:
    """Score single records as they come: keep rows in memory and connections open, until Ctrl-C or SIGTERM.

    Every party of the model runs this command. The label holder gives --http, and programs on its machine ask there;
    feature holders only answer.

    Example: hedgerow serve 3f9a --http 127.0.0.1:8080
    """
    from hedgerow.node.audit import Trail
    from hedgerow.node.desk import Node
    from hedgerow.node.home import Home
    from hedgerow.node.serving_book import Book
    from hedgerow.node.trained import Trained

    place = Home.find(home)
    trained = Trained.find(place, run)
    trained.check("standing")
    if trained.is_asking != (http is not None):
        wanted = (
            "needs --http HOST:PORT, where programs ask for scores" if trained.is_asking else "answers, without --http"
        )
        raise JobError(f"{place.name} {wanted}")
    if dry_run:
        return _checked(trained, data, http)
    identity = unlocked(place, passphrase_file)
    proposal = trained.proposal
    peers = (
        [name for name in proposal.owners_of_data if name != place.name]
        if trained.is_asking
        else [trained.label_holder]
    )
    trail = Trail(place.audit, identity)
    folder = trained.folder / "serving"
    book = Book(folder, trail, party=place.name, model=proposal.run_id, proposal=proposal.hash, peers=peers)
    try:
        with told_to_stop() as stop, Node(place, identity, proposal.peers_of(place.name)) as node:
            if http is None:
                _answer(node, trained, data, book, stop)
            else:
                _ask(node, trained, data, http, book, stop)
    finally:
        book.close()
    result = {"command": "serve", "run": proposal.run_id, "peers": peers, "ledger": folder}
    done = f"The service of {proposal.run_id[:12]} has ended; its ledger is in {folder}"
    return Outcome(result, lambda: say(done))


def _checked(trained: Trained, data: str | None, http: str | None) -> Outcome:
    """What can be seen without the others: the address, the policy, and the rows with their ids."""
    from hedgerow.node.serving import Answers, Places
    from hedgerow.node.serving_http import address_of

    if http is None:
        n_records = len(Answers(trained, _rows_to_answer_with(trained, data)).places)
    else:
        address_of(http)
        n_records = len(Places(trained, trained.rows(data, needs_ids=True)))
    run_id = trained.proposal.run_id
    result = {"command": "serve", "run": run_id, "records": n_records, "http": http}
    return not_done(result, f"{n_records:,} records can be served with {run_id[:12]}; nobody was asked (--dry-run).")


def _rows_to_answer_with(trained: Trained, data: str | None) -> OwnRows:
    """A feature holder's rows, if its policy lets answers about them leave in the clear."""
    from hedgerow.privacy.events import NonPrivate
    from hedgerow.runtime.protocol import Planned

    rows = trained.rows(data, needs_ids=True)
    planned = Planned(NonPrivate("a standing service answers in the clear"))
    for refusal in trained.against("standing", dataset=rows.dataset, planned=planned)[:1]:
        raise JobError(f"{trained.home.name}: {refusal.sentence}")
    return rows


@contextmanager
def told_to_stop() -> Iterator[threading.Event]:
    """Set by Ctrl-C and SIGTERM, so that the service ends in good order."""
    stop = threading.Event()

    def on_signal(_number: int, _frame: Any) -> None:
        stop.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _answer(node: Node, trained: Trained, data: str | None, book: Book, stop: threading.Event) -> None:
    """A feature holder's service."""
    from hedgerow.node.day_counts import Allowance, DayCounts
    from hedgerow.node.serving import Answers, answer

    answers = Answers(trained, _rows_to_answer_with(trained, data))
    say(f"{len(answers.places):,} records in memory; waiting for {trained.label_holder}. Ctrl-C ends it.")
    counts = DayCounts(node.home.path / "scored.json")
    allowance = Allowance(counts, trained.label_holder, node.home.party_file.policy.rows_per_day)
    answer(node, trained, answers, book, allowance, stop, say)


def _ask(node: Node, trained: Trained, data: str | None, http: str, book: Book, stop: threading.Event) -> None:
    """The label holder's service."""
    from hedgerow.node.serving import Partner
    from hedgerow.node.serving_http import TOKEN_FILE, Door, address_of, token_of
    from hedgerow.node.serving_scores import Scorer

    address = address_of(http)
    rows = trained.rows(data, needs_ids=True)
    handles: dict[str, int] = getattr(rows.part, "handles", {})
    partners = [
        Partner(node, trained, name, n_handles, book, stop, say) for name, n_handles in handles.items() if n_handles
    ]
    scorer = Scorer(trained, rows, partners)
    try:
        with Door(address, scorer, token_of(node.home.path)) as door:
            for partner in partners:
                partner.start()
            serving = threading.Thread(target=door.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
            serving.start()
            where = f"http://{address[0]}:{door.port}"
            say(f"Listening on {where}, with the token in {node.home.path / TOKEN_FILE}. Ctrl-C ends it.")
            stop.wait()
            door.shutdown()
            serving.join()
    finally:
        stop.set()
        scorer.close()
        for partner in partners:
            partner.join()
