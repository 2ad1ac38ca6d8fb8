"""Microbenchmarks of a real GPU: the numbers behind a target's latency and rate tables."""
