"""Lines that other SMs have read before or not, the constant caches, and fences."""

from __future__ import annotations

import ctypes

import numpy as np

from timing.calibrate.driver import Buffer, Gpu
from timing.calibrate.record import Results

MIB = 1 << 20
TABLE_WORDS = 16384


class Caches:
    def __init__(self, gpu: Gpu, cubins: dict[str, bytes], results: Results) -> None:
        self.gpu, self.results, self.cubins = gpu, results, cubins
        self.module = gpu.load(cubins["caches"])
        self.stream = gpu.load(cubins["stream"])
        self.out = gpu.buffer(1 << 20)
        self.claimed = gpu.buffer(4096)

    def _walk(self, data: Buffer, spread: int, places: int, turn: int, only: int, head: int, steps: int) -> np.ndarray:
        """Cycles a step (head, rest) of each SM, shape (SMs, 2); NaN where the SM did not walk."""
        self.out.fill(0)
        self.claimed.fill(0)
        self.gpu.kernel(self.module, "walk").launch(
            (8, self.gpu.sms),
            32,
            [
                self.out,
                self.claimed,
                data,
                np.uint64(spread),
                np.int32(places),
                np.int32(turn),
                np.int32(only),
                np.int32(head),
                np.int32(steps),
            ],
        )
        self.gpu.synchronize()
        found = self.out.read(np.uint32, 2 * self.gpu.sms).reshape(self.gpu.sms, 2).astype(float)
        found[found == 0] = np.nan
        return found / [head, max(steps, 1)]

    def first_touch(self) -> None:
        """Latency of L2 for lines that DRAM, this SM or another SM brought there, in this launch or the one before.

        Read by an SM of the other partition, half of the lines have their home there already and half are far.
        """
        data, flush = self.gpu.buffer(32 * MIB, None), self.gpu.buffer(512 * MIB, 0)
        link = self.gpu.kernel(self.module, "link_slices")
        head, steps = 64, 4096
        readers = range(1, self.gpu.sms, 11)
        for mib in (1, 8, 32):
            lines = mib * MIB // 128
            link.launch(1056, 256, [data, np.uint64(lines), np.uint64(lines)])
            found: dict[str, list[float]] = {}
            for reader in readers:
                flush.fill(reader)  # writes 512 MB: nothing of `data` is left in L2
                self.gpu.synchronize()
                toucher = 0
                count = min(steps, lines - head)
                order = [("from_dram", toucher), ("touched_by_sm_0", reader), ("touched_before", reader)]
                for name, sm in order:
                    walked = self._walk(data, 0, 1 << 20, 0, sm, head, count)
                    found.setdefault(name, []).append(float(walked[sm, 1]))
            for name, values in found.items():
                self.results.add("first_touch", name, values, "cycles", mib=mib)
                for percent in (10, 90):
                    self.results.add(
                        "first_touch",
                        name,
                        [float(np.percentile(values, percent))],
                        "cycles",
                        mib=mib,
                        percentile=percent,
                    )
        data.free()
        flush.free()

    def shared_lines(self) -> None:
        """Latency when all SMs walk at once, repeated launches: the same lines, each its own slice, another's slice.

        What both partitions read is kept in both: 30 MB of it fill the 60 MB of an H200.
        """
        data = self.gpu.buffer(68 * MIB, None)
        link = self.gpu.kernel(self.module, "link_slices")
        head, size = 64, 4096  # lines of a slice: 512 KiB
        link.launch(1056, 256, [data, np.uint64(data.nbytes // 128), np.uint64(size)])
        for slices in (2, 8, 16, 32, 40, 48, 56, 60, 64, 68, 72, 76, 80, 88, 96, 104, 112, 120, 132):
            for name in ("own_slice", "turning_slices"):
                rests = []
                for turn in range(12):
                    # turning: every SM walks a slice of 17 SMs further on in each launch
                    places = slices if slices <= self.gpu.sms else self.gpu.sms
                    walked = self._walk(
                        data, size, places, 17 * turn if name == "turning_slices" else 0, -1, head, size - head
                    )
                    if turn > 5:
                        rests.append(float(np.nanmean(walked[:, 1])))
                self.results.add("shared_lines", name, rests, "cycles", mib=slices // 2)
        for mib in (1, 8, 32):
            lines = mib * MIB // 128
            link.launch(1056, 256, [data, np.uint64(lines), np.uint64(lines)])
            rests = []
            for turn in range(4):
                walked = self._walk(data, lines // 256, 1 << 20, 0, -1, head, 4096)
                if turn:
                    rests.append(float(np.nanmean(walked[:, 1])))
            self.results.add("shared_lines", "same_lines", rests, "cycles", mib=mib)
        data.free()

    def sharing(self) -> None:
        """Bandwidth by footprint, launch after launch: each SM reads its own part, always the same; every SM reads all.

        With `memory.capacity`, where each part is read by whatever SM comes first, this tells what copies L2 keeps.
        """
        data, target = self.gpu.buffer(128 * MIB, 0), self.gpu.buffer(1 << 20, 0)
        own, everyone = self.gpu.kernel(self.stream, "read_16_4"), self.gpu.kernel(self.module, "read_all")
        for mib in (8, 16, 20, 24, 26, 28, 30, 32, 34, 36, 38, 40, 42, 44, 46, 48, 52, 56, 60, 64, 80, 96, 128):
            size = np.uint64(mib * MIB)
            for name, kernel, arguments, ctas, threads, passes in (
                ("own", own, [self.out, data, target, size, np.int32(1)], 8 * self.gpu.sms, 128, 1),
                ("everyone", everyone, [self.out, data, size], 2 * self.gpu.sms, 1024, 2 * self.gpu.sms),
            ):
                times = self.gpu.graph_time(
                    lambda k=kernel, a=arguments, c=ctas, t=threads: k.launch(c, t, a), 3 if passes > 1 else 20, 5
                )
                rates = [passes * mib * MIB / us / 1e3 for us in times]
                self.results.add("sharing", name, rates, "GB/s", mib=mib)
        data.free()
        target.free()

    def rows(self) -> None:
        """Bandwidth of DRAM when warps or CTAs each stream a row of their own, by the length and number of the rows."""
        data, target = self.gpu.buffer(512 * MIB, 0), self.gpu.buffer(512 * MIB, 0)
        for name in ("rows_read_1", "rows_read_4", "rows_copy_1", "rows_copy_4"):
            kernel = self.gpu.kernel(self.module, name)
            for team in (32, 256):
                for ctas in (1, 2, 4, 8):
                    for row in (512, 1024, 2048, 4096, 8192, 16384, 65536, 262144):
                        if row < 16 * team:
                            continue
                        count = data.nbytes // row
                        arguments = [self.out, data, target, np.uint32(row), np.uint32(count), np.int32(team)]
                        times = self.gpu.graph_time(
                            lambda k=kernel, c=ctas, a=arguments: k.launch(c * self.gpu.sms, 256, a), 4, 3
                        )
                        rates = [data.nbytes / us / 1e3 for us in times]
                        self.results.add("rows", name, rates, "GB/s", team=team, ctas=ctas, row=row)
        data.free()
        target.free()

    def waves(self) -> None:
        """CTAs of equal work: how many the busiest SM gets, and the time against that of one full wave."""
        kernel = self.gpu.kernel(self.gpu.load(self.cubins["waves"]), "same_work")
        kernel.allow_shared(220 << 10)
        out, sink, data = self.gpu.buffer(24 << 16), self.gpu.buffer(1 << 20), self.gpu.buffer(32 * MIB)
        kinds = {"latency": (0, 1500), "issue": (1, 1000), "shared": (2, 2500), "l2": (3, 300), "barrier": (4, 1000)}
        for name, (kind, rounds) in kinds.items():
            for threads in (128, 256):
                for resident in (1, 2, 3, 4, 8):
                    shared = (220 << 10) // resident - 1024
                    one_wave = 0.0
                    for tenths in (10, 11, 13, 15, 18, 199, 23, 30, 35, 53):
                        waves = tenths / 100 if tenths > 100 else tenths / 10
                        ctas = round(waves * resident * self.gpu.sms)
                        most, spans = [], []
                        for _ in range(4):
                            kernel.launch(
                                ctas, threads, [out, sink, data, np.int32(kind), np.int32(rounds)], shared=shared
                            )
                            self.gpu.synchronize()
                            found = out.read(np.uint64, 3 * ctas).reshape(-1, 3)
                            most.append(float(np.bincount(found[:, 0].astype(int)).max()))
                            spans.append(float(found[:, 2].max() - found[:, 1].min()))
                        where = {"kind": name, "threads": threads, "resident": resident, "ctas": ctas}
                        one_wave = one_wave or float(np.median(spans[1:]))
                        self.results.add("waves", "most_ctas", most[1:], "CTAs", **where)
                        self.results.add("waves", "time", [s / one_wave for s in spans[1:]], "waves", **where)
        out.free()
        sink.free()
        data.free()

    def constants(self) -> None:
        """Constant loads by footprint, first and later passes; constant operands; lanes that differ."""
        address, _ = self.gpu.symbol(self.module, "table")
        chain = self.gpu.kernel(self.module, "constant_chain")
        for words in (64, 128, 256, 384, 512, 768, 1024, 2048, 4096, 8192, 12288, 16384):
            table = np.zeros(TABLE_WORDS, np.uint32)
            places = np.arange(0, words, 16)
            order = np.random.default_rng(words).permutation(places[1:])
            cycle = np.concatenate([[0], order])
            table[cycle] = np.roll(cycle, -1)
            self._write(address, table)
            first, later = [], []
            for _ in range(5):
                chain.launch(1, 32, [self.out, np.int32(words), np.int32(0)])
                self.gpu.synchronize()
                ticks = self.out.read(np.uint32, 3) / (words / 16)
                first.append(float(ticks[0]))
                later.append(float(ticks[2]))
            self.results.add("constants", "chain", later, "cycles", bytes=4 * words)
            self.results.add("constants", "chain_first", first, "cycles", bytes=4 * words)
        self._write(address, np.zeros(TABLE_WORDS, np.uint32))
        for count, stride in ((64, 1), (64, 16), (256, 1), (256, 16), (256, 64), (512, 1), (512, 16)):
            kernel = self.gpu.kernel(self.module, f"operands_{count}_{stride}")
            for warps in (1, 16):
                first, later = [], []
                for _ in range(5):
                    kernel.launch(1, 32 * warps, [self.out, np.float32(0.5)])
                    self.gpu.synchronize()
                    ticks = self.out.read(np.uint32, 3) / count
                    first.append(float(ticks[0]))
                    later.append(float(ticks[2]))
                self.results.add("constants", "operands", later, "cycles/instr", count=count, words=stride, warps=warps)
                self.results.add(
                    "constants", "operands_first", first, "cycles/instr", count=count, words=stride, warps=warps
                )
        divergent = self.gpu.kernel(self.module, "constant_divergent")
        for distinct in (1, 2, 4, 8, 16, 32):
            for warps in (1, 4, 16):
                values = []
                for _ in range(3):
                    divergent.launch(1, 32 * warps, [self.out, np.int32(distinct), np.int32(64)])
                    self.gpu.synchronize()
                    values.append(float(self.out.read(np.uint32, 1)[0]) / (64 * 16))
                self.results.add("constants", "divergent", values, "cycles/instr", distinct=distinct, warps=warps)

    def _write(self, address: int, table: np.ndarray) -> None:
        self.gpu.call(
            "cuMemcpyHtoD_v2",
            ctypes.c_uint64(address),
            ctypes.c_void_p(table.ctypes.data),
            ctypes.c_size_t(table.nbytes),
        )

    def fences(self) -> None:
        """Dependent atomics; a fence after a store, with and without an atomic, by CTAs and their threads."""
        data, ticket = self.gpu.buffer(64 * MIB, 0), self.gpu.buffer(4096, 0)
        for name in ("fence_alone", "fence_ticket", "ticket_alone", "fence_only"):
            kernel = self.gpu.kernel(self.module, name)
            for ctas in (1, self.gpu.sms, 4 * self.gpu.sms, 16 * self.gpu.sms):
                for threads in (32, 128):
                    values = []
                    for _ in range(3):
                        kernel.launch(ctas, threads, [self.out, data, ticket, np.int32(16)])
                        self.gpu.synchronize()
                        values.append(float(np.median(self.out.read(np.uint32, ctas + 1)[1:])))
                    self.results.add("fences", name, values, "cycles", ctas=ctas, threads=threads)
        data.fill(0)
        for name in ("add", "f32", "cas"):
            kernel = self.gpu.kernel(self.module, f"atomic_chain_{name}")
            for ctas, threads in ((1, 32), (self.gpu.sms, 32), (self.gpu.sms, 256)):
                values = []
                for _ in range(3):
                    kernel.launch(ctas, threads, [self.out, data, np.int32(256)])
                    self.gpu.synchronize()
                    values.append(float(np.median(self.out.read(np.uint32, ctas + 1)[1:])) / 256)
                self.results.add("fences", f"atomic_{name}", values, "cycles", ctas=ctas, threads=threads)
        data.free()
        ticket.free()
