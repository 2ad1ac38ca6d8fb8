"""Where runs are kept: a local folder, `./farm-runs` unless FARM_STORE or --store says otherwise."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote, urlparse

from interpreter.errors import FarmError
from jobs.expression import close_match
from jobs.run_folder import MANIFEST, RunFolder

DEFAULT_STORE = "farm-runs"
_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*$")


class StoreError(FarmError):
    """A store or run that cannot be used as named."""


class LocalStore:
    """A folder with one folder a run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def folder(self, run: str) -> RunFolder:
        """The run's folder, which need not exist yet. Raises StoreError for a name that is not one folder's."""
        if not _RUN_NAME.match(run):
            raise StoreError(f"run name '{run}': letters, digits, . _ + and - only, beginning with a letter or digit")
        return RunFolder(self.path / run)

    def runs(self) -> list[str]:
        """Names of the runs, the latest last."""
        if not self.path.is_dir():
            return []
        manifests = [path / MANIFEST for path in self.path.iterdir() if (path / MANIFEST).is_file()]
        return [manifest.parent.name for manifest in sorted(manifests, key=lambda m: m.stat().st_mtime)]

    def find(self, run: str) -> RunFolder:
        """A run by its name or the unambiguous beginning of it, loaded. Raises StoreError."""
        names = self.runs()
        if run in names:
            return RunFolder(self.path / run).load()
        found = [name for name in names if name.startswith(run)]
        if len(found) == 1:
            return RunFolder(self.path / found[0]).load()
        if found:
            raise StoreError(f"run {run}: could be {', '.join(found)}")
        if not names:
            raise StoreError(f"run {run}: the store {self.path} holds no runs (begin with `farm submit SWEEP`)")
        raise StoreError(f"run {run}: not in {self.path}{close_match(run, names)} (runs: {', '.join(names[-8:])})")


def open_store(uri: str | None = None) -> LocalStore:
    """The store of a path or file:// URI, FARM_STORE, or the default. Raises StoreError for other schemes."""
    text = uri or os.environ.get("FARM_STORE") or DEFAULT_STORE
    scheme, separator, _ = text.partition("://")
    if not separator:
        path = Path(text).expanduser()
    elif scheme == "file":
        parsed = urlparse(text)
        if parsed.netloc not in ("", "localhost"):
            raise StoreError(f"store {text}: a file URI has three slashes: file:///{parsed.netloc}{parsed.path}")
        path = Path(unquote(parsed.path))
    elif scheme == "s3":
        raise StoreError(f"store {text}: S3 is not in this version; name a folder or a file:// URI")
    else:
        raise StoreError(f"store {text}: unknown scheme {scheme}:// (a folder or a file:// URI)")
    if path.exists() and not path.is_dir():
        raise StoreError(f"store {path}: is not a folder")
    return LocalStore(path)
