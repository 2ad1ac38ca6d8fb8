"""Where runs are kept: a local folder, `./farm-runs` unless FARM_STORE or --store says otherwise, or a bucket.

A store holds one folder a run. `file://` URIs and plain paths name a folder, `s3://bucket/prefix` object storage.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlparse

from interpreter.errors import FarmError
from jobs.expression import close_match
from jobs.run_folder import MANIFEST, NoRun, RunFolder

DEFAULT_STORE = "farm-runs"
_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*$")


class StoreError(FarmError):
    """A store or run that cannot be used as named."""


class Store(Protocol):
    """Runs by name."""

    location: str  # as the user may give it again; never holds credentials

    def open(self, run: str) -> RunFolder:
        """The run of a valid name, which need not exist."""

    def runs(self) -> list[str]:
        """Names of the runs, the latest last."""

    def runs_beginning(self, text: str) -> list[str]:
        """Names of the runs that begin with `text`, the latest last."""

    def folder(self, run: str) -> RunFolder:
        """The run, which need not exist yet. Raises StoreError for a name that no run can have."""
        if not _RUN_NAME.match(run):
            raise StoreError(f"run name '{run}': letters, digits, . _ + and - only, beginning with a letter or digit")
        return self.open(run)

    def find(self, run: str) -> RunFolder:
        """A run by its name or the unambiguous beginning of it, loaded. Raises StoreError."""
        found: list[str] = []
        if _RUN_NAME.match(run):
            with contextlib.suppress(NoRun):
                return self.open(run).load()
            found = self.runs_beginning(run)
        if len(found) == 1:
            return self.open(found[0]).load()
        if found:
            raise StoreError(f"run {run}: could be {', '.join(found)}")
        names = self.runs()
        if not names:
            raise StoreError(f"run {run}: the store {self.location} holds no runs (begin with `farm submit SWEEP`)")
        raise StoreError(f"run {run}: not in {self.location}{close_match(run, names)} (runs: {', '.join(names[-8:])})")


class LocalStore(Store):
    """A folder with one folder a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.location = str(path)

    def open(self, run: str) -> RunFolder:
        return RunFolder(self.path / run)

    def runs(self) -> list[str]:
        return self.runs_beginning("")

    def runs_beginning(self, text: str) -> list[str]:
        if not self.path.is_dir():
            return []
        manifests = [
            path / MANIFEST
            for path in self.path.iterdir()
            if path.name.startswith(text) and (path / MANIFEST).is_file()
        ]
        return [manifest.parent.name for manifest in sorted(manifests, key=lambda m: m.stat().st_mtime)]


def open_store(uri: str | None = None) -> Store:
    """The store of a path or URI, of FARM_STORE, or the default. Raises StoreError for other schemes."""
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
        from farm.store.s3 import S3Store

        return S3Store(*_bucket(text))
    else:
        raise StoreError(f"store {scheme}://...: unknown scheme (a folder, a file:// URI or s3://bucket/prefix)")
    if path.exists() and not path.is_dir():
        raise StoreError(f"store {path}: is not a folder")
    return LocalStore(path)


def _bucket(uri: str) -> tuple[str, str]:
    """Bucket and prefix of an s3:// URI. The URI is not repeated where it may hold a secret."""
    parsed = urlparse(uri)
    if "@" in uri:
        raise StoreError(
            "store s3://...@...: credentials do not belong in the address; give them by AWS_PROFILE, or "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (docs/store.md)"
        )
    if parsed.query or parsed.fragment:
        raise StoreError(
            f"store s3://{parsed.netloc}{parsed.path}?...: options are not taken from the address; "
            "the endpoint comes from AWS_ENDPOINT_URL, the region from AWS_REGION (docs/store.md)"
        )
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", parsed.netloc):
        raise StoreError(f"store {uri}: '{parsed.netloc}' is not a bucket's name (s3://bucket/prefix)")
    return parsed.netloc, parsed.path.strip("/")
