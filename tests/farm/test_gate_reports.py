"""Reports of a gate, against their formats: SARIF and JUnit by schema, the others by what their readers need."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pydantic_sarif.model
import pytest
import xmlschema

from farm.gate.judge import BROKEN, FASTER, MORE, OK, SLOWER, Result, Row
from farm.gate.reports import FORMATS

DATA = Path(__file__).parents[1] / "data" / "gate"
HOSTILE = 'k<script>|`@everyone`"\x07&'


def row(status: str, before: float | None = 10.0, after: float | None = 10.0, **more: Any) -> Row:
    facts = {
        "registers": 96, "spill_store_bytes": 0, "spill_load_bytes": 8, "static_shared_bytes": 0, "stack_bytes": 0,
        "dynamic_shared_bytes": 0, "ctas_per_sm": 5, "occupancy": 0.5, "limiter": "registers", "bound": "issue",
    }  # fmt: skip
    given = {"family": "gemm", "parameters": {"BM": 64}, "target": "h200", "allowed": 0.01, "causes": [], **more}
    return Row(status=status, before_us=before, after_us=after, before=facts, after=facts, **given)


@pytest.fixture
def result() -> Result:
    causes = ["registers 96 → 128", "5 → 4 CTAs/SM", "long_scoreboard +14 points at kernel.cu:88 (0x0560)"]
    rows = [
        row(OK),
        row(SLOWER, 10.0, 11.34, target="l40s", causes=causes, file="gemm/my kernel.cu", line=88),
        row(MORE, parameters={"BM": 128}, causes=["spill bytes 0 → 24"], file="gemm/kernel.cu"),
        row(BROKEN, after=None, family=HOSTILE, parameters={}, message="compile: kernel.cu(3): error: expected a ;"),
        row(FASTER, 10.0, 9.0, parameters={"BM": 32}),
    ]
    found = Result("main (0123456789ab)", rows, new=["gemm BM=256 on h200"], mean_change=0.0123)
    found.failures = ["the geometric mean of 4 variants is 1.23 % slower (1 % allowed)"]
    return found


def test_text_names_the_cause(result: Result) -> None:
    text = FORMATS["text"](result)
    assert (
        "SLOWER         gemm BM=64 on l40s: 10 → 11.34 us (+13.40 %, 1 % allowed): registers 96 → 128, 5 → 4 CTAs/SM, "
        "long_scoreboard +14 points at kernel.cu:88 (0x0560)" in text
    )
    assert text.splitlines()[-1].startswith("FAILED: 3 of 5 comparisons on 2 GPUs failed, 1 faster")
    assert "not measurements" in text and "1 not in the baseline: gemm BM=256 on h200" in text


def test_json(result: Result) -> None:
    found = json.loads(FORMATS["json"](result))
    assert found["simulated"] is True and found["ok"] is False
    assert found["rows"][1]["change"] == pytest.approx(0.134)


def test_sarif_follows_the_schema(result: Result) -> None:
    text = FORMATS["sarif"](result)
    log = pydantic_sarif.model.StaticAnalysisResultsFormatSarifVersion210JsonSchema.model_validate(json.loads(text))
    assert log.runs[0].results is not None
    found = json.loads(text)["runs"][0]["results"]
    assert [r["ruleId"] for r in found] == ["slower", "resources", "broken", "gate"]
    rules = json.loads(text)["runs"][0]["tool"]["driver"]["rules"]
    assert all(rules[r["ruleIndex"]]["id"] == r["ruleId"] for r in found)
    place = found[0]["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "gemm/my%20kernel.cu"}, "region": {"startLine": 88}}
    assert "locations" not in found[2] and "region" not in found[1]["locations"][0]["physicalLocation"]


def test_junit_follows_the_schema(result: Result) -> None:
    text = FORMATS["junit"](result)
    xmlschema.XMLSchema(DATA / "junit.xsd").validate(text)
    root = ElementTree.fromstring(text.encode())
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("6", "3", "1")
    failure = root.find(".//testcase[@name='gemm BM=64 on l40s']/failure")
    assert failure is not None and "gemm/my kernel.cu:88" in (failure.text or "")
    assert "k<script>" in [suite.get("name", "").split("|")[0] for suite in root]


def test_a_passing_gate_reports_no_failure(result: Result) -> None:
    good = Result("main", [row(OK)], mean_change=0.0)
    assert good.ok
    xmlschema.XMLSchema(DATA / "junit.xsd").validate(FORMATS["junit"](good))
    assert ' failures="0"' in FORMATS["junit"](good).splitlines()[1]
    assert json.loads(FORMATS["sarif"](good))["runs"][0]["results"] == []
    assert FORMATS["annotations"](good) == ""
    assert FORMATS["text"](good).startswith("ok: 0 of 1 comparisons on 1 GPU failed")


def test_summary_shows_hostile_names_as_text(result: Result) -> None:
    text = FORMATS["summary"](result)
    assert "<script>" not in text and "@everyone" not in text and "k&lt;script>\\|" in text
    table = [line for line in text.splitlines() if line.startswith("| ")]
    assert {len(line.replace("\\|", "").split("|")) for line in table} == {10}
    assert "registers 96 → 128, 5 → 4 CTAs/SM" in text and "simulated" in text


def test_workflow_commands_cannot_be_broken_out_of(result: Result) -> None:
    result.rows[3].message = "first\n::set-output name=x::y %"
    lines = FORMATS["annotations"](result).splitlines()
    assert len(lines) == 4 and all(line.startswith("::error ") for line in lines)
    assert "file=gemm/my kernel.cu,line=88,title=gemm BM=64 on l40s::" in "\n".join(lines)
    assert "first%0A::set-output name=x::y %25" in "\n".join(lines)


def test_benchmark_formats(result: Result) -> None:
    rows = json.loads(FORMATS["benchmark-action"](result))
    assert [set(r) for r in rows] == [{"name", "unit", "value", "extra"}] * 4
    assert all(isinstance(r["value"], float) and "simulated" in r["unit"] for r in rows)
    metrics = json.loads(FORMATS["bencher"](result))
    assert metrics["gemm BM=64 on l40s"]["latency"] == {"value": pytest.approx(11340.0)}
    assert all(set(m) == {"value"} for measures in metrics.values() for m in measures.values())


def test_csv(result: Result) -> None:
    rows = list(csv.DictReader(io.StringIO(FORMATS["csv"](result))))
    assert [row["status"] for row in rows] == ["ok", "slower", "resources", "broken", "faster"]
    assert rows[1]["kernel"] == "gemm BM=64" and float(rows[1]["simulated_us_now"]) == 11.34
    assert rows[3]["simulated_us_now"] == "" and rows[0]["registers_before"] == rows[0]["registers_now"] == "96"
