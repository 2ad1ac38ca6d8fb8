"""A sweep's files as one bundle of bytes: what another machine needs to evaluate its variants, or to go on with a run.

In it: the sweep's source with the headers beside it and what it includes, files that compiler flags name, target
descriptions of one's own. Cubins of sweeps that have one file a variant travel with their work items instead.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from interpreter.compile import CompileRequest, source_files
from interpreter.errors import FarmError
from interpreter.toolchain import find_tools
from jobs.plan import Plan, kernel_build
from jobs.sweep import SweepError
from jobs.work import WorkItem
from timing.target import load_target

HEADERS = ("h", "hpp", "cuh", "inl")
MAX_BYTES = 256 << 20  # of a bundle: a sweep's own files are far smaller


class BundleError(FarmError):
    """A sweep's files that cannot be gathered."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """Files by path relative to `root`, the folder on the submitting machine that holds them all."""

    root: str
    files: tuple[tuple[str, bytes], ...]
    digest: str

    @classmethod
    def of(cls, paths: Iterable[Path]) -> Bundle:
        """The bundle of some files. Raises BundleError when one cannot be read, or they are too large."""
        resolved = sorted({path.resolve() for path in paths})
        root = Path(os.path.commonpath([path.parent for path in resolved])) if resolved else Path("/")
        files: list[tuple[str, bytes]] = []
        total = 0
        for path in resolved:
            try:
                content = path.read_bytes()
            except OSError as error:
                raise BundleError(f"{path}: cannot be read: {error.strerror}") from None
            total += len(content)
            if total > MAX_BYTES:
                raise BundleError(f"{path}: the sweep's files come to more than {MAX_BYTES >> 20} MiB")
            files.append((path.relative_to(root).as_posix(), content))
        return cls.from_files(str(root), files)

    @classmethod
    def from_files(cls, root: str, files: Iterable[tuple[str, bytes]]) -> Bundle:
        """The bundle of files already read, by path relative to `root`."""
        kept = tuple(files)
        digest = hashlib.sha256()
        for name, content in kept:
            digest.update(f"{name}\0{len(content)}\0".encode())
            digest.update(content)
        return cls(root, kept, digest.hexdigest())

    def unpack(self, folder: Path) -> Path:
        """Put the files below `folder`, once for a content, whoever else does the same; returns where they are."""
        final = folder / self.digest[:32]
        if final.is_dir():
            return final
        folder.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=folder))
        try:
            for name, content in self.files:
                path = temporary / name
                if not path.resolve().is_relative_to(temporary.resolve()):
                    raise BundleError(f"{name}: lies outside the bundle")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            try:
                os.rename(temporary, final)
            except OSError:
                if not final.is_dir():  # another process was first: its files are the same
                    raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return final


def check_inside(plan: Plan) -> None:
    """Raise SweepError when a sweep's source includes a file from outside its folder, or a header is a link there: its
    content would travel to the cluster and be kept with the run."""
    sweep = plan.sweep
    for path in sorted(_code_files(plan)):
        if not sweep.holds(path):
            raise SweepError(
                f"{sweep.where('kernel', 'source')}: '{sweep.kernel.source}' takes in {path}, outside the sweep's "
                "folder (allow it with --allow-outside)"
            )


def sweep_bundle(plan: Plan) -> Bundle:
    """What the work items of a sweep need besides cubins of their own."""
    return Bundle.of(_code_files(plan) | _target_files(plan))


def submission_files(plan: Plan) -> list[Path]:
    """Everything a sweep is made of, to submit it again elsewhere: its YAML, code, cubins and measured times."""
    sweep = plan.sweep
    found = {sweep.path, *_code_files(plan), *_target_files(plan)}
    found |= {sweep.folder / name for name in sweep.measured.values()}
    if sweep.kernel.cubin is not None:
        for name, spec in plan.targets.items():
            target = load_target(spec)
            for number in plan.numbers:
                cubin = kernel_build(sweep, plan.variants[name][number], target).cubin
                if cubin is not None and cubin.is_file():
                    found.add(cubin)
    return sorted({path.resolve() for path in found})


def localised(item: WorkItem, root: str, here: Path, cache: Path, cubins: dict[str, Path]) -> WorkItem:
    """The item with its files where this machine has them: those below `root` in `here`, cubins as `cubins` says."""

    def moved(path: Path) -> Path:
        try:
            return here / path.relative_to(root)
        except ValueError:
            return path

    build = item.build
    if build.source is not None:
        build = replace(build, source=moved(build.source))
    elif build.cubin is not None:
        build = replace(build, cubin=cubins.get(str(build.cubin), moved(build.cubin)))
    targets = tuple((name, str(moved(Path(spec))) if spec.endswith(".yaml") else spec) for name, spec in item.targets)
    shown = ((str(here), root), *((str(path), name) for name, path in cubins.items()))
    return replace(item, build=build, targets=targets, cache=cache, shown=shown)


def _code_files(plan: Plan) -> set[Path]:
    sweep = plan.sweep
    if sweep.kernel.source is None:
        return set()
    source = (sweep.folder / sweep.kernel.source).resolve()
    found = {source}
    for suffix in HEADERS:
        found.update(path for path in source.parent.rglob(f"*.{suffix}") if path.is_file())
    name, spec = next(iter(plan.targets.items()))
    build = kernel_build(sweep, plan.variants[name][plan.numbers[0]], load_target(spec))
    request = CompileRequest(source, build.arch, dict(build.macros), list(build.flags))
    tool = find_tools().nvcc
    if tool is not None:
        found.update((source.parent / name).resolve() for name in source_files(request, tool))
    return found


def _target_files(plan: Plan) -> set[Path]:
    return {Path(spec) for spec in plan.targets.values() if spec.endswith(".yaml")}
