"""Runtime functions for atomics: lanes one after another, in ascending order; old values go to `data`.

Semantics: PTX ISA, atom and red. INC: old >= operand ? 0 : old + 1. DEC: old == 0 or old > operand ? operand : old - 1.
Float adds round to nearest even; f32.ftz flushes denormal inputs and results, as global float adds do on the hardware.
"""

from __future__ import annotations

from functools import partial

import llvmlite.ir as ir

from interpreter.backends.layout import W
from interpreter.backends.llvm_code import DOUBLE, FLOAT, HALF, I16, INT32, INT64, Code
from interpreter.backends.llvm_control import GENERATORS, _lane
from interpreter.backends.llvm_memory import ACCESS, _check, _generic

INTEGER_OPERATIONS = ("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")
WORDS = {"u32": 1, "s32": 1, "u64": 2, "s64": 2, "f32": 1, "f32.ftz": 1, "f64": 2, "f16x2": 1, "bf16x2": 1, "b128": 4}
FLOAT_KINDS = ("f32", "f32.ftz", "f64", "f16x2", "bf16x2")


def _element(kind: str) -> ir.Type:
    return {1: INT32, 2: INT64, 4: ir.IntType(128)}[WORDS[kind]]


def _flush(c: Code, x: ir.Value) -> ir.Value:
    """f32 bits with denormals made zero of their sign."""
    b = c.b
    tiny = b.icmp_unsigned("==", b.and_(x, c.i32(0x7F800000)), c.i32(0))
    return b.select(tiny, b.and_(x, c.i32(0x80000000)), x)


def _float_add(c: Code, kind: str, old: ir.Value, operand: ir.Value) -> ir.Value:
    b = c.b
    if kind in ("f32", "f32.ftz"):
        if kind.endswith("ftz"):
            old, operand = _flush(c, old), _flush(c, operand)
        total = b.fadd(b.bitcast(old, FLOAT), b.bitcast(operand, FLOAT))
        bits = b.bitcast(total, INT32)
        bits = b.select(b.fcmp_unordered("uno", total, total), c.i32(0x7FFFFFFF), bits)
        return _flush(c, bits) if kind.endswith("ftz") else bits
    if kind == "f64":
        return b.bitcast(b.fadd(b.bitcast(old, DOUBLE), b.bitcast(operand, DOUBLE)), INT64)
    halves = []
    for shift in (0, 16):
        x, y = (b.and_(b.lshr(v, c.i32(shift)), c.i32(0xFFFF)) for v in (old, operand))
        if kind == "f16x2":
            # the sum of two halves is exact in f32, so one rounding is left
            p, q = (b.fpext(b.bitcast(b.trunc(v, I16), HALF), FLOAT) for v in (x, y))
            total = b.fadd(p, q)
            bits = b.zext(b.bitcast(b.fptrunc(total, HALF), I16), INT32)
        else:
            p, q = (b.bitcast(b.shl(v, c.i32(16)), FLOAT) for v in (x, y))
            total = b.fadd(p, q)
            raw = b.bitcast(total, INT32)
            odd = b.and_(b.lshr(raw, c.i32(16)), c.i32(1))
            bits = b.lshr(b.add(raw, b.add(odd, c.i32(0x7FFF))), c.i32(16))
        bits = b.select(b.fcmp_unordered("uno", total, total), c.i32(0x7FFF), bits)
        halves.append(b.shl(bits, c.i32(shift)))
    return b.or_(halves[0], halves[1])


def _updated(c: Code, operation: str, kind: str, old: ir.Value, operand: ir.Value, compare: ir.Value) -> ir.Value:
    b = c.b
    if operation == "exch":
        return operand
    if operation == "cas":
        return b.select(b.icmp_unsigned("==", old, compare), operand, old)
    if kind in FLOAT_KINDS:
        return _float_add(c, kind, old, operand)
    if operation in ("min", "max"):
        test = b.icmp_signed if kind[0] == "s" else b.icmp_unsigned
        keep = test("<" if operation == "min" else ">", old, operand)
        return b.select(keep, old, operand)
    zero, one = ir.Constant(old.type, 0), ir.Constant(old.type, 1)
    if operation == "inc":
        return b.select(b.icmp_unsigned(">=", old, operand), zero, b.add(old, one))
    if operation == "dec":
        wrap = b.or_(b.icmp_unsigned("==", old, zero), b.icmp_unsigned(">", old, operand))
        return b.select(wrap, operand, b.sub(old, one))
    return getattr(b, {"add": "add", "and": "and_", "or": "or_", "xor": "xor"}[operation])(old, operand)


def _gather_words(c: Code, area: int, lane: ir.Value, words: int) -> ir.Value:
    """A lane's operand from `words` rows, low word first."""
    b = c.b
    element = ir.IntType(32 * words)
    value: ir.Value = ir.Constant(element, 0)
    for k in range(words):
        word = b.load(_lane(c, c.args[0], area + 128 * k, lane), typ=INT32)
        wide = b.zext(word, element) if words > 1 else word
        value = b.or_(value, b.shl(wide, ir.Constant(element, 32 * k))) if words > 1 else wide
    return value


def _atomic(module: ir.Module, name: str, space: str, operation: str, kind: str) -> set[str]:
    c = Code(module, name, ACCESS)
    b = c.b
    w, _, _, bits = c.args
    c.return_if(b.icmp_unsigned("==", bits, c.i32(0)), c.i32(0))
    words = WORDS[kind]
    _, host = _check(c, space, 4 * words)
    element = _element(kind)
    with c.lanes_of(bits) as lane:
        place = b.load(c.at(c.at(w, W["address"]), b.shl(b.zext(lane, INT64), c.i64(3))), typ=INT64)
        at = c.pointer(b.add(host, place))
        old = c.load(element, at, 0, align=4)
        operand = _gather_words(c, W["data"], lane, words)
        compare = _gather_words(c, W["extra"], lane, words) if operation == "cas" else operand
        c.store(_updated(c, operation, kind, old, operand, compare), at, 0, align=4)
        for k in range(words):
            word = b.trunc(b.lshr(old, ir.Constant(element, 32 * k)), INT32) if words > 1 else old
            b.store(word, _lane(c, w, W["data"] + 128 * k, lane))
    b.ret(c.i32(0))
    c.finish()
    return c.needs


def _register() -> None:
    cases = [(operation, kind) for operation in INTEGER_OPERATIONS for kind in ("u32", "s32", "u64", "s64")]
    cases += [("add", kind) for kind in FLOAT_KINDS] + [("exch", "b128"), ("cas", "b128")]
    for operation, kind in cases:
        for space in ("global", "shared"):
            name = f"rt_atomic_{space}_{operation}_{kind}"
            GENERATORS[name] = partial(_atomic, space=space, operation=operation, kind=kind)
        GENERATORS[f"rt_atomic_generic_{operation}_{kind}"] = partial(
            _generic, stem=f"rt_atomic_%s_{operation}_{kind}", local=False
        )


_register()
