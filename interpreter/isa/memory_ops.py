"""Loads, stores, atomics, asynchronous copies, matrix loads and memory ordering.

Widths and addressing as nvdisasm spells them; fragment layouts of LDSM and STSM: PTX ISA, ldmatrix and stmatrix.
"""

from __future__ import annotations

from interpreter.isa.effects import MachineEmitter
from interpreter.isa.pipes import MemoryKind, Pipe
from interpreter.isa.registry import opcode
from interpreter.isa.value import I32, Emitter, Unsupported, Value
from interpreter.program import Instruction, Operand, OperandKind

# Cache, order and prefetch hints change no data: every access here is performed at once and in program order.
ORDER = ("STRONG", "WEAK", "CTA", "SM", "GPU", "SYS", "VC", "PRIVATE", "MMIO", "CONSTANT")
HINTS = ("EF", "EL", "EN", "LU", "EU", "NA", "LTC64B", "LTC128B", "LTC256B")
SIZES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "32": 4, "64": 8, "128": 16, "256": 32}


def _machine(e: Emitter) -> MachineEmitter:
    if not isinstance(e, MachineEmitter):
        raise TypeError("memory and control opcodes need a machine emitter")
    return e


def access_width(i: Instruction) -> int:
    """Bytes a lane of a load or store; 4 when no size suffix is present."""
    return next((SIZES[m] for m in i.modifiers if m in SIZES), 4)


def _signed(i: Instruction) -> bool:
    return i.has("S8") or i.has("S16")


def _kind(i: Instruction, kind: OperandKind) -> list[Operand]:
    return [op for op in i.operands if op.kind is kind]


def _memory(i: Instruction, which: int = 0) -> Operand:
    found = _kind(i, OperandKind.MEMORY)
    if len(found) <= which:
        raise Unsupported(f"{i.mnemonic} without an address")
    return found[which]


def _global_address(e: MachineEmitter, i: Instruction, op: Operand) -> Value:
    """64-bit address of an .E access: the base is a register pair unless it says .U32, with or without .64."""
    if not i.has("E"):
        raise Unsupported(f"{i.mnemonic}: 32-bit global addresses")
    return e.address64(op, wide=op.wide or "U32" not in op.modifiers)


def _address(e: MachineEmitter, i: Instruction, space: str, op: Operand) -> Value:
    return _global_address(e, i, op) if space in ("global", "generic") else e.address32(op)


SPACE = {"LDG": "global", "STG": "global", "LD": "generic", "ST": "generic", "LDS": "shared", "STS": "shared",
         "LDL": "local", "STL": "local"}  # fmt: skip


def _load(e: Emitter, i: Instruction) -> None:
    """Rd = [address]. The 256-bit form prints the upper four registers first."""
    e = _machine(e)
    space = SPACE[i.opcode]
    width = access_width(i)
    destinations = _kind(i, OperandKind.REGISTER)
    rows = e.load(space, _address(e, i, space, _memory(i)), width, _signed(i))
    if width == 32:
        if len(destinations) != 2:
            raise Unsupported(f"{i.mnemonic} needs two destination quads")
        e.write_rows(destinations[0], rows[4:])
        e.write_rows(destinations[1], rows[:4])
        return
    e.write_rows(destinations[0], rows)


def _store(e: Emitter, i: Instruction) -> None:
    """[address] = Rs. The 256-bit form prints the lower four registers first."""
    e = _machine(e)
    space = SPACE[i.opcode]
    width = access_width(i)
    address = _address(e, i, space, _memory(i))
    sources = [op for op in i.operands if op.kind in (OperandKind.REGISTER, OperandKind.UNIFORM)]
    if width == 32:
        if len(sources) != 2:
            raise Unsupported(f"{i.mnemonic} needs two source quads")
        rows = e.rows(sources[0], 4) + e.rows(sources[1], 4)
    else:
        rows = e.rows(sources[0], max(1, width // 4))
    e.store(space, address, rows, width)


def _only_a_register(i: Instruction) -> str | None:
    if any(op.kind is OperandKind.PREDICATE for op in i.operands):
        return "a predicate operand (sparse residency) is not modelled"
    return None


_GLOBAL = ("E", "ENL2", *ORDER, *HINTS, *SIZES)
opcode("LDG", "LD", modifiers=_GLOBAL, pipe=Pipe.LSU, latency="ldg", variable=True, memory=MemoryKind.LOAD_GLOBAL,
       width=access_width, operands=(2, 3), accepts=_only_a_register)(_load)  # fmt: skip
opcode("LDS", modifiers=SIZES, pipe=Pipe.LSU, latency="lds", variable=True, memory=MemoryKind.LOAD_SHARED,
       width=access_width, operands=(2, 2))(_load)  # fmt: skip
opcode("LDL", modifiers=(*SIZES, *HINTS), pipe=Pipe.LSU, latency="ldl", variable=True, memory=MemoryKind.LOAD_LOCAL,
       width=access_width, operands=(2, 2))(_load)  # fmt: skip
opcode("STG", "ST", modifiers=_GLOBAL, pipe=Pipe.LSU, latency="stg", variable=True, memory=MemoryKind.STORE_GLOBAL,
       width=access_width, operands=(2, 3), accepts=_only_a_register)(_store)  # fmt: skip
opcode("STS", modifiers=SIZES, pipe=Pipe.LSU, latency="sts", variable=True, memory=MemoryKind.STORE_SHARED,
       width=access_width, operands=(2, 2))(_store)  # fmt: skip
opcode("STL", modifiers=(*SIZES, *HINTS), pipe=Pipe.LSU, latency="stl", variable=True, memory=MemoryKind.STORE_LOCAL,
       width=access_width, operands=(2, 2))(_store)  # fmt: skip


# ------------------------------------------------------------------ constants


def _unlike_ulc(i: Instruction) -> str | None:
    if any(op.kind is OperandKind.CONSTANT and op.name == "cx" for op in i.operands):
        return "bindless constant banks are not modelled"
    return None


@opcode("LDC", modifiers=SIZES, pipe=Pipe.CONSTANT, latency="ldc", variable=True, memory=MemoryKind.CONSTANT,
        width=access_width, operands=(2, 2), accepts=_unlike_ulc)  # fmt: skip
@opcode("LDCU", modifiers=SIZES, pipe=Pipe.CONSTANT, latency="ldcu", variable=True, memory=MemoryKind.CONSTANT,
        width=access_width, operands=(2, 2), accepts=_unlike_ulc)  # fmt: skip
@opcode("ULDC", modifiers=SIZES, pipe=Pipe.UNIFORM, latency="uniform", memory=MemoryKind.CONSTANT,
        width=access_width, operands=(2, 2), accepts=_unlike_ulc)  # fmt: skip
def load_constant(e: Emitter, i: Instruction) -> None:
    """Rd or URd = c[bank][offset], or c[bank][R + offset], c[bank][UR + offset]."""
    e = _machine(e)
    d, source = i.operands
    if source.kind is not OperandKind.CONSTANT:
        raise Unsupported(f"{i.mnemonic} from something else than a constant bank")
    e.write_rows(d, e.load_constant(source, access_width(i), _signed(i)))


# ------------------------------------------------------------------ atomics

OPERATIONS = {"ADD": "add", "MIN": "min", "MAX": "max", "AND": "and", "OR": "or", "XOR": "xor", "EXCH": "exch",
              "CAS": "cas", "INC": "inc", "DEC": "dec"}  # fmt: skip
_ATOMIC = ("E", *OPERATIONS, "S32", "U32", "64", "S64", "U64", "128", "F32", "F64", "FTZ", "RN", "F16x2", "BF16x2",
           "BF16_V2", *ORDER, *HINTS)  # fmt: skip


def atomic_kind(i: Instruction) -> str:
    """Element type of an atomic, as `MachineEmitter.atomic` names it."""
    has = i.has
    if has("F32"):
        return "f32.ftz" if has("FTZ") else "f32"
    if has("F64"):
        return "f64"
    if has("F16x2"):
        return "f16x2"
    if has("BF16x2") or has("BF16_V2"):
        return "bf16x2"
    if has("128"):
        return "b128"
    if has("S64"):
        return "s64"
    if has("64") or has("U64"):
        return "u64"
    return "s32" if has("S32") else "u32"


def atomic_words(kind: str) -> int:
    return {"b128": 4, "u64": 2, "s64": 2, "f64": 2}.get(kind, 1)


def atomic_width(i: Instruction) -> int:
    return 4 * atomic_words(atomic_kind(i))


def _operation(i: Instruction) -> str:
    found = [OPERATIONS[m] for m in i.modifiers if m in OPERATIONS]
    if len(found) != 1:
        raise Unsupported(f"{i.mnemonic} names no operation")
    return found[0]


def _atomic(e: MachineEmitter, i: Instruction, space: str, d: Operand | None, data: list[Operand]) -> None:
    kind, operation = atomic_kind(i), _operation(i)
    words = atomic_words(kind)
    address = _address(e, i, space, _memory(i))
    if len(data) != (2 if operation == "cas" else 1):
        raise Unsupported(f"{i.mnemonic} with {len(data)} data operands")
    if operation == "cas":  # Rb is compared, Rc is stored
        old = e.atomic(space, address, operation, kind, e.rows(data[1], words), e.rows(data[0], words))
    else:
        old = e.atomic(space, address, operation, kind, e.rows(data[0], words))
    if d is not None:
        e.write_rows(d, old)


@opcode("ATOMG", "ATOM", modifiers=_ATOMIC, pipe=Pipe.LSU, latency="atomg", variable=True,
        memory=MemoryKind.ATOMIC_GLOBAL, width=atomic_width, operands=(4, 5))  # fmt: skip
def atomg(e: Emitter, i: Instruction) -> None:
    """P, Rd = old value of [address]; the predicate destination (PT in compiled code) is not modelled otherwise."""
    e = _machine(e)
    p, d, _, *data = i.operands
    if not e.is_true(p):
        raise Unsupported(f"{i.mnemonic} with a predicate destination")
    _atomic(e, i, "global" if i.opcode == "ATOMG" else "generic", d, data)


@opcode("RED", "REDG", modifiers=_ATOMIC, pipe=Pipe.LSU, latency="red", variable=True,
        memory=MemoryKind.REDUCE_GLOBAL, width=atomic_width, operands=(2, 2))  # fmt: skip
def red(e: Emitter, i: Instruction) -> None:
    _atomic(_machine(e), i, "global", None, [i.operands[1]])


@opcode("ATOMS", modifiers=(*OPERATIONS, "S32", "U32", "64", "S64", "U64", "32", "POPC", "CAST", "SPIN"),
        pipe=Pipe.LSU, latency="atoms", variable=True, memory=MemoryKind.ATOMIC_SHARED, width=atomic_width,
        operands=(2, 4))  # fmt: skip
def atoms(e: Emitter, i: Instruction) -> None:
    """Shared atomics. POPC.INC adds one for each lane. CAST.SPIN is a compare-and-swap that returns 1 when it stored
    (code loops while it does not give 1), where CAS returns the old value."""
    e = _machine(e)
    d, _, *data = i.operands
    if i.has("POPC"):
        if not e.is_zero(d) or data:
            raise Unsupported(f"{i.mnemonic} with a result")
        e.atomic("shared", e.address32(_memory(i)), "add", "u32", [e.const(I32, 1)])
        return
    if i.has("CAST"):
        kind = atomic_kind(i)
        words = atomic_words(kind)
        compare = e.rows(data[0], words)
        old = e.atomic("shared", e.address32(_memory(i)), "cas", kind, e.rows(data[1], words), compare)
        same = e.eq(old[0], compare[0])
        for a, b in zip(old[1:], compare[1:]):
            same = same & e.eq(a, b)
        e.write(d, e.zext(same, I32))
        return
    _atomic(e, i, "shared", d, data)


# ------------------------------------------------------------------ asynchronous copies


@opcode("LDGSTS", modifiers=("E", "BYPASS", "ZFILL", *HINTS, *ORDER, "64", "128", "32"), pipe=Pipe.LSU,
        latency="ldgsts", variable=True, memory=MemoryKind.COPY_ASYNC, width=access_width, operands=(2, 3))  # fmt: skip
def ldgsts(e: Emitter, i: Instruction) -> None:
    """cp.async: [shared] = [global]. The copy is done at once; code may not read it before DEPBAR, so none can tell.

    Where the predicate operand is false, zeros are stored (ptxas passes PTX's ignore-src and a zero src-size so).
    .ZFILL: the low bits of the global address say how many bytes at the end are zeros instead of copied: ptxas adds
    cp-size - src-size to the address.
    """
    e = _machine(e)
    width = access_width(i)
    to = e.address32(_memory(i, 0))
    source = _global_address(e, i, _memory(i, 1))
    predicates = _kind(i, OperandKind.PREDICATE)
    keep = e.active & e.pred(predicates[0]) if predicates else e.active
    if i.has("ZFILL"):
        zeros = e.lo32(source) & (width - 1)
        source = source & ~(width - 1)
        rows: list[Value] = []
        for k in range(width // 4):
            valid = e.const(I32, width - 4 * k) - zeros  # bytes to copy from this word on
            reads = keep & e.gt(valid, 0)
            word = e.load("global", source + 4 * k, 4, mask=reads)[0]
            part = e.select(e.ge(valid, 4), e.const(I32, -1), e.shl(e.const(I32, 1), e.max(valid, 0) << 3) - 1)
            rows.append(e.select(reads, word & part, 0))
    else:
        rows = [e.select(keep, row, 0) for row in e.load("global", source, width, mask=keep)]
    e.store("shared", to, rows, width)
    e.note_copy(source, keep, e.active)


@opcode("LDGDEPBAR", pipe=Pipe.LSU, latency="depbar", variable=True, operands=(0, 0))
def ldgdepbar(e: Emitter, i: Instruction) -> None:
    """cp.async.commit_group: copies are already done."""


@opcode("DEPBAR", modifiers=("LE", "LT"), pipe=Pipe.BARRIER, latency="depbar", operands=(1, 4))
def depbar(e: Emitter, i: Instruction) -> None:
    """Waits for scoreboards: results here are ready when an instruction ends."""


# ------------------------------------------------------------------ matrices


def _count(i: Instruction) -> int:
    return 4 if i.has("4") else 2 if i.has("2") else 1


def _transposed(i: Instruction) -> bool:
    if not i.has("16"):
        raise Unsupported(f"{i.mnemonic}: only 16-bit matrix elements")
    return i.has("MT88")


def matrix_width(i: Instruction) -> int:
    """Bytes a lane in the sense of the data pipe: each matrix is 128 bytes, 4 a lane."""
    return 4 * _count(i)


@opcode("LDSM", modifiers=("16", "M88", "MT88", "2", "4"), pipe=Pipe.LSU, latency="ldsm", variable=True,
        memory=MemoryKind.LOAD_SHARED, width=matrix_width, operands=(2, 2))  # fmt: skip
def ldsm(e: Emitter, i: Instruction) -> None:
    """ldmatrix: lane 8m + j gives the address of row j (16 bytes) of matrix m; lane l gets elements 2(l%4), +1 of row
    l/4 (M88), or of column l/4 (MT88)."""
    e = _machine(e)
    count = _count(i)
    givers = e.lt(e.lane_id, 8 * count) & e.any(e.active)
    words = e.load("shared", e.address32(_memory(i)), 16, mask=givers)
    transposed = _transposed(i)
    result: list[Value] = []
    for m in range(count):
        if not transposed:
            result.append(_pick(e, [e.permute(w, [8 * m + lane // 4 for lane in range(32)]) for w in words],
                                [lane % 4 for lane in range(32)]))  # fmt: skip
            continue
        # element (row r, column c) is half c % 2 of word c / 2 of row r; here rows 2(l%4), +1 and column l/4
        column = [lane // 4 for lane in range(32)]
        halves = []
        for k in (0, 1):
            rows = [e.permute(w, [8 * m + 2 * (lane % 4) + k for lane in range(32)]) for w in words]
            halves.append(_pick(e, rows, [c // 2 for c in column]))
        odd = e.ne(e.lanes([c % 2 for c in column]), 0)
        low = e.select(odd, halves[0] >> 16, halves[0] & 0xFFFF)
        high = e.select(odd, halves[1] & 0xFFFF0000, halves[1] << 16)
        result.append(low | high)
    e.write_rows(i.operands[0], result)


def _pick(e: Emitter, rows: list[Value], which: list[int]) -> Value:
    """Lane l gets rows[which[l]][l]."""
    chosen = rows[0]
    selector = e.lanes(which)
    for k in range(1, len(rows)):
        chosen = e.select(e.eq(selector, k), rows[k], chosen)
    return chosen


@opcode("STSM", modifiers=("16", "M88", "MT88", "2", "4"), pipe=Pipe.LSU, latency="sts", variable=True,
        memory=MemoryKind.STORE_SHARED, width=matrix_width, operands=(2, 2))  # fmt: skip
def stsm(e: Emitter, i: Instruction) -> None:
    """stmatrix: the reverse of LDSM. The row of lane 8m + j is gathered from the four lanes that hold it."""
    e = _machine(e)
    count = _count(i)
    transposed = _transposed(i)
    givers = e.lt(e.lane_id, 8 * count) & e.any(e.active)
    held = e.rows(i.operands[1], count)
    words: list[Value] = []
    for w in range(4):
        word: Value | None = None
        for m in range(count):
            if not transposed:
                piece = e.permute(held[m], [4 * (lane % 8) + w for lane in range(32)])
            else:
                # row j of the stored matrix is column j of the fragment: elements 2w, 2w + 1 are held by lanes
                # 4(2w) + j/2 and 4(2w + 1) + j/2, in half j % 2
                a = e.permute(held[m], [4 * (2 * w) + (lane % 8) // 2 for lane in range(32)])
                b = e.permute(held[m], [4 * (2 * w + 1) + (lane % 8) // 2 for lane in range(32)])
                odd = e.ne(e.lanes([lane % 2 for lane in range(32)]), 0)
                piece = e.select(odd, a >> 16, a & 0xFFFF) | e.select(odd, b & 0xFFFF0000, b << 16)
            mine = e.eq(e.lanes([lane // 8 for lane in range(32)]), m)
            word = piece if word is None else e.select(mine, piece, word)
        assert word is not None
        words.append(word)
    e.store("shared", e.address32(_memory(i)), words, 16, mask=givers)


# ------------------------------------------------------------------ ordering and cache control


def _membar_latency(i: Instruction, sm: int) -> str:
    if i.has("SYS"):
        return "membar_sys"
    return "membar_gpu" if i.has("GPU") else "membar_cta"


@opcode("MEMBAR", modifiers=("SC", "ALL", "CTA", "SM", "GPU", "SYS", "VC"), pipe=Pipe.BARRIER, latency=_membar_latency,
        variable=True, operands=(0, 0))  # fmt: skip
def membar(e: Emitter, i: Instruction) -> None:
    """Memory is sequentially consistent here: nothing to order."""


@opcode("FENCE", modifiers=("VIEW", "ASYNC", "S", "G", "T"), pipe=Pipe.BARRIER, latency="membar_cta", variable=True,
        operands=(0, 0))  # fmt: skip
def fence(e: Emitter, i: Instruction) -> None:
    """Proxy fences: there is one view of memory here."""


@opcode("ERRBAR", "CGAERRBAR", pipe=Pipe.BARRIER, latency="none", operands=(0, 0))
def errbar(e: Emitter, i: Instruction) -> None:
    """Reports earlier memory errors; those stop the kernel where they happen."""


@opcode("CCTL", modifiers=("IVALL", "IVALLP", "E", "PF1", "PF2", "RML2", "DML2", "U", "D", "C"), pipe=Pipe.LSU,
        latency="cctl", variable=True, operands=(0, 1))  # fmt: skip
def cctl(e: Emitter, i: Instruction) -> None:
    """Cache control: invalidation and prefetch change no data."""
