"""SARIF 2.1.0: a result for each failure, at the source line its cause names."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from typing import Any
from urllib.parse import quote

from farm.gate.judge import BROKEN, MORE, SLOWER, Result, Row

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
RULES = {
    SLOWER: (
        "slower",
        "Kernel is estimated slower than its baseline",
        "The simulated time grew by more than is allowed.",
    ),
    MORE: ("resources", "Kernel needs more resources", "Registers, spills, shared memory or residency got worse."),
    BROKEN: ("broken", "Kernel cannot be estimated any more", "It compiled and ran in the simulator before."),
}
GATE = ("gate", "The gate as a whole failed", "Nothing was compared, or a limit over all variants was passed.")


def sarif(result: Result) -> str:
    """The failures as a SARIF log with one run."""
    from farm.gate.reports import failure_text

    rules = [*RULES.values(), GATE]
    results = [_result(row, failure_text(row)) for row in result.rows if row.failed]
    results += [
        {"ruleId": "gate", "ruleIndex": len(rules) - 1, "level": "error", "message": {"text": failure}}
        for failure in result.failures
    ]
    log = {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "farm",
                        "version": _version(),
                        "rules": [
                            {
                                "id": name,
                                "shortDescription": {"text": short},
                                "fullDescription": {"text": f"{long} Times are simulated."},
                                "defaultConfiguration": {"level": "error"},
                            }
                            for name, short, long in rules
                        ],
                    }
                },
                "columnKind": "utf16CodeUnits",
                "results": results,
            }
        ],
    }
    return json.dumps(log, indent=1, ensure_ascii=False) + "\n"


def _result(row: Row, message: str) -> dict[str, Any]:
    rule = RULES[row.status][0]
    found: dict[str, Any] = {
        "ruleId": rule,
        "ruleIndex": list(RULES).index(row.status),
        "level": "error",
        "message": {"text": message},
        # the same kernel on the same GPU is the same finding, wherever its line moves
        "partialFingerprints": {"kernelAndTarget/v1": _fingerprint(f"{rule} {row.name} {row.target}")},
        "properties": {"target": row.target, "simulated": True, "changePercent": _percent(row), "causes": row.causes},
    }  # fmt: skip
    if row.file:
        place: dict[str, Any] = {"artifactLocation": {"uri": quote(row.file)}}
        if row.line:
            place["region"] = {"startLine": row.line}
        found["locations"] = [{"physicalLocation": place}]
    return found


def _fingerprint(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _percent(row: Row) -> float | None:
    return None if row.change is None else round(100 * row.change, 6)


def _version() -> str:
    try:
        return importlib.metadata.version("farm")
    except importlib.metadata.PackageNotFoundError:
        return "0"
