"""Back ends: NumPy (the reference, one instruction at a time) and LLVM (compiled vector handlers)."""
