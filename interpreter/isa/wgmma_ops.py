"""Warpgroup matrix instructions of sm_90a: HGMMA, QGMMA, IGMMA, and the waits around them.

D (64 x N) = A * B + C for the four warps of a warpgroup; warp w owns rows 16w to 16w + 15, held as N / 8 accumulator
tiles of mma.m16n8. B, and A unless it is in registers, come from shared memory through descriptors in four uniform
registers (A's pair, then B's). The hardware runs them asynchronously; here they happen at issue, which the waits that
code must have make equal.

A descriptor (PTX ISA, "Matrix Descriptor Format"): bits 13:0 address / 16, 29:16 leading offset / 16, 45:32 stride
offset / 16, 63:62 swizzle (0 none, 1 128 bytes, 2 64, 3 32). Every layout here, and the arithmetic of
`interpreter.isa.matrix`, gave the results of an H200 bit for bit for each type, swizzle, transposition and N tried.
"""

from __future__ import annotations

from dataclasses import dataclass

from interpreter.isa.effects import MachineEmitter
from interpreter.isa.integer_ops import field_of
from interpreter.isa.matrix import (
    ALIGNED_BITS,
    ALIGNED_BITS_FP8,
    Factor,
    Unpack,
    accumulate,
    column_sources,
    half_factors,
    mini_factors,
    row_sources,
    spread,
    tf32_factors,
)
from interpreter.isa.minifloat import FORMATS
from interpreter.isa.parts import is_predicate
from interpreter.isa.pipes import Pipe
from interpreter.isa.registry import opcode
from interpreter.isa.value import I32, LANES, Emitter, Unsupported, Value
from interpreter.program import Instruction, Operand, OperandKind

LANE = range(LANES)


@dataclass(frozen=True, slots=True)
class Descriptor:
    """The fields of a shared-memory matrix descriptor, I32 values equal in all lanes; offsets in bytes."""

    start: Value
    leading: Value
    stride: Value
    swizzle: Value

    def address(self, e: Emitter, offset: Value) -> Value:
        """Shared-memory address at an offset of the unswizzled layout: address bits 6:4 are mixed with bits 9:7."""
        address = self.start + offset
        mask = e.select(e.eq(self.swizzle, 0), 0, e.const(I32, 14) >> self.swizzle)
        return address ^ (((address >> 7) & mask) << 4)

    def choose(self, e: Emitter, plain: Value, swizzled: Value) -> Value:
        """`plain` where the layout has no swizzle."""
        return e.select(e.eq(self.swizzle, 0), plain, swizzled)


def _descriptor(low: Value, high: Value) -> Descriptor:
    return Descriptor((low & 0x3FFF) << 4, ((low >> 16) & 0x3FFF) << 4, (high & 0x3FFF) << 4, high >> 30)


def _by_rows(e: MachineEmitter, d: Descriptor, group: Value) -> list[Value]:
    """Words of eight rows whose k is contiguous: lane 4r + t gets word t of both 16-byte pieces of row r."""
    lane = e.lane_id
    row, word = lane >> 2, (lane & 3) << 2
    pitch = d.choose(e, e.const(I32, 16), e.const(I32, 256) >> d.swizzle)
    first = row * pitch + group * d.stride + word
    second = first + d.choose(e, d.leading, e.const(I32, 16))
    return [e.load("shared", d.address(e, offset), 4)[0] for offset in (first, second)]


def _by_columns(e: MachineEmitter, d: Descriptor, group: Value) -> list[Value]:
    """Words of eight rows stored with neighbouring rows together (halves, transposed): lane 4k + p gets rows 2p, 2p +
    1 of k and of k + 8."""
    lane = e.lane_id
    k, pair = lane >> 2, (lane & 3) << 2
    pieces = e.const(I32, 16) >> d.swizzle  # 16-byte pieces side by side: 8, 4 or 2
    within = (group & (pieces - 1)) << 4
    beyond = (group >> (e.const(I32, 4) - d.swizzle)) * d.leading
    first = d.choose(e, (k << 4) + group * d.stride, k * (pieces << 4) + within + beyond) + pair
    second = first + d.choose(e, d.leading, d.stride)
    return [e.load("shared", d.address(e, offset), 4)[0] for offset in (first, second)]


def _row_factors(e: MachineEmitter, d: Descriptor, transposed: bool, unpack: Unpack) -> list[list[Factor]]:
    """Rows g and g + 8 of this warp's sixteen, factors in order of k."""
    first = (e.warp_number & 3) << 1
    if not transposed:
        own = [[unpack(w) for w in _by_rows(e, d, first + half)] for half in range(2)]
        return spread(e, own, lambda quad_lane, _: row_sources(quad_lane))
    odd = e.ne(e.lanes([lane >> 2 & 1 for lane in LANE]), 0)  # row g is the second of its pair
    rows = []
    for half in range(2):
        factors = []
        for word in _by_columns(e, d, first + half):
            for k in range(8):
                moved = e.permute(word, [4 * k + (lane >> 3) for lane in LANE])
                factors.append(unpack(e.select(odd, moved >> 16, moved))[0])
        rows.append(factors)
    return rows


def _column_factors(
    e: MachineEmitter, d: Descriptor, group: Value, transposed: bool, unpack: Unpack
) -> list[list[Factor]]:
    """Columns 2t and 2t + 1 of eight, factors in order of k."""
    if not transposed:
        own = [unpack(w) for w in _by_rows(e, d, group)]
        return spread(e, [own, own], column_sources)
    columns: list[list[Factor]] = [[], []]
    for word in _by_columns(e, d, group):
        both = unpack(word)
        for k in range(8):
            source = [4 * k + (lane & 3) for lane in LANE]
            for second in range(2):
                columns[second].append(both[second].permuted(e, source))
    return columns


@dataclass(frozen=True, slots=True)
class Group:
    """The operands of a warpgroup instruction."""

    d: Operand
    a: Operand | None  # registers, or None: through the descriptor
    descriptors: Operand
    c: Operand
    scale: Operand | None  # predicate: accumulate (or start from zero)
    n: int


def _group(i: Instruction) -> Group:
    ops = [op for op in i.operands if not (op.kind is OperandKind.OTHER and op.name.startswith("gsb"))]
    scale = ops.pop() if is_predicate(ops[-1]) else None
    a = ops.pop(1) if len(ops) == 4 and ops[1].kind is OperandKind.REGISTER else None
    if len(ops) != 3 or ops[1].name != "gdesc":
        raise Unsupported(f"{i.mnemonic} with {len(i.operands)} operands")
    d, descriptors, c = ops
    unknown = set(descriptors.modifiers) - {"tnspA", "tnspB"}
    if unknown or any(op is not None and (op.negate or op.absolute) for op in (a, c)):
        raise Unsupported(f"{i.mnemonic} with .{'.'.join(sorted(unknown)) or 'negation'}")
    m, n, _ = i.modifiers[0].split("x")
    if m != "64" or int(n) % 8 or not 8 <= int(n) <= 256:
        raise Unsupported(i.mnemonic)
    return Group(d, a, descriptors, c, scale, int(n))


def _start(e: MachineEmitter, group: Group, words: list[Value]) -> list[Value]:
    """The accumulator's words, or zeros where the scale predicate says so."""
    if group.scale is None:
        return words
    keep = e.pred(group.scale)
    return [e.select(keep, w, 0) for w in words]


def _machine(e: Emitter) -> MachineEmitter:
    if not isinstance(e, MachineEmitter):
        raise Unsupported("shared memory outside a machine")
    return e


def _multiply(e: MachineEmitter, i: Instruction, unpack_a: Unpack, unpack_b: Unpack, bits: int) -> None:
    group = _group(i)
    half = i.has("F16")
    transposed_a, transposed_b = ("tnspA" in group.descriptors.modifiers, "tnspB" in group.descriptors.modifiers)
    uniform = e.uniform(group.descriptors, 4)
    b = _descriptor(uniform[2], uniform[3])
    if group.a is None:
        rows = _row_factors(e, _descriptor(uniform[0], uniform[1]), transposed_a, unpack_a)
    else:
        words = e.rows(group.a, 4)
        own = [[unpack_a(words[2 * block + row]) for block in range(2)] for row in range(2)]
        rows = spread(e, own, lambda quad_lane, _: row_sources(quad_lane))
    width = 2 if half else 4

    def tile(n: Value) -> None:
        columns = _column_factors(e, b, n, transposed_b, unpack_b)
        c = _start(e, group, e.rows_at(group.c, width, n))
        e.write_rows_at(group.d, accumulate(e, rows, columns, c, half, bits), n)

    e.repeat(group.n // 8, tile)


def _latency(i: Instruction, sm: int) -> str:
    """By N alone: k is 32 bytes of each row whatever the type."""
    return f"gmma_n{i.modifiers[0].split('x')[1]}"


_SHAPES = tuple(f"64x{n}x{k}" for n in range(8, 257, 8) for k in (8, 16, 32))


@opcode(
    "HGMMA",
    modifiers=(*_SHAPES, "F32", "F16", "BF16", "TF32"),
    pipe=Pipe.TENSOR,
    latency=_latency,
    operands=(3, 6),
)
def hgmma(e: Emitter, i: Instruction) -> None:
    """FP16, BF16 (k 16) or TF32 (k 8) factors, FP32 or FP16 accumulation."""
    k = i.modifiers[0].split("x")[2]
    if i.has("F32") == i.has("F16") or k != ("8" if i.has("TF32") else "16"):
        raise Unsupported(i.mnemonic)
    unpack = tf32_factors(e) if i.has("TF32") else half_factors(e, i.has("BF16"))
    _multiply(_machine(e), i, unpack, unpack, ALIGNED_BITS)


@opcode(
    "QGMMA",
    modifiers=(*_SHAPES, "F32", "F16", "E4M3", "E5M2"),
    pipe=Pipe.TENSOR,
    latency=_latency,
    operands=(3, 6),
)
def qgmma(e: Emitter, i: Instruction) -> None:
    """FP8 factors, k 32."""
    types = [m for m in i.modifiers if m in FORMATS]
    if i.has("F32") == i.has("F16") or len(types) != 2 or not i.modifiers[0].endswith("x32"):
        raise Unsupported(i.mnemonic)
    _multiply(_machine(e), i, mini_factors(e, types[0]), mini_factors(e, types[1]), ALIGNED_BITS_FP8)


@opcode("IGMMA", modifiers=(*_SHAPES, "S8", "U8", "SAT"), pipe=Pipe.TENSOR, latency=_latency, operands=(3, 6))
def igmma(e: Emitter, i: Instruction) -> None:
    """Byte factors, k 32, 32-bit sums that wrap."""
    e = _machine(e)
    types = [m == "S8" for m in i.modifiers if m in ("S8", "U8")]
    if len(types) != 2 or i.has("SAT") or not i.modifiers[0].endswith("x32"):
        raise Unsupported(i.mnemonic)
    group = _group(i)
    if group.descriptors.modifiers:
        raise Unsupported(f"{i.mnemonic} transposed")
    uniform = e.uniform(group.descriptors, 4)
    b = _descriptor(uniform[2], uniform[3])
    if group.a is None:
        a = _descriptor(uniform[0], uniform[1])
        first = (e.warp_number & 3) << 1
        words = [_by_rows(e, a, first + half) for half in range(2)]
    else:
        plain = e.rows(group.a, 4)
        words = [[plain[half], plain[2 + half]] for half in range(2)]

    def tile(n: Value) -> None:
        totals = _start(e, group, e.rows_at(group.c, 4, n))
        for block, word in enumerate(_by_rows(e, b, n)):
            for quad_lane in range(4):
                columns = [_bytes(e, e.permute(word, column_sources(quad_lane, s)), types[1]) for s in range(2)]
                for half in range(2):
                    row = _bytes(e, e.permute(words[half][block], row_sources(quad_lane)), types[0])
                    for s in range(2):
                        for x, y in zip(row, columns[s]):
                            totals[2 * half + s] = totals[2 * half + s] + x * y
        e.write_rows_at(group.d, totals, n)

    e.repeat(group.n // 8, tile)


def _bytes(e: Emitter, word: Value, signed: bool) -> list[Value]:
    return [field_of(e, word, n, 8, signed) for n in range(4)]


def _wait_pipe(i: Instruction, sm: int) -> Pipe:
    # waiting for all of them is waiting for the tensor core; leaving some pending costs an issue slot
    waits = i.has("DEPBAR") and bool(i.operands) and i.operands[-1].value == 0
    return Pipe.TENSOR if waits else Pipe.NONE


@opcode("WARPGROUP", modifiers=("ARRIVE", "DEPBAR", "LE"), pipe=_wait_pipe, latency="none", operands=(0, 2))
def warpgroup(e: Emitter, i: Instruction) -> None:
    """Orders registers with the matrix unit (.ARRIVE) or waits for its batches (.DEPBAR): nothing is pending here."""
    if i.modifiers not in (("ARRIVE",), ("DEPBAR", "LE")):
        raise Unsupported(i.mnemonic)
