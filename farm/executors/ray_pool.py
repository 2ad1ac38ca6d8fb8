"""The Ray executor: one actor a CPU of the cluster, each handed one batch at a time.

At most one batch a worker is in flight, and the driver waits for whichever is ready (`ray.wait`), so neither Ray's
queues nor the driver's memory grow with the run. Workers come with the nodes and go with them: a lost one's batch goes
back to the scheduler, and another worker is asked for.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import re
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from farm.executors.interface import Answer, Batch, Done, Ended, ExecutorError, Note, Worker, default_jobs
from farm.executors.ray_inquiry import Inquiry
from farm.executors.ray_worker import Hello, RayWorker, Report, code_digest
from jobs.bundle import Bundle

LOCAL = "local"
NODES_SECONDS = 5.0  # between looks at the cluster's nodes: milliseconds of the driver each
SLOW_SECONDS = 60.0  # without any worker before the user is told what is waited for
START_ATTEMPTS = 3  # workers that failed to start, with none that did in between
BROKEN_ATTEMPTS = 3
LOCAL_ATTEMPTS = 2
CONNECT_SECONDS = 10.0
PROBE_SECONDS = 15.0
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
OBJECT_STORE_BYTES = 256 << 20  # of a Ray started here; results in flight are a few MB, with timelines some tens


@dataclass(slots=True)
class _Actor:
    handle: Any
    name: str
    hello: Any = None  # reference to its Hello, until it has come
    node: str = ""  # Ray's id
    host: str = ""
    batch: Batch | None = None
    since: float = 0.0
    pids: tuple[int, int] = (0, 0)  # of the actor and its worker process


@dataclass(slots=True)
class _Cluster:
    """Nodes that are alive: Ray's id -> shown name, CPUs."""

    nodes: dict[str, str] = field(default_factory=dict)
    cpus: int = 0


class RayPool:
    """Workers on a Ray cluster at `address` ("HOST:PORT", "auto"), or on a Ray of this process's own ("local").

    `jobs` limits the workers; None means one a CPU of the cluster, as it grows and shrinks. A number larger than the
    cluster asks an autoscaling one for more nodes. `bundles` are the sweeps' files by family. Raises ExecutorError.
    """

    kind = "ray"

    def __init__(self, address: str, jobs: int | None, evaluator: str, bundles: Mapping[str, Bundle]) -> None:
        self._jobs = jobs
        self._evaluator = evaluator
        self._ray = ray = _connect(address, jobs)
        self._actors: dict[str, _Actor] = {}
        self._in_flight: dict[Any, _Actor] = {}  # references to hellos and reports
        self._count = 0
        self._failed_starts = 0
        self._greeted = False
        self._broken = 0
        self._cluster = _Cluster()
        self._looked = 0.0
        self._worked = time.monotonic()  # when there last was a worker, or the user was told that there is none
        self._notes: list[Note] = []
        self._inquiry = Inquiry(ray)
        self._closed = False
        self._stdout, sys.stdout = sys.stdout, _Chatter(self._notes)
        self._started_here = address == LOCAL
        self._bundles = {family: [ray.put(bundle)] for family, bundle in bundles.items()}
        self._remote = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0, concurrency_groups={"io": 1})(
            _with_groups(ray)
        )
        self._look()

    def __enter__(self) -> RayPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def workers(self) -> int:
        return max(1, self._jobs or self._cluster.cpus)

    def idle(self, wanted: int) -> list[Worker]:
        self._look()
        free = [actor for actor in self._actors.values() if actor.batch is None]
        for _ in range(min(wanted - len(free), self.workers - len(self._actors))):
            self._add()
        return [Worker(actor.name, actor.node, actor.host) for actor in free if actor.hello is None][:wanted]

    def start(self, worker: Worker, batch: Batch) -> None:
        actor = self._actors[worker.name]
        cubins: dict[str, bytes] = {}
        for item in batch.items:
            if item.build.cubin is not None:
                with contextlib.suppress(OSError):  # the worker says that it is missing, as for any variant
                    cubins[str(item.build.cubin)] = item.build.cubin.read_bytes()
        donors = [
            donor.handle
            for home in batch.homes
            for donor in [next((a for a in self._actors.values() if a.node == home and a.hello is None), None)]
            if donor is not None
        ]
        actor.batch, actor.since = batch, time.monotonic()
        # Pickled here, since Ray's own pickler asks Python code about every object in it; and each argument costs time,
        # so the rare ones are left out where there are none.
        rare = [cubins, donors] if donors else [cubins] if cubins else []
        self._in_flight[actor.handle.run.remote(pickle.dumps(batch), *rare)] = actor

    def wait(self, timeout: float) -> list[Answer]:
        answers: list[Answer] = [*self._notes]
        self._notes.clear()
        references = list(self._in_flight)
        if not references:
            time.sleep(min(timeout, 0.1))
            return answers
        ready, others = self._ray.wait(references, num_returns=1, timeout=0 if answers else timeout)
        if ready and others:
            more, _ = self._ray.wait(others, num_returns=len(others), timeout=0)
            ready += more
        for reference in ready:
            actor = self._in_flight.pop(reference)
            if actor.hello is not None:
                answers += self._greet(actor, reference)
            else:
                answers += self._collect(actor, reference)
        answers += self._waiting_for_workers()
        self._inquiry.go_on(self._actors.values())
        return answers

    def under_way(self) -> list[tuple[str, float]]:
        return self._inquiry.shares(self._actors.values())

    def nodes(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for actor in self._actors.values():
            if actor.hello is None:
                found[actor.host] = found.get(actor.host, 0) + 1
        return found

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(Exception):
            for actor in self._actors.values():
                self._ray.kill(actor.handle)
        self._actors.clear()
        self._in_flight.clear()
        with contextlib.suppress(Exception):
            self._ray.shutdown()
        sys.stdout = self._stdout

    # ---- workers come and go

    def _add(self) -> None:
        self._count += 1
        name = f"worker {self._count}"
        handle = self._remote.options(scheduling_strategy="SPREAD").remote(self._evaluator, self._bundles)
        actor = _Actor(handle, name)
        actor.hello = handle.hello.remote()
        self._actors[name] = actor
        self._in_flight[actor.hello] = actor

    def _remove(self, actor: _Actor) -> None:
        self._actors.pop(actor.name, None)
        with contextlib.suppress(Exception):
            self._ray.kill(actor.handle)

    def _greet(self, actor: _Actor, reference: Any) -> list[Answer]:
        try:
            hello: Hello = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            self._remove(actor)
            self._failed_starts += 1
            reason = _reason(error)
            # where no worker has ever started, the next ones will not either
            broken = isinstance(getattr(error, "cause", None), ExecutorError) and not self._greeted
            if broken or self._failed_starts >= START_ATTEMPTS:
                raise ExecutorError(f"Ray workers do not start: {reason}") from None
            return [Note("worker_lost", f"{actor.name} did not start ({reason}); another is asked for")]
        code = str(getattr(hello, "code", "unknown"))  # an older farm's hello has no such field
        if code != code_digest():
            raise ExecutorError(
                f"node {hello.host} has another version of farm than this one (code {code[:8]}, here "
                f"{code_digest()[:8]}): install the same on every node"
            )
        actor.hello, actor.node, actor.pids = None, hello.node, (hello.pid, hello.child)
        actor.host = self._cluster.nodes.get(hello.node, hello.host)
        self._failed_starts, self._greeted = 0, True
        return [Note("worker_started", f"{actor.name} on {actor.host}", hello.node)]

    def _collect(self, actor: _Actor, reference: Any) -> list[Answer]:
        batch = actor.batch
        assert batch is not None
        actor.batch = None
        everything = tuple(range(len(batch.items)))
        seconds = time.monotonic() - actor.since
        try:
            report: Report = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:  # the actor's own code failed: a full disk, a fault of ours
            self._give_up_when_broken(_reason(error))
            return [Ended(batch.number, everything, None, "lost", _reason(error), seconds)]
        except self._ray.exceptions.RayError as error:
            self._remove(actor)
            self._looked = 0.0
            return [Ended(batch.number, everything, None, "lost", self._why_lost(actor, error), seconds)]
        if report.broken:
            self._give_up_when_broken(f"{report.broken} (on {actor.host})", at_once=True)
        self._broken = 0
        tables = report.tables
        answers: list[Answer] = []
        for index, finished in report.done:
            finished.tables, tables = tables, {}
            answers.append(Done(batch.number, index, finished))
        return [*answers, report.ended]

    def _give_up_when_broken(self, reason: str, at_once: bool = False) -> None:
        self._broken += 1
        if at_once or self._broken >= BROKEN_ATTEMPTS:
            raise ExecutorError(reason)

    def _why_lost(self, actor: _Actor, error: Exception) -> str:
        alive = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
        if actor.node not in alive:
            return "its node is gone"
        if isinstance(error, self._ray.exceptions.ActorUnavailableError):
            return "it does not answer any more"  # killed with its node, which the cluster finds out later
        return f"it died ({_reason(error)})"

    # ---- nodes come and go

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked < NODES_SECONDS:
            return
        self._looked = now
        known = self._cluster.nodes
        found = _Cluster()
        for node in self._ray.nodes():
            if node["Alive"]:
                shown = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
                found.nodes[node["NodeID"]] = shown
                found.cpus += int(node["Resources"].get("CPU", 0))
        for node_id in known.keys() - found.nodes.keys():
            lost = sum(actor.node == node_id for actor in self._actors.values())
            self._notes.append(Note("node_lost", f"node {known[node_id]} is gone, with {lost} worker(s)", node_id))
        if known:
            for node_id in found.nodes.keys() - known.keys():
                self._notes.append(Note("node_joined", f"node {found.nodes[node_id]} has joined", node_id))
        self._cluster = found

    def _waiting_for_workers(self) -> list[Answer]:
        now = time.monotonic()
        if any(actor.hello is None for actor in self._actors.values()):
            self._worked = now
        elif now - self._worked > SLOW_SECONDS:
            self._worked = now
            free = self._ray.available_resources().get("CPU", 0)
            text = f"no worker yet: the cluster has {self._cluster.cpus} CPU(s), {free:g} of them free"
            return [Note("warning", text)]
        return []


def _start_here(ray: Any, jobs: int | None, common: dict[str, Any]) -> None:
    """A Ray of this process's own. A busy machine may take longer than Ray waits: then once more."""
    for attempt in range(LOCAL_ATTEMPTS):
        try:
            ray.init(
                address="local",
                num_cpus=jobs or default_jobs(),
                num_gpus=0,
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                _node_ip_address="127.0.0.1",
                **common,
            )
            return
        except Exception:
            ray.shutdown()
            if attempt + 1 == LOCAL_ATTEMPTS:
                raise


class _Chatter(io.TextIOBase):
    """Takes what Ray prints on stdout, which is for results: the first line of each message becomes a note."""

    def __init__(self, notes: list[Note]) -> None:
        self._notes = notes

    def write(self, text: str) -> int:
        line = _ANSI.sub("", text).strip().partition("\n")[0].strip()
        if line:
            self._notes.append(Note("warning", f"Ray says: {line[:200]}"))
        return len(text)


def _connect(address: str, jobs: int | None) -> Any:
    """Ray, connected. Raises ExecutorError."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if address.startswith("ray://"):
        raise ExecutorError(
            f"--ray {address}: Ray's client protocol is not used; name the cluster's own address (HOST:6379), from a "
            "machine of the cluster, or submit the command there: ray job submit -- farm submit ..."
        )
    common: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": True}
    if address == LOCAL:
        os.environ.setdefault("RAY_memory_monitor_refresh_ms", "0")  # each variant has a memory budget of its own
        if "RAY_AUTH_MODE" not in os.environ:
            os.environ["RAY_AUTH_MODE"] = "token"  # of this run's own, so that nobody else on the machine can connect
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    else:
        _check_that_something_answers(address)
        _use_token_if_asked(address)
    loopback = address == LOCAL or _listens_on_loopback_only(address)
    if loopback:
        # Ray uses every interface unless it takes this for a machine that cannot be part of a cluster
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    try:
        import ray
    except ImportError as error:
        raise ExecutorError(f"--ray: Ray is not installed (pip install 'farm[ray]'): {error}") from None
    if loopback:
        import ray._private.ray_constants as constants

        constants.ENABLE_RAY_CLUSTER = False
    try:
        if address == LOCAL:
            _start_here(ray, jobs, common)
        else:
            ray.init(address=address, namespace="farm", **common)
    except Exception as error:
        where = "a Ray on this machine" if address == LOCAL else f"the Ray cluster at {address}"
        raise ExecutorError(f"--ray: cannot use {where}: {_reason(error)}") from None
    return ray


def _use_token_if_asked(address: str) -> None:
    """Send the token that this machine has, if the cluster asks for one.

    A driver sends none unless RAY_AUTH_MODE says so, and one that sends it to a cluster without tokens gets no workers:
    so the cluster is asked, by a process of its own, since Ray fixes the answer at its first connection.
    """
    if "RAY_AUTH_MODE" in os.environ or address == "auto":
        return
    home = Path.home() / ".ray" / "auth_token"
    if not (os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH") or home.is_file()):
        return
    probe = "import sys; from ray._raylet import GcsClient; GcsClient(address=sys.argv[1])"
    with subprocess.Popen(
        [sys.executable, "-c", probe, address],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        timer = threading.Timer(PROBE_SECONDS, process.kill)
        timer.start()
        for line in process.stderr:
            if "AuthToken" in line or "Unauthenticated" in line:
                os.environ["RAY_AUTH_MODE"] = "token"
                break
        timer.cancel()
        process.kill()


def _check_that_something_answers(address: str) -> None:
    """Ray itself tries for minutes. Raises ExecutorError."""
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        return  # "auto"
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ExecutorError(
            f"--ray {address}: nothing answers there ({error}); is it the address of a Ray head, as "
            "`ray start --head` prints it?"
        ) from None


def _listens_on_loopback_only(address: str) -> bool:
    """Whether a cluster on this machine is one that no other can reach: the driver must then use loopback too."""
    host, _, port = address.rpartition(":")
    if host not in ("localhost", "127.0.0.1", "[::1]") or not port.isdigit():
        return False
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # sends nothing: asks which of its addresses this machine would use
            own = probe.getsockname()[0]
        socket.create_connection((own, int(port)), timeout=CONNECT_SECONDS).close()
    except OSError:
        return True
    return bool(own.startswith("127."))


def _with_groups(ray: Any) -> type:
    """The actor's class, with what others may ask while it evaluates in a thread of its own."""

    class FarmWorker(RayWorker):
        @ray.method(concurrency_group="io")  # type: ignore[untyped-decorator]
        def cached(self, names: list[str]) -> dict[str, bytes]:
            return super().cached(names)

        @ray.method(concurrency_group="io")  # type: ignore[untyped-decorator]
        def at(self) -> tuple[str, float] | None:
            return super().at()

    return FarmWorker


def _reason(error: Exception) -> str:
    """The line of Ray's (often long) message that says what is the matter."""
    cause = getattr(error, "cause", None)
    lines = [line.strip() for line in str(cause or error).splitlines() if line.strip()]
    if not lines:
        return repr(error)
    return lines[-1] if "Traceback" in str(cause or error) else lines[0]
