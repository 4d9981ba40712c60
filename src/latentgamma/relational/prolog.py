"""A small Prolog: reads clauses with function terms and lists, and answers queries by resolution.

It serves files of other systems: facts with function terms, and background predicates that are
defined by rules over lists or arithmetic, which are evaluated for the terms that examples reach.
"""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

# ---- Terms and their text


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable; equal names are equal variables."""

    name: str


class Compound(NamedTuple):
    """A function term; a list is `'.'(first, rest)` and ends in `[]`."""

    name: str
    args: tuple[Any, ...]


#: A constant is a text or a number.
Term: TypeAlias = "Variable | Compound | str | int | float"
#: A predicate and the number of its arguments.
Signature: TypeAlias = "tuple[str, int]"
EMPTY = "[]"


class PrologError(Exception):
    """A text is not a clause, or a query cannot be evaluated."""


def term_list(items: Sequence[Term], rest: Term = EMPTY) -> Term:
    """Return the list of these items."""
    for item in reversed(items):
        rest = Compound(".", (item, rest))
    return rest


def list_items(term: Term) -> list[Term] | None:
    """Return the items of a list; None if the term is not a list, or is a partial list."""
    items = []
    while isinstance(term, Compound) and term.name == "." and len(term.args) == 2:
        items.append(term.args[0])
        term = term.args[1]
    return items if term == EMPTY else None


def term_text(term: Term) -> str:
    """Return a term as text.

    >>> term_text(term_list([1, Compound("at", ("x", 2))]))
    '[1,at(x,2)]'
    >>> term_text(read_term("at((3,4),a-1,((b,c),d))"))
    'at((3,4),a-1,((b,c),d))'
    """
    if isinstance(term, Variable):
        return term.name
    if not isinstance(term, Compound):
        return str(term)
    items = list_items(term)
    if items is not None:
        return f"[{','.join(map(term_text, items))}]"
    if term.name == ",":
        parts = [term_text(term.args[0])]
        while len(term.args) == 2:
            last = term.args[1]
            if not (isinstance(last, Compound) and last.name == ","):
                parts.append(term_text(last))
                break
            term = last
            parts.append(term_text(term.args[0]))
        return f"({','.join(parts)}{'' if len(parts) > 1 else ','})"
    if _is_infix(term):
        left, right = (
            f"({term_text(one)})" if _is_infix(one) else term_text(one) for one in term.args
        )
        space = " " if term.name[0].isalpha() else ""
        return f"{left}{space}{term.name}{space}{right}"
    return f"{term.name}({','.join(map(term_text, term.args))})"


def _is_infix(term: Term) -> bool:
    """Return whether a term is written with an operator between its arguments."""
    if not isinstance(term, Compound) or len(term.args) != 2:
        return False
    return term.name != "," and term.name in _INFIX


def variables_of(term: Term) -> Iterator[Variable]:
    """Return the variables of a term, one for each occurrence."""
    if isinstance(term, Variable):
        yield term
    elif isinstance(term, Compound):
        for argument in term.args:
            yield from variables_of(argument)


# ---- Reading clauses

_token = re.compile(
    r"""\s*(?:(?P<number>[0-9]+(?:\.[0-9]+)?)|(?P<variable>[A-Z_]\w*)|(?P<name>[a-z]\w*)"""
    r"""|"(?P<text>(?:[^"\\]|\\.|"")*)"|'(?P<quoted>(?:[^'\\]|\\.|'')*)'"""
    r"""|(?P<symbol>:-|-->|->|\\\+|=\.\.|=:=|=\\=|\\==|==|\\=|=<|>=|@<|@>|//|\*\*"""
    r"""|[-+*/^<>=;,|!()\[\]{}]))""",
    re.ASCII,
)
#: Binary operators: their precedence, that of the left argument and that of the right one.
_INFIX = {
    ":-": (1200, 1199, 1199), ";": (1100, 1099, 1100), "|": (1100, 1099, 1100),
    "->": (1050, 1049, 1050), ",": (1000, 999, 1000), "^": (200, 199, 200), "**": (200, 199, 199),
    **dict.fromkeys(("+", "-"), (500, 500, 499)),
    **dict.fromkeys(("*", "/", "//", "mod", "rem"), (400, 400, 399)),
    **dict.fromkeys(
        ("=", "\\=", "==", "\\==", "is", "<", ">", "=<", ">=", "=:=", "=\\=", "=..", "@<", "@>"),
        (700, 699, 699),
    ),
}  # fmt: skip
_PREFIX = {":-": (1200, 1199), "\\+": (900, 900), "-": (200, 200), "+": (200, 200)}


def read_term(text: str) -> Term:
    """Return the term of a text, for instance a clause without its full stop.

    Raises:
        PrologError: it is not a term.

    >>> term_text(read_term("last([X|Rest], Y)").args[0].args[1])
    'Rest'
    """
    return _Reader(text).whole()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            found = _token.match(text, at)
            if found is None:
                raise PrologError(f"{text[at : at + 20]!r} is not Prolog")
            self._tokens.append((found.lastgroup or "", found[found.lastgroup or 0]))
            at = found.end()
        self._at = 0
        self._anonymous = itertools.count(1)

    def whole(self) -> Term:
        term = self._expression(1200)
        if self._at < len(self._tokens):
            raise PrologError(f"{self._tokens[self._at][1]!r} is not expected in {self._text!r}")
        return term

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "")

    def _next(self) -> tuple[str, str]:
        token = self._peek()
        self._at += 1
        return token

    def _expect(self, symbol: str) -> None:
        kind, text = self._next()
        if kind != "symbol" or text != symbol:
            raise PrologError(f"expected {symbol!r} in {self._text!r}, not {text!r}")

    def _expression(self, most: int) -> Term:
        left, level = self._primary(most)
        while True:
            kind, text = self._peek()
            if kind not in {"symbol", "name"} or text not in _INFIX:
                return left
            precedence, left_most, right_most = _INFIX[text]
            if precedence > most or level > left_most:
                return left
            self._next()
            if text == "," and self._peek() == ("symbol", ")"):  # (a, b,)
                return Compound(",", (left,))
            left, level = Compound(text, (left, self._expression(right_most))), precedence

    def _primary(self, most: int) -> tuple[Term, int]:
        kind, text = self._next()
        if kind == "number":
            return (float(text) if "." in text else int(text)), 0
        if kind == "variable":
            return Variable(f"_{next(self._anonymous)}" if text == "_" else text), 0
        if kind in {"text", "quoted"}:
            quote = '"' if kind == "text" else "'"  # twice, it is one
            text = re.sub(rf"\\(.)|{quote}{quote}", lambda found: found[1] or quote, text)
            kind = "name"
        if kind == "name":
            if self._peek() == ("symbol", "("):
                self._next()
                arguments = self._items()
                self._expect(")")
                return Compound(text, tuple(arguments)), 0
            return text, 0
        if text == "(":
            term = self._expression(1200)
            self._expect(")")
            return term, 0
        if text == "[":
            return self._list(), 0
        if text == "!":
            return "!", 0
        if text in _PREFIX and self._peek()[0] != "end":
            precedence, right_most = _PREFIX[text]
            argument = self._expression(min(right_most, most))
            if text == "-" and isinstance(argument, (int, float)):
                return -argument, 0
            return Compound(text, (argument,)), precedence
        raise PrologError(f"{text or 'the end'!r} is not expected in {self._text!r}")

    def _items(self) -> list[Term]:
        found = [self._expression(999)]
        while self._peek() == ("symbol", ","):
            self._next()
            if self._peek() == ("symbol", ")"):
                break
            found.append(self._expression(999))
        return found

    def _list(self) -> Term:
        if self._peek() == ("symbol", "]"):
            self._next()
            return EMPTY
        items = self._items()
        rest: Term = EMPTY
        if self._peek() == ("symbol", "|"):
            self._next()
            rest = self._expression(999)
        self._expect("]")
        return term_list(items, rest)


def conjuncts(term: Term) -> list[Term]:
    """Return the parts of `a, b, c`."""
    if isinstance(term, Compound) and term.name == "," and len(term.args) == 2:
        return [*conjuncts(term.args[0]), *conjuncts(term.args[1])]
    return [term]


# ---- Answering queries

Bindings: TypeAlias = "dict[Variable, Term]"
#: Steps of one query, after which it has no further answers, and the depth of its calls.
_MOST_STEPS, _MOST_DEPTH = 20_000, 150

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, ">": operator.gt, "=<": operator.le, ">=": operator.ge,
    "=:=": operator.eq, "=\\=": operator.ne,
}  # fmt: skip


def _quotient(one: int, other: int) -> int:
    """Return the quotient, rounded towards 0."""
    found = abs(one) // abs(other)
    return found if (one < 0) == (other < 0) else -found


_ARITHMETIC: dict[Signature, Callable[..., Any]] = {
    ("+", 2): operator.add, ("-", 2): operator.sub, ("*", 2): operator.mul, ("/", 2): operator.truediv,
    ("//", 2): _quotient, ("mod", 2): operator.mod,
    ("rem", 2): lambda one, other: one - other * _quotient(one, other),
    ("-", 1): operator.neg, ("+", 1): operator.pos, ("abs", 1): abs, ("max", 2): max, ("min", 2): min,
    ("**", 2): operator.pow, ("^", 2): operator.pow,
}  # fmt: skip
#: Predicates on lists that Prolog systems have.
_LIBRARY = """
append([], L, L)
append([H|T], L, [H|R]) :- append(T, L, R)
member(X, [X|_])
member(X, [_|T]) :- member(X, T)
memberchk(X, L) :- member(X, L), !
reverse(L, R) :- reverse_onto(L, [], R)
reverse_onto([], R, R)
reverse_onto([H|T], S, R) :- reverse_onto(T, [H|S], R)
last([X], X)
last([_|T], X) :- last(T, X)
select(X, [X|T], T)
select(X, [H|T], [H|R]) :- select(X, T, R)
nth0(0, [X|_], X) :- !
nth0(N, [_|T], X) :- N > 0, M is N - 1, nth0(M, T, X)
nth1(N, L, X) :- M is N - 1, nth0(M, L, X)
sum_list([], 0)
sum_list([H|T], S) :- sum_list(T, R), S is H + R
sumlist(L, S) :- sum_list(L, S)
max_list([X], X) :- !
max_list([H|T], M) :- max_list(T, N), M is max(H, N)
min_list([X], X) :- !
min_list([H|T], M) :- min_list(T, N), M is min(H, N)
"""


def library() -> set[Signature]:
    """Return the predicates that need no clauses."""
    heads = (head_and_body(read_term(line))[0] for line in _LIBRARY.strip().splitlines())
    return {*map(signature, heads), *_BUILTIN}


class _Cut(Exception):  # noqa: N818 - never leaves the module
    def __init__(self, frame: int) -> None:
        self.frame = frame


class Prolog:
    """Clauses, and the answers to queries about them.

    >>> prolog = Prolog([read_term("tail([_|T],T)")])
    >>> [term_text(answer.args[1]) for answer in prolog.answers(read_term("tail([1,2,3],X)"))]
    ['[2,3]']
    """

    def __init__(self, clauses: Sequence[Term]) -> None:
        self._clauses: dict[Signature, list[tuple[Term, list[Term]]]] = {}
        self._frames = itertools.count()
        self._steps = 0
        #: How many calls had no further answers because of a bound; without, no answer is a "no".
        self.cut_short = 0
        for clause in clauses:
            self._add(clause)
        own = set(self._clauses)
        for line in _LIBRARY.strip().splitlines():
            clause = read_term(line)
            if signature(head_and_body(clause)[0]) not in own:
                self._add(clause)

    def _add(self, clause: Term) -> None:
        head, body = head_and_body(clause)
        self._clauses.setdefault(signature(head), []).append((head, body))

    def answers(self, goal: Term, most: int = 1_000) -> list[Any]:
        """Return the instances of a goal that follow, without repetitions.

        Those that need more than a bounded number of steps are left out, and so is what would follow
        if there were no such answers.

        Raises:
            PrologError: a predicate is unknown, or arithmetic has a variable without a value.
        """
        self._steps = 0
        found: dict[Term, None] = {}
        try:
            for bindings in self._solve([goal], {}, 0, -1):
                found[_resolve(goal, bindings)] = None
                if len(found) >= most:
                    break
        except (_Cut, RecursionError):
            pass
        return list(found)

    def rows(self, name: Signature, given: Mapping[int, Term]) -> list[tuple[Term, ...]]:
        """Return the arguments for which a predicate holds, of which some are given.

        Those with variables are left out. Raises what `answers` raises.
        """
        args = tuple([given.get(place, Variable(f"A{place}")) for place in range(name[1])])
        found = self.answers(Compound(name[0], args) if args else name[0])
        ground = [answer for answer in found if not any(True for _ in variables_of(answer))]
        return [answer.args if args else () for answer in ground]

    def _solve(
        self, goals: list[Term], bindings: Bindings, depth: int, frame: int
    ) -> Iterator[Bindings]:
        """Yield the bindings under which all goals hold; `frame` is what a cut ends."""
        if not goals:
            yield bindings
            return
        self._steps += 1
        if self._steps > _MOST_STEPS or depth > _MOST_DEPTH:
            self.cut_short += 1
            return
        goal, rest = _walk(goals[0], bindings), goals[1:]
        if goal == "!":
            yield from self._solve(rest, bindings, depth, frame)
            raise _Cut(frame)
        for after in self._call(goal, bindings, depth, frame):
            yield from self._solve(rest, after, depth, frame)

    def _call(self, goal: Term, bindings: Bindings, depth: int, frame: int) -> Iterator[Bindings]:
        if isinstance(goal, (Variable, int, float)):
            raise PrologError("a goal has no predicate")
        name, args = (goal.name, goal.args) if isinstance(goal, Compound) else (goal, ())
        before = self.cut_short
        if name == "," and len(args) == 2:
            yield from self._solve(list(args), bindings, depth, frame)
        elif name == ";" and len(args) == 2:
            first = args[0]
            if isinstance(first, Compound) and first.name == "->":
                condition, then = first.args
                for after in self._once(condition, bindings, depth):
                    yield from self._solve([then], after, depth, frame)
                    return
                if self.cut_short == before:
                    yield from self._solve([args[1]], bindings, depth, frame)
                return
            yield from self._solve([first], bindings, depth, frame)
            yield from self._solve([args[1]], bindings, depth, frame)
        elif name == "->" and len(args) == 2:
            for after in self._once(args[0], bindings, depth):
                yield from self._solve([args[1]], after, depth, frame)
                return
        elif name in {"\\+", "not"} and len(args) == 1:
            held = any(True for _ in self._once(args[0], bindings, depth))
            if not held and self.cut_short == before:
                yield bindings
        elif (name, len(args)) in _BUILTIN and (name, len(args)) not in self._clauses:
            yield from _BUILTIN[name, len(args)](self, args, bindings, depth)
        else:
            yield from self._resolve_clauses(goal, name, args, bindings, depth)

    def solutions(self, goal: Term, bindings: Bindings, depth: int) -> Iterator[Bindings]:
        """Yield every way in which a goal holds."""
        frame = next(self._frames)
        try:
            yield from self._solve([goal], bindings, depth + 1, frame)
        except _Cut as cut:
            if cut.frame != frame:
                raise

    def _once(self, goal: Term, bindings: Bindings, depth: int) -> Iterator[Bindings]:
        return itertools.islice(self.solutions(goal, bindings, depth), 1)

    def _resolve_clauses(
        self, goal: Term, name: str, args: Sequence[Term], bindings: Bindings, depth: int
    ) -> Iterator[Bindings]:
        clauses = self._clauses.get((name, len(args)))
        if clauses is None:
            raise PrologError(f"there is no predicate {name}/{len(args)}")
        frame = next(self._frames)
        try:
            for head, body in clauses:
                names: Bindings = {}
                after = _unify(goal, _rename(head, names, frame), bindings)
                if after is not None:
                    renamed = [_rename(part, names, frame) for part in body]
                    yield from self._solve(renamed, after, depth + 1, frame)
        except _Cut as cut:
            if cut.frame != frame:
                raise


def head_and_body(clause: Term) -> tuple[Term, list[Term]]:
    """Return the head of a clause and the parts of its body."""
    if isinstance(clause, Compound) and clause.name == ":-" and len(clause.args) == 2:
        return clause.args[0], conjuncts(clause.args[1])
    return clause, []


def signature(atom: Term) -> Signature:
    """Return the predicate of an atom and the number of its arguments.

    Raises:
        PrologError: it is not an atom.
    """
    if isinstance(atom, Compound):
        return atom.name, len(atom.args)
    if isinstance(atom, str):
        return atom, 0
    raise PrologError(f"{term_text(atom)!r} has no predicate")


def _walk(term: Term, bindings: Bindings) -> Term:
    while isinstance(term, Variable) and term in bindings:
        term = bindings[term]
    return term


def _resolve(term: Term, bindings: Bindings) -> Term:
    term = _walk(term, bindings)
    if isinstance(term, Compound):
        return Compound(term.name, tuple([_resolve(arg, bindings) for arg in term.args]))
    return term


def _rename(term: Term, names: Bindings, frame: int) -> Term:
    if isinstance(term, Variable):
        if term not in names:
            names[term] = Variable(f"{term.name}#{frame}")
        return names[term]
    if isinstance(term, Compound):
        return Compound(term.name, tuple([_rename(arg, names, frame) for arg in term.args]))
    return term


def _unify(one: Term, other: Term, bindings: Bindings) -> Bindings | None:
    stack = [(one, other)]
    changed = bindings
    while stack:
        a, b = stack.pop()
        a, b = _walk(a, changed), _walk(b, changed)
        if a is b:
            continue
        if isinstance(a, Variable) or isinstance(b, Variable):
            if not (isinstance(a, Variable) and a == b):
                if changed is bindings:
                    changed = dict(bindings)
                if isinstance(a, Variable):
                    changed[a] = b
                else:
                    changed[b] = a  # type: ignore[index]
            continue
        if isinstance(a, Compound) and isinstance(b, Compound):
            if a.name != b.name or len(a.args) != len(b.args):
                return None
            stack.extend(zip(a.args, b.args, strict=True))
        elif isinstance(a, Compound) or isinstance(b, Compound) or a != b:
            return None
    return changed


def _value(term: Term, bindings: Bindings) -> Any:
    term = _walk(term, bindings)
    if isinstance(term, (int, float)):
        return term
    if isinstance(term, Compound) and (term.name, len(term.args)) in _ARITHMETIC:
        try:
            found = _ARITHMETIC[term.name, len(term.args)](
                *(_value(a, bindings) for a in term.args)
            )
        except (ZeroDivisionError, OverflowError, ValueError) as error:
            raise PrologError(str(error)) from None
        return int(found) if isinstance(found, float) and found.is_integer() else found
    raise PrologError(f"{term_text(term)!r} is not a number")


#: Returns the bindings under which a goal with these arguments holds.
_Builtin: TypeAlias = "Callable[[Prolog, Sequence[Term], Bindings, int], Iterable[Bindings]]"


def _unified(one: Term, other: Term, bindings: Bindings) -> list[Bindings]:
    after = _unify(one, other, bindings)
    return [] if after is None else [after]


def _test(test: Callable[..., bool]) -> _Builtin:
    return lambda _, args, b, __: [b] if test(*(_resolve(arg, b) for arg in args)) else []


def _comparison(compare: Callable[[Any, Any], bool]) -> _Builtin:
    return lambda _, args, b, __: [b] if compare(_value(args[0], b), _value(args[1], b)) else []


def _on_items(change: Callable[[list[Term]], Term]) -> _Builtin:
    """Return what relates a list to something computed from its items."""

    def holds(_: Prolog, args: Sequence[Term], b: Bindings, __: int) -> list[Bindings]:
        items = list_items(_resolve(args[0], b))
        return [] if items is None else _unified(args[1], change(items), b)

    return holds


def _succ(_: Prolog, args: Sequence[Term], bindings: Bindings, __: int) -> list[Bindings]:
    one, other = (_walk(arg, bindings) for arg in args)
    if isinstance(one, int):
        return _unified(other, one + 1, bindings)
    return _unified(one, other - 1, bindings) if isinstance(other, int) and other > 0 else []


def _between(_: Prolog, args: Sequence[Term], b: Bindings, __: int) -> Iterator[Bindings]:
    for value in range(_value(args[0], b), _value(args[1], b) + 1):
        yield from _unified(args[2], value, b)


def _findall(prolog: Prolog, args: Sequence[Term], b: Bindings, depth: int) -> list[Bindings]:
    before = prolog.cut_short
    found = [_resolve(args[0], after) for after in prolog.solutions(args[1], b, depth)]
    return _unified(args[2], term_list(found), b) if prolog.cut_short == before else []


def _forall(prolog: Prolog, args: Sequence[Term], b: Bindings, depth: int) -> list[Bindings]:
    before = prolog.cut_short
    ways = prolog.solutions(args[0], b, depth)
    held = all(any(True for _ in prolog.solutions(args[1], after, depth)) for after in ways)
    return [b] if held and prolog.cut_short == before else []


def _order(term: Term) -> tuple[Any, ...]:
    return (0, term) if isinstance(term, (int, float)) else (1, term_text(term))


def _same(one: Term, other: Term) -> bool:
    return type(one) is type(other) and one == other


_BUILTIN: dict[Signature, _Builtin] = {
    **{(name, 2): _comparison(compare) for name, compare in _COMPARE.items()},
    ("true", 0): _test(lambda: True),
    **dict.fromkeys((("fail", 0), ("false", 0)), _test(lambda: False)),
    ("=", 2): lambda _, args, b, __: _unified(args[0], args[1], b),
    ("\\=", 2): lambda _, args, b, __: [b] if _unify(args[0], args[1], b) is None else [],
    ("==", 2): _test(_same),
    ("\\==", 2): _test(lambda one, other: not _same(one, other)),
    ("@<", 2): _test(lambda one, other: _order(one) < _order(other)),
    ("@>", 2): _test(lambda one, other: _order(one) > _order(other)),
    ("is", 2): lambda _, args, b, __: _unified(args[0], _value(args[1], b), b),
    ("succ", 2): _succ,
    ("between", 3): _between,
    ("length", 2): _on_items(len),
    ("msort", 2): _on_items(lambda items: term_list(sorted(items, key=_order))),
    ("sort", 2): _on_items(lambda items: term_list(sorted(dict.fromkeys(items), key=_order))),
    ("list_to_set", 2): _on_items(lambda items: term_list([*dict.fromkeys(items)])),
    ("findall", 3): _findall,
    ("forall", 2): _forall,
    ("var", 1): _test(lambda term: isinstance(term, Variable)),
    ("nonvar", 1): _test(lambda term: not isinstance(term, Variable)),
    ("number", 1): _test(lambda term: isinstance(term, (int, float))),
    ("integer", 1): _test(lambda term: isinstance(term, int)),
    ("atom", 1): _test(lambda term: isinstance(term, str)),
    ("is_list", 1): _test(lambda term: list_items(term) is not None),
    ("ground", 1): _test(lambda term: not any(True for _ in variables_of(term))),
}
