"""docs/targets.md from the target files: every number of every GPU with the kind of its source.

python -m timing.target_report > docs/targets.md
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from timing.confidence import DECISIVE
from timing.target import SOURCES, TARGETS, Target, load_target

ORDER = ("h200", "h100", "b200", "l40s", "rtx4090", "rtx5090", "orin", "thor")
_LETTER = {kind: kind[0] for kind in SOURCES}
_INTRODUCTION = """# Targets

Every number the timing model uses for a GPU, with the kind of its source. The file `timing/targets/<name>.yaml` has the
notes that say which document, measurement or arithmetic. Written by `python -m timing.target_report`; do not edit.

- **m** measured: our own microbenchmarks or profiles on that very GPU
- **v** vendor: NVIDIA's documents, headers and tools (such as the gaps ptxas leaves between dependent instructions)
- **l** literature: somebody else's measurement on such hardware
- **d** derived: arithmetic on other numbers, or a sibling GPU's number taken over
- **g** guess: nothing better known
"""


def report() -> str:
    """The whole page, Markdown."""
    names = [*(name for name in ORDER if name in TARGETS), *(name for name in TARGETS if name not in ORDER)]
    targets = [load_target(name) for name in names]
    parts = [_INTRODUCTION, "## The GPUs\n", _gpus(targets), "\n## Where the numbers come from\n", _summary(targets)]
    paths = list(dict.fromkeys(path for target in targets for path in target.values))
    sections = dict.fromkeys(path.split(".")[0] for path in paths)
    for section in sections:
        parts.append(f"\n## {section}\n")
        parts.append(_section([path for path in paths if path.split(".")[0] == section], targets))
    return "\n".join(parts) + "\n"


def _gpus(targets: list[Target]) -> str:
    rows = [
        [t.name, t.full_name, t.arch, str(t.sm_count), f"{t.clock_mhz:g}", f"{t.dram.gb_per_s:g}",
         f"{t.l2.bytes / 2**20:g}", ", ".join(t.aliases)]
        for t in targets
    ]  # fmt: skip
    return _table(["name", "GPU", "arch", "SMs", "MHz", "GB/s", "L2 MiB", "also called"], rows)


def _summary(targets: list[Target]) -> str:
    rows = []
    for target in targets:
        everything = Counter(source.kind for source in target.sources.values())
        decisive = Counter(target.source(path).kind for path in DECISIVE)
        rows.append([target.name, *(f"{everything[kind]} ({decisive[kind]})" for kind in SOURCES)])
    words = (
        f"Numbers of each kind; in brackets those among the {len(DECISIVE)} that decide most kernels' times "
        "(`timing.confidence.DECISIVE`).\n\n"
    )
    return words + _table(["target", *SOURCES], rows)


def _section(paths: Iterable[str], targets: list[Target]) -> str:
    rows = []
    for path in paths:
        cells = [path.split(".", 1)[1]]
        for target in targets:
            if path in target.values:
                cells.append(f"{_number(target.values[path])} {_LETTER[target.sources[path].kind]}")
            else:
                cells.append("")
        rows.append(cells)
    return _table(["", *(target.name for target in targets)], rows)


def _number(value: object) -> str:
    if isinstance(value, tuple):
        return "/".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and value >= 100_000:
        return f"{value:,}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


if __name__ == "__main__":
    print(report(), end="")
