"""A gate for CI: kernels compared with a baseline by estimate, with the cause of every slowdown. docs/gate.md."""
