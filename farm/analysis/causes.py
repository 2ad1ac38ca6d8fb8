"""Why a SASS line costs what it costs: what its warps wait for, and what would relieve that, each with its number."""

from __future__ import annotations

from dataclasses import dataclass, field

from farm.analysis.finding import BUSY
from farm.analysis.producers import Producers
from farm.analysis.residency import given
from farm.analysis.sass import GLOBAL, LOCAL, SHARED, SPECIAL_FUNCTIONS, parts
from farm.analysis.variant import REASONS, Line, Variant
from farm.analysis.words import amount, bound_words, byte_count, percent, reason_words
from timing.stalls import Stall

CONFLICT = 1.25  # wavefronts a request over the ideal from which conflicts are worth a word
SCATTER = 1.5  # sectors a request over the ideal, likewise
ATOMIC_RELIEF = "fewer global atomics: combine within the warp or in shared memory first"
SECOND = 0.25  # share of a line's cycles from which a second reason is explained as well
FIRST_LINES = 8  # one line of instruction cache


@dataclass(slots=True)
class LineCause:
    """One costly line: `share` of all warp-cycles, its main reason with that reason's share of the line's cycles."""

    pc: int
    place: str
    sass: str
    source_line: int
    share: float
    reason: str
    reason_share: float
    text: str
    relief: str
    numbers: dict[str, float] = field(default_factory=dict)


def costliest(variant: Variant, count: int = 3) -> list[LineCause]:
    """The lines where warps spent most cycles, with what they wait for and what would relieve it."""
    total = variant.total_cycles
    if total <= 0:
        return []
    order = sorted(range(len(variant.lines)), key=lambda i: (-variant.lines[i].cycles, i))
    producers = Producers(variant.lines)
    return [_cause(variant, i, total, producers) for i in order[:count] if variant.lines[i].cycles > 0]


def _cause(variant: Variant, index: int, total: float, producers: Producers) -> LineCause:
    line = variant.lines[index]
    first, second = (int(place) for place in (-line.stalls).argsort(kind="stable")[:2])
    reason, share = REASONS[first], float(line.stalls[first]) / line.cycles
    text, relief, numbers = _explained(variant, index, reason, producers)
    text = f"{reason} {percent(share)}: {text}"
    also = float(line.stalls[second]) / line.cycles
    if also >= SECOND and REASONS[second] in _WAITS:  # a line that waits for two things is told of both
        more, other, found = _explained(variant, index, REASONS[second], producers)
        text += f"; {REASONS[second]} {percent(also)}: {more}"
        relief = "; ".join(dict.fromkeys(filter(None, (relief, other))))
        numbers = found | numbers
    return LineCause(
        line.pc, variant.place(line), line.sass, line.source_line, line.cycles / total, reason, share, text, relief,
        numbers,
    )  # fmt: skip


def _explained(variant: Variant, index: int, reason: str, producers: Producers) -> tuple[str, str, dict[str, float]]:
    line = variant.lines[index]
    if reason in ("long_scoreboard", "short_scoreboard"):
        return _scoreboard(variant, index, reason, producers)
    if reason in ("mio_throttle", "lg_throttle"):
        return _queue(variant, line, reason)
    if reason == "not_selected":
        issue, bound = variant.busy("issue"), variant.row["bound"]
        text = f"its warps are {reason_words(reason)} (the issue slots are busy for {percent(issue)} of the time)"
        if issue >= 0.5 or bound in ("issue", "latency"):
            return text, _RELIEF[reason], {"issue_share": issue}
        relief = f"nothing here: {bound_words(bound)}, busy for {percent(variant.busy(bound))}, holds the others up"
        return text, relief, {"issue_share": issue}
    if reason == "math_pipe_throttle":
        opcode = parts(line.sass)[0]
        text = f"{opcode} finds its pipe still taken by earlier instructions"
        return text, "fewer instructions of that pipe, or work moved to another one", {}
    if reason == "barrier":
        before = next((one for one in reversed(variant.lines[: index + 1]) if _is_barrier(one)), None)
        if before is not None:
            text = f"waits at the barrier at {variant.place(before)} for the CTA's other warps"
            worst = _worst_conflict(variant)
            if worst is None:
                return text + _before_barrier(variant, before, producers), _RELIEF[reason], {}
            text += f"; among what they do, {_opcode(worst)} at {variant.place(worst)} has {conflict_words(worst)}"
            return text, conflict_relief(worst), {"ways": ways_of(worst)}
    if reason == "no_instruction" and line.executed and index < FIRST_LINES:
        return "the kernel's first instructions are fetched from L2 or memory", "", {}
    return f"its warps are {reason_words(reason)}", _RELIEF.get(reason, ""), {}


def _before_barrier(variant: Variant, barrier: Line, producers: Producers) -> str:
    """What keeps warps from the barrier longest: the costliest line since the barrier before, when it stands out."""
    since: list[tuple[float, int]] = []
    for index, line in enumerate(variant.lines):
        if line.pc >= barrier.pc:
            break
        if parts(line.sass)[0] == "BAR":
            since = []
        since.append((line.cycles - float(line.stalls[Stall.BARRIER] + line.stalls[Stall.NOT_SELECTED]), index))
    cycles, slowest = max(since, default=(0.0, 0))
    if cycles <= 0 or cycles < 0.3 * sum(value for value, _ in since):
        return ""
    line = variant.lines[slowest]
    reason = REASONS[int(line.stalls.argmax())]
    source = producers.find(slowest, reason) if "scoreboard" in reason else None
    awaited = f" waits for {_opcode(source)}" if source is not None else ""
    share = percent(cycles / variant.total_cycles)
    return (
        f"; on the way there {_opcode(line)} at {variant.place(line)}{awaited} ({reason}, {share} of all warp-cycles)"
    )


# reasons that say what a line waits for; the others are the scheduler's and the pipes' turns
_WAITS = ("long_scoreboard", "short_scoreboard", "barrier", "mio_throttle", "lg_throttle")


def _is_barrier(line: Line) -> bool:
    return line.executed > 0 and parts(line.sass)[0] in ("BAR", "WARPSYNC", "UCGABAR_WAIT", "SYNCS")


def _or_more_warps(variant: Variant) -> str:
    """An advice only where the SM has room for more warps, or the grid does not fill it."""
    if given(variant) is not None:
        return ", or more CTAs"
    return ", or more warps" if (variant.row["occupancy"] or 0.0) < 0.99 else ""


_RELIEF = {
    "selected": "nothing waits here: only fewer instructions make it cheaper",
    "not_selected": "there are more ready warps than issue slots: only fewer instructions make it cheaper",
    "wait": "more independent work between dependent instructions (unroll, several accumulators), or more warps",
    "barrier": "less imbalance between the warps of a CTA, fewer barriers, or more CTAs an SM to fill the gaps",
    "membar": "fewer or narrower fences (block or cluster scope, release/acquire)",
    "no_instruction": "shorter code: less unrolling, so that the loop fits the instruction caches",
    "branch_resolving": "fewer branches in the hot loop: unrolling, predication",
    "dispatch_stall": "nothing in the source as a rule: operands fall into the same register bank",
    "imc_miss": "fewer different constants in flight; indexed constants through shared memory or registers",
    "drain": "fewer or wider stores at the kernel's end",
    "sleeping": "less waiting by nanosleep",
}


def _scoreboard(variant: Variant, index: int, reason: str, producers: Producers) -> tuple[str, str, dict[str, float]]:
    source = producers.find(index, reason)
    numbers = _warps(variant)
    warps = numbers.get("warps_per_sub_core", 0.0)
    if source is None:
        relief = "longer distance between the load and its use" + _or_more_warps(variant)
        return f"its warps are {reason_words(reason)}", relief, numbers
    at = f"{_opcode(source)} at {variant.place(source)}"
    access = source.access
    if access is not None and access.space == LOCAL and access.kind == "store":
        return f"waits until the spill or local store {at} has been taken", _local_relief(variant), numbers
    if access is not None and access.kind == "store":
        text = f"waits until {at} has taken the registers it stores"
        return text, "fewer or wider stores; unrolling, so that other registers come next", numbers
    if access is not None and access.space == LOCAL:
        return f"waits for the reload of a spilled or local value ({at})", _local_relief(variant), numbers
    if access is not None and access.space == SHARED:
        ways = ways_of(source)
        if ways >= CONFLICT:
            numbers = {"ways": ways, "wavefronts": source.wavefronts}
            return f"waits for {at}, which has {conflict_words(source)}", conflict_relief(source), numbers
        text = f"waits for {at} (no bank conflict)"
        busy = variant.busy("lsu")
        if busy >= BUSY:  # then the result is late because of all accesses, however early this one is issued
            worst = _worst_conflict(variant)
            text += f", behind a load/store unit that is busy for {percent(busy)} of the time"
            relief = "fewer and wider shared-memory accesses: more values a thread reused from registers"
            if worst is not None:
                relief += f"; no conflicts ({_opcode(worst)} at {variant.place(worst)} has {conflict_words(worst)})"
            return text, relief, numbers | {"lsu_share": busy}
        return text, "loads issued earlier, several a thread in flight", numbers
    if access is not None and access.space == GLOBAL:
        ratio = scatter_of(source)
        text = f"waits for {at}, with {warps:.3g} warp{'s' if warps != 1 else ''} a sub-core to hide it"
        if access.kind == "atomic":
            return text, ATOMIC_RELIEF, numbers
        if ratio >= SCATTER:
            numbers |= {"sectors_per_request": source.sectors / source.executed}
            text += f"; {_sectors(source)}"
            return text, "neighbouring lanes reading neighbouring addresses", numbers
        memory = busy_memory(variant)
        if memory is not None:
            more, relief, share = memory
            return text + more, relief, numbers | share
        relief = "loads issued earlier (unrolled, prefetched or by cp.async), more of them in flight a thread"
        if access.width <= 4:
            text += f"; it loads {access.width} byte{'s' if access.width != 1 else ''} a lane"
            relief = f"wider loads (up to 16 bytes a lane), {relief}"
        return text, relief + _or_more_warps(variant), numbers
    if parts(source.sass)[0] in SPECIAL_FUNCTIONS:
        return f"waits for the special function {at}", "fewer or cheaper special functions", numbers
    return f"waits for the result of {at}", "more independent work before the result is used", numbers


def local_bytes(variant: Variant) -> float:
    """Bytes that local loads and stores move between registers and L1."""
    accesses = [(line, access) for line in variant.lines if (access := line.access) is not None]
    return sum(line.thread_executed * access.width for line, access in accesses if access.space == LOCAL)


def l2_bytes(variant: Variant) -> float:
    """Bytes that the whole kernel moves to and from L2."""
    memory = variant.map("memory")
    return memory.get("l2_read_bytes", memory.get("l2_bytes", 0.0)) + memory.get("l2_write_bytes", 0.0)


def busy_memory(variant: Variant) -> tuple[str, str, dict[str, float]] | None:
    """What to add, and what would relieve it, where DRAM, L2 or launching is busy all the time: waiting is for that."""
    launch = max(variant.busy("cta_launch"), variant.busy("launch"))
    if launch >= BUSY:
        text = f"; CTAs start at the rate at which they are launched ({percent(launch)} of the time)"
        return text, "fewer CTAs with more work each (several elements a thread)", {"launch_share": launch}
    for name, fewer in (
        ("dram", "fewer bytes from and to DRAM: narrower types, values reused, kernels fused"),
        ("l2", "fewer bytes through L2: reuse in shared memory and registers"),
    ):
        share = variant.busy(name)
        if share >= BUSY:
            local, l2 = local_bytes(variant), l2_bytes(variant)
            if name == "l2" and local >= 0.5 * l2:
                text = f"; {bound_words(name)} is used up ({percent(share)} of the time), by local memory for the most"
                return (
                    f"{text} ({byte_count(local)} of spills or local arrays)",
                    _local_relief(variant),
                    {
                        "l2_share": share,
                        "local_bytes": local,
                    },
                )
            text = f"; {bound_words(name)} is used up ({percent(share)} of the time)"
            return text, f"{fewer} (loads issued earlier only wait longer)", {f"{name}_share": share}
    return None


def _local_relief(variant: Variant) -> str:
    if variant.row["spill_load_bytes"] or variant.row["spill_store_bytes"]:
        return "fewer live values a thread, or a higher register cap"
    return "array indices known at compile time, so that the array stays in registers"


def _queue(variant: Variant, line: Line, reason: str) -> tuple[str, str, dict[str, float]]:
    queue = "MIO" if reason == "mio_throttle" else "LSU"
    access = line.access
    if access is not None and access.space == SHARED and ways_of(line) >= CONFLICT:
        ways = ways_of(line)
        text = f"the {queue} queue is full behind accesses with {conflict_words(line)}"
        return text, conflict_relief(line), {"ways": ways, "wavefronts": line.wavefronts}
    if access is not None and access.kind == "atomic" and access.space == GLOBAL:
        text = f"the {queue} queue is full of atomics that L2 takes one after the other"
        return text, ATOMIC_RELIEF, {}
    if access is not None and access.space == GLOBAL and scatter_of(line) >= SCATTER:
        text = f"the {queue} queue is full: {_sectors(line)}"
        return text, "neighbouring lanes accessing neighbouring addresses", {
            "sectors_per_request": line.sectors / line.executed
        }  # fmt: skip
    if access is not None and access.space == LOCAL:
        return f"the {queue} queue is full of local memory's traffic", _local_relief(variant), {}
    local = [one for one in variant.lines if one.executed > 0 and (a := one.access) is not None and a.space == LOCAL]
    share = sum(one.executed for one in local) / (sum(one.executed for one in variant.lines) or 1.0)
    if reason == "lg_throttle" and share >= 0.05:
        text = f"the {queue} queue is full; local loads and stores are {percent(share)} of all instructions"
        return text, _local_relief(variant), {"local_share": share}
    atomic_line = next((one for one in variant.lines if _is_global_atomic(one)), None)
    if reason == "lg_throttle" and atomic_line is not None:
        place = variant.place(atomic_line)
        text = f"the {queue} queue is full; {_opcode(atomic_line)} at {place} is an atomic, which L2 takes one by one"
        return text, ATOMIC_RELIEF, {}
    worst = _worst_conflict(variant) if reason == "mio_throttle" else _worst_scatter(variant)
    if worst is not None and reason == "mio_throttle":
        text = f"the {queue} queue is full; {_opcode(worst)} at {variant.place(worst)} has {conflict_words(worst)}"
        return text, conflict_relief(worst), {"ways": ways_of(worst)}
    if worst is not None:
        text = f"the {queue} queue is full; {_opcode(worst)} at {variant.place(worst)} takes {_sectors(worst)}"
        relief = "neighbouring lanes accessing neighbouring addresses there"
        return text, relief, {"sectors_per_request": worst.sectors / worst.executed}
    memory = busy_memory(variant) if reason == "lg_throttle" else None
    if memory is not None:
        return f"the {queue} queue is full{memory[0]}", memory[1], memory[2]
    if access is not None and access.width < 16:
        text = f"the {queue} queue is full: accesses of {access.width} bytes a lane come faster than they are served"
        return text, "fewer and wider accesses (8 or 16 bytes a lane), values kept in registers", {
            "bytes_per_lane": float(access.width)
        }  # fmt: skip
    return f"the {queue} queue is full", "fewer instructions of this kind in a row", {}


def _is_global_atomic(line: Line) -> bool:
    access = line.access
    return line.executed > 0 and access is not None and access.kind == "atomic" and access.space == GLOBAL


def _worst_conflict(variant: Variant) -> Line | None:
    found = [line for line in variant.lines if ways_of(line) >= CONFLICT]
    return max(found, key=lambda line: line.wavefronts, default=None)


def _worst_scatter(variant: Variant) -> Line | None:
    found = [line for line in variant.lines if scatter_of(line) >= SCATTER]
    return max(found, key=lambda line: line.sectors, default=None)


def ideal_wavefronts(line: Line) -> float:
    """Wavefronts a request would take without bank conflicts."""
    if line.wavefronts_ideal is not None and line.executed > 0:
        return line.wavefronts_ideal / line.executed
    return line.access.ideal_wavefronts(line.lanes) if line.access is not None else 0.0


def ideal_sectors(line: Line) -> float:
    """Sectors a request would take if its lanes' addresses lay side by side."""
    if line.sectors_ideal is not None and line.executed > 0:
        return line.sectors_ideal / line.executed
    return line.access.ideal_sectors(line.lanes) if line.access is not None else 0.0


def ways_of(line: Line) -> float:
    """Wavefronts a request over those it needs without conflicts; 1 for all but shared memory."""
    access, ideal = line.access, ideal_wavefronts(line)
    shared = access is not None and (access.space == SHARED or access.kind == "copy")  # LDGSTS writes shared memory
    if not shared or line.wavefronts <= 0 or line.executed <= 0 or ideal <= 0:
        return 1.0
    return line.wavefronts / line.executed / ideal


def scatter_of(line: Line) -> float:
    """Sectors a request over those of neighbouring lanes; 1 for all but global memory."""
    access, ideal = line.access, ideal_sectors(line)
    if access is None or access.space != GLOBAL or line.sectors <= 0 or line.executed <= 0 or ideal <= 0:
        return 1.0
    return line.sectors / line.executed / ideal


def conflict_words(line: Line) -> str:
    """The factor by which conflicts multiply a line's wavefronts, and both numbers of wavefronts a request."""
    ways = ways_of(line)
    factor = (
        f"{ways:.0f}-way bank conflicts" if abs(ways - round(ways)) < 0.02 else f"{ways:.1f}-way bank conflicts (mean)"
    )
    each, ideal = line.wavefronts / line.executed, ideal_wavefronts(line)
    return f"{factor}, {each:.3g} wavefronts a request where {ideal:.3g} would do"


def conflict_relief(line: Line) -> str:
    """How to get rid of the conflicts of a line."""
    if line.access is not None and line.access.kind == "atomic":
        return "copies of the counters a warp or part of a CTA, so that fewer lanes hit the same word or bank"
    return "padding (a word a row) or an XOR swizzle of the shared array, so that 32 lanes fall into 32 banks"


def _sectors(line: Line) -> str:
    return (
        f"{line.sectors / line.executed:.3g} sectors a request where {ideal_sectors(line):.3g} would do "
        f"({amount(line.sectors)} sectors in all)"
    )


def _warps(variant: Variant) -> dict[str, float]:
    """Warps a sub-core has to hide latency with: the resident ones, fewer when the grid is too small for that."""
    model = variant.model()
    resident = float(variant.row["warps_per_sm"] or 0)
    if model is not None:
        warps = -(-variant.threads // 32)
        resident = min(resident, warps * -(-variant.ctas // model.sm_count))
    return {"warps_per_sub_core": resident / 4.0}


def _opcode(line: Line) -> str:
    opcode, modifiers, _ = parts(line.sass)
    width = next((m for m in modifiers if m in ("64", "128", "U8", "U16", "S8", "S16")), "")
    return f"{opcode}.{width}" if width else opcode
