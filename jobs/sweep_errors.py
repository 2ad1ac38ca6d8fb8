"""Turning pydantic's validation errors into one message: file, line, key, value, what is allowed."""

from __future__ import annotations

from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from jobs.expression import close_match
from jobs.yamlfile import YamlFile


def explain(model: type[BaseModel], file: YamlFile, error: ValidationError) -> str:
    """The first error as 'file:line: key: what is wrong', preferring unknown keys over what follows from them."""
    problems = error.errors()
    if "fill" in problems[0]["loc"]:  # a union: pydantic reports every member, one sentence says it better
        said = [p["msg"].removeprefix("Value error, ") for p in problems if p["type"] == "value_error"]
        place = _real_place(file, problems[0]["loc"], missing=False)
        place = place[: place.index("fill") + 1]
        key = ".".join(str(part) for part in place)
        return f"{file.at(place)}: {key}: {said[0] if said else _expected(place)}"
    problems.sort(key=lambda p: p["type"] != "extra_forbidden")
    problem = problems[0]
    kind = problem["type"]
    place = _real_place(file, problem["loc"], missing=kind in ("missing", "extra_forbidden"))
    key = ".".join(str(part) for part in place)
    at = file.at(place)
    more = f" (and {len(problems) - 1} more)" if len({p["loc"][:2] for p in problems}) > 1 else ""
    if kind == "extra_forbidden":
        allowed = _keys_at(model, place[:-1])
        match = close_match(str(place[-1]), allowed)
        return f"{at}: {key}: unknown key{match} (keys here: {', '.join(allowed)}){more}"
    if kind == "missing":
        return f"{at}: {key}: missing{more}"
    value = _value_at(file.data, place)
    shown = "" if isinstance(value, dict | list) or value is None else f" (found {value!r})"
    message = problem["msg"].removeprefix("Value error, ")
    if kind in ("int_type", "string_type", "float_type") or "union" in kind:
        message = _expected(place)
    if kind == "model_type":
        message = "should be a mapping of keys"
    if kind == "list_type":
        message = f"should be a list: [{value}]" if shown else "should be a list"
    return f"{at}: {key}: {message}{shown}{more}"


def _expected(place: tuple[str | int, ...]) -> str:
    if place[:1] in (("problem",), ("parameters",)):
        return "should be an integer"
    if place[-1:] == ("fill",):
        return "should be normal, uniform, zeros, ones, arange, {integers: [low, high]} or {csr_offsets: n}"
    if place[-1:] == ("value",):
        return "should be a number or an expression"
    if place[:1] in (("derive",), ("constraints",), ("launch",)) or "shape" in place:
        return "should be an integer or an expression"
    return "has the wrong type"


def _real_place(file: YamlFile, location: tuple[str | int, ...], missing: bool) -> tuple[str | int, ...]:
    """pydantic's location without the parts that name union members: those that the file does not have.

    The last part stays when it is a `missing` key.
    """
    place: list[str | int] = []
    data: Any = file.data
    for index, part in enumerate(location):
        known, value = _step(data, part)
        if known:
            place.append(part)
            data = value
        elif missing and index == len(location) - 1 and isinstance(data, dict):
            place.append(part)
    return tuple(place)


def _step(data: Any, part: str | int) -> tuple[bool, Any]:
    """Whether `data` has `part` (a key or an index), and what stands there."""
    if isinstance(data, dict) and part in data:
        return True, data[part]
    if isinstance(data, list) and isinstance(part, int) and part < len(data):
        return True, data[part]
    return False, None


def _value_at(data: Any, place: tuple[str | int, ...]) -> Any:
    for part in place:
        _, data = _step(data, part)
    return data


def _keys_at(model: type[BaseModel], place: tuple[str | int, ...]) -> list[str]:
    """The keys the model allows at `place`."""
    for part in place:
        if isinstance(part, int):
            continue
        field = model.model_fields.get(str(part))
        if field is None:
            break
        inner = _model_in(field.annotation)
        if inner is None:
            break
        model = inner
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) is not None:
        for argument in get_args(annotation):
            found = _model_in(argument)
            if found is not None:
                return found
    return None
