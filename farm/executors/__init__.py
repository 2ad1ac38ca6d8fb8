"""Where batches of work items run: this machine's processes, or a Ray cluster. `interface` says what they share."""
