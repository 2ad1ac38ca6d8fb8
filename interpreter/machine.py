"""Runs a kernel: CTA after CTA, warps in turns, on one of two back ends.

`Machine(program, memory, launch).run()` executes the grid. The LLVM back end runs compiled handlers; the NumPy back end
executes each instruction's meaning directly and is the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np

from interpreter.errors import FarmError, LaunchError
from interpreter.launch import Launch, check_launch
from interpreter.memory import Memory
from interpreter.program import Program
from interpreter.trace import COUNTS, RunResult

Mode = Literal["plain", "count", "trace"]
MODES = ("plain", "count", "trace")
DEFAULT_BUDGET = 1_000_000_000  # warp instructions a warp may issue: minutes of execution, no real kernel's need


class Backend(Protocol):
    """What a back end offers: run CTAs one after another, adding to `counts`."""

    def run(self, ctas: Sequence[int], mode: Mode, budget: int, counts: np.ndarray | None) -> RunResult: ...


class Machine:
    """A program with its memory and launch, ready to run.

    Raises at construction: LaunchError (sizes, arguments), UnsupportedInstruction (naming all).
    """

    def __init__(self, program: Program, memory: Memory, launch: Launch, backend: str = "llvm") -> None:
        check_launch(program, launch)
        self.program = program
        self.memory = memory
        self.launch = launch
        self._backend: Backend
        if backend == "llvm":
            from interpreter.backends.llvm_machine import LlvmMachine

            self._backend = LlvmMachine(program, memory, launch)
        elif backend == "numpy":
            from interpreter.backends.numpy_machine import NumpyMachine

            self._backend = NumpyMachine(program, memory, launch)
        else:
            raise FarmError(f"back end {backend!r} is unknown; known: llvm, numpy")

    def run(
        self, ctas: Sequence[int] | None = None, mode: Mode = "plain", budget: int = DEFAULT_BUDGET
    ) -> RunResult:
        """Run CTAs (linear numbers, x fastest; None: the whole grid) in the order given.

        "count" adds per-instruction counters, "trace" also the events (see `interpreter.trace`). `budget` bounds the
        instructions of each warp. Raises MemoryFault, DeadlockError, BudgetExceeded, ExecutionError.
        """
        if mode not in MODES:
            raise FarmError(f"mode {mode!r} is unknown; known: {', '.join(MODES)}")
        numbers = range(self.launch.ctas) if ctas is None else list(ctas)
        for number in numbers if ctas is not None else ():
            if not 0 <= number < self.launch.ctas:
                raise LaunchError(f"CTA {number}: the grid has {self.launch.ctas}")
        counts = np.zeros(len(self.program.instructions), COUNTS) if mode != "plain" else None
        return self._backend.run(numbers, mode, budget, counts)
