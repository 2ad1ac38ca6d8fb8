"""What instructions do besides arithmetic: memory, control flow, special registers. Extends the value interface.

`MachineEmitter` is what both back ends implement and what the emitters of memory_ops, control_ops and special_ops use.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

from interpreter.isa.value import Emitter, Value
from interpreter.program import Operand


class MachineEmitter(Emitter):
    """Memory, control and special registers. Spaces are "global", "shared", "local" and "generic"."""

    # ------------------------------------------------------------------ parts of a MEMORY or CONSTANT operand

    @abstractmethod
    def base(self, op: Operand, count: int) -> list[Value]:
        """`count` rows of the base (or index) register of a MEMORY or CONSTANT operand; zeros when absent."""

    @abstractmethod
    def uniform(self, op: Operand, count: int) -> list[Value]:
        """`count` rows of the uniform base register; zeros when absent."""

    @abstractmethod
    def has_base(self, op: Operand) -> bool:
        """False when the base register is absent or RZ."""

    @abstractmethod
    def has_uniform(self, op: Operand) -> bool:
        """False when the uniform base is absent or URZ."""

    @abstractmethod
    def offset(self, op: Operand) -> Value:
        """The constant byte offset as I32, equal in all lanes; not part of the form."""

    def address32(self, op: Operand) -> Value:
        """Byte address in the shared or local space, I32: base * scale + uniform + offset."""
        address = self.offset(op)
        if self.has_base(op):
            base = self.base(op, 1)[0]
            if op.scale > 1:
                base = base * op.scale
            address = address + base
        if self.has_uniform(op):
            address = address + self.uniform(op, 1)[0]
        return address

    def address64(self, op: Operand, wide: bool) -> Value:
        """Byte address in the global or generic space, I64: R + UR + offset.

        R is a register pair when `wide`, else a zero-extended register; UR is a 64-bit pair.
        """
        address = self.sext(self.offset(op))
        if self.has_base(op):
            if wide:
                low, high = self.base(op, 2)
                address = address + self.pack64(low, high)
            else:
                address = address + self.zext(self.base(op, 1)[0])
        if self.has_uniform(op):
            low, high = self.uniform(op, 2)
            address = address + self.pack64(low, high)
        return address

    # ------------------------------------------------------------------ memory

    @abstractmethod
    def load(
        self, space: str, address: Value, width: int, signed: bool = False, mask: Value | None = None
    ) -> list[Value]:
        """Load `width` bytes (1, 2, 4, 8, 16, 32) a lane; I32 rows, one for each 4 bytes, narrow ones extended."""

    @abstractmethod
    def store(self, space: str, address: Value, rows: Sequence[Value], width: int, mask: Value | None = None) -> None:
        """Store `width` bytes a lane from I32 rows. On equal addresses the highest lane wins."""

    @abstractmethod
    def atomic(
        self,
        space: str,
        address: Value,
        operation: str,
        kind: str,
        data: Sequence[Value],
        compare: Sequence[Value] = (),
    ) -> list[Value]:
        """Read-modify-write, active lanes in ascending order; returns the old values as rows.

        `operation`: add, min, max, and, or, xor, exch, cas, inc, dec. `kind`: u32, s32, u64, s64, f32, f32.ftz, f64,
        f16x2, bf16x2 (both halves), b128 (exch and cas).
        """

    @abstractmethod
    def note_copy(self, source: Value, read: Value, written: Value) -> None:
        """Said behind the loads and the one store of an asynchronous copy, for tracing: lanes in `read` read global
        addresses `source` (I64), those in `written` were stored."""

    @abstractmethod
    def load_constant(self, op: Operand, width: int, signed: bool = False) -> list[Value]:
        """Load from a CONSTANT operand, indexed or not; rows as `load`."""

    # ------------------------------------------------------------------ long operands

    @abstractmethod
    def repeat(self, count: int, body: Callable[[Value], None]) -> None:
        """Run body(n) for n = 0 .. count - 1 (I32, equal in all lanes), as a loop of the compiled code: for operands of
        tens of registers, which `rows_at` and `write_rows_at` reach. Values made in the body are not seen outside."""

    @abstractmethod
    def rows_at(self, op: Operand, count: int, index: Value) -> list[Value]:
        """Rows index * count, ... of a REGISTER operand, where `index` comes from `repeat`. RZ gives zeros."""

    @abstractmethod
    def write_rows_at(self, op: Operand, values: Sequence[Value], index: Value) -> None:
        """Store to rows index * len(values), ... of a REGISTER destination, under `active`."""

    @property
    @abstractmethod
    def warp_number(self) -> Value:
        """This warp's number within its CTA, I32, equal in all lanes."""

    # ------------------------------------------------------------------ special registers

    @abstractmethod
    def special(self, op: Operand) -> Value:
        """A SPECIAL operand as I32. Unknown names are refused at lowering."""

    @abstractmethod
    def special_high(self, op: Operand) -> Value:
        """High word of a 64-bit special register (clocks, SRZ), I32."""

    @abstractmethod
    def barrier_result(self) -> Value:
        """What the last BAR.RED of this warp gave (popcount, or 0/1), I32."""

    # ------------------------------------------------------------------ control

    @abstractmethod
    def instruction_address(self) -> Value:
        """Byte address of this instruction within the kernel, I32."""

    @abstractmethod
    def target_address(self, target: Operand) -> Value:
        """Byte address of a TARGET operand within the kernel, I32."""

    @abstractmethod
    def branch(self, target: Operand, mask: Value) -> None:
        """Lanes in `mask` (a subset of converged) go to the TARGET operand, the others to the next instruction."""

    @abstractmethod
    def branch_to(self, address: Value, mask: Value) -> None:
        """Lanes in `mask` go to byte address `address` (I32, may differ by lane)."""

    @abstractmethod
    def exit(self, mask: Value) -> None:
        """Lanes in `mask` end."""

    @abstractmethod
    def converge_set(self, barrier: Operand) -> None:
        """BSSY: the barrier register of the executing lanes becomes their mask."""

    @abstractmethod
    def converge_wait(self, barrier: Operand) -> None:
        """BSYNC: wait until every living lane of the barrier's mask is here, then go on together."""

    @abstractmethod
    def converge_leave(self, barrier: Operand, mask: Value) -> None:
        """BREAK: take the lanes in `mask` out of the barrier of their fellows."""

    @abstractmethod
    def converge_lanes(self, members: Value) -> None:
        """WARPSYNC: wait until every living lane of `members` (I32 lane mask) is here, then go on together."""

    @abstractmethod
    def read_barrier(self, barrier: Operand) -> Value:
        """Barrier register B as I32."""

    @abstractmethod
    def write_barrier(self, barrier: Operand, value: Value) -> None:
        """Set barrier register B of the active lanes."""

    @abstractmethod
    def cta_barrier(self, operation: str, number: Value, count: Value | None, predicate: Value | None) -> None:
        """BAR. `operation`: "sync", "arv", "red.popc", "red.and" or "red.or"; `count` in threads, None for all."""

    @abstractmethod
    def yield_turn(self) -> None:
        """Let other groups of the warp, and other warps, run before going on."""

    @abstractmethod
    def sleep(self) -> None:
        """NANOSLEEP: end this warp's turn."""

    @abstractmethod
    def trap(self, mask: Value) -> None:
        """Stop the kernel with an error if any lane is in `mask` (BPT.TRAP)."""
