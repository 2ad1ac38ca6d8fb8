"""Commands of `farm`, one file each."""
