"""The one place where numba is configured.

numba's cache notices changes of a function's own file only, not of the constants it takes from other modules. The
cache folder is therefore named after the content of this package and of what it takes constants from.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numba


def _package_hash() -> str:
    digest = hashlib.sha256(numba.__version__.encode())
    here = Path(__file__).parent
    constants = [here.parent / "interpreter" / name for name in ("trace.py", "isa/pipes.py")]
    for path in [*sorted(here.glob("*.py")), *constants]:
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _cache_directory() -> Path:
    root = os.environ.get("FARM_CACHE")
    return (Path(root) if root else Path.home() / ".cache" / "farm") / "numba" / _package_hash()


if not os.environ.get("NUMBA_CACHE_DIR"):
    setattr(numba.config, "CACHE_DIR", str(_cache_directory()))  # noqa: B010  (not declared in its stub)
for _vectorizer in ("LOOP_VECTORIZE", "SLP_VECTORIZE"):  # the engine has no loops worth it: 15 % slower with them
    setattr(numba.config, _vectorizer, 0)

njit: Callable[..., Any] = partial(
    numba.njit, cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True, no_cpython_wrapper=True
)
"""numba.njit for functions that only compiled code calls; use as `@njit()` or `@njit(inline="always")`.

Division by zero gives inf or nan as in NumPy, which the tiers refuse as a result: checks at each division cost about
two seconds of compiling. No wrappers: those of functions that take the engine's state cost another second.
"""

njit_entry: Callable[..., Any] = partial(njit, no_cpython_wrapper=False)
"""As `njit`, for functions that Python calls."""
