"""What a Target is made of: the sections of a target file as typed, immutable records, and their checks.

Read through `timing.target`, which loads the files and explains sources and units.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from interpreter.errors import FarmError
from interpreter.isa.pipes import Pipe


class TargetError(FarmError):
    """Unknown target, or a target file that does not say what it must. The message names file and key."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where one number comes from: `kind` is one of SOURCES, `note` says more."""

    kind: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Gpu:
    """Board-level identity: counts and clocks."""

    sm_count: int
    gpcs: int
    clock_mhz: float  # SM clock a kernel runs at unless power-limited; the clock of all `_cycles`
    tensor_clock_mhz: float  # SM clock under sustained dense tensor work
    max_clock_mhz: float


@dataclass(frozen=True, slots=True)
class Limits:
    """Residency limits and allocation units of one SM (compute capability)."""

    sub_cores: int
    warp_size: int
    max_warps_per_sm: int
    max_threads_per_sm: int
    max_blocks_per_sm: int
    max_threads_per_block: int
    registers_per_sm: int
    register_unit_per_warp: int
    max_registers_per_thread: int
    warp_allocation_granularity: int
    named_barriers_per_sm: int  # pool shared by resident CTAs; 0 where it does not limit occupancy
    shared_per_sm_bytes: int
    shared_per_block_optin_bytes: int
    shared_static_per_block_bytes: int
    shared_reserved_per_block_bytes: int
    shared_unit_bytes: int
    shared_carveouts_kb: tuple[int, ...]
    carveout_headroom_kb: int  # largest carve-out the driver takes only to leave room (timing.occupancy.carveout)
    max_cluster: int


@dataclass(frozen=True, slots=True)
class PipeTiming:
    """Issue interval of a pipe in cycles a warp instruction; per sub-core, or of the SM's one unit."""

    interval: float
    shared_per_sm: bool = False


@dataclass(frozen=True, slots=True)
class ClassTiming:
    """Timing of one latency class.

    `latency` is cycles from issue to dependent issue (memory: on an L1 hit), `release` cycles until a variable-latency
    instruction has read its sources (0: not given); `*_64`, `*_128` are for 8 and 16 bytes a lane (0: as narrower).
    `interval` overrides the pipe's (None: the pipe's own).
    """

    latency: float
    latency_64: float = 0.0
    latency_128: float = 0.0
    release: float = 0.0
    release_64: float = 0.0
    release_128: float = 0.0
    interval: float | None = None
    shared_per_sm: bool = False  # the interval is that of one unit shared by the SM's sub-cores

    def latency_of(self, width: int) -> float:
        """Latency for an access of `width` bytes a lane."""
        return _by_width(width, self.latency, self.latency_64, self.latency_128)

    def release_of(self, width: int) -> float:
        """Cycles until the sources have been read, for `width` bytes a lane."""
        return _by_width(width, self.release, self.release_64, self.release_128)


def _by_width(width: int, narrow: float, wide: float, widest: float) -> float:
    if width >= 16 and widest:
        return widest
    if width >= 8 and wide:
        return wide
    return narrow


@dataclass(frozen=True, slots=True)
class Issue:
    """Scheduler and register file of one sub-core."""

    per_clk: int  # warp instructions a sub-core issues a cycle
    guard_latency_cycles: float  # predicate result to its use as a guard
    address_extra_cycles: float  # added when an ALU or FMA result is a memory address or store data
    register_banks: int
    bank_read_ports: int  # operands a cycle and bank
    yield_stall0_cycles: float  # stall 0 with yield parks the warp this long
    branch_redirect_cycles: float  # taken branch to the next issue of the warp, fetch hitting L0
    barrier_arrival_cycles: float  # the SM's barrier unit takes one arriving warp this often
    fma_halves: int  # FMA pipe = this many 16-lane halves, one of them FMA_HEAVY


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """Instruction fetch."""

    instruction_buffer_entries: int  # decoded instructions a warp
    fetch_per_clk: int  # instructions fetched and decoded a cycle and sub-core
    line_bytes: int
    l0_bytes: int  # per sub-core
    l0_miss_cycles: float  # L0 miss that hits L1I
    stream_buffer_lines: int
    l1i_bytes: int  # per SM
    l1i_miss_cycles: float  # L1I miss that hits L2
    l1i_line_cycles: float  # a line from L1I to one sub-core
    l2_line_cycles: float  # a line from L2 to the SM
    l1i_lines_per_clk: float  # lines a cycle from L1I to the sub-cores


@dataclass(frozen=True, slots=True)
class ConstantCache:
    """Constant operands (c[bank][offset]) and LDC."""

    l0_bytes: int  # immediate-constant cache of a sub-core
    line_bytes: int
    l0_miss_cycles: float  # miss in the operand cache, hit in the SM's constant cache
    l1_bytes: int  # the SM's constant cache
    l1_miss_cycles: float  # served by L2


@dataclass(frozen=True, slots=True)
class Mio:
    """Memory input/output: from the sub-cores' queues to the SM's load/store unit."""

    queue_entries: int  # per sub-core: shared memory, special functions, ...
    lg_queue_entries: int  # per sub-core: global and local memory
    latch_entries: int
    address_interval_cycles: float  # a sub-core's address unit takes one instruction this often
    dispatch_interval_cycles: float  # the SM's stage takes one instruction this often
    turn_cycles: float  # longer when a global or local access follows a shared one, or the other way round
    store_data_bytes_per_clk: float  # register data a sub-core sends down
    writeback_bytes_per_clk: float  # load data a sub-core's register file takes


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """Shared memory data stage (the same one L1 hits go through)."""

    banks: int
    bytes_per_clk: float
    pass_cycles: float  # cycles of one wavefront
    atomic_pass_cycles: float  # cycles of one pass of a shared atomic
    atomic_conflict_cycles: float  # added for each further lane on the same word


@dataclass(frozen=True, slots=True)
class L1:
    """L1 data cache, unified with shared memory."""

    unified_kb: int  # L1 + shared
    line_bytes: int
    sector_bytes: int
    tag_lines_per_clk: float  # 128-byte lines looked up a cycle
    bytes_per_clk: float
    pending_requests: int  # load instructions of global and local memory under way in an SM at most
    fill_bytes_per_clk: float  # from L2


@dataclass(frozen=True, slots=True)
class L2:
    """L2 cache of the whole GPU. Latencies are load-to-use, seen by a warp."""

    bytes: int
    slices: int
    slice_reads_per_clk: float  # reads of one line that a slice serves; each partition may have a copy
    hit_cycles: float  # near slice
    hit_far_cycles: float  # slice of the other partition; equal where there is one partition
    hit_spread_cycles: float  # single lines are up to this much nearer or farther than the mean
    far_fetch_cycles: float  # first hit by an SM on a line that only the other partition holds; it is copied then
    copies_full_share: float  # of the capacity: up to this footprint what all SMs read is copied in both partitions
    copies_none_share: float  # of larger footprints no copies are left; between the two they are the fewer
    partitions: int
    bytes_per_clk: float  # of all slices together, sustained, reads
    requests_per_clk: float  # reads of a part of a line, of all slices together
    write_bytes_per_clk: float
    write_weight: float  # what a written sector takes of the data paths that reads use, in read sectors
    partial_write_factor: float  # cost of an instruction's write to a part of a sector, in whole sectors
    bytes_per_clk_per_sm: float  # reads, limit of one SM's port
    write_bytes_per_clk_per_sm: float
    atomics_per_clk: float  # 32-bit atomic sectors of all slices together, different addresses
    same_address_atomics_per_clk: float  # lanes a cycle on one address, integers
    same_address_float_atomics_per_clk: float  # the same, floating-point additions
    atomic_line_request_cycles: float  # half of a line that all SMs use: cycles between two requests
    atomic_sm_lane_cycles: float  # one SM sending atomics: cycles a lane,
    atomic_sm_sector_cycles: float  # and a sector,
    atomic_sm_same_word_cycles: float  # or, if longer, a lane on the same word
    atomic_extra_cycles: float  # returning atomic over a load hit
    warm_full_share: float  # of the capacity: footprints of repeated launches up to this stay in L2
    warm_none_share: float  # larger ones find nothing there any more; between the two the share falls evenly


@dataclass(frozen=True, slots=True)
class Dram:
    """Device memory."""

    bytes: int
    gb_per_s: float  # by pins
    read_efficiency: float  # share of it that streams of reads or of writes reach
    scatter_sectors: float  # what a read at a random place costs on top, in sectors: another row of a bank to open
    mixed_efficiency: float  # the same for copies (half reads, half writes)
    latency_cycles: float  # load-to-use, idle
    latency_spread: float  # standard deviation of the logarithm of reads' latencies when half the traffic is writes
    loaded_cycles: float  # added to the latency times the share of bandwidth in use, and
    queue_cycles: float  # times use / (1 - use)
    loaded_write_cycles: float  # the two grow by these times the share of writes in the traffic
    queue_write_cycles: float
    channels: int
    memory_clock_mhz: float


@dataclass(frozen=True, slots=True)
class LaunchCosts:
    """Costs outside the SMs."""

    kernel_overhead_us: float  # back-to-back launches in a graph: added to the first CTA's start .. last CTA's end
    ctas_per_clk: float  # CTAs the whole GPU starts a cycle
    ctas_per_clk_per_sm: float  # CTAs one SM takes a cycle
    cta_start_cycles: float  # CTA placed to its first instruction issued
    cta_end_cycles: float  # last warp's exit to the slot's next CTA being placed
    sm_drift: float  # how fast SMs that run equal CTAs get out of step: share of the time since the launch
    sm_jitter: float  # SMs run CTAs of equal work in times that differ by up to this share,
    sm_memory_jitter: float  # and by this share of the time that warps wait for memory


SECTIONS: dict[str, type] = {
    "gpu": Gpu,
    "limits": Limits,
    "issue": Issue,
    "front_end": FrontEnd,
    "constant": ConstantCache,
    "mio": Mio,
    "shared": SharedMemory,
    "l1": L1,
    "l2": L2,
    "dram": Dram,
    "launch": LaunchCosts,
}


@dataclass(frozen=True, slots=True)
class Target:
    """One GPU. Immutable and picklable; see the module for units and sources."""

    name: str
    full_name: str
    aliases: tuple[str, ...]
    sm: int  # 90
    arch: str  # for nvcc: "sm_90a"
    gpu: Gpu
    limits: Limits
    issue: Issue
    front_end: FrontEnd
    constant: ConstantCache
    mio: Mio
    shared: SharedMemory
    l1: L1
    l2: L2
    dram: Dram
    launch: LaunchCosts
    pipes: dict[Pipe, PipeTiming]
    classes: dict[str, ClassTiming]
    sources: dict[str, Source] = field(repr=False)  # dotted path -> source, e.g. "classes.alu.latency"
    values: dict[str, Any] = field(repr=False)  # dotted path -> value

    @property
    def sm_count(self) -> int:
        return self.gpu.sm_count

    @property
    def clock_mhz(self) -> float:
        return self.gpu.clock_mhz

    @property
    def dram_bytes_per_clk(self) -> float:
        """Pin bandwidth in bytes an SM clock cycle, whole GPU, before efficiency."""
        return self.dram.gb_per_s * 1e3 / self.gpu.clock_mhz

    def microseconds(self, cycles: float) -> float:
        """Time of `cycles` SM cycles at `clock_mhz`."""
        return cycles / self.gpu.clock_mhz

    def source(self, path: str) -> Source:
        """Source of the number at a dotted path ("l2.bytes", "classes.alu.latency")."""
        try:
            return self.sources[path]
        except KeyError:
            raise TargetError(f"target {self.name}: no number at {path!r}{close_names(path, self.sources)}") from None

    def class_timing(self, name: str) -> ClassTiming:
        """Timing of a latency class; TargetError names the target and close names if there is none."""
        try:
            return self.classes[name]
        except KeyError:
            raise TargetError(
                f"target {self.name}: no latency class {name!r} in its file{close_names(name, self.classes)}"
            ) from None

    def with_values(self, changes: Mapping[str, float], source: str = "guess", note: str = "set by hand") -> Target:
        """This target with numbers replaced, by dotted path; for calibration and what-if runs."""
        for path in changes:
            if path not in self.values:
                raise TargetError(f"target {self.name}: no number at {path!r}{close_names(path, self.values)}")
        values = {**self.values, **changes}
        sources = {**self.sources, **{path: Source(source, note) for path in changes}}
        identity = {key: getattr(self, key) for key in ("name", "full_name", "aliases", "sm", "arch")}
        return build(identity, values, sources, f"target {self.name}")


def close_names(name: str, known: Mapping[str, Any]) -> str:
    """ " (close: ...)" for an error message, or nothing."""
    near = difflib.get_close_matches(name, known, n=3)
    return f" (close: {', '.join(near)})" if near else ""


def build(identity: dict[str, Any], values: dict[str, Any], sources: dict[str, Source], file: str) -> Target:
    """A checked Target from identity keys and flat values; `file` names the origin in error messages."""
    sections = {name: _section(kind, name, values, file) for name, kind in SECTIONS.items()}
    pipes: dict[Pipe, PipeTiming] = {}
    classes: dict[str, ClassTiming] = {}
    for table, kind in (("pipes", PipeTiming), ("classes", ClassTiming)):
        names = dict.fromkeys(key.split(".")[1] for key in values if key.startswith(f"{table}."))
        for name in names:
            entry = _section(kind, f"{table}.{name}", values, file)
            if table == "classes":
                classes[name] = entry
            elif name in Pipe.__members__:
                pipes[Pipe[name]] = entry
            else:
                raise TargetError(f"{file}: pipes.{name}: no such pipe; pipes are {', '.join(Pipe.__members__)}")
    missing = [pipe.name for pipe in Pipe if pipe not in pipes]
    if missing:
        raise TargetError(f"{file}: pipes: missing {', '.join(missing)}")
    target = Target(**identity, **sections, pipes=pipes, classes=classes, sources=sources, values=values)
    _check(target, file)
    return target


def _section(kind: type, prefix: str, values: dict[str, Any], file: str) -> Any:
    fields = {f.name: f for f in dataclasses.fields(kind)}
    given = {key[len(prefix) + 1 :]: value for key, value in values.items() if key.startswith(prefix + ".")}
    for key in given:
        if key not in fields:
            raise TargetError(f"{file}: {prefix}.{key} is not known; allowed: {', '.join(fields)}")
    required = [n for n, f in fields.items() if f.default is dataclasses.MISSING]
    for name in required:
        if name not in given:
            raise TargetError(f"{file}: {prefix}.{name} is missing")
    return kind(**{name: _typed(value, str(fields[name].type), f"{file}: {prefix}.{name}")
                   for name, value in given.items()})  # fmt: skip


def _typed(value: Any, kind: str, where: str) -> Any:
    if kind == "bool":
        if not isinstance(value, bool):
            raise TargetError(f"{where}: must be true or false, is {value!r}")
        return value
    if kind.startswith("tuple"):
        numbers = isinstance(value, tuple) and all(isinstance(v, int) and v >= 0 for v in value)
        if not numbers or list(value) != sorted(set(value)):
            raise TargetError(f"{where}: must be a rising list of whole numbers, is {value!r}")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        raise TargetError(f"{where}: must be a number of at least 0, is {value!r}")
    if kind == "int":
        if value != int(value):
            raise TargetError(f"{where}: must be a whole number, is {value!r}")
        return int(value)
    return float(value)


def _check(target: Target, file: str) -> None:
    """Relations between numbers that a typing slip breaks."""
    limits = target.limits
    rules = [
        (limits.max_threads_per_sm == limits.max_warps_per_sm * limits.warp_size,
         "limits.max_threads_per_sm must be max_warps_per_sm * warp_size"),
        (limits.shared_carveouts_kb[-1] * 1024 == limits.shared_per_sm_bytes,
         "limits.shared_per_sm_bytes must be the largest of shared_carveouts_kb"),
        (limits.carveout_headroom_kb in limits.shared_carveouts_kb,
         "limits.carveout_headroom_kb must be one of shared_carveouts_kb"),
        (limits.shared_per_block_optin_bytes + limits.shared_reserved_per_block_bytes <= limits.shared_per_sm_bytes,
         "limits.shared_per_block_optin_bytes plus the reserved bytes must fit shared_per_sm_bytes"),
        (limits.shared_per_sm_bytes <= target.l1.unified_kb * 1024,
         "limits.shared_per_sm_bytes must fit l1.unified_kb"),
        (0 < target.gpu.tensor_clock_mhz <= target.gpu.max_clock_mhz and target.gpu.clock_mhz > 0,
         "gpu clocks must be positive, tensor_clock_mhz at most max_clock_mhz"),
        (target.gpu.clock_mhz <= target.gpu.max_clock_mhz, "gpu.clock_mhz must be at most max_clock_mhz"),
        (0 < target.dram.read_efficiency <= 1 and 0 < target.dram.mixed_efficiency <= 1,
         "dram efficiencies must be in (0, 1]"),
        (target.l2.hit_cycles <= target.l2.hit_far_cycles <= target.dram.latency_cycles,
         "l2.hit_cycles <= l2.hit_far_cycles <= dram.latency_cycles must hold"),
        (target.gpu.sm_count > 0 and target.launch.ctas_per_clk > 0, "gpu.sm_count and launch.ctas_per_clk: positive"),
        (target.arch.startswith(f"sm_{target.sm}"), f"arch must start with sm_{target.sm}"),
        (all(pipe.interval > 0 for pipe in target.pipes.values()), "pipes: intervals must be positive"),
    ]  # fmt: skip
    for holds, rule in rules:
        if not holds:
            raise TargetError(f"{file}: {rule}")
