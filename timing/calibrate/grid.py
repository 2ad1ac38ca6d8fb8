"""CTA launch, placement, launch overhead, clocks."""

from __future__ import annotations

import subprocess

import numpy as np

from timing.calibrate.driver import DriverError, Gpu, Kernel
from timing.calibrate.record import Results


class Grid:
    def __init__(self, gpu: Gpu, cubins: dict[str, bytes], results: Results) -> None:
        self.gpu, self.results = gpu, results
        self.module = gpu.load(cubins["launch"])
        self.out = gpu.buffer(1 << 22)
        self.maps: dict[str, np.ndarray] = {}

    def kernel(self, name: str) -> Kernel:
        return self.gpu.kernel(self.module, name)

    def launches(self) -> None:
        """Time of empty grids, back to back in a CUDA graph: launch overhead, then the CTA launch rate."""
        cases: list[tuple[str, list[object], int, int]] = []
        for threads in (32, 64, 128, 256, 512, 1024):
            cases.append(("empty", [], threads, 0))
        for shared in (1024, 16384, 49152, 102400, 204800):
            cases.append(("empty", [], 128, shared))
        for threads in (32, 128, 256, 1024):
            cases.append(("empty_32", [self.out, np.int32(0)], threads, 0))
        for threads in (32, 128, 256):
            cases.append(("empty_128", [self.out, np.int32(0)], threads, 0))
        for name, arguments, threads, shared in cases:
            kernel = self.kernel(name)
            if shared > 49152:
                kernel.allow_shared(shared)
            for grid in (1, 132, 264, 528, 1056, 2112, 4224, 16896, 67584, 135168, 540672, 1081344):
                if grid > 200_000 and threads > 256:
                    continue
                count = max(1, min(50, 2_000_000 // grid))

                def work(
                    kernel: Kernel = kernel,
                    grid: int = grid,
                    threads: int = threads,
                    shared: int = shared,
                    arguments: list[object] = arguments,
                ) -> None:
                    kernel.launch(grid, threads, arguments, shared)

                times = self.gpu.graph_time(work, count)
                self.results.add(
                    "launch", name, times, "us", threads=threads, grid=grid, shared=shared, registers=kernel.registers
                )
        for threads in (32, 128, 256, 1024):
            for grid in (132, 1056, 16896, 135168):
                if grid * threads * 4 > self.out.nbytes and grid * threads * 4 > 1 << 30:
                    continue
                sink = self.gpu.buffer(grid * threads * 4, None)
                kernel = self.kernel("store_one")

                def work(
                    kernel: Kernel = kernel, grid: int = grid, threads: int = threads, sink: object = sink
                ) -> None:
                    kernel.launch(grid, threads, [sink])

                times = self.gpu.graph_time(work, 20)
                self.results.add("launch", "store_one", times, "us", threads=threads, grid=grid, shared=0)
                sink.free()

    def placement(self) -> None:
        """Order in which CTAs reach the SMs, and warp slots. Raw tables go to `maps`."""
        slots = self.gpu.buffer(1 << 22)
        for threads, waves, ticks in ((32, 40, 100_000), (128, 20, 40_000), (256, 12, 40_000), (1024, 4, 40_000)):
            grid = self.gpu.sms * waves
            kernel = self.kernel("placement")
            for _ in range(2):
                kernel.launch(grid, threads, [self.out, slots, np.int32(ticks)])
                self.gpu.synchronize()
            rows = self.out.read(np.uint32, 4 * grid).reshape(grid, 4)
            self.maps[f"placement_{threads}"] = rows
            self.maps[f"slots_{threads}"] = slots.read(np.uint32, grid * threads // 32).astype(np.uint8)
            first = rows[: self.gpu.sms, 0]
            self.results.add(
                "placement", "distinct_sms_of_first_wave", [float(len(np.unique(first)))], "SMs", threads=threads
            )
            start = rows[:, 2].astype(np.int64)
            self.results.add(
                "placement",
                "first_wave_start_span",
                [float(start[: self.gpu.sms].max() - start[: self.gpu.sms].min())],
                "ns",
                threads=threads,
            )
        slots.free()

    def clocks(self) -> None:
        kernel = self.kernel("clock_rate")
        values = []
        for _ in range(5):
            kernel.launch(self.gpu.sms, 32, [self.out, np.int64(4_000_000)])
            self.gpu.synchronize()
            ns, ticks = self.out.read(np.uint64, 2)
            values.append(float(ticks) / float(ns) * 1e3)
        self.results.add("clock", "light", values, "MHz")
        data = self.gpu.buffer(16 * self.gpu.sms * 2048, None)
        data.write(np.random.default_rng(1).standard_normal(self.gpu.sms * 2048 * 8).astype(np.float16))
        sink = self.gpu.buffer(64)
        for kind, label, iterations in ((0, "hmma", 60_000), (1, "ffma", 100_000)):
            rates = []
            for index in range(40):
                self.kernel("burn").launch(
                    self.gpu.sms * 2, 512, [self.out, sink, data, np.int32(kind), np.int32(iterations)]
                )
                self.gpu.synchronize()
                rows = self.out.read(np.uint64, 6 * self.gpu.sms).reshape(-1, 3).astype(np.int64)
                ns, ticks = rows[:, 0].max(), rows[:, 1].max()
                rates.append(float(ticks) / float(ns) * 1e3)
                if index in (0, 1, 2, 4, 8, 16, 24, 32, 39):
                    self.results.add("clock", f"under_{label}", [rates[-1]], "MHz", launch=index, ms=float(ns) / 1e6)
            self.results.add(
                "clock",
                f"under_{label}_last_ten",
                rates[-10:],
                "MHz",
                smi=smi("clocks.sm,power.draw,clocks_event_reasons.active"),
            )
            per_warp = {0: 16 * iterations, 1: 64 * iterations}[kind]
            self.maps[f"burn_{label}"] = rows
            # two CTAs an SM share it until the quicker one is done: the slower one's time is that of all the work
            last = np.array([rows[rows[:, 2] == sm, 1].max() for sm in np.unique(rows[:, 2])])
            self.results.add(
                "clock", f"{label}_interval_full_chip", list(last / (per_warp * 8)), "cycles/instr/subcore"
            )
            first = np.array([rows[rows[:, 2] == sm, 1].min() for sm in np.unique(rows[:, 2])])
            self.results.add("clock", f"{label}_quicker_cta_of_two", list(first / last), "of the slower one's time")
        data.free()


def smi(fields: str) -> str:
    """What nvidia-smi says of the first GPU, or why it says nothing."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "-i", "0", f"--query-gpu={fields}", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nvidia-smi: {error}"
    return done.stdout.strip() or done.stderr.strip()


__all__ = ["DriverError", "Grid", "smi"]
