"""Tracing."""
from interpreter.program import Instruction
def tracer_of(i: Instruction, sm: int):
    return None
