"""Commands of the CLI, one file each; `farm.cli` registers them."""
