"""What the tables say of a variant in words: explanations, comparisons, alignment of SASS. Nothing is simulated."""
