"""One file a command or group of commands; farm/cli.py registers them."""
