"""Runs on a real Ray cluster of two nodes: the same tables as on processes, whatever dies on the way."""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import farm_fakes
import pytest
from drivers import TEST_PATH, start_driver, wait_for
from rich.console import Console
from same_tables import contents

import farm.submit
from farm.drive import Drive
from farm.events import Event, Telemetry
from farm.executors import ray_inquiry
from farm.executors.interface import Batch, Done, Ended, ExecutorError
from farm.executors.ray_pool import RayPool
from farm.executors.ray_worker import RayWorker
from farm.store import LocalStore
from farm.submit import submit
from farm.submit_options import Options
from interpreter.compile import CompileRequest, cache_entry, cached_cubin
from interpreter.decode import cached_decoding
from interpreter.disassembly import cache_directory
from interpreter.errors import ToolchainError
from interpreter.toolchain import find_tools
from jobs.bundle import sweep_bundle
from jobs.plan import Settings, plan_sweep
from jobs.run_folder import RunFolder
from jobs.sweep import load_sweep

QUIET = Console(quiet=True)
BAD = Path(__file__).parents[1] / "data" / "bad"
SMALL = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}

def _nvcc() -> bool:
    try:
        return find_tools().nvcc is not None
    except ToolchainError:
        return False


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two nodes of one CPU each on this machine, listening on loopback; `log` notes what its workers evaluate."""
    log = tmp_path_factory.mktemp("cluster") / "evaluations.log"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        patch.setenv("RAY_memory_monitor_refresh_ms", "0")
        for name, value in (("period_ms", 300), ("timeout_ms", 300), ("failure_threshold", 2), ("initial_delay_ms", 0)):
            patch.setenv(f"RAY_health_check_{name}", str(value))  # a node's death is noticed in a second, not ten
        patch.setenv("PYTHONPATH", TEST_PATH)
        import ray._private.ray_constants as constants
        from ray.cluster_utils import Cluster

        patch.setattr(constants, "ENABLE_RAY_CLUSTER", False)
        patch.setenv("FARM_TEST_LOG", str(log))
        found = Cluster(initialize_head=True, head_node_args=SMALL)
        found.add_node(num_cpus=1, object_store_memory=80 << 20)
        found.log = log
        yield found
        found.shutdown()


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    return farm_fakes.write_sweep(tmp_path / "toy", farm_fakes.FUNNEL_SWEEP)


@pytest.fixture
def expected(sweep: Path, fake: Path, tmp_path: Path) -> dict[str, bytes]:
    """What an undisturbed run on processes gives."""
    outcome = submit([sweep], Options(jobs=2), LocalStore(tmp_path / "undisturbed"), QUIET)
    return contents(outcome.folder)


def run_on(
    cluster: Any, sweep: Path, store: Path, meddle: Callable[[Event], None] = lambda _: None, **options: Any
) -> tuple[RunFolder, list[Event]]:
    """A run on the cluster, with `meddle` called at every event; the run and its events."""
    events: list[Event] = []

    def listen(telemetry: Telemetry) -> None:
        def hear(event: Event) -> None:
            events.append(event)
            meddle(event)

        telemetry.listen(hear)

    asked = Options(ray=cluster.address, **options)
    return submit([sweep], asked, LocalStore(store), QUIET, [listen]).folder, events


def test_the_same_tables_as_on_processes(
    cluster: Any,
    sweep: Path,
    expected: dict[str, bytes],
    fake: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster.log.write_text("")
    monkeypatch.setattr(farm.submit, "EVALUATOR", "farm_fakes:evaluate_in_company")
    folder, events = run_on(cluster, sweep, tmp_path / "store")
    assert contents(folder) == expected
    lines = cluster.log.read_text().splitlines()
    assert len(lines) == len(set(lines)), "something was evaluated twice"
    # rtx4090 and l40s share an architecture: one item, not two
    assert sum(" static" in line for line in lines) == 2 * 17
    nodes = {event.fields["node"] for event in events if event.kind == "variant_finished"}
    assert len(nodes) == 2, "both nodes work"


@pytest.mark.skipif(not _nvcc(), reason="needs nvcc (pip install '.[nvcc]')")
def test_real_kernels_with_their_faults(cluster: Any, tmp_path: Path) -> None:
    """Kernels that work, fault, loop, deadlock and do not compile: the same rows as on processes, messages included,
    though the sweep's files are elsewhere on the cluster."""
    asked: dict[str, Any] = {"targets": ("h200", "h100", "l40s"), "instructions": 20_000, "timeline": 1000}
    outcome = submit([BAD], Options(jobs=2, **asked), LocalStore(tmp_path / "processes"), QUIET)
    folder, _ = run_on(cluster, BAD, tmp_path / "ray", **asked)
    assert contents(folder) == contents(outcome.folder)
    assert folder.read("timeline").num_rows and folder.read("recordings").num_rows == 3
    messages = [row["message"] for row in folder.read("variants", ["message"]).to_pylist() if row["message"]]
    assert any(str(BAD / "kernel.cu") in message for message in messages), messages


@pytest.mark.skipif(not _nvcc(), reason="needs nvcc (pip install '.[nvcc]')")
def test_cubins_and_decoded_kernels_come_from_the_node_that_made_them(cluster: Any, tmp_path: Path) -> None:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    other = tmp_path / "cache of the other node"
    other.mkdir()
    engine = cache_directory(None) / "numba"
    engine.mkdir(parents=True, exist_ok=True)
    (other / "numba").symlink_to(engine)  # compiled once, for the test's sake
    node = cluster.add_node(num_cpus=1, object_store_memory=80 << 20, env_vars={"FARM_CACHE": str(other)})
    plan = plan_sweep(load_sweep(BAD), Settings("warm", 60.0, 20_000, tmp_path, limit=1, targets=("h200",)))
    (item,), _ = plan.items(("static",), {"h200": [0]}, ())
    bundle = sweep_bundle(plan)
    assert [name for name, _ in bundle.files] == ["kernel.cu"]
    with RayPool(cluster.address, None, "jobs.evaluate:evaluate_batch", {"bad": bundle}) as pool:
        strategies = [NodeAffinitySchedulingStrategy(i, soft=False) for i in (cluster.head_node.node_id, node.node_id)]
        home, away = (
            pool._remote.options(scheduling_strategy=strategy).remote(pool._evaluator, pool._bundles)
            for strategy in strategies
        )
        first = ray.get(home.run.remote(pickle.dumps(Batch(1, (item,))), {}, []), timeout=120)
        build = item.build
        assert build.source is not None
        request = CompileRequest(build.source, build.arch, dict(build.macros), build.flags)
        cubin = cached_cubin(cache_entry(request))
        assert cubin is not None
        text = cached_decoding(cubin, build.entry)
        marked = text.read_bytes().replace(b"\n", b" \n", 1)  # a blank tells it from what nvdisasm would say again
        text.write_bytes(marked)
        second = ray.get(away.run.remote(pickle.dumps(Batch(2, (item,))), {}, [home]), timeout=120)
    (name,) = {path.name for path in (other / "cubins").rglob("*") if path.is_file()}
    assert (cache_directory(None) / "cubins" / name[:2] / name).is_file()
    compiled = [report.tables["variants"].column("compile_seconds").to_pylist() for report in (first, second)]
    assert compiled[0] == compiled[1], "the second was compiled anew"
    taken = other / text.relative_to(cache_directory(None))
    text.unlink()
    assert taken.read_bytes() == marked, "the second was decoded anew"
    cluster.remove_node(node)


def test_a_worker_gives_away_cubins_and_decoded_kernels_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARM_CACHE", str(tmp_path / "cache"))
    for name in ("cubins/ab/x", "disassembly/nvdisasm-13/SM90a/ab/y", "inputs/z"):
        (tmp_path / "cache" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cache" / name).write_bytes(name.encode())
    (tmp_path / "secret").write_bytes(b"secret")
    worker = RayWorker("jobs.evaluate:evaluate_batch", {})
    wanted = ["cubins/ab/x", "disassembly/nvdisasm-13/SM90a/ab/y", "cubins/none", "inputs/z", "cubins/../../secret"]
    assert set(worker.cached(wanted)) == set(wanted[:2])


def test_a_long_evaluation_says_how_far_it_is(
    cluster: Any, sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_inquiry, "ASK_SECONDS", 0.05)
    cache = cache_directory(None)  # what a worker finds there too, whatever machine it believes to be
    go = cache / "go"
    go.unlink(missing_ok=True)
    plan = plan_sweep(load_sweep(sweep), Settings("warm", 60.0, 1000, tmp_path, targets=("h200",)))
    items = plan.items(("cycle",), {"h200": [0, 1]}, ())[0]
    bundles = {"toy": sweep_bundle(plan)}
    try:
        with RayPool(cluster.address, 1, "long_fakes:evaluate", bundles) as pool:
            wait_for(lambda: pool.wait(0.1) is not None and bool(pool.idle(1)), None)
            (worker,) = pool.idle(1)
            pool.start(worker, Batch(1, tuple(items)))
            wait_for(lambda: pool.wait(0.1) is not None and bool(pool.under_way()), None)
            assert pool.under_way() == [(items[0].label, 0.25)]
            go.touch()
            answers: list[Any] = []
            wait_for(lambda: answers.extend(pool.wait(0.1)) or any(isinstance(a, Ended) for a in answers), None)
            assert sum(isinstance(answer, Done) for answer in answers) == 2
            assert pool.under_way() == []
    finally:
        go.unlink(missing_ok=True)


def test_the_worst_kernels_cost_only_themselves(
    cluster: Any, sweep: Path, tmp_path: Path, fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(farm.submit, "EVALUATOR", "farm_fakes:evaluate_with_mishaps")
    folder, events = run_on(cluster, sweep, tmp_path / "store")
    rows = folder.read("estimates").to_pylist()
    failed = {(row["variant"], row["target"]) for row in rows if row["status"] == "failed"}
    assert {row["failure"] for row in rows if row["status"] == "failed"} == {"runtime"}
    assert all("simulator crashed (signal SIGSEGV) twice" in row["message"] for row in rows if row["message"])
    assert failed == {(1, target) for target in ("h200", "rtx4090", "l40s")}
    said = [event.text for event in events if event.kind == "set_aside"]
    assert len(said) == 2 and all("twice" in text for text in said)  # an architecture each


def test_a_worker_killed(
    cluster: Any, sweep: Path, expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The actor itself: its batch goes back to the queue, another worker is asked for."""
    monkeypatch.setattr(farm.submit, "EVALUATOR", "farm_fakes:evaluate_at_leisure")
    pools = _pools(monkeypatch)
    killed: list[int] = []

    def meddle(event: Event) -> None:
        if event.kind == "variant_finished" and not killed:
            busy = next(a for a in pools[0]._actors.values() if a.batch is not None)
            killed.append(busy.pids[0])
            os.kill(busy.pids[0], signal.SIGKILL)

    folder, events = run_on(cluster, sweep, tmp_path / "store", meddle)
    assert killed and contents(folder) == expected
    assert any(e.kind == "worker_lost" and "go back to the queue" in e.text for e in events)
    assert not Path(f"/proc/{killed[0]}").exists()


def test_a_node_killed(
    cluster: Any, sweep: Path, expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(farm.submit, "EVALUATOR", "farm_fakes:evaluate_at_leisure")
    extra = cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    pools = _pools(monkeypatch)
    removed: list[str] = []

    def meddle(event: Event) -> None:
        there = [a for a in pools[0]._actors.values() if a.node == extra.node_id and a.batch is not None]
        if event.kind == "variant_finished" and there and not removed:
            removed.append(extra.node_id)
            threading.Thread(target=lambda: cluster.remove_node(extra, allow_graceful=False)).start()

    folder, events = run_on(cluster, sweep, tmp_path / "store", meddle)
    assert removed and contents(folder) == expected
    told = [(event.kind, event.text) for event in events if event.kind in ("worker_lost", "node_lost")]
    assert {kind for kind, _ in told} == {"worker_lost", "node_lost"}, told


def test_the_driver_killed_midway_and_resumed(
    cluster: Any, sweep: Path, expected: dict[str, bytes], tmp_path: Path, fake: Path
) -> None:
    store = tmp_path / "store"
    driver = start_driver(sweep, store, fake, "--ray", cluster.address)
    folder = RunFolder(store / "r")
    wait_for(lambda: folder.exists and len(folder.load().done("toy", "static")) >= 12, driver)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    done = len(folder.load().done("toy", "static"))
    assert 12 <= done < 51
    wait_for(lambda: not workers_of_fakes(), None)  # its workers die with it
    cluster.log.write_text("")
    folder, _ = run_on(cluster, sweep, store, run="r")
    assert contents(folder) == expected
    lines = cluster.log.read_text().splitlines()
    assert len(lines) == len(set(lines)) and sum(" static" in line for line in lines) < 2 * 17


def test_messages_of_what_goes_wrong_outside(
    cluster: Any, sweep: Path, tmp_path: Path, fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ExecutorError, match="client protocol is not used"):
        RayPool("ray://127.0.0.1:10001", None, "x:y", {})
    monkeypatch.setattr(farm.submit, "EVALUATOR", "no_such_module:evaluate")
    with pytest.raises(ExecutorError, match="no_such_module"):
        run_on(cluster, sweep, tmp_path / "store")
    monkeypatch.setattr(farm.submit, "EVALUATOR", "farm_fakes:evaluate_batch")
    monkeypatch.setattr("farm.executors.ray_pool.code_digest", lambda: "another")
    with pytest.raises(ExecutorError, match="another version of farm"):
        run_on(cluster, sweep, tmp_path / "store")


def _pools(monkeypatch: pytest.MonkeyPatch) -> list[RayPool]:
    """Gets the pool of the run to come."""
    pools: list[RayPool] = []
    init = Drive.__init__

    def remember(self: Drive, streams, executor, *rest, **more) -> None:  # type: ignore[no-untyped-def]
        pools.append(executor)
        init(self, streams, executor, *rest, **more)

    monkeypatch.setattr(Drive, "__init__", remember)
    return pools


def workers_of_fakes() -> list[int]:
    """Process ids of workers that evaluate with the slow fake."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"farm_fakes:evaluate_at_leisure" in command and b"farm.executors.worker" in command:
                found.append(int(entry.name))
    return found


def test_a_ray_of_its_own_listens_on_loopback(
    sweep: Path, expected: dict[str, bytes], tmp_path: Path, fake: Path
) -> None:
    before = listeners()
    driver = start_driver(sweep, tmp_path / "store", fake, "--ray", "--jobs", "2")
    folder = RunFolder(tmp_path / "store" / "r")
    wait_for(lambda: folder.exists and len(folder.load().done("toy", "static")) > 0, driver)
    opened = listeners() - before
    assert opened and all(address in ("127.0.0.1", "::ffff:127.0.0.1", "::1") for address, _ in opened), opened
    out, err = driver.communicate(timeout=60)
    assert driver.returncode == 0, err
    assert out.split() == ["r"] and contents(folder.load()) == expected


def test_a_ray_started_by_hand(sweep: Path, expected: dict[str, bytes], tmp_path: Path, fake: Path) -> None:
    """`ray start --head`, then `farm submit --ray HOST:PORT` and `farm cancel`, `farm resume` from other processes."""
    port = free_port()
    environment = {
        **os.environ,
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "PYTHONPATH": TEST_PATH,
    }
    command = [
        *(str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", "--num-cpus=2"),
        *(f"--port={port}", "--include-dashboard=false", "--object-store-memory=80000000"),
    ]
    said = tmp_path / "ray.log"
    with open(said, "w") as log:
        head = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_for(lambda: "Ray runtime started" in said.read_text(), None)
        more = {"RAY_AUTH_TOKEN": environment["RAY_AUTH_TOKEN"]}
        driver = start_driver(sweep, tmp_path / "store", fake, "--ray", f"127.0.0.1:{port}", environment=more)
        folder = RunFolder(tmp_path / "store" / "r")
        wait_for(lambda: folder.exists and len(folder.load().done("toy", "static")) > 0, driver)
        farm_command = [sys.executable, "-c", "from farm.cli import main; main()"]
        told = subprocess.run(
            [*farm_command, "cancel", "r"], env={**os.environ, "FARM_STORE": str(tmp_path / "store")},
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert told.returncode == 0 and "cancelled by" in told.stderr and "farm resume r" in told.stderr
        out, err = driver.communicate(timeout=60)
        assert driver.returncode == 130 and not out and "are done and kept" in err
        again = start_driver(
            sweep, tmp_path / "store", fake, "--ray", f"127.0.0.1:{port}", environment=more, command="resume"
        )
        out, err = again.communicate(timeout=60)
        assert again.returncode == 0, err
        assert out.split() == ["r"] and contents(folder.load()) == expected
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(head.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            head.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(head.pid, signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def listeners() -> set[tuple[str, int]]:
    """(address, port) of every TCP socket of this machine that listens."""
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A":
                address, port = words[1].split(":")
                raw = b"".join(int(address[i : i + 8], 16).to_bytes(4, "little") for i in range(0, len(address), 8))
                family = socket.AF_INET if name == "tcp" else socket.AF_INET6
                found.add((socket.inet_ntop(family, raw), int(port, 16)))
    return found
