"""Self-contained HTML: the page of a run's candidates, of one candidate, and the overview of a store."""
