"""The command line, executors, store and queries."""

import os

# Before Arrow is loaded: the allocator it would take keeps what a merge of parts once needed, and more of it each time.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
