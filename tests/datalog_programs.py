"""Random Datalog programs, and what clingo says about them."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable

import clingo
from hypothesis import strategies as st

import latentgamma as lg
from latentgamma.program.names import quote

CONSTANTS = ("a", "b", "c")
VARIABLES = ("X", "Y", "Z")
ARITY = {"e": 2, "f": 1, "p": 1, "q": 2, "r": 1, "s": 2}
#: Derived predicates, each below the next: one may negate only those before it.
LAYERS = ("p", "q", "r", "s")


@st.composite
def literals(draw: st.DrawFn, names: tuple[str, ...], variables: tuple[str, ...]) -> str:
    name = draw(st.sampled_from(names))
    terms = st.sampled_from((*variables, *CONSTANTS[:1]))
    return f"{name}({','.join(draw(terms) for _ in range(ARITY[name]))})"


@st.composite
def rules(draw: st.DrawFn, head: str) -> str:
    """A safe rule, with variables or without.

    Its positive atoms may use the head's own predicate, its negated ones not.
    """
    below = LAYERS[: LAYERS.index(head)]
    ground = draw(st.integers(0, 2)) == 0
    terms_of_rule = CONSTANTS if ground else VARIABLES
    body = [] if ground else [draw(literals(("e", "f"), VARIABLES))]
    body += draw(st.lists(literals(("e", "f", head, *below), terms_of_rule), max_size=2 - ground))
    bound = tuple(v for v in terms_of_rule if v in " ".join(body)) or CONSTANTS[:1]
    for _ in range(draw(st.integers(0 if body else 1, 2))):
        body.append("not " + draw(literals(("e", "f", *below), bound)))
    if not ground and len(bound) > 1 and draw(st.booleans()):
        body.append(f"{bound[0]} != {bound[1]}")
    terms = [draw(st.sampled_from(bound)) for _ in range(ARITY[head])]
    return f"{head}({','.join(terms)}) :- {', '.join(draw(st.permutations(body)))}."


@st.composite
def texts(draw: st.DrawFn) -> tuple[list[str], list[str], list[str]]:
    """Closed facts, candidates for open facts, and rules; one of each may be empty."""
    atoms = [f"e({x},{y})" for x, y in itertools.product(CONSTANTS, repeat=2)]
    atoms += [f"f({x})" for x in CONSTANTS]
    facts = draw(st.lists(st.sampled_from(atoms), unique=True, max_size=6))
    candidates = draw(st.lists(st.sampled_from(atoms), unique=True, max_size=4))
    lines = []
    for head in LAYERS:
        lines += draw(st.lists(rules(head), max_size=2))
    return facts, candidates, lines


def stable_model(text: str) -> set[str]:
    """The atoms of the only stable model."""
    control = clingo.Control(["--warn=none", "0"])
    control.add("base", [], text)
    control.ground([("base", [])])
    models = []
    control.solve(on_model=lambda model: models.append(set(map(str, model.symbols(atoms=True)))))
    assert len(models) == 1
    return models[0]


def statements(atoms: Iterable[str]) -> str:
    return "".join(f"{atom}.\n" for atom in atoms)


def instance(line: str, substitution: dict[str, str]) -> tuple[str, set[str], set[str]]:
    """The head, the atoms and the negated atoms of a line with values for its variables.

    It knows the plain syntax of `rules` alone and shares no code with the library. A comparison
    must hold.
    """
    text = re.sub(r"\b[A-Z]\b", lambda found: substitution[found[0]], line.strip().rstrip("."))
    head, _, body = text.partition(" :- ")
    positive, negated = set(), set()
    for literal in re.findall(r"(?:not )?\w+\([^)]*\)|\w+ != \w+", body):
        if " != " in literal:
            left, right = literal.split(" != ")
            assert left != right
        elif literal.startswith("not "):
            negated.add(literal.removeprefix("not "))
        else:
            positive.add(literal)
    return head, positive, negated


@st.composite
def stratified_programs(draw: st.DrawFn) -> lg.Program:
    """A small ground program; an atom negates only earlier letters, so that it is stratified."""
    lines = []
    for _ in range(draw(st.integers(0, 4))):
        head = draw(st.integers(0, 4))
        body = [chr(97 + i) for i in draw(st.sets(st.integers(0, head), max_size=2))]
        if head:
            denied = draw(st.sets(st.integers(0, head - 1), max_size=1))
            body += [f"not {chr(97 + i)}" for i in denied]
        lines.append(f"{chr(97 + head)} :- {', '.join(body)}." if body else f"{chr(97 + head)}.")
    return lg.parse("\n".join(lines))


#: Numbers whose sums and products are near the ends of 32 bits, or far from them.
NUMBERS = (0, 1, -1, 2, 3, -7, 46340, 46341, -46341, 65536, 2**30, -(2**30), 2**31 - 1, -(2**31))
_COMPARISONS = {
    "<": int.__lt__,
    "<=": int.__le__,
    ">": int.__gt__,
    "!=": int.__ne__,
    "=": int.__eq__,
}


class Overflows(Exception):  # noqa: N818 - a value of the reference, not an error
    """A value does not fit in 32 bits."""


class Undefined(Exception):  # noqa: N818 - as above
    """Division by zero: clingo leaves the instance out."""


@st.composite
def expressions(draw: st.DrawFn, depth: int = 2) -> str:
    """An expression of X and Y, which Python reads as clingo does, divisions aside."""
    if depth == 0 or draw(st.integers(0, 2)) == 0:
        return draw(st.sampled_from(("X", "Y", "1", "3", "(-2)", "50000")))
    if draw(st.integers(0, 5)) == 0:
        return f"(-{draw(expressions(depth=depth - 1))})"
    operator = draw(st.sampled_from(("+", "-", "*", "*", "/", "**")))
    left = draw(expressions(depth=depth - 1))
    right = (
        draw(st.sampled_from(("0", "2", "3")))
        if operator == "**"
        else draw(expressions(depth=depth - 1))
    )
    return f"({left}{operator}{right})"


def exact_value(expression: str, values: dict[str, int]) -> int:
    """The value of an expression, by Python's own reading of it."""

    def compute(node: ast.expr) -> int:
        if isinstance(node, ast.Name):
            return values[node.id]
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.UnaryOp):
            found = -compute(node.operand)
        else:
            left, right = compute(node.left), compute(node.right)
            if isinstance(node.op, ast.Div):
                if right == 0:
                    raise Undefined
                found = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
            else:
                operator = {ast.Add: int.__add__, ast.Sub: int.__sub__, ast.Mult: int.__mul__,
                            ast.Pow: int.__pow__}[type(node.op)]  # fmt: skip
                found = operator(left, right)
        if not -(2**31) <= found < 2**31:
            raise Overflows
        return found

    return compute(ast.parse(expression, mode="eval").body)


@st.composite
def arithmetic_rules(
    draw: st.DrawFn,
) -> tuple[list[int], list[int], str, list[tuple[str, str, str]]]:
    """Numbers for q and r, the argument of the head, and comparisons of the body."""
    numbers = st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=4, unique=True)
    compared = st.tuples(
        expressions(depth=1), st.sampled_from(list(_COMPARISONS)), expressions(depth=1)
    )
    return draw(numbers), draw(numbers), draw(expressions()), draw(st.lists(compared, max_size=2))


def arithmetic_answer(
    q: list[int], r: list[int], head: str, comparisons: list[tuple[str, str, str]]
) -> set[str]:
    """The atoms that `p(head) :- q(X), r(Y), comparisons.` derives.

    Raises:
        Overflows: if a value does not fit for some X and Y that no comparison excludes.
        Undefined: if, for some of them, one value does not fit and another is not defined.
    """
    found = set()
    for x, y in itertools.product(q, r):
        values = {"X": x, "Y": y}
        outcomes = []
        for left, operator, right in comparisons:
            try:
                sides = exact_value(left, values), exact_value(right, values)
                outcomes.append(_COMPARISONS[operator](*sides))
            except (Overflows, Undefined) as error:
                outcomes.append(error)
        if any(outcome is False for outcome in outcomes):
            continue
        try:
            outcomes.append(exact_value(head, values))
        except (Overflows, Undefined) as error:
            outcomes.append(error)
        kinds = {type(outcome) for outcome in outcomes} & {Overflows, Undefined}
        if len(kinds) == 2:
            raise Undefined
        if Overflows in kinds:
            raise Overflows
        if not kinds:
            found.add(f"p({outcomes[-1]})")
    return found


_CHARACTERS = "aZ_3 éßΩ'\"\\\t\n%.,(:-"
#: Names of every kind that rule text knows.
NAMES = st.one_of(
    st.sampled_from(("a", "b", "_x1", "größe", "ähre", "Ärger", "3", "p(a)", "p(größe,-3)", "p((a,b))")),
    st.sampled_from(("p(f(a,größe),3)", 'p("x y, ü")', "p('night train')", "night train", "X", "not")),
    st.text(_CHARACTERS, min_size=1, max_size=4),
    st.text(_CHARACTERS, min_size=1, max_size=3).map(lambda name: f"p({quote(name)})"),
)  # fmt: skip


@st.composite
def ground_texts(draw: st.DrawFn) -> str:
    """Rules without variables in every form; an atom negates only names before its own."""
    names = draw(st.lists(NAMES, min_size=2, max_size=6, unique=True))
    written = [f"'{name}'" if name == "b" else quote(name) for name in names]
    gap = st.sampled_from(("", " ", "\n ", " % why\n", " /* ö */ "))
    lines = []
    for _ in range(draw(st.integers(1, 5))):
        heads = draw(st.sets(st.integers(0, len(names) - 1), min_size=1, max_size=3))
        body = [written[i] for i in draw(st.sets(st.integers(0, len(names) - 1), max_size=2))]
        arrow = draw(st.sampled_from((":-", "<-", "=>", "->")))
        if arrow in {":-", "<-"} and min(heads):
            denied = draw(st.sets(st.integers(0, min(heads) - 1), max_size=1))
            # What is denied has no rules, so that the program is stratified.
            body += [f"not {quote(f'never {names[i]}')}" for i in denied]
        sides = [",".join(draw(gap) + written[i] for i in sorted(heads)), ", ".join(body)]
        if arrow in {"=>", "->"}:
            sides.reverse()
        fact = not body and draw(st.booleans())
        lines.append(
            sides[arrow in {"=>", "->"}] + "."
            if fact
            else f" {arrow}{draw(gap)} ".join(sides) + "."
        )
    return "\n".join(lines)
