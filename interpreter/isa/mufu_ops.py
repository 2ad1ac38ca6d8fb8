"""MUFU: special functions; `interpreter.isa.mufu` has the functions."""

from __future__ import annotations

from interpreter.isa import mufu
from interpreter.isa.half_ops import one_half, round_half
from interpreter.isa.pipes import Pipe
from interpreter.isa.registry import opcode
from interpreter.isa.value import Emitter, Unsupported
from interpreter.program import Instruction


@opcode(
    "MUFU",
    modifiers=(*mufu.FUNCTIONS, "RCP64H", "RSQ64H", "F16", "BF16_V2", "BF16"),
    pipe=Pipe.XU,
    latency="xu",
    variable=True,
    operands=(2, 2),
)
def mufu_op(e: Emitter, i: Instruction) -> None:
    d, a = i.operands
    name = i.modifiers[0]
    if name in ("RCP64H", "RSQ64H"):
        # the operand is the high word of a double; |x| and -x act on its sign bit as on a float's
        high = e.bits(a)
        high = high & 0x7FFFFFFF if a.absolute else high
        high = high ^ 0x80000000 if a.negate else high
        e.write(d, mufu.rcp64h(e, high) if name == "RCP64H" else mufu.rsq64h(e, high))
        return
    if name not in mufu.FUNCTIONS:
        raise Unsupported(i.mnemonic)
    function = mufu.FUNCTIONS[name]
    if len(i.modifiers) == 1:
        if a.modifiers:
            raise Unsupported(f"MUFU operand with .{a.modifiers[0]}")
        e.write(d, function(e, e.f32(a)))
        return
    bf16 = i.modifiers[1] != "F16"
    result = function(e, one_half(e, a, bf16))
    bits = round_half(e, result, bf16, "RZ")
    # truncated, but an overflow is infinite
    e.write(d, bits if bf16 else e.select(e.ge(result, 65536.0), 0x7C00, bits))
