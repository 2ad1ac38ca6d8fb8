"""Commands of `farm` that have a file of their own; farm.cli registers them."""
