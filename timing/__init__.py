"""How long a kernel takes: replays the interpreter's traces. Knows nothing of files, sweeps or clusters."""
