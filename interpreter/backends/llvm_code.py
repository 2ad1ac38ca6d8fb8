"""A thin layer over llvmlite's builder: typed loads and stores at byte offsets, loops and variables.

Everything is expressed with opaque byte pointers, so structure layouts live in `layout` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import llvmlite.ir as ir

from interpreter.backends.layout import LANES

I1, I8, I16, INT32, INT64 = (ir.IntType(n) for n in (1, 8, 16, 32, 64))
FLOAT, DOUBLE, HALF = ir.FloatType(), ir.DoubleType(), ir.HalfType()
PTR = ir.PointerType()
VOID = ir.VoidType()


def vec(element: ir.Type, count: int = LANES) -> ir.VectorType:
    return ir.VectorType(element, count)


V1, V32, V64 = vec(I1), vec(INT32), vec(INT64)
VF32, VF64 = vec(FLOAT), vec(DOUBLE)

# handler(warp, row, pc) -> next pc or event
HANDLER = ir.FunctionType(INT32, [PTR, PTR, INT32])


def untyped(builder: ir.IRBuilder, pointer: ir.Value) -> ir.Value:
    """An opaque pointer of llvmlite's typed one (alloca, global), which refuses loads and stores of other types."""
    return builder.inttoptr(builder.ptrtoint(pointer, INT64), PTR)


def splat_const(element: ir.Type, number: Any, count: int = LANES) -> ir.Constant:
    return ir.Constant(vec(element, count), [ir.Constant(element, number)] * count)


class Code:
    """One function being built. `b` is the llvmlite builder; it always stands at the end of the current block."""

    def __init__(self, module: ir.Module, name: str, type_: ir.FunctionType) -> None:
        self.module = module
        self.function = ir.Function(module, type_, name)
        self.function.attributes.add("nounwind")
        self.entry = self.function.append_basic_block("entry")
        self.b = ir.IRBuilder(self.function.append_basic_block("body"))
        self.needs: set[str] = set()

    def finish(self) -> None:
        """Join the entry block, which holds the variables, to the body."""
        ir.IRBuilder(self.entry).branch(self.function.blocks[1])

    @property
    def args(self) -> Sequence[ir.Value]:
        return self.function.args  # type: ignore[no-any-return]

    # ---- memory at byte offsets

    def at(self, base: ir.Value, offset: int | ir.Value) -> ir.Value:
        if isinstance(offset, int):
            if offset == 0:
                return base
            offset = ir.Constant(INT64, offset)
        return self.b.gep(base, [offset], source_etype=I8)

    def load(self, type_: ir.Type, base: ir.Value, offset: int | ir.Value = 0, align: int | None = None) -> ir.Value:
        return self.b.load(self.at(base, offset), typ=type_, align=align or _natural(type_))

    def store(self, value: ir.Value, base: ir.Value, offset: int | ir.Value = 0, align: int | None = None) -> None:
        self.b.store(value, self.at(base, offset), align=align or _natural(value.type))

    def pointer(self, address: ir.Value) -> ir.Value:
        return self.b.inttoptr(address, PTR)

    # ---- constants and vectors

    def i32(self, number: int) -> ir.Constant:
        return ir.Constant(INT32, number & 0xFFFFFFFF)

    def i64(self, number: int) -> ir.Constant:
        return ir.Constant(INT64, number & 0xFFFFFFFFFFFFFFFF)

    def splat(self, value: ir.Value, count: int = LANES) -> ir.Value:
        if isinstance(value, ir.Constant):
            return ir.Constant(vec(value.type, count), [value] * count)
        one = self.b.insert_element(ir.Constant(vec(value.type, count), ir.Undefined), value, self.i32(0))
        return self.b.shuffle_vector(one, one, ir.Constant(vec(INT32, count), [self.i32(0)] * count))

    def shuffle(self, a: ir.Value, b: ir.Value, indices: Sequence[int]) -> ir.Value:
        mask = ir.Constant(vec(INT32, len(indices)), [self.i32(n) for n in indices])
        return self.b.shuffle_vector(a, b, mask)

    def iota(self, step: int, element: ir.Type = INT64) -> ir.Constant:
        return ir.Constant(vec(element), [ir.Constant(element, step * lane) for lane in range(LANES)])

    def mask(self, bits: ir.Value) -> ir.Value:
        """i32 lane bits to <32 x i1>."""
        return self.b.bitcast(bits, V1)

    def bits(self, mask: ir.Value) -> ir.Value:
        """<32 x i1> to i32 lane bits."""
        return self.b.bitcast(mask, INT32)

    def intrinsic(self, name: str, result: ir.Type, args: Sequence[ir.Value]) -> ir.Value:
        function = self.module.globals.get(name)
        if function is None:
            function = ir.Function(self.module, ir.FunctionType(result, [a.type for a in args]), name)
        return self.b.call(function, args)

    def call(self, name: str, result: ir.Type, args: Sequence[ir.Value]) -> ir.Value:
        """Call a runtime function; the engine links it."""
        self.needs.add(name)
        return self.intrinsic(name, result, args)

    def ctz(self, value: ir.Value) -> ir.Value:
        return self.intrinsic(f"llvm.cttz.i{value.type.width}", value.type, [value, ir.Constant(I1, 0)])

    def popcount(self, value: ir.Value) -> ir.Value:
        return self.intrinsic(f"llvm.ctpop.i{value.type.width}", value.type, [value])

    # ---- control

    def variable(self, initial: ir.Value) -> Variable:
        slot = ir.IRBuilder(self.entry).alloca(initial.type)
        self.b.store(initial, slot)
        return Variable(self, slot, initial.type)

    def buffer(self, size: int) -> ir.Value:
        builder = ir.IRBuilder(self.entry)
        slot = builder.alloca(ir.ArrayType(I8, size))
        slot.align = 64
        return untyped(builder, slot)

    def block(self, name: str = "") -> ir.Block:
        return self.function.append_basic_block(name)

    @contextmanager
    def when(self, condition: ir.Value) -> Iterator[None]:
        with self.b.if_then(condition):
            yield

    @contextmanager
    def loop(self, condition: Callable[[], ir.Value]) -> Iterator[ir.Block]:
        """while condition(): ...; yields the block after the loop (branch there to break)."""
        head, body, after = self.block("head"), self.block("loop"), self.block("after")
        self.b.branch(head)
        self.b.position_at_end(head)
        self.b.cbranch(condition(), body, after)
        self.b.position_at_end(body)
        yield after
        if not self.b.block.is_terminated:
            self.b.branch(head)
        self.b.position_at_end(after)

    @contextmanager
    def lanes_of(self, bits: ir.Value) -> Iterator[ir.Value]:
        """For each set bit of an i32, ascending: yields the lane number (i32)."""
        left = self.variable(bits)
        with self.loop(lambda: self.b.icmp_unsigned("!=", left.get(), self.i32(0))):
            value = left.get()
            left.set(self.b.and_(value, self.b.sub(value, self.i32(1))))
            yield self.ctz(value)

    def return_if(self, condition: ir.Value, value: ir.Value) -> None:
        """Leave the function with `value` when the condition holds."""
        with self.b.if_then(condition):
            self.b.ret(value)


class Variable:
    """A mutable local of the function being built."""

    def __init__(self, code: Code, slot: ir.Value, type_: ir.Type) -> None:
        self.code = code
        self.slot = slot
        self.type = type_

    def get(self) -> ir.Value:
        return self.code.b.load(self.slot, typ=self.type)

    def set(self, value: ir.Value) -> None:
        self.code.b.store(value, self.slot)


def _natural(type_: ir.Type) -> int:
    """Alignment of register rows for full vectors, of the element for anything else."""
    if isinstance(type_, ir.VectorType):
        element = type_.element
        bits = element.width if isinstance(element, ir.IntType) else 64 if element == DOUBLE else 32
        total = bits * type_.count // 8
        return min(total, 128) if total in (128, 256) else bits // 8
    if isinstance(type_, ir.IntType):
        return max(1, type_.width // 8)
    return 8 if isinstance(type_, ir.PointerType | ir.DoubleType) else 4
