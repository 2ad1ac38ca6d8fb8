"""What a run lets the outside see, by listening to farm.events: Prometheus metrics, structured logs, the live view."""
