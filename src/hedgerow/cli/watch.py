"""`hedgerow watch`: what leaves this party's house, while it leaves; a page for the browser of this machine."""

from __future__ import annotations

import secrets
import sys
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from hedgerow.cli.outcome import one_line_errors
from hedgerow.cli.serve import told_to_stop
from hedgerow.cli.telling import say
from hedgerow.cli.unlocking import HomeOption

if TYPE_CHECKING:
    from hedgerow.report.live.door import Told


def watch(
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="The beginning of a run's id; otherwise the one that was begun last."),
    ] = None,
    *,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Where the page is, on 127.0.0.1; 0 is any that is free.")
    ] = 0,
    home: HomeOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="No page: the same events as lines of JSON on stdout.")
    ] = False,
) -> None:
    """Show what leaves while it leaves: messages, what they tell, bytes, budget, open proposals. Until Ctrl-C.

    The page is for a browser of this machine, at the address that is printed; its last part is a token. It only shows:
    a proposal is accepted by a command, where the key is. No key is needed to watch.

    Example: hedgerow watch
    """
    with one_line_errors(as_json=as_json):
        from hedgerow.node.home import Home
        from hedgerow.node.watching import Watch
        from hedgerow.report.live.door import Told

        with told_to_stop() as stop, Told(Watch(Home.find(home), run)) as told:
            if as_json:
                _print_events(told, stop)
            else:
                _serve(told, port, stop)


def _serve(told: Told, port: int, stop: threading.Event) -> None:
    from hedgerow.report.live.door import LOOPBACK, LiveDoor

    token = secrets.token_urlsafe(32)
    with LiveDoor(port, told, token) as door:
        thread = threading.Thread(target=door.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        say(f"What leaves, while it leaves: http://{LOOPBACK}:{door.port}/#{token}")
        say("Open it in a browser of this machine. Ctrl-C ends it; the run goes on.")
        stop.wait()
        door.shutdown()
        thread.join()


def _print_events(told: Told, stop: threading.Event) -> None:
    from hedgerow.report.live.door import as_line

    def stop_told() -> None:
        stop.wait()
        told.close()

    threading.Thread(target=stop_told, daemon=True).start()
    for event in told.events():
        if event is not None:
            sys.stdout.write(as_line(event) + "\n")
            sys.stdout.flush()
