"""Self-contained HTML from data: one template, style and script inside, nothing loaded from anywhere.

Names in a run (kernels, parameters, files, messages) may be hostile. They reach the page only through Jinja2's
autoescape or as JSON in which no character can end the script element; the script puts them in as text. A content
security policy allows the page's own script by its hash, and no request at all.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

PAGE_SCRIPTS = (
    "dom.js", "theme.js", "virtual.js", "query.js", "stalls.js", "charts.js", "index_view.js", "panels.js",
    "sass_view.js", "strip.js", "detail.js", "candidate_view.js", "app.js",
)  # fmt: skip
OVERVIEW_SCRIPTS = ("dom.js", "theme.js", "charts.js", "overview.js")

# "<" could open a comment or close the script element; the separators end a line in old JavaScript
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def json_for_script(data: Any) -> Markup:
    """JSON that is safe inside a script element, whatever strings it holds. NaN is refused (ValueError)."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    # lone surrogates, which a Parquet file cannot hold but a file name can, would make the page undecodable
    return Markup(text.encode("utf-8", "backslashreplace").decode("utf-8"))


def write_page(path: Path, html: str) -> int:
    """Write a page so that a reader sees the old one or the new one; returns its bytes. Raises OSError."""
    content = html.encode("utf-8", "backslashreplace")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return len(content)


@cache
def static(name: str) -> str:
    """Text of one of the files in farm/page/static."""
    return (files("farm.page") / "static" / name).read_text(encoding="utf-8")


@cache
def script(names: tuple[str, ...]) -> str:
    """The page's script: the files in order in one function, with DATA read from the page."""
    body = "\n".join(static(name) for name in names)
    head = '"use strict";\nconst DATA = JSON.parse(document.getElementById("data").textContent);'
    return f"(() => {{\n{head}\n{body}\n}})();"


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("farm.page"), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )


def render(template: str, data: Any, scripts: tuple[str, ...], **values: Any) -> str:
    """One HTML page. `data` becomes DATA of the scripts; `values` are the template's, escaped by it."""
    code = script(scripts)
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    return (
        _environment()
        .get_template(template)
        .render(
            data=json_for_script(data),
            script=Markup(code),
            script_hashes=Markup(f"'sha256-{digest}'"),
            style=Markup(static("style.css")),
            **values,
        )
    )
