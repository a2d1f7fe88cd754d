"""What a user may say about Ray, and how to reach the cluster.

`backend="ray"` is the cluster that this process is connected to already, else the one of RAY_ADDRESS, else a new one on
this machine for as long as the training lasts. Any other string is an address: "auto", "host:6379" or "ray://host:10001".
Everything else is said with a `RayBackend`. Ray's token authentication needs nothing here: Ray itself reads
RAY_AUTH_MODE, RAY_AUTH_TOKEN and RAY_AUTH_TOKEN_PATH, for the driver as for its workers.
"""

from __future__ import annotations

import math
import os
import socket
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hedgerow.errors import ClusterError, InvalidParameter

RAY = "ray"
ANSWER_SECONDS = 5.0
"""How long to wait for somebody to answer at an address."""

CLIENT_PORT = 10001


@dataclass(frozen=True)
class RayBackend:
    """Where rows live, and how much Ray may do with them."""

    address: str | None = None
    """As for `ray.init`; None for the cluster this process is connected to, that of RAY_ADDRESS, or a new one here."""
    actors: int | None = None
    """How many actors hold the rows; None for one for each processor, or each `threads` of them."""
    threads: int = 1
    """Threads of each actor."""
    rows_in_object_store: bool = False
    """Whether rows may pass through Ray's object store, which every job on the cluster can read and which may spill to
    disks. A table in memory and a dataset of Ray Data need it; Parquet files do not."""
    rebuilds: int = 3
    """How many lost actors are replaced in one training."""
    patience: float = 600.0
    """Seconds after which an actor that does not answer counts as lost."""

    def __post_init__(self) -> None:
        for name, least in (("actors", 1), ("threads", 1), ("rebuilds", 0)):
            value = getattr(self, name)
            if name == "actors" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InvalidParameter(f"backend: {name} must be a whole number of at least {least}, got {value!r}")
        if not (isinstance(self.patience, int | float) and math.isfinite(self.patience) and self.patience > 0):
            raise InvalidParameter(f"backend: patience must be a number of seconds above 0, got {self.patience!r}")
        if self.address is not None:
            _host_and_port(self.address)


def backend_of(given: object) -> RayBackend | None:
    """What somebody gave as `backend`; None for rows on this machine."""
    if given is None or given == "local" or isinstance(given, RayBackend):
        return given if isinstance(given, RayBackend) else None
    if not isinstance(given, str):
        raise InvalidParameter(f"backend must be 'local', 'ray', an address or a RayBackend, got {given!r}")
    return RayBackend() if given == RAY else RayBackend(address=given)


def chosen_backend(given: object, n_jobs: int | None) -> RayBackend | None:
    """What an estimator's `backend` and `n_jobs` say together: on Ray, `n_jobs` is for each actor."""
    found = backend_of(given)
    if found is None or n_jobs is None:
        return found
    if n_jobs < 1:
        raise InvalidParameter(f"n_jobs is the number of threads of each actor with backend='ray', got {n_jobs}")
    return replace(found, threads=int(n_jobs))


def dataset_as_blocks(X: Any, y: Any) -> Any:
    """A dataset of Ray Data as blocks with labels in column `y`; anything else as it is."""
    if not (type(X).__module__.startswith("ray.data") and hasattr(X, "iter_internal_ref_bundles")):
        return X
    from hedgerow.engine.rows_ray.stored import DatasetBlocks

    return DatasetBlocks(X, target=y if isinstance(y, str) else None)


def _host_and_port(address: str) -> tuple[str, int] | None:
    """Where to knock; None for what Ray finds by itself."""
    if address in ("auto", "local"):
        return None
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address.startswith("ray://") and not host:
        host, port = port, str(CLIENT_PORT)
    if not host or not port.isdigit() or not 0 < int(port) < 2**16:
        raise InvalidParameter(
            f"backend: {address!r} is not an address; write 'ray', 'auto', 'host:port' or 'ray://host:port'"
        )
    return host.strip("[]"), int(port)


def import_ray() -> Any:
    """The package; it comes with an extra."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's own imports are not the caller's business
            import ray
    except ImportError:
        raise InvalidParameter("backend='ray' needs the package ray: pip install 'hedgerow[ray]'") from None
    return ray


@contextmanager
def connected(backend: RayBackend) -> Iterator[Any]:
    """The package `ray`, connected as asked for; a connection that was made here ends here."""
    ray = import_ray()
    if ray.is_initialized():
        _check_same(ray, backend)
        yield ray
        return
    _connect(ray, backend)
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_same(ray: Any, backend: RayBackend) -> None:
    wanted = None if backend.address is None else _host_and_port(backend.address)
    here = ray.get_runtime_context().gcs_address
    if wanted is not None and not str(backend.address).startswith("ray://") and f"{wanted[0]}:{wanted[1]}" != here:
        raise ClusterError(
            f"backend: this process is connected to Ray at {here} already, not to {backend.address}; "
            "call ray.shutdown() first, or leave the address out"
        )


def n_actors_of(ray: Any, backend: RayBackend) -> int:
    """As many as were asked for, else as many as the cluster has processors for."""
    return backend.actors or max(1, int(ray.cluster_resources().get("CPU", 1)) // backend.threads)


def _knock(host: str, port: int) -> None:
    """Raise unless somebody speaks gRPC there: Ray itself would go on trying for minutes, or for ever."""
    import grpc

    advice = "check the address, or start Ray there with `ray start --head`"
    try:
        socket.create_connection((host, port), timeout=ANSWER_SECONDS).close()
    except OSError as reason:
        raise ClusterError(f"backend: nobody answers at {host}:{port} ({reason}); {advice}") from None
    if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
        return  # Ray has the certificates; we do not look for them
    with grpc.insecure_channel(f"{host}:{port}") as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=ANSWER_SECONDS)
        except grpc.FutureTimeoutError:
            raise ClusterError(f"backend: what answers at {host}:{port} is not Ray; {advice}") from None


def _running_here() -> tuple[str, int] | None:
    """The cluster that was last started on this machine, of which Ray leaves a note; it may have ended since."""
    folder = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    try:
        noted = Path(folder, "ray", "ray_current_cluster").read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    host, _, port = noted.rpartition(":")
    return (host, int(port)) if host and port.isdigit() else None


def reachable(backend: RayBackend) -> str | None:
    """Where another process on this machine, or this one, will find the cluster; raises if it cannot be used.

    None for a new one on this machine.
    """
    ray = import_ray()
    if ray.is_initialized():
        _check_same(ray, backend)
        return backend.address or str(ray.get_runtime_context().gcs_address)
    address = reachable_address(backend)
    return None if address == "local" else address


def reachable_address(backend: RayBackend) -> str:
    """What to give to `ray.init`; raises if the package is missing, or nobody answers there."""
    import_ray()
    # Without an address Ray would look for a cluster that ran here once, and go on looking if it has crashed.
    address = backend.address or os.environ.get("RAY_ADDRESS") or "local"
    where = _running_here() if address == "auto" else _host_and_port(address)
    if where is not None:
        _knock(*where)
    return address


def _connect(ray: Any, backend: RayBackend) -> None:
    address = reachable_address(backend)
    how = {"include_dashboard": False} if address == "local" else {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Ray's own making, about Ray's own plans
            ray.init(address=address, log_to_driver=False, **how)
    except Exception as reason:
        raise ClusterError(
            f"backend: Ray at {address} cannot be used: {type(reason).__name__}: {reason}; where the "
            "cluster asks for a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH"
        ) from reason
