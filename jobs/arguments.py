"""A variant's arguments in device memory: buffers allocated and filled, scalars as bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from interpreter.memory import Fill, Memory, round_to_bfloat16
from jobs.variants import ArgumentSpec, BufferSpec, ScalarSpec


def argument_values(
    memory: Memory, arguments: Sequence[ArgumentSpec]
) -> tuple[list[int | bytes], list[tuple[int, int]]]:
    """What `pack_arguments` takes: a buffer's guest address, a scalar's bytes; and (address, bytes) of the buffers."""
    values: list[int | bytes] = []
    allocations: list[tuple[int, int]] = []
    for argument in arguments:
        if isinstance(argument, ScalarSpec):
            values.append(scalar_bytes(argument))
            continue
        address = memory.allocate(argument.name, argument.bytes, _fill(argument))
        values.append(address)
        allocations.append((address, argument.bytes))
    return values, allocations


def scalar_bytes(scalar: ScalarSpec) -> bytes:
    """The scalar as the kernel reads it, little-endian."""
    if scalar.dtype == "bfloat16":
        return round_to_bfloat16(np.array([scalar.value], np.float32)).tobytes()
    return np.array(scalar.value, scalar.dtype).tobytes()


def _fill(buffer: BufferSpec) -> Fill:
    spec = buffer.fill
    return Fill(spec.kind, buffer.dtype, low=spec.low, high=spec.high, entries=spec.entries)
