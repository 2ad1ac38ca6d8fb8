"""How long a kernel takes: a timing model that replays the interpreter's traces. Knows nothing of files, sweeps or clusters."""
