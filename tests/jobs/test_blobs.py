"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobs.blobs import TEMPORARY, write_atomically


def lose_temporaries(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Somebody removes the unpublished file just before it gets its name, that many times."""
    replace, left = os.replace, [times]

    def replaced(source: Path, target: Path) -> None:
        left[0] -= 1
        if left[0] >= 0:
            os.unlink(source)
        replace(source, target)

    monkeypatch.setattr(os, "replace", replaced)


def test_a_note_whose_temporary_is_taken_away_is_written_again(tmp_path: Path, monkeypatch) -> None:
    lose_temporaries(monkeypatch, 2)
    write_atomically(tmp_path / "cancel.json", b"{}")
    assert (tmp_path / "cancel.json").read_bytes() == b"{}"
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(TEMPORARY)]


def test_it_does_not_try_for_ever(tmp_path: Path, monkeypatch) -> None:
    lose_temporaries(monkeypatch, 99)
    with pytest.raises(FileNotFoundError):
        write_atomically(tmp_path / "cancel.json", b"{}")
