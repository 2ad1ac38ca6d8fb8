"""What happens inside one SM: latencies, issue rates, bank conflicts, L1, barriers, branches, instruction fetch."""

from __future__ import annotations

import ctypes

import numpy as np

from timing.calibrate.build import ISSUE_PARTS, STRAIGHT
from timing.calibrate.driver import Buffer, DriverError, Gpu, Kernel
from timing.calibrate.record import Results
from timing.calibrate.slots import SLOTS, rewrite
from timing.calibrate.slots import cases as cases_of_slots

STEPS = 128  # steps of a warp in one iteration of a rate kernel (4 chains of 32)
BURSTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32)  # instructions in a burst (mio.cu)
UNUSED = 0xFFFFFFFF  # what the SM number of a warp that did not run is filled with
SHARED = 8192  # bytes of dynamic shared memory of issue kernels
REPEATS = 5

CHAIN_OPS = [
    "fadd fmul ffma fmnmx fset_fsel iadd3 imad imad_hi imad_wide lop3 shf prmt imnmx dp4a setp_sel lea popc flo brev",
    "mufu_ex2 mufu_lg2 mufu_rcp mufu_rsq mufu_sqrt mufu_sin mufu_tanh f2i i2f i2f_u16 frnd f2fp dfma dadd f2f_64_32 "
    "hfma2 hadd2 hfma2_bf16 shfl_bfly shfl_idx vote redux match_any guard s2r",
    "lds32 lds64 lds128 ldsm4 ldsm4t sts_lds ldc atoms atoms_f32",
    "hmma_16816_f32 hmma_16816_bf16 hmma_16816_f16 hmma_1688_f32 hmma_1688_tf32 hmma_1684_tf32 imma_16832_s8 "
    "imma_16816_s8 dmma_884",
    "",
]
RATE_ONLY = [
    "",
    "",
    "atoms_red sts32 sts64 sts128",
    "",
    "ffma_imad ffma2_imad ffma3_imad ffma_iadd3 ffma2_lop3 imad_iadd3 iadd3_lop3 ffma_hfma2 imad_hfma2 ffma8_mufu "
    "ffma4_mufu ffma_dfma ffma4_lds hmma_ffma4 hmma_ffma8 hmma2_ldsm hmma4_ldsm mufu_popc mufu_f2i mufu_shfl "
    "lds_shfl lds_sts",
]
# words between neighbouring lanes: the access width itself is conflict-free
NATURAL = {"lds64": 2, "lds128": 4, "ldsm4": 4, "ldsm4t": 4, "sts64": 2, "sts128": 4, "hmma2_ldsm": 4, "hmma4_ldsm": 4}


def operands() -> np.ndarray:
    """Five words a lane: three floats (also used as integers), a small integer, and zero."""
    lane = np.arange(32, dtype=np.uint32)
    words = np.empty((5, 32), np.uint32)
    words[0] = np.float32(0.9990234).view(np.uint32) + lane
    words[1] = np.float32(0.25).view(np.uint32) + lane
    words[2] = np.float32(1.5).view(np.uint32) + lane
    words[3] = 3 + lane
    words[4] = 0
    return words


def per_sm(out: Buffer, warps: int) -> np.ndarray:
    """Cycles from the first start to the last end of the warps of each SM that ran any, shape (SMs used,)."""
    rows = out.read(np.uint32, 4 * warps).reshape(-1, 4)
    rows = rows[rows[:, 2] != UNUSED]
    spans = []
    for sm in np.unique(rows[:, 2]):
        mine = rows[rows[:, 2] == sm]
        base = mine[0, 0]
        start = (mine[:, 0] - base).astype(np.int32)
        end = (mine[:, 1] - base).astype(np.int32)
        spans.append(int(end.max()) - int(start.min()))
    return np.array(spans)


def shape_for(gpu: Gpu, warps_per_subcore: int) -> tuple[int, int]:
    """Grid and block that give every SM this many warps on each of its sub-cores (two CTAs when one is not enough)."""
    warps = 4 * warps_per_subcore
    ctas = -(-warps // 32)
    return gpu.sms * ctas, 32 * warps // ctas


class Core:
    """Measurements on all SMs at once; each gives the median over SMs and repeats."""

    def __init__(self, gpu: Gpu, cubins: dict[str, bytes], results: Results) -> None:
        self.gpu, self.results = gpu, results
        self.cubins = cubins
        self.modules = {name: gpu.load(image) for name, image in cubins.items()}
        self.out = gpu.buffer(1 << 20)
        self.data = gpu.buffer(4096)
        self.data.write(operands())
        self.memory = gpu.buffer(64 << 20)

    def kernel(self, unit: str, name: str) -> Kernel:
        return self.gpu.kernel(self.modules[unit], name)

    # -- latency ---------------------------------------------------------------------------------------------------
    def chains(self) -> None:
        for part in range(ISSUE_PARTS):
            for op in CHAIN_OPS[part].split():
                self._chain(part, op, NATURAL.get(op, 1), op)
        for op in ("lds32", "lds128", "ldsm4", "atoms"):
            self._chain(2, op, 0, f"{op}_uniform")
        for width in (4, 8, 16):
            self._hit_chain(width)

    def _chain(self, part: int, op: str, stride: int, name: str) -> None:
        short, long = self.kernel(f"issue{part}", f"chain_{op}_32"), self.kernel(f"issue{part}", f"chain_{op}_96")
        values = []
        for _ in range(REPEATS):
            ticks = []
            for kernel in (short, long):
                kernel.launch(1, 32, [self.out, self.data, np.uint32(stride), np.uint32(SHARED)], SHARED)
                self.gpu.synchronize()
                ticks.append(int(self.out.read(np.uint32, 1)[0]))
            values.append((ticks[1] - ticks[0]) / 64)
        self.results.add("latency", name, values, "cycles", stride=stride)

    def _hit_chain(self, width: int) -> None:
        self.kernel("l1", "link_self").launch(64, 256, [self.memory, np.int32(8192)])
        values = []
        for _ in range(REPEATS):
            ticks = []
            for count in (32, 96):
                self.kernel("l1", f"hit_{width}_{count}").launch(1, 32, [self.out, self.memory])
                self.gpu.synchronize()
                ticks.append(int(self.out.read(np.uint32, 1)[0]))
            values.append((ticks[1] - ticks[0]) / 64)
        self.results.add("latency", f"ldg_l1_hit_{8 * width}", values, "cycles")

    def barriers(self) -> None:
        for warps in (1, 2, 4, 8, 16, 32):
            values = []
            for _ in range(REPEATS):
                ticks = []
                for count in (32, 96):
                    self.kernel("barriers", f"barriers_{count}").launch(1, 32 * warps, [self.out])
                    self.gpu.synchronize()
                    ticks.append(int(self.out.read(np.uint32, 32 * warps).max()))
                values.append((ticks[1] - ticks[0]) / 64)
            self.results.add("latency", "bar_sync", values, "cycles", warps=warps)

    # -- issue rates -----------------------------------------------------------------------------------------------
    def _difference(
        self,
        kernel: Kernel,
        before: list[object],
        warps_per_subcore: int,
        small: int,
        shared: int = 0,
        after: tuple[object, ...] = (),
    ) -> np.ndarray:
        """Cycles that `small` more iterations take, per SM (the least over repeats, which leaves disturbances out)."""
        grid, block = shape_for(self.gpu, warps_per_subcore)
        best = None
        for _ in range(3):
            spans = []
            for iterations in (small, 2 * small):
                self.out.fill(UNUSED)
                self.gpu.synchronize()
                kernel.launch(grid, block, [*before, np.int32(iterations), *after], shared)
                self.gpu.synchronize()
                spans.append(per_sm(self.out, grid * block // 32))
            if len(spans[0]) != len(spans[1]) or len(spans[0]) != self.gpu.sms:
                raise DriverError(f"{kernel.name}: CTAs did not spread evenly over the SMs")
            gap = spans[1] - spans[0]
            best = gap if best is None else np.minimum(best, gap)
        assert best is not None
        return best

    def _rate(self, part: int, op: str, stride: int, warps: int, small: int, group: str, subcores: int = 4) -> None:
        kernel = self.kernel(f"issue{part}", f"rate_{op}")
        before: list[object] = [self.out, self.data, np.uint32(stride), np.uint32(SHARED)]
        try:
            gap = self._difference(kernel, before, warps, small, SHARED, (np.int32(subcores),))
        except DriverError as error:  # registers for 16 warps a sub-core may not be there
            if "OUT_OF_RESOURCES" in str(error) or "spread evenly" in str(error):
                return
            raise
        values = gap / (small * STEPS * warps)
        self.results.add(group, op, list(values), "cycles/step/subcore", warps=warps, stride=stride, subcores=subcores)

    def rates(self) -> None:
        for part in range(ISSUE_PARTS):
            for op in (CHAIN_OPS[part] + " " + RATE_ONLY[part]).split():
                for warps in (1, 2, 4, 8, 16):
                    self._rate(part, op, NATURAL.get(op, 1), warps, 2 if op == "atoms_f32" else 8, "rate")

    def conflicts(self) -> None:
        """Shared-memory accesses with lanes `stride` words apart; the SM's pipe serves four sub-cores at once."""
        cases = {
            "lds32": (0, 1, 2, 4, 8, 16, 32, 33),
            "lds64": (0, 2, 4, 8, 16, 32),
            "lds128": (0, 4, 8, 16, 32),
            "ldsm4": (0, 4, 8, 16, 32),
            "sts32": (0, 1, 2, 4, 8, 16, 32),
            "sts64": (0, 2, 4, 8, 16, 32),
            "sts128": (0, 4, 8, 16, 32),
            "atoms": (0, 1, 2, 4, 8, 16, 32),
            "atoms_red": (0, 1, 2, 4, 8, 16, 32),
        }
        for op, strides in cases.items():
            for stride in strides:
                for warps in (1, 4):
                    self._rate(2, op, stride, warps, 4, "conflict")

    # -- L1 --------------------------------------------------------------------------------------------------------
    def l1(self) -> None:
        for width in (4, 8, 16):
            kernel = self.kernel("l1", f"loads_{width}")
            for stride in sorted(
                {0, width, 2 * width, 4 * width, 8 * width, 32, 36, 48, 64, 68, 80, 128, 132, 144, 256, 260}
            ):
                if stride % width:
                    continue
                for warps in (1, 2, 4, 8):
                    gap = self._difference(kernel, [self.out, self.memory, np.int32(stride), np.int32(0)], warps, 8)
                    self.results.add(
                        "l1_load",
                        f"ldg_{8 * width}",
                        list(gap / (8 * 32 * warps)),
                        "cycles/instr/subcore",
                        stride=stride,
                        warps=warps,
                    )
            kernel = self.kernel("l1", f"stores_{width}")
            for stride in sorted({width, 32, 128}):
                for warps in (1, 4):
                    gap = self._difference(kernel, [self.out, self.memory, np.int32(stride), np.int32(65536)], warps, 8)
                    self.results.add(
                        "l1_store",
                        f"stg_{8 * width}",
                        list(gap / (8 * 32 * warps)),
                        "cycles/instr/subcore",
                        stride=stride,
                        warps=warps,
                    )
        for name in ("local_loads", "local_stores"):
            for warps in (1, 2, 4, 8):
                gap = self._difference(self.kernel("l1", name), [self.out, np.int32(0)], warps, 16)
                self.results.add("l1_load", name, list(gap / (16 * 16 * warps)), "cycles/instr/subcore", warps=warps)

    # -- control flow ----------------------------------------------------------------------------------------------
    def control(self) -> None:
        one, half = ctypes.c_float(0.999), ctypes.c_float(0.5)
        for body in (4, 8, 16, 32, 64):
            for warps in (1, 2, 4, 8, 16):
                gap = self._difference(self.kernel("barriers", f"loop_{body}"), [self.out, one, half], warps, 64)
                self.results.add(
                    "control", "loop", list(gap / (64 * warps)), "cycles/iteration/warp", body=body, warps=warps
                )
        for split in (0, 1, 16, 32):
            for warps in (1, 4):
                kernel = self.kernel("barriers", "diverge")
                spans = []
                for iterations in (64, 128):
                    grid, block = shape_for(self.gpu, warps)
                    kernel.launch(grid, block, [self.out, one, half, np.int32(iterations), np.int32(split)])
                    self.gpu.synchronize()
                    spans.append(per_sm(self.out, grid * block // 32))
                self.results.add(
                    "control",
                    "diverge",
                    list((spans[1] - spans[0]) / (64 * warps)),
                    "cycles/iteration/warp",
                    split=split,
                    warps=warps,
                )
        for second in range(1, 9):
            ticks = []
            for _ in range(REPEATS):
                self.kernel("barriers", "pair").launch(
                    1, 512, [self.out, one, np.int32(64), np.int32(0), np.int32(second)]
                )
                self.gpu.synchronize()
                rows = self.out.read(np.uint32, 64).reshape(16, 4)
                ticks.append(int(rows[0, 1] - rows[0, 0]) / (64 * 32))
            self.results.add("control", "mufu_beside_warp_0", ticks, "cycles/instr", second=second)

    def fetch(self) -> None:
        one, half = ctypes.c_float(0.999), ctypes.c_float(0.5)
        for count in STRAIGHT:
            kernel = self.kernel(f"straight{count}", "straight")
            small = max(2, 4096 // count)
            # one warp on one SM alone, then all SMs
            ticks = []
            for _ in range(3):
                spans = []
                for iterations in (small, 2 * small):
                    kernel.launch(1, 32, [self.out, one, half, np.int32(iterations)])
                    self.gpu.synchronize()
                    spans.append(int(per_sm(self.out, 1)[0]))
                ticks.append((spans[1] - spans[0]) / (small * count))
            self.results.add("fetch", "straight_one_warp", ticks, "cycles/instr", kib=count // 64)
            for warps in (1, 2, 4, 8, 16):
                gap = self._difference(kernel, [self.out, one, half], warps, small)
                self.results.add(
                    "fetch",
                    "straight",
                    list(gap / (small * count * warps)),
                    "cycles/instr/subcore",
                    kib=count // 64,
                    warps=warps,
                )

    def slots(self) -> None:
        """Issue rules on rewritten machine code: register banks, operand reuse, stall counts, yield."""
        data = self.gpu.buffer(4096)
        for name, pattern in cases_of_slots().items():
            kernel = self.gpu.kernel(self.gpu.load(rewrite(self.cubins["slots"], pattern)), "slots")
            for warps in (1, 2, 4):
                gap = self._difference(kernel, [self.out, data], warps, 8)
                self.results.add("slots", name, list(gap / (8 * SLOTS * warps)), "cycles/instr/subcore", warps=warps)

    def single_sm_stores(self) -> None:
        """Stores of one SM alone: what its path to L2 takes."""
        for width in (4, 8, 16):
            kernel = self.kernel("l1", f"stores_{width}")
            for stride in sorted({width, 32, 128}):
                for warps in (4, 16, 32):
                    ticks = []
                    for _ in range(3):
                        spans = []
                        for iterations in (16, 32):
                            kernel.launch(
                                1,
                                32 * warps,
                                [self.out, self.memory, np.int32(stride), np.int32(0), np.int32(iterations)],
                            )
                            self.gpu.synchronize()
                            spans.append(int(per_sm(self.out, warps)[0]))
                        ticks.append((spans[1] - spans[0]) / (16 * 32 * warps))
                    self.results.add(
                        "l1_store", f"one_sm_stg_{8 * width}", ticks, "cycles/instr/SM", stride=stride, warps=warps
                    )
        kernel = self.kernel("l1", "local_stores")
        for warps in (4, 16):
            ticks = []
            for _ in range(3):
                spans = []
                for iterations in (32, 64):
                    kernel.launch(1, 32 * warps, [self.out, np.int32(0), np.int32(iterations)])
                    self.gpu.synchronize()
                    spans.append(int(per_sm(self.out, warps)[0]))
                ticks.append((spans[1] - spans[0]) / (32 * 16 * warps))
            self.results.add("l1_store", "one_sm_stl_32", ticks, "cycles/instr/SM", warps=warps)

    def bursts(self) -> None:
        """Time to issue N independent instructions of one kind, and to have all results: queue depth and drain rate."""
        data, seed = self.gpu.buffer(1 << 20), self.gpu.buffer(4096)
        for op in ("lds32", "lds128", "sts32", "ldg32", "ldg128", "stg32", "shfl", "mufu"):
            for count in BURSTS:
                kernel = self.kernel("mio", f"burst_{op}_{count}")
                for warps in (1, 4, 8):
                    issued, done = [], []
                    for _ in range(REPEATS):
                        kernel.launch(1, 32 * warps, [self.out, data, seed], 16384)
                        self.gpu.synchronize()
                        rows = self.out.read(np.uint32, 2 * warps).reshape(-1, 2)
                        issued.append(float(rows[:, 0].max()))
                        done.append(float(rows[:, 1].max()))
                    self.results.add("burst", f"{op}_issued", issued, "cycles", warps=warps, count=count)
                    self.results.add("burst", f"{op}_done", done, "cycles", warps=warps, count=count)

    def async_copies(self) -> None:
        """cp.async of 16 bytes a lane, past L1, from a part of L2 of its own for each of the `sms` CTAs."""
        kernel = self.kernel("mio", "async_copy")
        for span in (65536, 262144, 1 << 20, 4 << 20):
            for warps in (4, 8, 16, 32):
                for active in (1, 8, 32, self.gpu.sms):
                    if span * active > self.memory.nbytes:
                        continue
                    arguments = [self.out, self.memory, np.uint32(span)]
                    values = []
                    for _ in range(3):
                        times = []
                        for iterations in (512, 1024):
                            launch = [*arguments, np.int32(iterations)]
                            times.append(
                                self.gpu.time(
                                    lambda launch=launch, active=active, warps=warps: kernel.launch(
                                        active, 32 * warps, launch, 1024 * warps
                                    )
                                )
                            )
                        values.append(active * 512 * 4 * warps * 512 / (times[1] - times[0]) / 1e3)
                    self.results.add("async_copy", "ldgsts_128", values, "GB/s", span=span, sms=active, warps=warps)

    def first_pass(self) -> None:
        """A launch that runs its code once, in a graph of such launches: time by size of the code."""
        one, half = ctypes.c_float(0.999), ctypes.c_float(0.5)
        for count in STRAIGHT:
            kernel = self.kernel(f"straight{count}", "straight")
            for grid, threads in ((1, 32), (self.gpu.sms, 32), (self.gpu.sms, 256)):
                times = self.gpu.graph_time(
                    lambda kernel=kernel, grid=grid, threads=threads: kernel.launch(
                        grid, threads, [self.out, one, half, np.int32(0)]
                    ),
                    20,
                )
                self.results.add("fetch", "first_pass", times, "us", kib=count // 64, threads=threads, grid=grid)

    def subcores(self) -> None:
        """Rates of shared resources with one, two and four sub-cores at work: each sub-core's own path to them."""
        ops = {
            2: "lds32 lds64 lds128 ldsm4 sts32 sts128 atoms ldc",
            1: "shfl_bfly mufu_ex2 dfma redux",
            4: "lds_shfl mufu_shfl",
        }
        for part, names in ops.items():
            for op in names.split():
                for subcores in (1, 2, 4):
                    for warps in (1, 4, 8):
                        self._rate(part, op, NATURAL.get(op, 1), warps, 8, "subcores", subcores)
        for op, stride in (("lds32", 4), ("lds32", 32), ("sts32", 4), ("lds64", 8)):
            for subcores in (1, 2, 4):
                for warps in (1, 4):
                    self._rate(2, op, stride, warps, 8, "subcores", subcores)

    def priority(self) -> None:
        """Who goes first when warps of one sub-core compete: the end of each, in its order, over the last one's.

        `order` counts a sub-core's warps by CTA, then by warp in it. loop_64 has no barrier before it, the others one.
        """
        one, half = ctypes.c_float(0.999), ctypes.c_float(0.5)
        cases: list[tuple[str, Kernel, list[object], tuple[object, ...], int]] = []
        for part, names in ((0, "ffma imad iadd3"), (1, "mufu_ex2"), (2, "lds32"), (3, "hmma_16816_f32")):
            for op in names.split():
                before: list[object] = [self.out, self.data, np.uint32(1), np.uint32(SHARED)]
                cases.append((op, self.kernel(f"issue{part}", f"rate_{op}"), before, (np.int32(4),), SHARED))
        cases.append(("loop_64", self.kernel("barriers", "loop_64"), [self.out, one, half], (), 0))
        data = self.gpu.buffer(4096)
        patterns = cases_of_slots()
        for setting in ("stall 1 keep 1", "stall 1 keep 0", "stall 2 keep 1", "stall 4 keep 1"):
            name = f"FFMA EOZ {setting}"
            kernel = self.gpu.kernel(self.gpu.load(rewrite(self.cubins["slots"], patterns[name])), "slots")
            cases.append((name, kernel, [self.out, data], (), 0))
        for name, kernel, before, after, shared in cases:
            for per_subcore, ctas in ((2, 1), (4, 1), (8, 1), (8, 2), (8, 4), (16, 2)):
                warps = 4 * per_subcore
                self.out.fill(UNUSED)
                self.gpu.synchronize()
                try:
                    kernel.launch(self.gpu.sms * ctas, 32 * warps // ctas, [*before, np.int32(64), *after], shared)
                    self.gpu.synchronize()
                except DriverError as error:
                    if "OUT_OF_RESOURCES" in str(error):
                        continue
                    raise
                rows = self.out.read(np.uint32, 4 * warps * self.gpu.sms).reshape(-1, 4)
                shares = []
                for sm in np.unique(rows[:, 2]):
                    mine = rows[rows[:, 2] == sm]
                    if len(mine) != warps:
                        continue  # CTAs are not dealt out evenly at first
                    start = (mine[:, 0] - mine[0, 0]).astype(np.int32)
                    end = (mine[:, 1] - mine[0, 0]).astype(np.int32) - start.min()
                    shares.append(end / end.max())
                middle = np.median(shares, axis=0)
                for order in range(per_subcore):
                    here = list(middle[4 * order : 4 * order + 4])
                    self.results.add(
                        "priority", name, here, "of the last end", warps=per_subcore, ctas=ctas, order=order
                    )
