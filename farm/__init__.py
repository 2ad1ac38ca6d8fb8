"""The command line, executors, store and queries."""
