"""The accuracy page and the reading of profiles behind it."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from test_correlation import database

from farm.accuracy import accuracy_page
from farm.profiles import ProfileError, agreement, profiles_of, read_profile
from interpreter.errors import FarmError
from timing.stalls import N_STALLS, Stall

PAGE = (
    '"Kernel Name","toy",\n"Address","Source","stall_wait","stall_long_sb","stall_wait (Not Issued)"\n'
    '"0x0","LDG R2, [R2]","3","0","1"\n"0x10","FADD R2, R2, R2","1","40","0"\n"0x20","EXIT","-","0","0"\n'
)


def test_a_source_page_is_read_by_nsights_column_names(tmp_path: Path) -> None:
    path = tmp_path / "h200.profile.7.csv.gz"
    path.write_bytes(gzip.compress(PAGE.encode()))
    samples = read_profile(path)
    assert samples.shape == (3, N_STALLS)
    assert samples[:, Stall.WAIT].tolist() == [3, 1, 0]
    assert samples[1, Stall.LONG_SCOREBOARD] == 40
    assert samples.sum() == 44
    assert list(profiles_of(tmp_path)) == [(7, path)]


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", '"Source","Samples"\n"EXIT","3"\n'])
def test_other_files_are_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "profile.1.csv"
    path.write_text(text)
    with pytest.raises(ProfileError, match=r"profile\.1\.csv"):
        read_profile(path)


def test_agreement_of_lines_and_reasons() -> None:
    a = np.zeros((8, N_STALLS))
    a[:, Stall.WAIT] = [9, 8, 7, 6, 5, 1, 1, 1]
    same = agreement(a * 3.0, a)
    assert same is not None
    assert (same.top_lines, same.reason_distance) == (1.0, 0.0)
    b = np.zeros_like(a)
    b[:, Stall.BARRIER] = [9, 8, 1, 1, 1, 7, 6, 5]
    other = agreement(b, a)
    assert other is not None
    assert other.top_lines == pytest.approx(0.4)
    assert other.reason_distance == 1.0
    assert agreement(np.zeros_like(a), a) is None


def test_the_page_has_the_figures_of_correlate(tmp_path: Path) -> None:
    page = accuracy_page(database(tmp_path, [1.0, 2.0, 3.0, 5.0], [10.0, 20.0, 40.0, 30.0]))
    (line,) = [line for line in page.splitlines() if line.startswith("| f |")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:4] == ["f", "h200", "4", "0.800"]
    assert "warp instructions" in cells[-1]
    assert "Median Spearman 0.800" in page


def test_a_run_without_measurements_or_profiles_says_so(tmp_path: Path) -> None:
    with pytest.raises(FarmError, match="no measured times"):
        accuracy_page(database(tmp_path / "a", [1.0, 2.0], [None, None]))
    with pytest.raises(FarmError, match="no profile"):
        accuracy_page(database(tmp_path / "b", [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]), tmp_path)
