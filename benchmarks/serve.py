"""How fast a standing service scores: one record at a time, and in requests of 100, by two parties in two processes.

    python benchmarks/serve.py [--rounds 5] [--json FILE]

A bank and a shop train a model in memory, and then serve it as organisations do: mutual TLS between them, HTTP for the
program that asks. Rounds are interleaved, one of single records and one of requests of 100, so that whatever else the
machine does meets both. In each round a bare exchange of bytes over a loopback socket is timed too: it tells how busy
the machine was.
"""

from __future__ import annotations

import argparse
import http.client
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from twins.trained_homes import Trained, trained_homes

P50_MS, ROWS_PER_SECOND, BATCH = 8.0, 2000.0, 100
_START_SECONDS = 120.0


class Service:
    """Both parties' processes, and a connection to ask on."""

    def __init__(self, house: Trained, folder: Path) -> None:
        self._processes = [
            self._start(house, "shop", folder / "shop.log"),
            self._start(house, "bank", folder / "bank.log", "--http", "127.0.0.1:0"),
        ]
        until = time.monotonic() + _START_SECONDS
        while "Listening" not in (told := (folder / "bank.log").read_text()):
            if time.monotonic() > until or any(process.poll() is not None for process in self._processes):
                raise SystemExit(told + (folder / "shop.log").read_text())
            time.sleep(0.1)
        port = int(told.split("http://127.0.0.1:")[1].split(",")[0])
        token = (house.homes["bank"].path / "serve.token").read_text().strip()
        self._headers = {"Authorization": f"Bearer {token}"}
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_START_SECONDS)
        while self.ask(house.ids[:1])[0] != http.client.OK and time.monotonic() < until:
            time.sleep(0.1)

    @staticmethod
    def _start(house: Trained, name: str, log: Path, *more: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "hedgerow.cli", "serve", house.run_id, *more]
        with log.open("w") as file:
            return subprocess.Popen(command, cwd=house.homes[name].path, stderr=file)  # noqa: S603 - our own command

    def ask(self, ids: list[str]) -> tuple[int, Any]:
        """Status and document."""
        self._connection.request("POST", "/score", json.dumps({"ids": ids}), self._headers)
        response = self._connection.getresponse()
        return response.status, json.loads(response.read())

    def stop(self) -> None:
        """Both processes, in good order."""
        self._connection.close()
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait()


def timed(call: Callable[[int], object], times: int) -> list[float]:
    """Seconds of each call."""
    seconds = []
    for number in range(times):
        started = time.perf_counter()
        call(number)
        seconds.append(time.perf_counter() - started)
    return seconds


def bare_exchange(times: int) -> list[float]:
    """Seconds of a byte there and back over a loopback socket, between two threads."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def echo() -> None:
            answering, _ = server.accept()
            with answering:
                while data := answering.recv(64):
                    answering.sendall(data)

        thread = threading.Thread(target=echo)
        thread.start()
        with socket.create_connection(server.getsockname()) as asking:
            asking.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            seconds = timed(lambda _: (asking.sendall(b"x"), asking.recv(64)), times)
        thread.join()
    return seconds


def share(seconds: list[float], part: float) -> float:
    """The quantile, in milliseconds."""
    return sorted(seconds)[min(int(part * len(seconds)), len(seconds) - 1)] * 1e3


def measure(rounds: int, singles: int = 300, batches: int = 40) -> dict[str, Any]:
    """All rounds, and what comes out of them together."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        house = trained_homes(folder)
        service = Service(house, folder)
        ids, found = house.ids, []
        try:
            timed(lambda k: service.ask([ids[k]]), 100)
            for number in range(rounds):
                bare = bare_exchange(singles)
                one = timed(lambda k: service.ask([ids[k % len(ids)]]), singles)
                many = timed(lambda k: service.ask([ids[(k + j) % len(ids)] for j in range(BATCH)]), batches)
                found.append(
                    {
                        "p50_ms": share(one, 0.5),
                        "p99_ms": share(one, 0.99),
                        "rows_per_second": BATCH * batches / sum(many),
                        "bare_p50_ms": share(bare, 0.5),
                    }
                )
                told = "  ".join(f"{key} {value:,.3f}" for key, value in found[-1].items())
                print(f"round {number + 1}: {told}", flush=True)
        finally:
            service.stop()
    medians = {key: statistics.median(each[key] for each in found) for key in found[0]}
    return {"rounds": found, "median": medians}


def main() -> None:
    """Measure, and print it beside the bars."""
    parser = argparse.ArgumentParser(description="How fast a standing service scores.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write all numbers there")
    given = parser.parse_args()
    found = measure(given.rounds)
    median = found["median"]
    print(f"one record: p50 {median['p50_ms']:.2f} ms (bar {P50_MS:g} ms), p99 {median['p99_ms']:.2f} ms")
    print(f"requests of {BATCH}: {median['rows_per_second']:,.0f} rows/s (bar {ROWS_PER_SECOND:,.0f})")
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
