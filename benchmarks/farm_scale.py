"""What the farm costs at scale. Each part prints what it measures; give the parts' names, or none for the quick ones.

cluster   1,000 simulated workers: how many of them the driver keeps busy, and what a batch costs it
memory    the driver's peak memory for 1,000 and for 50,000 variants on 3 targets, written to a run
tasks     what a task costs on a real Ray of this machine, and two workers against one, with items that sleep
sweeps    FOLDERS: every variant of real sweeps x 3 targets through Ray, from start to ranked table

python benchmarks/farm_scale.py cluster memory tasks
python benchmarks/farm_scale.py sweeps FOLDER...
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import common
import numpy as np

from farm.database import RunDatabase
from farm.drive import Drive
from farm.events import Telemetry
from farm.executors.simulated import SimulatedCluster
from farm.render import ranking_rows
from farm.sink import Sink
from jobs.plan import Settings, plan_sweep
from jobs.run_folder import Family, RunFolder
from jobs.stream import SweepStream
from jobs.sweep import load_sweep
from jobs.tables import STALL_COLUMNS
from jobs.work import Finished, VariantResult, WorkItem, finish, variant_row

SWEEP = """\
name: scale
kernel: {{language: cuda, source: kernel.cu, entry: k}}
problem: {{N: 4096}}
parameters: {{A: {a}, B: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], C: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}}
launch: {{grid: [64], block: [128]}}
arguments: [{{name: data, dtype: float32, shape: [N], output: true}}]
targets: [h200, rtx4090, l40s]
funnel: {{sampled: {share}}}
"""
LINES = 16  # SASS lines of a kernel


def sweep_of(folder: Path, variants: int, share: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.cu").write_text("")
    path = folder / "sweep.yaml"
    path.write_text(SWEEP.format(a=list(range(variants // 100)), share=share))
    return path


def recorded(item: WorkItem) -> float:
    """As real variants took: which of them is drawn for each variant of the sweep, the same for both tiers."""
    static, sampled = random.Random(f"{item.variant} {item.build.arch}").choice(_recorded())
    return static if item.tiers == ("static",) else sampled if item.tiers == ("sampled",) else static + sampled


@functools.cache
def _recorded() -> list[tuple[float, float]]:
    lines = (Path(__file__).parent / "recorded_seconds.csv").read_text().splitlines()[2:]
    return [(float(static), float(sampled)) for static, sampled in (line.split(",") for line in lines)]


def drawn(item: WorkItem) -> float:
    """Worse than recorded: now and then seven seconds, and no tier says anything about the other."""
    draw = random.Random(f"{item.variant} {item.build.arch} {item.tiers}")
    seconds = draw.lognormvariate(-0.2, 0.6) + (6.0 if draw.random() < 0.01 else 0.0)
    return seconds * (0.33 if item.tiers == ("static",) else 1.0)


def result_of(item: WorkItem, seconds: float) -> Finished:
    """Rows like a real kernel's."""
    result = VariantResult(item.family, item.variant)
    for target, _ in item.targets:
        result.rows.variants.append({**variant_row(item, target), "registers": 32, "cubin_sha": "ab" * 32})
        for tier in item.tiers:
            result.rows.estimates.append(
                {
                    "family": item.family, "variant": item.variant, "target": target, "tier": tier, "l2": "warm",
                    "status": "ok", "time_us": 10.0 + random.Random(f"{item.variant} {tier}").random(),
                    "bound": "issue", "occupancy": 0.5, "limiter": "registers", "simulation_seconds": seconds,
                }
            )  # fmt: skip
        block: dict[str, object] = {
            "family": item.family, "variant": item.variant, "target": target, "tier": item.tiers[-1],
            "pc": np.arange(0, 16 * LINES, 16, np.int32), "sass": [f"IADD3 R{n}, R0, R1, RZ" for n in range(LINES)],
            "executed": np.full(LINES, 100.0),
        }  # fmt: skip
        block |= {name: np.full(LINES, 1.0, np.float32) for name in STALL_COLUMNS}
        result.rows.instructions.append(block)
    return finish(item, result, seconds)


def times_of(item: WorkItem, seconds: float) -> Finished:
    """A result without rows."""
    time_us = 10.0 + random.Random(f"{item.variant}").random()
    times: dict[tuple[str, str], float | None] = {
        (name, tier): time_us for name, _ in item.targets for tier in item.tiers
    }
    return Finished(item.family, item.variant, item.build.arch, item.tiers, times, seconds=seconds)


def drive_simulated(
    variants: int,
    workers: int,
    share: str,
    store: Path,
    results: Callable[[WorkItem, float], Finished] = result_of,
    seconds_of: Callable[[WorkItem], float] = recorded,
) -> tuple[SimulatedCluster, Drive]:
    sweep = load_sweep(sweep_of(store / "sweep", variants, share))
    plan = plan_sweep(sweep, Settings("warm", None, 1000, store))
    folder = RunFolder(store / "run")
    folder.manifest.families["scale"] = Family(
        name="scale", identity={}, parameters=list(sweep.parameters), rank_within=[], targets=list(plan.targets),
        path="generated", sweep={}, variants=variants, planned=variants,
    )  # fmt: skip
    cluster = SimulatedCluster(workers, seconds_of, results)
    with folder.writing():
        sink = Sink(folder.add)
        stream = SweepStream(plan, None, [], lambda _: None)
        drive = Drive([stream], cluster, sink, Telemetry("scale"))
        cluster._leave()
        drive.run()
        sink.close()
        folder.finish()
    return cluster, drive


def cluster() -> None:
    for workers, variants, seconds_of in (
        (100, 10_000, recorded), (1_000, 50_000, recorded), (1_000, 200_000, recorded), (1_000, 50_000, drawn)
    ):  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            found, drive = drive_simulated(variants, workers, "50%", Path(folder), times_of, seconds_of)
        counts = drive.scheduler.counts
        print(
            f"{workers} simulated workers, {variants} variants x 3 targets, funnel 50 %, times {seconds_of.__name__}: "
            f"{counts.items} work items in "
            f"{found.now:.0f} s; workers busy {found.steady_share:.1%} of the time until the last task was handed out, "
            f"{found.busy_share:.1%} until the last one ended; {counts.batches} tasks, driver "
            f"{1e3 * found.driver_seconds / counts.batches:.2f} ms a task, "
            f"{found.driver_seconds / found.now:.0%} of its time"
        )


def memory() -> None:
    """In processes of their own, so that each has its own peak: the scheduling by itself, then with rows to write."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); import farm_scale; farm_scale.one(*map(int, sys.argv[2:]))"
    for rows in (0, 1):
        for variants in (1_000, 10_000, 50_000):
            command = [sys.executable, "-c", code, str(Path(__file__).parent), str(variants), str(rows)]
            done = subprocess.run(command, capture_output=True, text=True)
            print(done.stdout.strip() or done.stderr, flush=True)


def one(variants: int, rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder, children_seen() as merging:
        drive_simulated(variants, 64, "50%", Path(folder), result_of if rows else times_of)
        driven = peak_mib()
        ranked = len(ranking_rows(RunDatabase(RunFolder(Path(folder) / "run").load()), best=10)) if rows else 0
        parts = Path(folder) / "run" / "parts"
        written = sum(path.stat().st_size for path in parts.iterdir()) if parts.is_dir() else 0
    print(
        f"{variants} variants x 3 targets: driver's peak {driven:.0f} MiB, {peak_mib():.0f} with the ranking "
        f"({ranked} rows) printed; largest of {len(merging)} merging processes {max(merging.values(), default=0):.0f}; "
        f"{written / 1e6:.1f} MB in the run"
    )


@contextlib.contextmanager
def children_seen() -> Iterator[dict[int, float]]:
    """Process ids of this process's children, and MiB of each at its peak as far as it was seen.

    Not by getrusage: there a child begins with what its parent had when it was started.
    """
    seen: dict[int, float] = {}
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            for task in Path("/proc/self/task").iterdir():
                with contextlib.suppress(OSError):
                    for pid in map(int, (task / "children").read_text().split()):
                        status = Path(f"/proc/{pid}/status").read_text()
                        if b"jobs.merging" in Path(f"/proc/{pid}/cmdline").read_bytes() and "VmHWM:" in status:
                            seen[pid] = max(seen.get(pid, 0.0), int(status.partition("VmHWM:")[2].split()[0]) / 1024)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def tasks() -> None:
    """A real Ray, items of 50 ms asleep, tasks of about a second."""
    from farm import scheduler
    from farm.executors.ray_pool import RayPool
    from jobs.bundle import sweep_bundle

    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent / "workers"), str(common.ROOT)])
    rates = {}
    for workers, seconds in ((1, 1.0), (2, 1.0), (2, 0.001)):
        scheduler.TASK_SECONDS = seconds
        with tempfile.TemporaryDirectory() as folder:
            plan = plan_sweep(
                load_sweep(sweep_of(Path(folder) / "sweep", 400 * workers, "100%")),
                Settings("warm", None, 1000, Path(folder), targets=("h200",)),
            )
            stream = SweepStream(plan, None, [], lambda _: None)
            os.environ["FARM_SLEEP"] = "0.05" if seconds == 1.0 else "0"
            with RayPool("local", workers, "sleeping:evaluate", {"scale": sweep_bundle(plan)}) as pool:
                while len(pool.idle(workers)) < workers:
                    pool.wait(1.0)
                sink = Sink(lambda _tables: None)
                drive = Drive([stream], pool, sink, Telemetry("tasks"))
                drive.scheduler._task_seconds = seconds
                started = time.monotonic()
                drive.run()
                elapsed = time.monotonic() - started
                sink.close()
        counts = drive.scheduler.counts
        rates[workers, seconds] = counts.items / elapsed
        overhead = elapsed - drive.waited_seconds
        print(
            f"Ray, {workers} worker(s), items of {os.environ['FARM_SLEEP']} s: {counts.items} items in "
            f"{counts.batches} tasks, {elapsed:.2f} s; {counts.items / elapsed:.1f} items/s; "
            f"driver {1e3 * overhead / counts.batches:.2f} ms a task, {overhead / elapsed:.2%} of the time"
        )
    print(f"2 workers / 1 worker: {rates[2, 1.0] / rates[1, 1.0]:.3f}")


def sweeps(folders: list[str]) -> None:
    """Real sweeps x h200, rtx4090, l40s (the last two share sm_89) through Ray on this machine, caches empty."""
    with tempfile.TemporaryDirectory() as scratch:
        environment = {**os.environ, "FARM_CACHE": f"{scratch}/cache", "FARM_STORE": f"{scratch}/runs"}
        subprocess.run(  # the engine is compiled once a machine and version: not part of a sweep
            [sys.executable, "-c", "from jobs.evaluate import prepare_worker; prepare_worker()"],
            env=environment,
            check=True,
        )
        command = [sys.executable, "-c", "from farm.cli import main; main()", "submit", *folders, "--ray"]
        if os.environ.get("LIMIT"):
            command += ["--limit", os.environ["LIMIT"]]
        command += [word for target in ("h200", "rtx4090", "l40s") for word in ("--target", target)]
        seen = Seen()
        started = time.monotonic()
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            watcher = threading.Thread(target=seen.watch, args=(process,), daemon=True)
            watcher.start()
            out, _ = process.communicate()
        elapsed = time.monotonic() - started
        run = Path(scratch) / "runs" / out.strip()
        progress = json.loads((run / "progress.json").read_text())
        families = len({tier["family"] for tier in progress["tiers"]})
        pairs = sum(tier["done"] for tier in progress["tiers"] if tier["tier"] == "static")
        written = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
        parts = len(list((run / "parts").iterdir()))
        share = progress["worker_seconds"] / (progress["workers"] * progress["elapsed_seconds"])
        cpu = sum(seen.cpu.values())
        print(
            f"{families} families, {pairs // 3} variants x 3 targets, {progress['items_done']} work items: "
            f"{elapsed:.0f} s from start to ranked table, {pairs / 3 / elapsed:.2f} variants/s "
            f"({pairs / elapsed:.2f} estimates/s); failures {progress['failures']};\n"
            f"{progress['workers']} workers, {share:.1%} of their time used; {cpu:.0f} CPU seconds in workers and "
            f"compilers, {3 * cpu / pairs:.2f} a variant; load average {os.getloadavg()[1]:.1f};\n"
            f"peak memory: driver {seen.driver:.0f} MiB, all processes {seen.total:.0f} MiB; "
            f"{written / 1e6:.1f} MB written in {parts} parts"
        )


class Seen:
    """What the processes of a run were seen to need: MiB at the peak (shared pages once), CPU seconds of workers."""

    def __init__(self) -> None:
        self.driver = self.total = 0.0
        self.cpu: dict[int, float] = {}

    def watch(self, process: subprocess.Popen[str]) -> None:
        while process.poll() is None:
            total = 0.0
            for entry in Path("/proc").iterdir():
                if not entry.name.isdigit():
                    continue
                try:
                    command = (entry / "cmdline").read_bytes()
                    pid = int(entry.name)
                    if pid == process.pid or any(word in command for word in (b"executors.worker", b"ray")):
                        size = self._mib(entry)
                        total += size
                        if pid == process.pid:
                            self.driver = max(self.driver, size)
                    if b"executors.worker" in command:
                        words = (entry / "stat").read_text().rpartition(")")[2].split()
                        ticks = sum(map(int, words[11:15]))  # its own and those of compilers that have ended
                        self.cpu[pid] = ticks / os.sysconf("SC_CLK_TCK")
                except OSError:
                    continue
            self.total = max(self.total, total)
            time.sleep(2)

    @staticmethod
    def _mib(entry: Path) -> float:
        for line in (entry / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
        return 0.0


if __name__ == "__main__":
    print(f"{common.machine_name()}; Python {sys.version.split()[0]}")
    wanted = sys.argv[1:] or ["cluster", "memory", "tasks"]
    if wanted[0] == "sweeps":
        sweeps(wanted[1:])
    else:
        for part in wanted:
            {"cluster": cluster, "memory": memory, "tasks": tasks}[part]()
