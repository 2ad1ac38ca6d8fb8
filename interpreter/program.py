"""A decoded kernel: its instructions with operands and control fields, and what a launch needs to know.

Built by `interpreter.decode` from a cubin; read by the interpreter's lowering and by the timing model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

INSTRUCTION_BYTES = 16


class OperandKind(IntEnum):
    """What an operand of a SASS instruction names."""

    REGISTER = 0  # R0..R254; RZ has index 255
    UNIFORM = 1  # UR0..; URZ has index URZ_INDEX
    PREDICATE = 2  # P0..P6; PT has index 7
    UNIFORM_PREDICATE = 3  # UP0..UP6; UPT has index 7
    IMMEDIATE = 4  # 32-bit pattern in `value` (for floats: the IEEE bits)
    CONSTANT = 5  # c[bank][offset], or c[bank][register + offset] with `base`
    MEMORY = 6  # [base + uniform base + offset], see `MemoryOperand` fields
    BARRIER = 7  # B0..B15, convergence barrier register
    SPECIAL = 8  # SR_TID.X and friends: name in `name`
    SCOREBOARD = 9  # SB0..SB5 of DEPBAR
    TARGET = 10  # branch target: `value` is the row index of the target instruction
    OTHER = 11  # anything else (PR, descriptors of async units): text in `name`


RZ = 255
URZ = 255  # whatever the architecture's encoding; decode normalises URZ to 255
PT = 7


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand as written.

    `index` is the register, predicate or barrier number. `negate`, `absolute` and `invert` are the prefixes
    -, |x| and ~ or !. `modifiers` are dot suffixes other than .reuse (e.g. ("H0_H0",), ("64",), ("X4",), ("F32",)).
    For MEMORY: `index` is the base register (RZ when absent; `wide` when the base is a 64-bit pair, `.64`),
    `uniform` the uniform base register added to it (URZ when absent), `value` the signed byte offset,
    `descriptor` the uniform register of a memory descriptor (URZ when absent), `scale` the index scale (1, 4, 8, 16).
    For CONSTANT: `bank`, `value` = byte offset, `index` = index register (RZ when absent), `uniform` likewise.
    """

    kind: OperandKind
    index: int = RZ
    value: int = 0
    negate: bool = False
    absolute: bool = False
    invert: bool = False
    reuse: bool = False
    modifiers: tuple[str, ...] = ()
    name: str = ""
    bank: int = 0
    uniform: int = URZ
    descriptor: int = URZ
    scale: int = 1
    wide: bool = False
    text: str = ""


# Control fields of one instruction (bits 105..125 of its 128-bit word), one row an instruction.
CONTROL = np.dtype(
    [
        ("stall", "u1"),  # 0..15: cycles before this warp may issue its next instruction
        ("yield_", "u1"),  # 1 when the warp gives up the next slot (raw bit 109 is 0)
        ("write_barrier", "u1"),  # scoreboard set by this instruction, released at write-back; 7 = none
        ("read_barrier", "u1"),  # scoreboard released when the sources have been read; 7 = none
        ("wait_mask", "u1"),  # scoreboards 0..5 that must be zero before issue
        ("reuse", "u1"),  # operand-cache bits: 1 = A, 2 = B, 4 = C
    ]
)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One SASS instruction.

    `row` is its index in the kernel (address = 16 * row). `opcode` is the base mnemonic, `modifiers` its dot suffixes
    in order: "IMAD.WIDE.U32" has opcode "IMAD" and modifiers ("WIDE", "U32"). `guard` is the predicate that guards it
    (None when always executed); a guard operand with `invert` set is @!P.
    """

    row: int
    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Operand | None
    text: str
    low: int  # bits 63:0 of the encoding
    high: int  # bits 127:64
    source_line: int = 0  # 0 when the cubin has no line table
    source_file: str = ""

    @property
    def address(self) -> int:
        return self.row * INSTRUCTION_BYTES

    @property
    def mnemonic(self) -> str:
        return ".".join((self.opcode, *self.modifiers))

    def has(self, modifier: str) -> bool:
        return modifier in self.modifiers


@dataclass(frozen=True, slots=True)
class Parameter:
    """One kernel parameter: byte `offset` from the parameter base and `size` in bytes."""

    ordinal: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class GlobalVariable:
    """A `__device__` (or `__constant__`) variable: `offset` in its section, `initial` its bytes (empty: zeros)."""

    name: str
    size: int
    offset: int
    initial: bytes


@dataclass(frozen=True, slots=True)
class AddressSlot:
    """Eight bytes at `offset` of constant bank 4 that hold the guest address of `symbol` plus `addend`."""

    offset: int
    symbol: str
    addend: int


@dataclass(slots=True)
class Program:
    """A kernel ready to lower: code, resources, constants.

    `control` has dtype CONTROL, shape (len(instructions),). `constants` maps bank number to its initial bytes
    (bank 0 is filled at launch: launch constants below `parameter_base`, parameters above). Sizes are in bytes.
    """

    name: str
    sm: int  # 80, 86, 87, 89, 90, 100, 110, 120
    arch: str  # "sm_90a" and so on
    instructions: list[Instruction]
    control: np.ndarray
    registers: int  # per thread, as occupancy counts them (EIATTR_REGCOUNT)
    static_shared: int  # without the reserved area of sm_90+
    stack: int  # local memory per thread (frame or minimum stack, whichever is larger)
    parameter_base: int
    parameter_bytes: int
    parameters: list[Parameter]
    constants: dict[int, bytes]
    barriers: int  # named barriers used
    max_threads: tuple[int, int, int] | None  # __launch_bounds__ or maxntid
    required_threads: tuple[int, int, int] | None
    cubin_sha: str  # SHA-256 of the cubin, hex
    code_bytes: int = 0
    indirect_targets: dict[int, list[int]] = field(default_factory=dict)  # row of a BRX -> rows it may reach
    spill_store_bytes: int | None = None  # from the compiler's report when known
    spill_load_bytes: int | None = None
    variables: list[GlobalVariable] = field(default_factory=list)  # __device__ variables, to be allocated at load
    constant_variables: list[GlobalVariable] = field(default_factory=list)  # __constant__: offsets in bank 3
    address_slots: list[AddressSlot] = field(default_factory=list)  # filled in bank 4 at load
    cluster: tuple[int, int, int] | None = None  # __cluster_dims__
