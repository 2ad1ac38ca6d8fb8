"""What was submitted, kept with the run: the options, and the sweeps' files for where the originals are not."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from farm.board import INPUTS, SUBMISSION, Board
from farm.submit_options import Options
from interpreter.disassembly import cache_directory
from interpreter.errors import FarmError
from jobs.bundle import Bundle, BundleError, submission_files
from jobs.plan import Plan
from jobs.run_folder import RunFolder
from jobs.sweep import SweepError, load_sweep

# decided anew each time
_OF_THE_MOMENT: dict[str, Any] = {"run": None, "retry": False, "ray": None, "jobs": None}


class ResumeError(FarmError):
    """A run that cannot be gone on with from here."""


def keep(board: Board, paths: list[Path], plans: list[Plan], options: Options) -> str:
    """Write both notes; returns what the user should know, usually nothing."""
    content = {**asdict(options), **_OF_THE_MOMENT}
    content.pop("adjust")  # made by a caller in this process, who submits again to go on
    note = {"sweeps": [str(_file(path)) for path in paths], "options": content, "root": "", "digest": ""}
    trouble = ""
    files = {file for plan in plans for file in submission_files(plan)}
    files |= {Path(text.partition("=")[2] or text) for text in options.measured}
    try:
        bundle = Bundle.of(files)
        note["root"], note["digest"] = bundle.root, bundle.digest
        known = board.read_json(SUBMISSION)
        if known is None or known.get("digest") != bundle.digest:
            board.write(INPUTS, _zipped(bundle))
    except BundleError as error:
        trouble = f"{error}: the run can be resumed where these files are, not elsewhere"
    board.write(SUBMISSION, (json.dumps(note, indent=1) + "\n").encode())
    return trouble


def recall(folder: RunFolder, board: Board) -> tuple[list[Path], Options]:
    """The sweeps and options of a run's latest submission, from the original files or, where those are not (or have
    changed), from the run's copy. Raises ResumeError."""
    note = board.read_json(SUBMISSION)
    if note is None:
        raise ResumeError(f"run {folder.name}: does not say what was submitted; give the `farm submit` command again")
    try:
        names = {f.name for f in fields(Options)}
        options = Options(**{k: v for k, v in note["options"].items() if k in names})
        for name in ("targets", "measured", "timeline_variants", "timeline_sms"):
            setattr(options, name, tuple(getattr(options, name)))
        sweeps, root = [Path(path) for path in note["sweeps"]], note["root"]
    except (KeyError, TypeError, AttributeError) as error:
        raise ResumeError(f"run {folder.name}: {SUBMISSION} is not a submission: {error}") from None
    options.run = folder.name
    if _unchanged(folder, sweeps, options):
        return sweeps, options
    content = board.read(INPUTS)
    if content is None:
        raise ResumeError(f"run {folder.name}: {sweeps[0]} is not here or has changed, and the run has no copy of it")
    here = _unzipped(content, root).unpack(cache_directory(None) / "inputs")

    def moved(text: str) -> str:
        path = Path(text).resolve()
        return str(here / path.relative_to(root)) if path.is_relative_to(root) else text

    options.targets = tuple(moved(t) if t.endswith(".yaml") else t for t in options.targets)
    options.measured = tuple("=".join([*m.split("=")[:-1], moved(m.split("=")[-1])]) for m in options.measured)
    return [Path(moved(str(path))) for path in sweeps], options


def _unchanged(folder: RunFolder, sweeps: list[Path], options: Options) -> bool:
    for path in sweeps:
        try:
            sweep = load_sweep(path, allow_outside=options.allow_outside)
            digest = sweep.digest()
        except (SweepError, OSError):
            return False
        family = folder.manifest.families.get(sweep.name)
        if family is None or family.identity.get("sweep") != digest:
            return False
    return True


def _file(path: Path) -> Path:
    path = path.resolve()
    return path / "sweep.yaml" if path.is_dir() else path


def _zipped(bundle: Bundle) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in bundle.files:
            # one date for all: the same files give the same bytes
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _unzipped(content: bytes, root: str) -> Bundle:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return Bundle.from_files(root, [(name, archive.read(name)) for name in sorted(archive.namelist())])
    except (zipfile.BadZipFile, KeyError, OSError) as error:
        raise ResumeError(f"{INPUTS}: cannot be read: {error}") from None
