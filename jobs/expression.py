"""The sweep's arithmetic language: integer expressions over a sweep's names, evaluated by walking Python's syntax tree.

Only what is listed here exists: there is no attribute access, no subscript, no call of anything but the functions
below, and nothing is ever handed to `eval`. An expression is compiled once to nested closures, because a constraint is
evaluated at every point of a parameter space.
"""

from __future__ import annotations

import ast
import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from interpreter.errors import FarmError

# Values are sizes, counts and addresses of one GPU: what does not fit 64 bits is a mistake in the sweep.
MAX_BITS = 64
MAX_LENGTH = 4000

Scope = Mapping[str, int]
Evaluator = Callable[[Scope], int]


class ExpressionError(FarmError):
    """An expression that cannot be read or evaluated. The message quotes the expression and says what is allowed."""


def close_match(name: str, allowed: Iterable[str]) -> str:
    """', did you mean X?' when `allowed` has something like `name`, else an empty string."""
    names = list(allowed)
    folded = {n.lower(): n for n in names}
    found = difflib.get_close_matches(name.lower(), list(folded), n=1, cutoff=0.6)
    return f", did you mean {folded[found[0]]}?" if found else ""


def _ceildiv(a: int, b: int) -> int:
    if b == 0:
        raise ExpressionError("division by zero")
    return -(-a // b)


def _log2(a: int) -> int:
    if a <= 0:
        raise ExpressionError(f"log2({a}): only positive integers have a logarithm")
    return a.bit_length() - 1


def _floordiv(a: int, b: int) -> int:
    if b == 0:
        raise ExpressionError("division by zero")
    return a // b


def _mod(a: int, b: int) -> int:
    if b == 0:
        raise ExpressionError("remainder of a division by zero")
    return a % b


def _pow(a: int, b: int) -> int:
    if b < 0:
        raise ExpressionError(f"{a} ** {b}: a negative power is not an integer")
    if abs(a) > 1 and b * math.log2(abs(a)) > MAX_BITS:
        raise ExpressionError(f"{a} ** {b} does not fit {MAX_BITS} bits")
    return a**b


def _shift_left(a: int, b: int) -> int:
    if not 0 <= b <= MAX_BITS:
        raise ExpressionError(f"{a} << {b}: a shift is by 0 to {MAX_BITS}")
    return a << b


def _shift_right(a: int, b: int) -> int:
    if b < 0:
        raise ExpressionError(f"{a} >> {b}: a shift is by 0 or more")
    return a >> min(b, 2 * MAX_BITS)


# name -> (function, fewest arguments, most arguments or None)
FUNCTIONS: dict[str, tuple[Callable[..., int], int, int | None]] = {
    "ceildiv": (_ceildiv, 2, 2),
    "min": (min, 1, None),
    "max": (max, 1, None),
    "log2": (_log2, 1, 1),  # rounded down
    "int": (int, 1, 1),
    "abs": (abs, 1, 1),
}

_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: _floordiv,  # sizes are integers: `/` is `//`
    ast.FloorDiv: _floordiv,
    ast.Mod: _mod,
    ast.Pow: _pow,
    ast.LShift: _shift_left,
    ast.RShift: _shift_right,
    ast.BitAnd: lambda a, b: a & b,
    ast.BitOr: lambda a, b: a | b,
    ast.BitXor: lambda a, b: a ^ b,
}

_COMPARE: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
}

_UNARY: dict[type[ast.unaryop], Callable[[int], int]] = {
    ast.USub: lambda a: -a,
    ast.UAdd: lambda a: a,
    ast.Invert: lambda a: ~a,
    ast.Not: lambda a: int(not a),
}

ALLOWED = (
    "integers, names, + - * / // % ** << >> & | ^ ~, comparisons, `in [..]`, and/or/not, `a if c else b`, "
    f"and the functions {', '.join(FUNCTIONS)}"
)


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression. `names` are the names it reads."""

    text: str
    names: frozenset[str]
    _evaluator: Evaluator = field(repr=False, compare=False)

    def evaluate(self, scope: Scope) -> int:
        """The value with names taken from `scope`. Raises ExpressionError quoting the expression."""
        try:
            value = self._evaluator(scope)
        except ExpressionError as error:
            raise ExpressionError(f"'{self.text}': {error}") from None
        except KeyError as error:
            raise self._unknown(str(error.args[0]), scope) from None
        if value.bit_length() > MAX_BITS:
            raise ExpressionError(f"'{self.text}': the value does not fit {MAX_BITS} bits")
        return value

    def check_names(self, known: Iterable[str], also: Iterable[str] = ()) -> None:
        """Raise ExpressionError for the first name that is neither in `known` nor in `also`."""
        names = [*known, *also]
        for name in sorted(self.names - set(names)):
            raise self._unknown(name, names)

    def _unknown(self, name: str, known: Iterable[str]) -> ExpressionError:
        names = ", ".join(known) or "none"
        return ExpressionError(
            f"'{self.text}': unknown name {name}{close_match(name, known)} (names defined here: {names})"
        )


def parse(text: str | int) -> Expression:
    """Compile `text` (an integer stands for itself). Raises ExpressionError."""
    if isinstance(text, int):
        text = str(int(text))
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"'{text[:40]}...': longer than {MAX_LENGTH} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        names: set[str] = set()
        evaluator = _compile(tree.body, names)
    except SyntaxError as error:
        where = f" at '{text[error.offset - 1 :][:20]}'" if error.offset and error.offset <= len(text) else ""
        raise ExpressionError(f"'{text}': not an expression{where} (allowed: {ALLOWED})") from None
    except (RecursionError, MemoryError):
        raise ExpressionError(f"'{text[:40]}...': nested too deeply") from None
    except ValueError as error:
        raise ExpressionError(f"'{text[:40]}': {error}") from None
    except ExpressionError as error:
        raise ExpressionError(f"'{text}': {error}") from None
    return Expression(text=text, names=frozenset(names), _evaluator=evaluator)


def _compile(node: ast.expr, names: set[str]) -> Evaluator:
    match node:
        case ast.Constant(value=value):
            return _constant(value)
        case ast.Name(id=name):
            if name in FUNCTIONS:
                raise ExpressionError(f"{name} is a function: write {name}(...)")
            names.add(name)
            return lambda scope: scope[name]
        case ast.BinOp(left=left, op=operator, right=right):
            function = _BINARY.get(type(operator))
            if function is None:
                raise ExpressionError(f"operator {type(operator).__name__} is not allowed (allowed: {ALLOWED})")
            return _binary(function, _compile(left, names), _compile(right, names))
        case ast.UnaryOp(op=unary, operand=operand):
            apply, inner = _UNARY[type(unary)], _compile(operand, names)
            return lambda scope: apply(inner(scope))
        case ast.BoolOp(op=boolean, values=values):
            return _boolean(isinstance(boolean, ast.And), [_compile(v, names) for v in values])
        case ast.Compare(left=left, ops=operators, comparators=comparators):
            return _comparison(left, operators, comparators, names)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            condition, yes, no = _compile(test, names), _compile(body, names), _compile(orelse, names)
            return lambda scope: yes(scope) if condition(scope) else no(scope)
        case ast.Call():
            return _call(node, names)
        case ast.List() | ast.Tuple():
            raise ExpressionError("a list may only stand to the right of `in`")
        case _:
            raise ExpressionError(f"'{ast.unparse(node)}' is not allowed (allowed: {ALLOWED})")


def _constant(value: object) -> Evaluator:
    if isinstance(value, bool):
        number = int(value)
        return lambda scope: number
    if isinstance(value, int):
        if value.bit_length() > MAX_BITS:
            raise ExpressionError(f"the number does not fit {MAX_BITS} bits")
        return lambda scope: value
    if isinstance(value, float):
        raise ExpressionError(f"{value!r} is not an integer: expressions are integer arithmetic")
    raise ExpressionError(f"{value!r} is not an integer")


def _binary(function: Callable[[int, int], int], left: Evaluator, right: Evaluator) -> Evaluator:
    def run(scope: Scope) -> int:
        value = function(left(scope), right(scope))
        if value.bit_length() > 2 * MAX_BITS:
            raise ExpressionError(f"a partial result does not fit {2 * MAX_BITS} bits")
        return value

    return run


def _boolean(is_and: bool, parts: list[Evaluator]) -> Evaluator:
    def run(scope: Scope) -> int:
        value = 0
        for part in parts:
            value = part(scope)
            if bool(value) != is_and:
                return value
        return value

    return run


def _comparison(left: ast.expr, operators: list[ast.cmpop], comparators: list[ast.expr], names: set[str]) -> Evaluator:
    if isinstance(operators[0], ast.In | ast.NotIn):
        if len(operators) > 1 or not isinstance(comparators[0], ast.List | ast.Tuple | ast.Set):
            raise ExpressionError("to the right of `in` stands a list: `BLOCK in [64, 128]`")
        wanted = isinstance(operators[0], ast.In)
        needle = _compile(left, names)
        members = [_compile(element, names) for element in comparators[0].elts]
        return lambda scope: int((needle(scope) in [member(scope) for member in members]) == wanted)
    functions = []
    for operator in operators:
        function = _COMPARE.get(type(operator))
        if function is None:
            raise ExpressionError(f"comparison {type(operator).__name__} is not allowed (allowed: {ALLOWED})")
        functions.append(function)
    terms = [_compile(left, names), *(_compile(c, names) for c in comparators)]

    def run(scope: Scope) -> int:
        previous = terms[0](scope)
        for function, term in zip(functions, terms[1:], strict=True):
            current = term(scope)
            if not function(previous, current):
                return 0
            previous = current
        return 1

    return run


def _call(node: ast.Call, names: set[str]) -> Evaluator:
    if not isinstance(node.func, ast.Name):
        raise ExpressionError(f"'{ast.unparse(node)}' is not allowed (allowed: {ALLOWED})")
    name = node.func.id
    if name not in FUNCTIONS:
        raise ExpressionError(
            f"unknown function {name}{close_match(name, FUNCTIONS)} (functions: {', '.join(FUNCTIONS)})"
        )
    if node.keywords or any(isinstance(argument, ast.Starred) for argument in node.args):
        raise ExpressionError(f"{name} takes plain arguments only")
    function, fewest, most = FUNCTIONS[name]
    count = len(node.args)
    if count < fewest or (most is not None and count > most):
        wanted = f"{fewest}" if most == fewest else f"{fewest} or more" if most is None else f"{fewest} to {most}"
        raise ExpressionError(f"{name} takes {wanted} argument(s), not {count}")
    arguments = [_compile(argument, names) for argument in node.args]
    if count == 1 and name in ("min", "max"):
        return arguments[0]
    return lambda scope: function(*[argument(scope) for argument in arguments])
