"""Prometheus metrics of a run, served by its driver: all that workers do comes back to it, so one scrape has it all.

Labels are bounded: tiers, architectures, targets, classes of failure and states, never runs, families, kernels or
variants. Counters are of this submission: what an earlier one finished is not counted again.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import ipaddress
import re
import threading
from collections.abc import Iterable, Iterator
from typing import Any, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import start_http_server
from prometheus_client.registry import Collector

from farm.events import Event, Progress, State, Telemetry
from interpreter.errors import FarmError
from jobs.work import COMPILE, CONSTRAINTS, CORRECTNESS, RUNTIME, TIERS, TIMEOUT

LOOPBACK = "127.0.0.1"
TARGETS_SHOWN = 64  # more become "other"
BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3600.0)  # seconds
MEMORY_BUCKETS = tuple(float(1 << power) for power in range(27, 37))  # bytes: 128 MiB to 64 GiB


class MetricsError(FarmError):
    """An address where metrics cannot be served."""


def parse_address(text: str) -> tuple[str, int]:
    """(host, port) of "[HOST:]PORT"; loopback without a host. Raises MetricsError."""
    host, _, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not re.fullmatch(r"\d{1,5}", port) or int(port) > 65535 or (":" in text and not host):
        raise MetricsError(f"--metrics {text}: PORT, or HOST:PORT with the address to listen on (0 takes a free port)")
    return host or LOOPBACK, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens at `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class RunMetrics:
    """A listener of `submit` that keeps a registry. One run at a time a process."""

    def __init__(self) -> None:
        disable_created_metrics()  # a second series a counter, which nobody reads
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._targets: set[str] = set()
        self._progress: Progress | None = None
        self._items = Counter(
            "farm_work_items",
            "Work items finished: a variant on the targets of one architecture, in one pass.",
            ["arch", "tier", "result"],
            registry=self.registry,
        )
        self._estimates = Counter(
            "farm_estimates",
            "Estimates of a variant on a target by a tier.",
            ["target", "tier", "result"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "farm_work_item_duration_seconds",
            "Time on its worker that a work item took, compilation included.",
            ["tier"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._cpu = Counter(
            "farm_worker_cpu_seconds",
            "CPU time of workers and the tools they ran, for work items that gave a result.",
            ["tier"],
            registry=self.registry,
        )
        self._peak = Histogram(
            "farm_worker_peak_resident_bytes",
            "Largest resident memory so far of the worker process, at each work item it finished.",
            buckets=MEMORY_BUCKETS,
            registry=self.registry,
        )
        for tier in TIERS:  # from zero on, so that the first increase counts
            self._seconds.labels(tier)
            self._cpu.labels(tier)
        self._failures = Counter(
            "farm_failures", "Work items without an estimate, by class.", ["failure"], registry=self.registry
        )
        for failure in (COMPILE, RUNTIME, CORRECTNESS, TIMEOUT, CONSTRAINTS):
            self._failures.labels(failure)
        self._events = Counter("farm_events", "Events of the run by kind.", ["kind"], registry=self.registry)
        info = Gauge("farm_build_info", "Version of farm; always 1.", ["version"], registry=self.registry)
        info.labels(_version()).set(1)
        self.registry.register(_Snapshot(self))

    def __call__(self, telemetry: Telemetry) -> None:
        self._progress = telemetry.progress
        telemetry.listen(self._hear)

    def _hear(self, event: Event) -> None:
        if event.kind != "variant_finished":
            self._events.labels(event.kind).inc()
            return
        told = event.fields
        tier = (told.get("tiers") or ["unknown"])[-1]
        result = told.get("failure") or "ok"
        self._items.labels(told.get("arch", "unknown"), tier, result).inc()
        if result != "ok":
            self._failures.labels(result).inc()
        self._seconds.labels(tier).observe(told.get("seconds", 0.0))
        self._cpu.labels(tier).inc(max(0.0, told.get("cpu_seconds", 0.0)))
        if told.get("peak_bytes"):
            self._peak.observe(told["peak_bytes"])
        for (target, of_tier), time_us in told.get("times", {}).items():
            self._estimates.labels(self._shown(target), of_tier, "ok" if time_us is not None else "failed").inc()

    def _shown(self, target: str) -> str:
        if target not in self._targets:
            if len(self._targets) >= TARGETS_SHOWN:
                return "other"
            self._targets.add(target)
        return target

    @property
    def progress(self) -> Progress | None:
        return self._progress


class _Snapshot(Collector):
    """What the run's snapshot says, at each scrape."""

    def __init__(self, owner: RunMetrics) -> None:
        self._owner = owner

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        progress = self._owner.progress
        if progress is None:
            return
        yield _gauge("farm_run_state", "The state the run is in: 1, the others 0.", "state", {
            state: float(state == progress.state) for state in get_args(State)
        })  # fmt: skip
        yield _gauge("farm_workers", "Workers of the run.", "state", {
            "busy": progress.busy, "idle": max(0, progress.workers - progress.busy)
        })  # fmt: skip
        yield GaugeMetricFamily("farm_nodes", "Nodes with a worker.", value=max(1, len(progress.nodes)))
        yield GaugeMetricFamily(
            "farm_work_items_remaining", "Work items still to be done, about.", value=progress.items_left
        )
        left = GaugeMetricFamily("farm_run_remaining_seconds", "Time left, about; absent while not known.")
        if progress.seconds_left is not None and not progress.over:
            left.add_metric([], progress.seconds_left)
        yield left
        yield GaugeMetricFamily("farm_run_elapsed_seconds", "Age of the submission.", value=progress.elapsed_seconds)
        pairs = GaugeMetricFamily(
            "farm_funnel_pairs", "(variant, target) pairs a tier has before it and behind it.", labels=["tier", "state"]
        )
        sums: dict[tuple[str, str], int] = {}
        for tier in progress.tiers:
            for state, count in (("planned", tier.planned), ("done", tier.done), ("failed", tier.failed)):
                sums[tier.tier, state] = sums.get((tier.tier, state), 0) + count
        for labels, count in sums.items():
            pairs.add_metric(list(labels), count)
        yield pairs
        for name, text, value in (
            ("farm_worker_busy_seconds", "Time workers spent on batches: the run's cost.", progress.worker_seconds),
            ("farm_work_items_retried", "Work items put back because their worker died.", progress.retried),
            ("farm_work_items_set_aside", "Work items given up after their attempts.", progress.set_aside),
            ("farm_workers_lost", "Workers that died or went with their node.", progress.workers_lost),
            ("farm_store_written_bytes", "Bytes of Parquet written to the store.", progress.bytes_written),
        ):  # fmt: skip
            yield CounterMetricFamily(name, text, value=value)


def _gauge(name: str, text: str, label: str, values: dict[str, float] | dict[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=[label])
    for state, value in values.items():
        family.add_metric([state], value)
    return family


@contextlib.contextmanager
def served(registry: CollectorRegistry, address: str) -> Iterator[tuple[str, int]]:
    """Serve /metrics at "[HOST:]PORT" meanwhile; yields the host and port. Raises MetricsError."""
    host, port = parse_address(address)
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise MetricsError(f"--metrics {address}: cannot listen on {host} port {port}: {reason}") from None
    try:
        yield host, server.server_port
    finally:
        _stop(server, thread)


def _stop(server: Any, thread: threading.Thread) -> None:
    server.shutdown()
    server.server_close()
    thread.join(timeout=5)


def _version() -> str:
    try:
        return importlib.metadata.version("farm")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
