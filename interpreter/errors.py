"""Errors of the interpreter. Each carries data as well as text; none is ever swallowed or turned into a result."""

from __future__ import annotations


class FarmError(Exception):
    """Base of every error that is shown to a user as one clear message (no traceback)."""


class ToolchainError(FarmError):
    """A compiler or disassembler is missing or of the wrong version."""


class CompileError(FarmError):
    """nvcc refused the source. `stderr` is the compiler's own text, cut to the point."""

    def __init__(self, message: str, stderr: str = "") -> None:
        super().__init__(message)
        self.stderr = stderr


class CubinError(FarmError):
    """The file is not a cubin, is truncated, or lacks the entry asked for."""


class UnsupportedInstruction(FarmError):
    """Instructions without a definition. Raised once at load, naming all of them.

    `missing` holds (address, text) pairs.
    """

    def __init__(self, kernel: str, missing: list[tuple[int, str]]) -> None:
        self.kernel = kernel
        self.missing = missing
        shown = "; ".join(f"{address:#06x}: {text}" for address, text in missing[:5])
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        super().__init__(f"kernel {kernel}: {len(missing)} instruction(s) not modelled: {shown}{more}")


class LaunchError(FarmError):
    """Wrong argument count or type, or a launch the architecture cannot accept."""


class ExecutionError(FarmError):
    """Base of the faults of a running kernel."""


class MemoryFault(ExecutionError):
    """An access outside every allocation, misaligned, or to the wrong space.

    `space` is "global", "shared", "local" or "constant"; addresses are byte addresses in that space.
    """

    def __init__(self, message: str, *, space: str, pc: int, address: int, cta: int, warp: int, lane: int) -> None:
        super().__init__(message)
        self.space = space
        self.pc = pc
        self.address = address
        self.cta = cta
        self.warp = warp
        self.lane = lane


class DeadlockError(ExecutionError):
    """No warp of a CTA can go on. The message lists each blocked warp's PC and what it waits for."""


class BudgetExceeded(ExecutionError):
    """A warp issued more instructions than its budget allows (an endless loop, most likely)."""
