"""How long a CTA holds its place, and how far the latencies of single loads lie apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from timing.calibrate.driver import Gpu, Kernel
from timing.calibrate.record import Results

MIB = 1 << 20
PERCENTILES = (1, 10, 25, 50, 75, 90, 99)


class Lives:
    def __init__(self, gpu: Gpu, cubins: dict[str, bytes], results: Results) -> None:
        self.gpu, self.results = gpu, results
        self.module = gpu.load(cubins["lives"])

    def turnaround(self) -> None:
        """Cycles from one CTA to the next in a place, less those of its chain: alone on the SM, and with a full SM."""
        kernel = self.gpu.kernel(self.module, "life")
        kernel.allow_shared(200 << 10)
        data = self.gpu.buffer(1024 * MIB, None)
        clock = self.gpu.attributes["clock_khz"] / 1000.0
        steps = 200
        for threads in (32, 64, 128, 256, 512, 1024):
            for places in sorted({1, min(2048 // threads, 32)}):
                shared = 200 << 10 if places == 1 else 0
                for early, late in ((0, 0), (1, 0), (0, 1), (4, 0), (0, 4)):
                    for mib in (4, 1024):
                        if mib == 1024 and early + late == 0:
                            continue
                        arguments = [
                            data,
                            np.uint32(mib * MIB // 4),
                            np.int32(steps),
                            np.int32(early),
                            np.int32(late),
                            np.float32(0.5),
                        ]
                        took = []
                        for rounds in (4, 20):

                            def work(grid: int = self.gpu.sms * places * rounds) -> None:
                                kernel.launch(grid, threads, arguments, shared)  # noqa: B023

                            took.append(self.gpu.graph_time(work, 10))
                        each = (np.array(took[1]) - np.array(took[0])) / 16 * clock
                        self.results.add(
                            "lives",
                            "turnaround",
                            list(each),
                            "cycles",
                            threads=threads,
                            places=places,
                            early=early,
                            late=late,
                            mib=mib,
                            chain=4 * steps,
                        )
        data.free()

    def touches(self) -> None:
        """Cycles an SM takes for a CTA that loads, adds and stores one element a thread, data in L2 and in DRAM."""
        kernel = self.gpu.kernel(self.module, "touch")
        source, sink = self.gpu.buffer(1024 * MIB, None), self.gpu.buffer(1024 * MIB, None)
        clock = self.gpu.attributes["clock_khz"] / 1000.0
        for mib in (4, 1024):
            for threads in (64, 128, 256, 512, 1024):
                ctas = 65536 * 256 // max(threads, 128)
                arguments = [source, sink, np.uint32(mib * MIB // 4)]

                def work(ctas: int = ctas, threads: int = threads) -> None:
                    kernel.launch(ctas, threads, arguments)  # noqa: B023

                each = np.array(self.gpu.graph_time(work, 5)) * clock * self.gpu.sms / ctas
                self.results.add("lives", "touch", list(each), "cycles", threads=threads, mib=mib)
        source.free()
        sink.free()

    def spread(self) -> None:
        """Percentiles of single loads' latencies, by where they are served and how busy it is there."""
        kernel = self.gpu.kernel(self.module, "spread")
        probes, samples, ticks = self.gpu.sms, 256, 600_000
        out = self.gpu.buffer(4 * (1 + probes * samples))
        moved = self.gpu.buffer(4 * self.gpu.sms * 64)
        big, sink = self.gpu.buffer(2048 * MIB, 0), self.gpu.buffer(1024 * MIB, 0)
        small = self.gpu.buffer(8 * MIB, 0)
        for where, streamed, source, lines in (
            ("l2", 8 * MIB, small, 8 * MIB // 128),
            ("dram", 1024 * MIB, big, 2048 * MIB // 128),
        ):
            for writes in (0, 1):
                for ctas, pause in ((0, 0), (4, 1024), (4, 128), (4, 0), (8, 64), (8, 0), (16, 0)):
                    if ctas == 0 and writes:
                        continue
                    out.fill(0)
                    moved.fill(0)
                    grid = probes + self.gpu.sms * ctas
                    for _ in range(2):  # the first one warms L2
                        kernel.launch(
                            grid,
                            128,
                            [
                                out,
                                moved,
                                source,
                                sink,
                                np.uint64(streamed),
                                source,
                                np.uint32(lines),
                                np.int32(probes),
                                np.int32(samples),
                                np.uint32(ticks),
                                np.int32(pause),
                                np.int32(writes),
                            ],
                        )
                    self.gpu.synchronize()
                    found = out.read(np.uint32, 1 + probes * samples)[1:]
                    found = found[found > 0].astype(float)
                    tiles = float(moved.read(np.uint32, self.gpu.sms * 64)[probes:grid].sum())
                    params: dict[str, int | float | str] = {
                        "where": where,
                        "ctas": ctas,
                        "pause": pause,
                        "writes": writes,
                    }
                    self.results.add("lives", "streamed", [tiles * 4096 / ticks], "bytes/cycle", **params)
                    self.results.add("lives", "mean", [float(found.mean())], "cycles", **params)
                    self.results.add("lives", "deviation", [float(found.std())], "cycles", **params)
                    for percent in PERCENTILES:
                        value = float(np.percentile(found, percent))
                        self.results.add("lives", "latency", [value], "cycles", percentile=percent, **params)
        for buffer in (out, moved, big, sink, small):
            buffer.free()

    def many_lines(self) -> None:
        """Latency of one warp's load by the number of lines its lanes touch, nothing else running."""
        kernel = self.gpu.kernel(self.module, "many_lines")
        out = self.gpu.buffer(4 * 1025)
        for where, size in (("l2", 8 * MIB), ("dram", 2048 * MIB)):
            data = self.gpu.buffer(size, 0)
            for distinct in (1, 2, 4, 8, 16, 32):
                for _ in range(2 if where == "l2" else 1):
                    kernel.launch(1, 32, [out, data, np.uint32(size // 128), np.int32(distinct), np.int32(1024)])
                self.gpu.synchronize()
                found = out.read(np.uint32, 1024).astype(float)
                self.results.add("lives", "lines", [float(found.mean())], "cycles", where=where, lines=distinct)
                for percent in PERCENTILES:
                    value = float(np.percentile(found, percent))
                    self.results.add(
                        "lives", "lines_latency", [value], "cycles", where=where, lines=distinct, percentile=percent
                    )
            data.free()
        out.free()

    def loads_and_stores(self) -> None:
        """A chain of loads that hit L2, with stores in between: does a store hold up the load after it?"""
        kernel = self.gpu.kernel(self.module, "load_then_store")
        out = self.gpu.buffer(1 << 16)
        data, target = self.gpu.buffer(8 * MIB, 0), self.gpu.buffer(8 * MIB, 0)
        for ctas in (1, self.gpu.sms):
            for threads in (32, 128, 512):
                for stores, waits in ((0, 0), (1, 0), (1, 1), (2, 1), (4, 1)):
                    values = []
                    for _ in range(4):
                        kernel.launch(
                            ctas,
                            threads,
                            [
                                out,
                                data,
                                target,
                                np.uint32(8 * MIB),
                                np.int32(512),
                                np.int32(stores),
                                np.int32(waits),
                            ],
                        )
                        self.gpu.synchronize()
                        values.append(float(np.median(out.read(np.uint32, 1 + ctas)[1:])) / 512)
                    self.results.add(
                        "lives",
                        "load_then_store",
                        values[1:],
                        "cycles",
                        ctas=ctas,
                        threads=threads,
                        stores=stores,
                        waits=waits,
                    )
        for buffer in (out, data, target):
            buffer.free()

    def batches(self) -> None:
        """Cycles for many loads of a warp at once, by SMs, warps and loads; and for shared loads among global ones."""
        out, data = self.gpu.buffer(1 << 16), self.gpu.buffer(2048 * MIB, 0)
        for where, mib in (("l2", 8), ("dram", 2048)):
            for loads in (8, 32, 64):
                kernel = self.gpu.kernel(self.module, f"batches_{loads}")
                for ctas in (1, self.gpu.sms):
                    for threads in (32, 128, 512, 1024):
                        if threads * loads > 32768:
                            continue
                        steps = 64 if ctas == 1 else 16
                        arguments = [out, data, np.uint32(mib * MIB // 128), np.int32(steps)]
                        flush = [out, data, np.uint32(2048 * MIB // 128), np.int32(512)] if where == "dram" else None
                        values = self._cycles_a_step(kernel, ctas, threads, arguments, steps, flush)
                        self.results.add(
                            "lives", f"batches_{where}", values, "cycles", ctas=ctas, threads=threads, loads=loads
                        )
        out.free()
        data.free()

    def mixed_loads(self) -> None:
        """Cycles of an SM for a load when shared loads and global ones take turns, those in L1 or in L2."""
        out = self.gpu.buffer(1 << 16)
        per_warp = 1 << 14  # words
        data = self.gpu.buffer(4 * per_warp * 32 * 16, 0)
        for where, words, rounds in (("l1", 4096, 256), ("l2", per_warp, 64)):
            for mix in (0, 1, 2, 4, 8, 12, 16):
                kernel = self.gpu.kernel(self.module, f"mixed_{mix}")
                for ctas in (1, 16):  # so that what 16 SMs go through stays in L2
                    for threads in (32, 128, 512, 1024):
                        arguments = [out, data, np.int32(rounds), np.uint32(32 * max(mix, 1)), np.uint32(words)]
                        loads = rounds * 16 * threads // 32
                        self.results.add(
                            "lives",
                            "mixed_loads",
                            self._cycles_a_step(kernel, ctas, threads, arguments, loads),
                            "cycles/instr/SM",
                            where=where,
                            threads=threads,
                            ctas=ctas,
                            global_of_16=mix,
                        )
        out.free()
        data.free()

    def _cycles_a_step(
        self, kernel: Kernel, ctas: int, threads: int, arguments: list[Any], steps: int, flush: list[Any] | None = None
    ) -> list[float]:
        """Median over CTAs of the cycles a step took, of three launches after one that warms the caches.

        `arguments` begin with out, where each CTA leaves its cycles for all `steps`. `flush`: arguments of the
        launch of `batches_8` after each, which reads other data so that the next launch finds its own in DRAM.
        """
        out = arguments[0]
        values = []
        for _ in range(4):
            kernel.launch(ctas, threads, arguments)
            self.gpu.synchronize()
            values.append(float(np.median(out.read(np.uint32, 1 + ctas)[1:])) / steps)
            if flush is not None:
                self.gpu.kernel(self.module, "batches_8").launch(8 * self.gpu.sms, 256, flush)
        return values[1:]

    def tiles(self) -> None:
        """GB/s of CTAs that each read or copy a tile of a matrix in DRAM, by the tile's width and the pitch."""
        out = self.gpu.buffer(4096)
        source, target = self.gpu.buffer(320 * MIB, 0), self.gpu.buffer(320 * MIB, 0)
        for batch in (1, 8):
            kernel = self.gpu.kernel(self.module, f"tile_{batch}")
            for writes in (0, 1):
                for pitch in (4096, 8192, 8192 + 1024, 16384):
                    for width in (32, 64, 128, 512, 1024):
                        ctas = 128 * MIB // 16384
                        arguments = [
                            out, source, target, np.uint32(pitch), np.uint32(width), np.int32(writes)
                        ]  # fmt: skip
                        times = self.gpu.graph_time(lambda a=arguments, k=kernel, c=ctas: k.launch(c, 256, a), 10, 3)
                        self.results.add(
                            "lives",
                            "tiles",
                            [(1 + writes) * 128 * MIB / us / 1e3 for us in times],
                            "GB/s",
                            batch=batch,
                            writes=writes,
                            pitch=pitch,
                            width=width,
                        )
        for buffer in (out, source, target):
            buffer.free()

    def groups(self) -> None:
        """Cycles for 32 loads of each warp at once, when several go to one line: how many an SM has under way."""
        out, data = self.gpu.buffer(1 << 16), self.gpu.buffer(2048 * MIB, 0)
        for where, mib in (("l2", 8), ("dram", 2048)):
            for group in (1, 2, 4, 8, 16):
                kernel = self.gpu.kernel(self.module, f"grouped_{group}")
                for ctas in (1, self.gpu.sms):
                    for threads in (32, 128, 256, 512, 1024):
                        arguments = [out, data, np.uint32(mib * MIB // 128), np.int32(16)]
                        flush = [out, data, np.uint32(2048 * MIB // 128), np.int32(512)] if where == "dram" else None
                        values = self._cycles_a_step(kernel, ctas, threads, arguments, 16, flush)
                        self.results.add(
                            "lives",
                            f"grouped_{where}",
                            values,
                            "cycles",
                            ctas=ctas,
                            threads=threads,
                            same_line=group,
                        )
        out.free()
        data.free()

    def shifts(self) -> None:
        """Cycles for 32 loads of each warp at once, four to each of eight rows, aligned or each shifted a little."""
        out, data = self.gpu.buffer(1 << 16), self.gpu.buffer(1024 * MIB, 0)
        for where, kib in (("l1", 64), ("l2", 16384), ("dram", 1 << 20)):
            for shift in (0, 1, 8):
                kernel = self.gpu.kernel(self.module, f"shifted_{shift}")
                for ctas in (1, self.gpu.sms):
                    for threads in (128, 512, 1024):
                        arguments = [out, data, np.uint32(kib * 8 // 2), np.int32(16)]
                        flush = [out, data, np.uint32(1024 * MIB // 128), np.int32(256)] if where == "dram" else None
                        values = self._cycles_a_step(kernel, ctas, threads, arguments, 16, flush)
                        self.results.add(
                            "lives", f"shifted_{where}", values, "cycles", ctas=ctas, threads=threads, words=shift
                        )
        out.free()
        data.free()

    def rounds(self) -> None:
        """GB/s of CTAs that bring a tile of 64 x 64 words to shared memory and, after a barrier, write it back."""
        kernel = self.gpu.kernel(self.module, "rounds")
        pitch, height = 8192, 8192
        source, target = self.gpu.buffer(4 * pitch * height, 0), self.gpu.buffer(4 * pitch * height, 0)
        out = self.gpu.buffer(16 * pitch * height // 4096)
        for rows in (2048, 4096, 8192):
            ctas = pitch * rows // 4096
            for resident in (1, 2, 4, 8):
                shared = (220 << 10) // resident - (17 << 10)
                kernel.allow_shared(shared)
                arguments = [out, source, target, np.uint32(pitch), np.int32(1)]
                times = self.gpu.graph_time(
                    lambda c=ctas, s=shared, a=arguments: kernel.launch(c, 256, a, shared=s), 10, 3
                )
                values = [8 * pitch * rows / us / 1e3 for us in times]
                self.results.add("lives", "rounds", values, "GB/s", resident=resident, rows=rows)
        for buffer in (source, target, out):
            buffer.free()

    def drift(self) -> None:
        """How fast SMs get out of step: growth of the deviation, over SMs, of when their k-th filling of CTAs ends."""
        kernel = self.gpu.kernel(self.module, "rounds")
        pitch, height = 8192, 8192
        source, target = self.gpu.buffer(4 * pitch * height, 0), self.gpu.buffer(4 * pitch * height, 0)
        ctas = pitch * height // 4096
        out = self.gpu.buffer(16 * ctas)
        for resident in (2, 4, 8):
            shared = (220 << 10) // resident - (17 << 10)
            kernel.allow_shared(shared)
            for times in (1, 4):
                rates: list[float] = []
                for _ in range(4):
                    kernel.launch(ctas, 256, [out, source, target, np.uint32(pitch), np.int32(times)], shared=shared)
                    self.gpu.synchronize()
                    found = out.read(np.uint64, 2 * ctas).reshape(-1, 2).astype(np.int64)
                    ends = [np.sort(found[found[:, 0] == sm, 1]) for sm in range(self.gpu.sms)]
                    fillings = min(len(e) for e in ends) // resident
                    first = min(e[0] for e in ends)
                    means = np.array([e[: fillings * resident].reshape(fillings, resident).mean(axis=1) for e in ends])
                    when, spread = means.mean(axis=0) - first, means.std(axis=0)
                    rates.append(float(np.polyfit(when, spread, 1)[0]))
                self.results.add("lives", "drift", rates[1:], "of the time", resident=resident, times=times)
        for buffer in (source, target, out):
            buffer.free()
