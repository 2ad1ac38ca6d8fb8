"""One sweep's work: variants, the funnel through the tiers, result tables, resuming."""
