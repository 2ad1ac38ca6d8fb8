"""What the interpreter must know of each SM generation: launch constants in constant bank 0, shared memory's base,
special registers.

Source of every number, unless a line says otherwise: kernels that read one built-in each (blockDim, gridDim,
%dynamic_smem_size, ...), compiled with ptxas 13.0 for each architecture, and the constant offset their SASS reads.
A cubin says itself where its parameters start (PARAM_CBANK); `parameter_base` is where they always did.
Special register numbers: field 79:72 of S2R swept through nvdisasm 13.5.
"""

from __future__ import annotations

from dataclasses import dataclass

from interpreter.errors import CubinError


@dataclass(frozen=True, slots=True)
class ClusterFields:
    """Bank 0 offsets of the cluster's shape. Reciprocals are binary32."""

    explicit: int  # 32-bit flag: launched with cluster dimensions
    dims: tuple[int, int, int]
    reciprocals: tuple[int, int, int]
    grid: tuple[int, int, int]  # grid size in clusters
    ctas: int  # CTAs per cluster


@dataclass(frozen=True, slots=True)
class Generation:
    """Constants of one SM generation. Fields named after CUDA built-ins are byte offsets in constant bank 0."""

    name: str
    sms: tuple[int, ...]
    parameter_base: int
    block_dim: tuple[int, int, int]  # 32-bit each
    grid_dim: tuple[int, int, int]  # 32-bit each
    stack_pointer: int  # 32-bit: what R1 starts from, top of a thread's local memory
    local_window: int  # 64-bit generic address of local memory
    shared_window: int | None  # 64-bit generic address of shared memory; None: SR_SWINHI holds its high word
    dynamic_shared: int  # 32-bit, bytes
    grid_id: int  # 64-bit
    envreg0: int  # 32-bit, and the 31 after it
    sm_count: int  # 32-bit, %nsmid
    total_shared: int  # 32-bit, subtrahend of %total_smem_size
    memory_descriptor: int  # 64-bit: the uniform register pair in desc[UR]
    constant_window: int  # 64-bit generic address of constant memory
    parameter_window: int  # 64-bit generic address of the parameters (__grid_constant__ taken by address)
    shared_base: int  # shared address of the first byte a kernel may use; what lies below is reserved
    constant_operands: bool  # c[b][o] in ALU instructions; else only LDC and LDCU read constant banks
    cluster: ClusterFields | None
    cga_scale: int  # cluster fields, dynamic_shared and envreg0 are read at offset - cga_scale * SR_CgaSize

AMPERE_ADA = Generation(
    name="Ampere/Ada",
    sms=(80, 86, 87, 88, 89),
    parameter_base=0x160,
    block_dim=(0x0, 0x4, 0x8),
    grid_dim=(0xC, 0x10, 0x14),
    stack_pointer=0x28,
    local_window=0x20,
    shared_window=0x18,
    dynamic_shared=0x2C,
    grid_id=0x30,
    envreg0=0x88,
    sm_count=0x10C,
    total_shared=0x114,
    memory_descriptor=0x118,
    constant_window=0x50,
    parameter_window=0x40,
    shared_base=0,
    constant_operands=True,
    cluster=None,
    cga_scale=0,
)

HOPPER = Generation(
    name="Hopper",
    sms=(90,),
    parameter_base=0x210,
    block_dim=(0x0, 0x4, 0x8),
    grid_dim=(0xC, 0x10, 0x14),
    stack_pointer=0x28,
    local_window=0x20,
    shared_window=None,
    dynamic_shared=0x2C,
    grid_id=0x30,
    envreg0=0x40,
    sm_count=0x10C,
    total_shared=0x114,
    memory_descriptor=0x208,
    constant_window=0xD0,
    parameter_window=0x198,
    shared_base=0x400,
    constant_operands=True,
    cluster=ClusterFields(
        explicit=0x140,
        dims=(0x144, 0x148, 0x14C),
        reciprocals=(0x150, 0x154, 0x158),
        grid=(0x15C, 0x160, 0x164),
        ctas=0x188,
    ),
    cga_scale=0,
)

# What SR_CgaSize reads in a launch without clusters cannot be read off compiled code; 0 keeps all fields in the bank.
BLACKWELL = Generation(
    name="Blackwell",
    sms=(100, 103, 110, 120, 121),
    parameter_base=0x380,
    block_dim=(0x360, 0x364, 0x368),
    grid_dim=(0x370, 0x374, 0x378),
    stack_pointer=0x37C,
    local_window=0x2F8,
    shared_window=None,
    dynamic_shared=0x2AC,
    grid_id=0x140,
    envreg0=0x250,
    sm_count=0x2D0,
    total_shared=0x16C,
    memory_descriptor=0x358,
    constant_window=0x120,
    parameter_window=0x348,
    shared_base=0x400,
    constant_operands=False,
    cluster=ClusterFields(
        explicit=0x36C,
        dims=(0x2A0, 0x2A4, 0x2A8),
        reciprocals=(0x2B0, 0x2B4, 0x2B8),
        grid=(0x2C0, 0x2C4, 0x2C8),
        ctas=0x2CC,
    ),
    cga_scale=0xA0,
)

GENERATIONS = (AMPERE_ADA, HOPPER, BLACKWELL)
_BY_SM = {sm: generation for generation in GENERATIONS for sm in generation.sms}

# Special registers that compute kernels use, by the number S2R encodes (bits 79:72). The rest belong to graphics.
SPECIAL_REGISTERS: dict[int, str] = {
    0x00: "SR_LANEID",
    0x01: "SR_CLOCK",
    0x02: "SR_VIRTCFG",  # %nwarpid in bits 15:8
    0x03: "SR_VIRTID",  # %warpid
    0x20: "SR_TID",
    0x21: "SR_TID.X",
    0x22: "SR_TID.Y",
    0x23: "SR_TID.Z",
    0x25: "SR_CTAID.X",
    0x26: "SR_CTAID.Y",
    0x27: "SR_CTAID.Z",
    0x28: "SR_NTID",
    0x2E: "SR_LWINHI",
    0x2F: "SR_SWINHI",
    0x30: "SR_SWINLO",
    0x31: "SR_SWINSZ",
    0x32: "SR_SMEMSZ",
    0x33: "SR_SMEMBANKS",
    0x34: "SR_LWINLO",
    0x35: "SR_LWINSZ",
    0x36: "SR_LMEMLOSZ",
    0x37: "SR_LMEMHIOFF",
    0x38: "SR_EQMASK",
    0x39: "SR_LTMASK",
    0x3A: "SR_LEMASK",
    0x3B: "SR_GTMASK",
    0x3C: "SR_GEMASK",
    0x3D: "SR_REGALLOC",
    0x3E: "SR_BARRIERALLOC",
    0x40: "SR_GLOBALERRORSTATUS",
    0x42: "SR_WARPERRORSTATUS",
    0x43: "SR_VIRTUALSMID",  # %smid
    0x44: "SR_VIRTUALENGINEID",
    0x50: "SR_CLOCKLO",
    0x51: "SR_CLOCKHI",
    0x52: "SR_GLOBALTIMERLO",
    0x53: "SR_GLOBALTIMERHI",
    0x54: "SR_ESR_PC",
    0x55: "SR_ESR_PC_HI",
    0x60: "SR_HWTASKID",
    0xFF: "SRZ",
}
_FROM_90 = frozenset({90, 100, 103, 110, 120, 121})
# Those that not every SM has: number -> (name, SMs).
NEWER_SPECIAL_REGISTERS: dict[int, tuple[str, frozenset[int]]] = {
    0x41: ("SR_CGAERRORSTATUS", _FROM_90),
    0x86: ("SR_WARPGROUP_INFO", frozenset({90, 110})),
    0x87: ("SR_WARPGROUPID", frozenset({90, 110})),
    0x88: ("SR_CgaCtaId", _FROM_90),
    0x89: ("SR_GpcLocalCgaId", _FROM_90),
    0x8A: ("SR_CgaSize", _FROM_90 - {90}),
    0x8B: ("SR_CTARegPoolSz", _FROM_90),
    0x8D: ("SR_TMemSz", _FROM_90 - {90}),
    0x8E: ("SR_CONTEXT_SAVE_ADDR_LO", frozenset({120, 121})),
    0x8F: ("SR_CONTEXT_SAVE_ADDR_HI", frozenset({120, 121})),
}


def layout_for(sm: int) -> Generation:
    """The generation of an SM number (80, 86, ..., 120). Raises CubinError for one that is not modelled."""
    if sm not in _BY_SM:
        known = ", ".join(str(number) for number in sorted(_BY_SM))
        raise CubinError(f"sm_{sm} is not modelled; known: {known}")
    return _BY_SM[sm]


def special_registers(sm: int) -> frozenset[str]:
    """Names, as nvdisasm prints them, of the special registers that compute kernels of this SM can read."""
    layout_for(sm)
    newer = (name for name, sms in NEWER_SPECIAL_REGISTERS.values() if sm in sms)
    return frozenset((*SPECIAL_REGISTERS.values(), *newer))
