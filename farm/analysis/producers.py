"""Which instruction a line waits for: by its scoreboards where the control fields are known, else by its registers."""

from __future__ import annotations

from farm.analysis.sass import GLOBAL, LOCAL, SPECIAL_FUNCTIONS, parts, read, written
from farm.analysis.variant import Line
from farm.page.code import Listing, analyse

_LOOK_BACK = 400  # lines searched for what a register comes from
_SHORT = SPECIAL_FUNCTIONS | {"SHFL", "S2R", "S2UR", "LDC", "LDCU", "R2UR", "VOTEU"}


class Producers:
    """Finds what the lines of a kernel wait for; the kernel is analysed once, when first asked."""

    def __init__(self, lines: list[Line]) -> None:
        self._lines = lines
        self._listing: Listing | None = None

    def find(self, index: int, reason: str) -> Line | None:
        """The executed instruction whose result (or reading of sources) line `index` waits for with `reason`.

        Among several that share a scoreboard it is the nearest above, going round to the end of the code.
        """
        found = self._by_scoreboard(index, reason)
        return found if found is not None else self._by_register(index, reason)

    def _by_scoreboard(self, index: int, reason: str) -> Line | None:
        if any(line.control is None for line in self._lines):
            return None
        if self._listing is None:
            words = [line.control or 0 for line in self._lines]
            self._listing = analyse([line.sass for line in self._lines], words)
        waits = self._listing.waits[index]
        setters = [w.setter for w in waits if w.result and self._fits(self._lines[w.setter], reason)]
        # sources not yet read, when no result is awaited: a store's data, for instance
        setters = setters or [w.setter for w in waits if self._fits(self._lines[w.setter], reason)]
        if not setters:
            return None
        return self._lines[min(setters, key=lambda at: (index - at) % len(self._lines))]

    def _by_register(self, index: int, reason: str) -> Line | None:
        lines = self._lines
        wanted = read(lines[index].sass)
        order = [*range(index - 1, -1, -1), *range(len(lines) - 1, index, -1)][:_LOOK_BACK]
        for i in order:
            line = lines[i]
            if line.executed > 0 and wanted & written(line.sass):
                if self._fits(line, reason):
                    return line
                wanted = wanted - written(line.sass)
                if not wanted:
                    return None
        return None

    @staticmethod
    def _fits(line: Line, reason: str) -> bool:
        """Whether a result of this line is waited for with that reason."""
        if line.executed <= 0:
            return False
        access = line.access
        if access is not None:
            return (access.space in (GLOBAL, LOCAL)) == (reason == "long_scoreboard")
        return reason == "short_scoreboard" and parts(line.sass)[0] in _SHORT
