"""Which nvcc options a sweep may give: those that say how to compile, none that run programs or write files.

A sweep is data, and may come from someone else. nvcc hands its options to a shell, where `-DX=$(...)` would run a
program; `-ccbin` and `-run` run one openly, `-o` and `-keep` write wherever they like. So what is not known to be
harmless is refused, unless the user trusts the sweep (`--allow-outside`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# what no shell gives a meaning to, inside nvcc's double quotes or without
_PLAIN = re.compile(r"[A-Za-z0-9_.,:=+/@%^~<>()\[\]{}*?! -]*")
_UNQUOTED = re.compile(r"[A-Za-z0-9_.,:=+/@%-]*")

# names without their dashes: nvcc has a short form with one and a long one with two
_SWITCHES = {
    *("use_fast_math", "restrict", "G", "device-debug", "g", "debug", "w", "disable-warnings", "lineinfo"),
    *("generate-line-info", "extended-lambda", "expt-extended-lambda", "expt-relaxed-constexpr", "m64"),
    *("extra-device-vectorization", "res-usage", "resource-usage", "src-in-ptx", "source-in-ptx", "Wreorder"),
    *("Wno-deprecated-gpu-targets", "Wno-deprecated-declarations", "display-error-number", "err-no"),
    *("no-display-error-number", "ftz", "prec-div", "prec-sqrt", "fmad", "rdc", "relocatable-device-code"),
}
_VALUES = {
    *("maxrregcount", "std", "O", "optimize", "Ofc", "Ofast-compile", "Werror", "diag-error", "diag-suppress"),
    *("diag-warn", "default-stream", "ftz", "prec-div", "prec-sqrt", "fmad", "use_fast_math", "rdc"),
    *("relocatable-device-code", "split-compile", "jtd", "jump-table-density", "t", "threads"),
}
_MACROS = {"D", "U", "define-macro", "undefine-macro"}
_FOLDERS = {"I", "include-path", "isystem", "system-include"}
_FILES = {"include", "pre-include"}
_PTXAS = {"Xptxas", "ptxas-options"}
_PTXAS_OPTION = re.compile(
    r"-v|--verbose|-w|--disable-warnings|-O[0-4]|--opt-level[= ][0-4]|-opt-level=[0-4]"
    r"|-d(?:lcm|scm)=\w+|-?-def-(?:load|store)-cache[= ]\w+|-?-maxrregcount[= ]\d+|-?-fmad[= ]\w+"
    r"|-?-warn-(?:on-spills|lmem-usage|double-usage|on-local-memory-usage|on-double-precision-use)|-warn-spills"
    r"|-?-allow-expensive-optimizations(?:[= ]\w+)?|-?-disable-optimizer-constants|-?-register-usage-level[= ]\d+"
    r"|-?-force-(?:load|store)-cache[= ]\w+|-f[ls]cm=\w+|-?-preserve-relocs|-?-suppress-stack-size-warning"
    r"|-?-generate-line-info|-lineinfo|-?-Werror|-?-compile-only|-c|-?-position-independent-code[= ]\w+"
)
_SHORT = re.compile(r"(-[DUIO])(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Refused:
    """The option at `index`, and why it is not for a sweep."""

    index: int
    reason: str


@dataclass(frozen=True, slots=True)
class Named:
    """A file or folder that the option at `index` names, relative to the source's folder."""

    index: int
    path: str


def examine(flags: Sequence[str]) -> Iterator[Refused | Named]:
    """What is to be said of a sweep's options: those refused, and the paths that others name."""
    words = iter(enumerate(flags))
    for index, word in words:
        name, equals, value = word.partition("=")
        short = _SHORT.fullmatch(word)
        known = _VALUES | _SWITCHES | _MACROS | _FOLDERS | _FILES | _PTXAS
        if short and name.lstrip("-") not in known:  # the value joined on: -DNAME=VALUE, -O3
            name, equals, value = short[1], "=", short[2]
        option = name.lstrip("-")
        takes = option in known - _SWITCHES or (equals and option in _VALUES)
        if not name.startswith("-") or not takes and (option not in _SWITCHES or equals):
            yield Refused(index, _why(name))
            continue
        if takes and not equals:
            place, value = next(words, (index, ""))
            if not value:
                yield Refused(index, f"{name} needs a value")
                continue
            index = place
        allowed = _PLAIN if option in _MACROS | _FOLDERS | _FILES else _UNQUOTED
        unfit = allowed.sub("", value)
        if option in _PTXAS:
            bad = [text for text in value.split(",") if not _PTXAS_OPTION.fullmatch(text.strip())]
            if bad:
                yield Refused(index, f"{bad[0] or 'nothing'} is not known to be harmless to ptxas")
        elif unfit:
            yield Refused(index, f"{unfit[0]!r} means something to the shell that nvcc runs")
        if option in _FOLDERS | _FILES:
            for path in value.split(","):
                yield Named(index, path)


def plain_name(name: str) -> bool:
    """Whether a source's file name means nothing to a shell."""
    return bool(name) and not name.startswith("-") and not re.sub(r"[A-Za-z0-9_.,+=@% -]", "", name)


def _why(name: str) -> str:
    if not name.startswith("-"):
        return "is no option; the source is what `source` names"
    return f"{name} is not known to be harmless: options that run programs or write files are not for sweeps"
