"""Just enough of JSON Schema to check that the exported schema accepts real sweeps and knows their keys."""

from __future__ import annotations

from typing import Any


def check(schema: dict[str, Any], value: Any) -> None:
    """AssertionError when `value` does not fit `schema`."""
    assert _fits(schema, value, schema), value


def _fits(schema: dict[str, Any], value: Any, root: dict[str, Any]) -> bool:
    if "$ref" in schema:
        node: Any = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            node = node[part]
        return _fits(node, value, root)
    if "anyOf" in schema:
        return any(_fits(option, value, root) for option in schema["anyOf"])
    if "enum" in schema:
        return value in schema["enum"]
    if "const" in schema:
        return bool(value == schema["const"])
    kind = schema.get("type")
    if kind == "object":
        if not isinstance(value, dict) or any(key not in value for key in schema.get("required", [])):
            return False
        known, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
        for key, inner in value.items():
            if key in known:
                if not _fits(known[key], inner, root):
                    return False
            elif rest is False or (isinstance(rest, dict) and not _fits(rest, inner, root)):
                return False
        return True
    if kind == "array":
        items = schema.get("items")
        return isinstance(value, list) and (not isinstance(items, dict) or all(_fits(items, v, root) for v in value))
    types = {"integer": int, "string": str, "boolean": bool, "number": int | float, "null": type(None)}
    return kind is None or isinstance(value, types[kind])
