"""How long the commands that read a run take, and what they read where the run is in S3.

    python benchmarks/queries.py STORE/RUN [--repeat 3] [--s3]

With a run from make_run.py. Each command is a process of its own, from start to output; the best of the repeats counts.
With --s3 the run is copied to an S3 server on loopback (moto's) and the requests and bytes of each command are counted;
the times there are mostly that server's, which is written in Python.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import common

sys.path.insert(0, str(common.ROOT / "tests" / "farm"))

COMMANDS = {
    "status": ["status", "RUN"],
    "rank": ["rank", "RUN"],
    "rank, all rows as Parquet": ["rank", "RUN", "-o", "/dev/stdout", "--format", "parquet"],
    "rank, one target, CSV": ["rank", "RUN", "-t", "h200", "--csv"],
    "correlate": ["correlate", "RUN"],
    "show one variant": ["show", "RUN:4321", "-t", "h200"],
    "query: best of each target": [
        "query", "--run", "RUN", "SELECT target, min(time_us) FROM estimates WHERE tier = 'sampled' GROUP BY 1",
    ],
    "query: executed a target, all rows": [
        "query", "--run", "RUN", "SELECT target, count(*), sum(executed) FROM instructions GROUP BY 1",
    ],
    "query: a variant's hottest lines": [
        "query", "--run", "RUN", "SELECT sass, stall_long_scoreboard FROM instructions WHERE family = 'big' AND "
        "variant = 1234 AND target = 'h200' ORDER BY 2 DESC LIMIT 5",
    ],
    "query: stalls of one target": [
        "query", "--run", "RUN", "SELECT sum(stall_long_scoreboard), sum(stall_barrier) FROM instructions "
        "WHERE target = 'h200'",
    ],
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="STORE/RUN, in a folder")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--s3", action="store_true")
    options = parser.parse_args()
    print(common.machine_name())
    path = Path(options.run)
    for label, arguments in COMMANDS.items():
        seconds = min(run(arguments, path.name, str(path.parent)) for _ in range(options.repeat))
        print(f"{label:36} {seconds:6.2f} s")
    if options.s3:
        measure_s3(path)


def run(arguments: list[str], name: str, store: str) -> float:
    """Seconds that one command takes."""
    words = [word.replace("RUN", name) for word in arguments if word not in ("-o", "/dev/stdout")]
    began = time.perf_counter()
    command = [sys.executable, "-m", "farm.cli", *words, "--store", store]
    done = subprocess.run(command, capture_output=True)
    if done.returncode:
        raise SystemExit(f"farm {' '.join(words)}: {done.stderr.decode()}")
    return time.perf_counter() - began


def measure_s3(path: Path) -> None:
    import s3_server

    with s3_server.moto() as address, s3_server.Proxy(address).running() as proxy:
        os.environ.update(s3_server.environment(proxy))
        s3_server.make_bucket(address, "farm-benchmark")
        store = "s3://farm-benchmark/runs"
        total = upload(path, store)
        print(f"\nin S3, of {total / 2**20:.0f} MiB:")
        for label, arguments in COMMANDS.items():
            proxy.clear()
            seconds = run(arguments, path.name, store)
            read = sum(request.sent for request in proxy.requests)
            print(f"{label:36} {seconds:6.2f} s {len(proxy.requests):5} requests {read / 2**20:8.2f} MiB")


def upload(path: Path, store: str) -> int:
    """Copy a run's files; returns their size."""
    from farm.store import open_store

    blobs, total = open_store(store).folder(path.name).blobs, 0
    for file in [*sorted((path / "parts").iterdir()), path / "manifest.json"]:
        content = file.read_bytes()
        blobs.write(file.relative_to(path).as_posix(), content)
        total += len(content)
    return total


if __name__ == "__main__":
    main()
