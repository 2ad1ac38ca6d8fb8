"""JUnit XML: a test suite a kernel family, a test case a variant and target."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from farm.gate.judge import BROKEN, Result, Row

# characters that XML 1.0 cannot hold, however written
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(result: Result) -> str:
    """The result as JUnit XML. `time` is how long the gate took to say so, unknown: 0; estimates are in the output."""
    from farm.gate.reports import failure_text, headline

    root = ElementTree.Element("testsuites", name="farm gate")
    families = list(dict.fromkeys(row.family for row in result.rows))
    for family in families:
        rows = [row for row in result.rows if row.family == family]
        _suite(root, family, [(row, failure_text(row) if row.failed else "") for row in rows])
    whole = ElementTree.SubElement(root, "testsuite", name="gate", tests="1", errors="0", skipped="0", time="0")
    whole.set("failures", str(int(bool(result.failures))))
    case = ElementTree.SubElement(whole, "testcase", name="compared", classname="gate", time="0")
    if result.failures:
        failure = ElementTree.SubElement(case, "failure", message=_text(result.failures[0]), type="gate")
        failure.text = _text("\n".join(result.failures))
    ElementTree.SubElement(case, "system-out").text = _text(headline(result))
    cases = root.findall("testsuite")
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in cases)))
    root.set("time", "0")
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(root: ElementTree.Element, family: str, rows: list[tuple[Row, str]]) -> None:
    errors = sum(row.status == BROKEN for row, _ in rows)
    suite = ElementTree.SubElement(root, "testsuite", name=_text(family), tests=str(len(rows)), skipped="0", time="0")
    suite.set("errors", str(errors))
    suite.set("failures", str(sum(row.failed for row, _ in rows) - errors))
    for row, problem in rows:
        name = f"{row.name} on {row.target}"
        case = ElementTree.SubElement(suite, "testcase", name=_text(name), classname=_text(family), time="0")
        if problem:
            kind = "error" if row.status == BROKEN else "failure"
            found = ElementTree.SubElement(case, kind, message=_text(problem), type=row.status)
            where = f"\n{row.file}:{row.line}" if row.line else f"\n{row.file}" if row.file else ""
            found.text = _text("\n".join([*row.causes, row.message]).strip() + where)
        if row.change is not None:
            said = f"simulated: {row.before_us:.6g} us before, {row.after_us:.6g} us now ({100 * row.change:+.3f} %)"
            ElementTree.SubElement(case, "system-out").text = _text(said)


def _text(value: str) -> str:
    return _ILLEGAL.sub("?", value)
