"""Warp matrix instructions: HMMA, QMMA, IMMA, DMMA. D = A * B + C on fragments spread over the lanes.

Fragment layouts: PTX ISA, "Matrix Fragments for mma". With g = lane // 4 and t = lane % 4, a lane holds elements of
rows g and g + 8 of A (columns by t), of column g of B (rows by t), and of columns 2t and 2t + 1 of C and D.
`interpreter.isa.matrix` has the arithmetic. DMMA is a chain of fused multiply-adds in order of k (measured on an H200).
"""

from __future__ import annotations

from dataclasses import dataclass

from interpreter.isa.integer_ops import field_of
from interpreter.isa.matrix import (
    ALIGNED_BITS,
    ALIGNED_BITS_FP8,
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
from interpreter.isa.pipes import Pipe
from interpreter.isa.registry import opcode
from interpreter.isa.value import F64, I32, I64, Emitter, Unsupported, Value
from interpreter.program import Instruction, Operand


def _registers(e: Emitter, op: Operand, count: int) -> list[Value]:
    if op.negate or op.absolute or op.invert:
        raise Unsupported("matrix operand with a prefix")
    return e.rows(op, count)


# What each shape's registers hold. `a`: for each row half, the registers of its k blocks; a block's register holds the
# elements of one lane, consecutive in k.
@dataclass(frozen=True, slots=True)
class Shape:
    halves: int  # rows g only, or g and g + 8
    blocks: int  # k blocks: one register of A for each half and block, one of B for each block

    @property
    def a(self) -> int:
        return self.halves * self.blocks


_HMMA = {"16816": Shape(2, 2), "1688": Shape(2, 1)}
_TF32 = {"1688": Shape(2, 2), "1684": Shape(2, 1)}


def _mma_float(e: Emitter, i: Instruction, shape: Shape, unpack_a: Unpack, unpack_b: Unpack, bits: int) -> None:
    """The common body: A, B as `unpack`ed registers; C and D FP32 or FP16."""
    d, a_op, b_op, c_op = i.operands
    half_result = i.has("F16")
    a_words = _registers(e, a_op, shape.a)
    b_words = _registers(e, b_op, shape.blocks)
    c_words = _registers(e, c_op, 2 if half_result else 4)
    own_a = [[unpack_a(a_words[shape.halves * block + half]) for block in range(shape.blocks)] for half in range(2)]
    own_b = [unpack_b(w) for w in b_words]
    rows = spread(e, own_a, lambda quad_lane, _: row_sources(quad_lane))
    columns = spread(e, [own_b, own_b], column_sources)
    e.write_rows(d, accumulate(e, rows, columns, c_words, half_result, bits))


def _mma_pipe_latency(i: Instruction, sm: int) -> str:
    shape = next((m for m in i.modifiers if m.isdigit() or "x" in m), "")
    if i.opcode == "IMMA" and (i.has("S4") or i.has("U4")):
        # as the 8-bit shape with as many operand bits
        shape = {"8832": "8816", "16832": "16816", "16864": "16832"}[shape]
    name = f"{i.opcode.lower()}_{shape}"
    if i.opcode == "HMMA":
        return name + ("_tf32" if i.has("TF32") else "_f32" if i.has("F32") else "_f16")
    return name


@opcode(
    "HMMA",
    modifiers=(*_HMMA, *_TF32, "F32", "F16", "BF16", "TF32"),
    pipe=Pipe.TENSOR,
    latency=_mma_pipe_latency,
    operands=(4, 4),
)
def hmma(e: Emitter, i: Instruction) -> None:
    """FP16, BF16 or TF32 factors, FP32 or FP16 accumulation."""
    name = i.modifiers[0]
    if i.has("F32") == i.has("F16"):
        raise Unsupported(i.mnemonic)
    shape = _TF32.get(name) if i.has("TF32") else _HMMA.get(name)
    if shape is None:
        raise Unsupported(i.mnemonic)
    unpack = tf32_factors(e) if i.has("TF32") else half_factors(e, i.has("BF16"))
    _mma_float(e, i, shape, unpack, unpack, ALIGNED_BITS)


@opcode(
    "QMMA",
    modifiers=("16832", "F32", "F16", *FORMATS),
    pipe=Pipe.TENSOR,
    latency=_mma_pipe_latency,
    operands=(4, 4),
)
def qmma(e: Emitter, i: Instruction) -> None:
    """FP8, FP6 or FP4 factors in byte containers. Their sums are taken to be those of Hopper's FP8 (not measured)."""
    types = [m for m in i.modifiers if m in FORMATS]
    if i.modifiers[0] != "16832" or len(types) != 2 or i.has("F32") == i.has("F16"):
        raise Unsupported(i.mnemonic)
    _mma_float(e, i, Shape(2, 2), mini_factors(e, types[0]), mini_factors(e, types[1]), ALIGNED_BITS_FP8)


# ------------------------------------------------------------------ integers

_INTEGER_TYPES = {"S8": (8, True), "U8": (8, False), "S4": (4, True), "U4": (4, False)}
# (shape, element width): registers by row half and k block
_IMMA = {
    ("8816", 8): Shape(1, 1),
    ("16816", 8): Shape(2, 1),
    ("16832", 8): Shape(2, 2),
    ("8832", 4): Shape(1, 1),
    ("16832", 4): Shape(2, 1),
    ("16864", 4): Shape(2, 2),
}


@opcode(
    "IMMA",
    modifiers=(*sorted({name for name, _ in _IMMA}), *_INTEGER_TYPES, "SAT"),
    pipe=Pipe.TENSOR,
    latency=_mma_pipe_latency,
    operands=(4, 4),
)
def imma(e: Emitter, i: Instruction) -> None:
    """Integer factors of 8 or 4 bits, exact sums that wrap, or saturate with .SAT."""
    types = [_INTEGER_TYPES[m] for m in i.modifiers if m in _INTEGER_TYPES]
    if len(types) != 2 or types[0][0] != types[1][0]:
        raise Unsupported(i.mnemonic)
    width = types[0][0]
    shape = _IMMA.get((i.modifiers[0], width))
    if shape is None:
        raise Unsupported(i.mnemonic)
    d, a_op, b_op, c_op = i.operands
    for op in (a_op, b_op):
        if op.modifiers not in ((), ("ROW",), ("COL",)):
            raise Unsupported(f"{i.mnemonic} operand .{op.modifiers[0]}")
    if a_op.modifiers == ("COL",) or b_op.modifiers == ("ROW",):
        raise Unsupported(f"{i.mnemonic} with A by columns or B by rows")
    a_words = _registers(e, a_op, shape.a)
    b_words = _registers(e, b_op, shape.blocks)
    totals = _registers(e, c_op, 2 * shape.halves)
    sums = [e.const(I32, 0)] * len(totals)
    count = 32 // width
    for block in range(shape.blocks):
        for quad_lane in range(4):
            columns = []
            for second in range(2):
                word = e.permute(b_words[block], column_sources(quad_lane, second))
                columns.append([field_of(e, word, n, width, types[1][1]) for n in range(count)])
            for half in range(shape.halves):
                word = e.permute(a_words[shape.halves * block + half], row_sources(quad_lane))
                row = [field_of(e, word, n, width, types[0][1]) for n in range(count)]
                for second in range(2):
                    k = 2 * half + second
                    for x, y in zip(row, columns[second]):
                        sums[k] = sums[k] + x * y
    if i.has("SAT"):
        results = []
        for total, added in zip(totals, sums):
            exact = e.sext(total) + e.sext(added)
            results.append(e.lo32(e.max(e.min(exact, 0x7FFFFFFF), e.const(I64, -0x80000000))))
    else:
        results = [total + added for total, added in zip(totals, sums)]
    e.write_rows(d, results)


# ------------------------------------------------------------------ doubles


def _dmma_latency(i: Instruction, sm: int) -> str:
    return "dmma_884" if i.modifiers[0] in ("884", "8x8x4") else "dmma_16816"


@opcode(
    "DMMA",
    modifiers=("884", "8x8x4", "16x8x16", "16x8x8", "16x8x4"),
    pipe=Pipe.TENSOR,
    latency=_dmma_latency,
    variable=True,
    operands=(4, 4),
)
def dmma(e: Emitter, i: Instruction) -> None:
    """Double factors: fused multiply-adds in order of k."""
    d, a_op, b_op, c_op = i.operands
    halves, depth = {"884": (1, 4), "8x8x4": (1, 4)}.get(i.modifiers[0], (2, 0))
    if halves == 2:
        depth = int(i.modifiers[0].split("x")[2])
    blocks = depth // 4
    a = _doubles(e, a_op, halves * blocks)
    b = _doubles(e, b_op, blocks)
    totals = _doubles(e, c_op, 2 * halves)
    for block in range(blocks):
        for quad_lane in range(4):
            columns = [e.permute(b[block], column_sources(quad_lane, second)) for second in range(2)]
            for half in range(halves):
                row = e.permute(a[halves * block + half], row_sources(quad_lane))
                for second in range(2):
                    k = 2 * half + second
                    totals[k] = e.fma(row, columns[second], totals[k])
    words: list[Value] = []
    for v in totals:
        bits = e.bitcast(v, I64)
        words += [e.lo32(bits), e.hi32(bits)]
    e.write_rows(d, words)


def _doubles(e: Emitter, op: Operand, count: int) -> list[Value]:
    words = _registers(e, op, 2 * count)
    return [e.bitcast(e.pack64(words[2 * k], words[2 * k + 1]), F64) for k in range(count)]
