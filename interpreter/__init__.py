"""What a kernel does: compiled SASS executed on CPU threads. Knows nothing of time."""
