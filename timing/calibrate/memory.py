"""L2 and DRAM: latencies, bandwidth by bytes in flight, footprint and SMs, atomics."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from timing.calibrate.driver import Buffer, Gpu, Kernel
from timing.calibrate.record import Results

MIB = 1 << 20
GIB = 1 << 30
THREADS = 128  # of a streaming CTA (stream.cu)


class Memory:
    def __init__(self, gpu: Gpu, cubins: dict[str, bytes], results: Results) -> None:
        self.gpu, self.results = gpu, results
        self.l1 = gpu.load(cubins["l1"])
        self.stream = gpu.load(cubins["stream"])
        self.mio = gpu.load(cubins["mio"])
        self.out = gpu.buffer(1 << 20)
        self.big = gpu.buffer(16 * GIB, None)
        self.target = gpu.buffer(2 * GIB, 0)
        self.maps: dict[str, np.ndarray] = {}

    def _median_time(self, work: Callable[[], None], repeats: int = 5) -> list[float]:
        work()
        self.gpu.synchronize()
        return [self.gpu.time(work) for _ in range(repeats)]

    def _touch(self, data: Buffer, size: int) -> None:
        """Read all of `data`, every part by whatever SM comes first: what fits L2 is whole there (linking writes parts
        of sectors, whose first read would otherwise go to DRAM)."""
        if size >= THREADS * 64:
            self.gpu.kernel(self.stream, "once_read").launch(
                size // (THREADS * 64), THREADS, [self.out, data, self.target]
            )

    def chase(self) -> None:
        link = self.gpu.kernel(self.l1, "link_lines")
        for name, sizes in (
            ("chase_l1", [2**k for k in range(12, 20)]),
            ("chase_l2", [2**k for k in range(14, 35)]),
        ):
            kernel = self.gpu.kernel(self.l1, name)
            for size in sizes:
                lines = size // 128
                link.launch(1056, 256, [self.big, np.uint64(lines), np.int32(128)])
                self._touch(self.big, size)
                steps = max(4096, lines) if name == "chase_l1" else 8192
                values = []
                fresh = np.random.default_rng(size)
                for _ in range(3):
                    ticks = []
                    for count in (steps, 2 * steps):
                        first = int(fresh.integers(lines)) * 128  # elsewhere each time: nothing left in L2 from before
                        kernel.launch(1, 1, [self.out, self.big, np.uint64(first), np.int32(count)])
                        self.gpu.synchronize()
                        ticks.append(int(self.out.read(np.uint32, 1)[0]))
                    values.append((ticks[1] - ticks[0]) / steps)
                self.results.add("latency", name, values, "cycles", footprint=size)

    def l2_map(self) -> None:
        """Near and far L2: the latency of every one of 512 lines from every SM, for two pitches."""
        kernel, link = self.gpu.kernel(self.l1, "l2_map"), self.gpu.kernel(self.l1, "link_own")
        lines = 512
        for pitch in (128, 4096 + 128, 65536):
            link.launch(64, 256, [self.big, np.uint64(lines), np.int32(pitch)])
            for _ in range(2):
                kernel.launch(self.gpu.sms, 32, [self.out, self.big, np.int32(lines), np.int32(pitch)])
                self.gpu.synchronize()
            found = self.out.read(np.uint16, self.gpu.sms * lines).reshape(self.gpu.sms, lines)
            self.maps[f"l2_map_{pitch}"] = found
            for percent in (1, 10, 25, 50, 75, 90, 99):
                self.results.add(
                    "latency",
                    "l2_line",
                    [float(np.percentile(found, percent))],
                    "cycles",
                    pitch=pitch,
                    percentile=percent,
                )
            means = found.mean(axis=1)
            self.results.add("latency", "l2_mean_by_sm", list(means), "cycles", pitch=pitch)
            self.results.add("latency", "l2_mean_by_line", list(found.mean(axis=0)), "cycles", pitch=pitch)

    def _stream(self, kernel: Kernel, size: int, repeats: int, ctas: int) -> list[float]:
        """GB/s (one direction) of a persistent grid of `ctas` CTAs an SM over `size` bytes, `repeats` times."""
        times = self._median_time(
            lambda: kernel.launch(
                self.gpu.sms * ctas, THREADS, [self.out, self.big, self.target, np.uint64(size), np.int32(repeats)]
            )
        )
        return [size * repeats / us / 1e3 for us in times]

    def active_sms(self) -> None:
        """Bandwidth of the first SMs alone: the SM's own path, its TPC's, its GPC's, then L2 or DRAM."""
        ticket, moved = self.gpu.buffer(256 * self.gpu.sms), self.gpu.buffer(4 * 64 * self.gpu.sms)
        tile, ticks = THREADS * 64, 400_000
        for kind in ("read", "write", "copy"):
            kernel = self.gpu.kernel(self.stream, f"active_{kind}")
            for count in (1, 2, 4, 8, 16, 18, 32, 48, 64, 66, 80, 96, 112, 132):
                if count > self.gpu.sms:
                    continue
                for where, size in (("l2", 16 * MIB), ("dram", GIB)):
                    for ctas in (2, 4, 8, 16):
                        rates = []
                        for _ in range(4):
                            ticket.fill(0)
                            moved.fill(0)
                            self.gpu.synchronize()
                            kernel.launch(
                                64 * self.gpu.sms,
                                THREADS,
                                [
                                    self.out,
                                    self.big,
                                    self.target,
                                    np.uint32(size // tile),
                                    np.int32(count),
                                    np.int32(ctas),
                                    ticket,
                                    moved,
                                    np.uint32(ticks),
                                ],
                            )
                            self.gpu.synchronize()
                            rates.append(int(moved.read(np.uint32, 64 * self.gpu.sms).sum()) * tile / ticks)
                        self.results.add(
                            "active_sms", f"{kind}_{where}", rates[1:], "bytes/cycle", sms=count, warps=4 * ctas
                        )
        ticket.free()
        moved.free()

    def bandwidth(self) -> None:
        shapes = {
            "read": [(4, 1), (4, 2), (4, 4), (4, 8), (8, 1), (8, 4), (16, 1), (16, 2), (16, 4)],
            "write": [(4, 1), (4, 4), (8, 4), (16, 1), (16, 4)],
            "copy": [(4, 1), (4, 4), (8, 4), (16, 1), (16, 4)],
        }
        for kind, forms in shapes.items():
            for width, unroll in forms:
                kernel = self.gpu.kernel(self.stream, f"{kind}_{width}_{unroll}")
                for where, size, repeats in (("l2", 16 * MIB, 32), ("dram", GIB, 1)):
                    for ctas in (1, 2, 3, 4, 6, 8, 12, 16):
                        rate = self._stream(kernel, size, repeats, ctas)
                        self.results.add(
                            "bandwidth",
                            f"{kind}_{where}",
                            rate,
                            "GB/s",
                            width=width,
                            unroll=unroll,
                            warps=4 * ctas,
                            flight=4 * ctas * 32 * width * unroll,
                        )
        for kind in ("read", "write", "copy"):
            kernel = self.gpu.kernel(self.stream, f"{kind}_16_4")
            for mib in (2, 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 128, 192, 256, 512, 1024, 2048):
                rate = self._stream(kernel, mib * MIB, max(1, 512 // mib), 8)
                self.results.add("footprint", f"{kind}_persistent", rate, "GB/s", mib=mib)

    def capacity(self) -> None:
        """Time of repeated passes over one buffer, launch after launch in a graph, as the sweeps are measured."""
        for kind in ("read", "write", "copy"):
            kernel = self.gpu.kernel(self.stream, f"once_{kind}")
            for mib in (
                1,
                2,
                4,
                8,
                12,
                16,
                20,
                24,
                28,
                30,
                32,
                36,
                40,
                44,
                48,
                52,
                56,
                60,
                64,
                72,
                80,
                96,
                112,
                128,
                160,
                200,
                256,
                512,
                1024,
            ):
                grid = mib * MIB // (THREADS * 4 * 16)
                count = max(1, min(50, 4096 // mib))

                def work(kernel: Kernel = kernel, grid: int = grid) -> None:
                    kernel.launch(grid, THREADS, [self.out, self.big, self.target])

                times = self.gpu.graph_time(work, count)
                self.results.add("capacity", f"{kind}_graph", [mib * MIB / us / 1e3 for us in times], "GB/s", mib=mib)

    def scatter(self) -> None:
        """Granules at random places: GB/s of the bytes asked for. The pitch is the granule's own size, 32 at least."""
        kernel = self.gpu.kernel(self.mio, "scatter")
        for size in (4, 16, 32, 64, 256, 1024, 8192):
            for lanes in (1, 8, 16, 32):
                pitch = max(32, 4 * lanes)
                for write in (0, 1):
                    threads, steps = self.gpu.sms * 2 * 1024, 32
                    granules = size * MIB // pitch
                    arguments = [self.out, self.big, np.uint32(granules), np.int32(lanes), np.int32(pitch // 4)]
                    arguments += [np.int32(write), np.int32(steps)]
                    times = self._median_time(
                        lambda arguments=arguments: kernel.launch(2 * self.gpu.sms, 1024, arguments)
                    )
                    moved = threads // lanes * steps * 4 * pitch
                    self.results.add(
                        "scatter",
                        "write" if write else "read",
                        [moved / us / 1e3 for us in times],
                        "GB/s",
                        mib=size,
                        granule=4 * lanes,
                        pitch=pitch,
                    )

    def loaded(self) -> None:
        """Latency of a dependent chain while every other CTA streams, from no load to all the bandwidth there is."""
        kernel = self.gpu.kernel(self.stream, "under_load")
        link = self.gpu.kernel(self.l1, "link_lines")
        chain = self.gpu.buffer(4 * GIB, None)
        fresh = np.random.default_rng(5)
        tiles = self.gpu.buffer(4 * 132 * 64)
        for where, load, lines in (("dram", 2 * GIB, 4 * GIB // 128), ("l2", 16 * MIB, 4 * MIB // 128)):
            link.launch(1056, 256, [chain, np.uint64(lines), np.int32(128)])
            self._touch(chain, 128 * lines)
            for ctas in (1, 2, 4, 8, 16):
                for pause in (0, 64, 256, 1024):
                    latencies, rates = [], []
                    ticks = 400_000
                    for _ in range(3):
                        tiles.fill(0)
                        if where == "l2":
                            self._touch(chain, 128 * lines)
                        first = np.uint64(int(fresh.integers(lines)) * 128)
                        self.gpu.synchronize()
                        kernel.launch(
                            self.gpu.sms * ctas,
                            THREADS,
                            [
                                self.out,
                                tiles,
                                self.big,
                                np.uint64(load),
                                chain,
                                first,
                                np.uint32(ticks),
                                np.int32(pause),
                            ],
                        )
                        self.gpu.synchronize()
                        elapsed, steps = (int(x) for x in self.out.read(np.uint32, 2))
                        latencies.append(elapsed / steps)
                        moved = int(tiles.read(np.uint32, self.gpu.sms * ctas)[1:].sum()) * THREADS * 2 * 16
                        rates.append(moved / ticks)
                    self.results.add("loaded", f"latency_{where}", latencies, "cycles", warps=4 * ctas, pause=pause)
                    self.results.add("loaded", f"bytes_{where}", rates, "bytes/cycle", warps=4 * ctas, pause=pause)
        chain.free()

    def atomics(self) -> None:
        words = MIB
        data = self.gpu.buffer(4 * words)
        for name in ("atomics_red", "atomics_atom", "atomics_red_f32"):
            kernel = self.gpu.kernel(self.stream, name)
            for mode, label in ((0, "same_word"), (1, "same_line"), (2, "own_line"), (3, "random_words")):
                if name == "atomics_red_f32" and mode == 3:
                    continue
                for sms in (1, self.gpu.sms):
                    steps = 16 if mode == 0 else 64
                    times = self._median_time(
                        lambda kernel=kernel, sms=sms, mode=mode, steps=steps: kernel.launch(
                            sms, 1024, [self.out, data, np.uint32(words), np.int32(mode), np.int32(steps)]
                        )
                    )
                    self.results.add(
                        "atomics",
                        f"{name}_{label}",
                        [sms * 32 * steps / us for us in times],
                        "warp instr/us",
                        ctas=sms,
                        lanes=32,
                    )
        chain = self.gpu.kernel(self.stream, "atomic_chain")
        values = []
        for _ in range(5):
            ticks = []
            for steps in (256, 512):
                chain.launch(1, 1, [self.out, data, np.int32(steps)])
                self.gpu.synchronize()
                ticks.append(int(self.out.read(np.uint32, 1)[0]))
            values.append((ticks[1] - ticks[0]) / 256)
        self.results.add("latency", "atomg_add", values, "cycles")
        data.free()
