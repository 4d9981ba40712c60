"""Popper's three files: background `bk.pl`, examples `exs.pl` and limits `bias.pl`.

Facts may hold function terms and lists, which become constants. Function-free rules are evaluated by
clingo. Predicates that are defined by other Prolog are evaluated for the terms that the examples
reach. What cannot be used is listed.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from latentgamma._text import listing, quantity
from latentgamma.datalog.tables import constant
from latentgamma.errors import DataError, LatentGammaError
from latentgamma.program.files import read_text
from latentgamma.relational.budget import Budget
from latentgamma.relational.functions import Declared, Functions, FunctionSearch
from latentgamma.relational.problem import Facts, atoms_of, by_signature, derived_facts, read_facts
from latentgamma.relational.prolog import (
    Compound,
    Prolog,
    PrologError,
    Signature,
    Term,
    Variable,
    head_and_body,
    library,
    list_items,
    read_term,
    signature,
    term_text,
    variables_of,
)

_QUOTED = r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
_comment = re.compile(_QUOTED + r"|%[^\n]*|/\*.*?\*/", re.DOTALL)
_clause = re.compile(
    r"""((?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^"'.]|\.(?=[0-9.]))+)\.(?=[\s:a-z]|$)"""
)
_PLAIN = r"(?:[a-z]\w*|-?[0-9]+)"
_flat_fact = re.compile(rf"([a-z]\w*)\(\s*({_PLAIN}(?:\s*,\s*{_PLAIN})*)\s*\)", re.ASCII).fullmatch
_one_world = re.compile(r"#count\s*\{[^}]*var_type\([^)]*?,\s*(\w+)\s*\)[^}]*\}\s*!=\s*1")
#: Directives and settings that change nothing here.
_IGNORED_DIRECTIVES = (
    "discontiguous",
    "dynamic",
    "style_check",
    "use_module",
    "set_prolog_flag",
    "table",
)
_IGNORED_SETTINGS = {
    "allow_singletons", "non_datalog", "prop", "no_bkcons", "bkcons", "numeric_bkcons",
    "functional_test", "timeout", "max_size", "min_size",
}  # fmt: skip


@dataclass
class PopperFiles:
    """What the files hold, as arguments of `fit`.

    Attributes:
        background: tables by predicate.
        positive: examples.
        negative: examples; None without any.
        options: the limits, types and directions, as keyword arguments.
        unused: what was left out, one sentence each.
    """

    background: dict[str, list[tuple[str, ...]]]
    positive: list[tuple[str, ...]]
    negative: list[tuple[str, ...]] | None
    options: dict[str, Any] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)


@dataclass
class _Bias(Declared):
    bodies: set[Signature] = field(default_factory=set)
    constants: set[str] = field(default_factory=set)


def read_popper(folder: str | os.PathLike[str], *, ground_lists: int | None = None) -> PopperFiles:
    """Return what the three files in a folder hold; `bias.pl` may be missing.

    Args:
        folder: that holds the files.
        ground_lists: the longest list that background predicates may build; by default the longest
            one in the examples, and 0 to evaluate no predicate on lists or numbers.

    Raises:
        DataError: a file is missing, or has no facts or examples that can be used.
    """
    where = Path(folder)
    for name in ("bk.pl", "exs.pl"):
        if not (where / name).is_file():
            raise DataError(f"{os.fsdecode(folder)!r} has no {name}; it must hold bk.pl and exs.pl")
    found = PopperFiles(background={}, positive=[], negative=None)
    examples = read_examples(where / "exs.pl", found)
    bias = _Bias()
    if (where / "bias.pl").is_file():
        bias = _read_bias(where / "bias.pl", found)
    text = read_text(where / "bk.pl")
    clauses = _read_clauses(text, "bk.pl", found.unused)
    facts = evaluate(clauses, examples, bias.bodies or None, bias, ground_lists, found.unused)
    named = sorted(name for name in bias.constants if (name, 1) not in facts)
    if named:
        found.options["constants"] = named
        for name in named:
            del found.options["types"][f"{name}/1"]
    for name, arity in sorted(bias.bodies - set(facts) - {(name, 1) for name in named}):
        found.unused.append(f"bias.pl: body_pred {name}/{arity} has no facts in bk.pl")
    found.background = {f"{name}/{arity}": rows for (name, arity), rows in facts.items()}
    if bias.directions and found.options["recursive"] and ground_lists != 0:
        found.options["definitions"] = text
    if not found.background:
        raise DataError(f"{where / 'bk.pl'} has no facts that can be used")
    return found


def read_prolog(
    background: Any,
    positive: Any,
    negative: Any,
    ground_lists: int,
    types: Mapping[str, Sequence[str]] | None,
    directions: Mapping[str, Sequence[str]] | None,
    time_limit: float = math.inf,
) -> PopperFiles:
    """Return Prolog's facts, evaluated for the terms of the examples, and the examples.

    The background is a text or a path; examples are a text, or tuples whose cells are terms. The
    evaluation takes a part of the time limit.
    """
    if not isinstance(background, (str, os.PathLike)):
        raise DataError("with ground_lists=, the background is a text or a path of Prolog clauses")
    found = PopperFiles({}, _rows_of_examples(positive), None)
    if negative is not None:
        found.negative = _rows_of_examples(negative)
    declared = Declared(by_signature(types, "types"), by_signature(directions, "directions"))
    is_path = not isinstance(background, str) or os.path.isfile(background)
    text = read_text(background) if is_path else str(background)
    examples = [_as_atom(row) for row in [*found.positive, *(found.negative or [])]]
    clauses = _read_clauses(text, "the background", found.unused)
    seconds = _EVALUATION_FRACTION * time_limit
    facts = evaluate(clauses, examples, None, declared, ground_lists, found.unused, seconds)
    found.background = {f"{name}/{arity}": rows for (name, arity), rows in facts.items()}
    found.options["definitions"] = text
    return found


def _rows_of_examples(source: Any) -> list[tuple[str, ...]]:
    if isinstance(source, str):
        return [row for _, row, _ in _examples(source, "the examples")]
    return atoms_of(read_facts(source, "examples"))


def find_recursive_rules(
    definitions: str,
    examples: tuple[Sequence[tuple[str, ...]], Sequence[tuple[str, ...]]],
    types: Mapping[str, Sequence[str]] | None,
    directions: Mapping[str, Sequence[str]] | None,
    limits: tuple[int, int, int],
    budget: Budget,
) -> Functions | None:
    """Return recursive rules that compute the outputs of the examples; None if none were found.

    Args:
        definitions: the background as Prolog; rules use its predicates that have directions.
        examples: positive and negative ones, each with its predicate.
        types: of the arguments by predicate.
        directions: of the arguments by predicate, that of the examples included.
        limits: of literals in a body, variables in a rule, and rules.
        budget: the work.
    """
    declared = Declared(by_signature(types, "types"), by_signature(directions, "directions"))
    names = {(row[0], len(row) - 1) for rows in examples for row in rows}
    if len(names) != 1 or not names <= set(declared.directions):
        return None
    (target,) = names
    if not declared.inputs(target):
        return None
    positive, negative = ([_as_atom(row).args for row in rows] for rows in examples)
    prolog = _read_clauses(definitions, "the background", []).prolog()
    search = FunctionSearch(prolog, declared, target, positive, negative, limits, budget)
    return search.search()


def _as_atom(row: Sequence[str]) -> Compound:
    arguments = []
    for cell in row[1:]:
        term: Term = cell
        with contextlib.suppress(PrologError):
            term = _without_variables(read_term(cell))
        arguments.append(term)
    return Compound(row[0], tuple(arguments))


def _without_variables(term: Term) -> Term:
    """Return a term of an example, in which a name such as Anna is not a variable."""
    if isinstance(term, Compound):
        return Compound(term.name, tuple(map(_without_variables, term.args)))
    return term.name if isinstance(term, Variable) else term


# ---- Reading clauses


def _texts(text: str) -> list[str]:
    """Return the clauses of a text, without comments."""
    text = _comment.sub(lambda m: m[1] or " ", text)
    found, end = [], 0
    for clause in _clause.finditer(text):
        found.append(clause[1].strip())
        end = clause.end()
    rest = text[end:].strip()  # a last clause without its full stop
    return [*found, rest] if rest else found


@dataclass
class _Clauses:
    """The clauses of a background file: ground facts as tables, and the others as terms."""

    tables: Facts = field(default_factory=dict)
    terms: dict[Signature, list[Term]] = field(default_factory=dict)
    rules: list[Term] = field(default_factory=list)

    def prolog(self) -> Prolog:
        """Return the clauses as a program that answers queries."""
        known = [*self.rules]
        for name, rows in self.tables.items():
            terms = self.terms.get(name, [])
            seen = {tuple(map(term_text, t.args)) for t in terms if isinstance(t, Compound)}
            known += terms
            known += [_as_atom((name[0], *row)) for row in rows if row not in seen and row]
        return Prolog(known)


def _read_clauses(source: str, where: str, unused: list[str]) -> _Clauses:
    found = _Clauses()
    refused = []
    for text in _texts(source):
        flat = _flat_fact(text)
        if flat is not None:
            cells = tuple([cell.strip() for cell in flat[2].split(",")])
            found.tables.setdefault((flat[1], len(cells)), []).append(cells)
            continue
        if text.startswith(":-"):
            if not text[2:].strip().startswith(_IGNORED_DIRECTIVES):
                refused.append(text)
            continue
        try:
            clause = read_term(text)
            head, body = head_and_body(clause)
            name = signature(head)
        except PrologError:
            refused.append(text)
            continue
        if not body and not any(True for _ in variables_of(head)):
            cells = tuple(term_text(arg) for arg in head.args) if name[1] else ()  # type: ignore[union-attr]
            found.tables.setdefault(name, []).append(cells)
            found.terms.setdefault(name, []).append(head)
        else:
            found.rules.append(clause)
    if refused:
        count = quantity(len(refused), "clause")
        shown = listing([repr(text[:60]) for text in refused], 2)
        unused.append(f"{where}: {count} that cannot be read: {shown}")
    return found


def _examples(source: str, where: str) -> Iterator[tuple[bool, tuple[str, ...], Term]]:
    """Return the examples of a text: whether each is positive, as cells, and as a term."""
    for text in _texts(source):
        if text.startswith(":-"):
            continue
        try:
            atom = read_term(text)
            name, arity = signature(atom)
            positive = True
            if name in {"pos", "neg"} and arity == 1:
                positive = name == "pos"
                atom = atom.args[0]  # type: ignore[union-attr]
                name, arity = signature(atom)
            if name == ":-" or any(True for _ in variables_of(atom)):
                raise PrologError("not ground")
        except PrologError:
            raise DataError(
                f"{where}: {text[:60]!r} is not an example; write pos(atom). or neg(atom)."
            ) from None
        yield positive, (name, *(map(term_text, atom.args) if arity else ())), atom  # type: ignore[union-attr]


def read_examples(path: str | os.PathLike[str], found: PopperFiles) -> list[Term]:
    """Add the examples of a file: `pos(…)` and `neg(…)`, or facts, which are positive.

    Returns:
        The examples as terms.

    Raises:
        DataError: a clause is not an example, or there is no positive one.
    """
    examples = list(_examples(read_text(path), os.fsdecode(path)))
    found.positive = [row for positive, row, _ in examples if positive]
    if not found.positive:
        raise DataError(f"{os.fsdecode(path)} has no positive example; write pos(atom).")
    found.negative = [row for positive, row, _ in examples if not positive] or None
    return [atom for _, _, atom in examples]


def _parts(term: Term) -> tuple[str, ...]:
    """Return the names in a tuple such as `(train,car,)`."""
    if isinstance(term, Compound) and term.name == ",":
        return tuple(itertools.chain.from_iterable(map(_parts, term.args)))
    return (term_text(term),)


def _number(term: Term, path: Path, text: str) -> int:
    """Return the whole number that a setting has."""
    if not isinstance(term, int):
        raise DataError(f"{path}: {text!r} must have a whole number, not {term_text(term)}")
    return term


def _setting_name(text: str) -> str:
    """Return what a clause that is not used is called."""
    return "constraints (:- ...)" if text.startswith(":-") else re.split(r"[\s({]", text)[0]


def _read_bias(path: Path, found: PopperFiles) -> _Bias:
    """Add the limits to the options, and return the predicates with their types."""
    bias = _Bias()
    unknown: list[str] = []
    heads: list[Signature] = []
    declared = {"type": bias.types, "direction": bias.directions}
    options = found.options
    options["recursive"] = False  # unless the file allows it
    for text in _texts(read_text(path)):
        world = _one_world.search(text)
        if world is not None:
            options["world"] = world[1]
            continue
        try:
            head, body = head_and_body(read_term(text))
            name, arity = signature(head)
        except PrologError:
            unknown.append(_setting_name(text))
            continue
        args: tuple[Any, ...] = head.args if isinstance(head, Compound) else ()
        if body:
            if name in {"body_pred", "type"} and signature(body[0]) == ("constant", 2):
                continue  # constants are predicates: see below
            unknown.append(name)
        elif name == "head_pred" and arity == 2:
            heads.append((term_text(args[0]), _number(args[1], path, text)))
        elif name == "body_pred" and arity == 2:
            bias.bodies.add((term_text(args[0]), _number(args[1], path, text)))
        elif name in declared and arity == 2:
            parts = _parts(args[1])
            declared[name][term_text(args[0]), len(parts)] = parts
        elif name == "constant" and arity == 2:
            constant_name = term_text(args[0])
            bias.bodies.add((constant_name, 1))
            bias.constants.add(constant_name)
            bias.types[constant_name, 1] = (term_text(args[1]),)
        elif name in {"max_vars", "max_body", "max_clauses", "max_rules"} and arity == 1:
            called = {"max_vars": "max_variables", "max_body": "max_body"}
            options[called.get(name, "max_clauses")] = _number(args[0], path, text)
        elif name in {"enable_recursion", "allow_recursion"}:
            options["recursive"] = True
        elif name in {"enable_pi", "allow_predicate_invention"}:
            options.update(invent=1, recursive=True)
        elif name not in _IGNORED_SETTINGS:
            unknown.append(name)
    if heads:
        options["target"] = [f"{name}/{arity}" for name, arity in dict.fromkeys(heads)]
    for option, given in (("types", bias.types), ("directions", bias.directions)):
        if given:
            options[option] = {f"{name}/{arity}": values for (name, arity), values in given.items()}
    if unknown:
        names = listing(sorted(set(unknown)), 6)
        found.unused.append(f"bias.pl: settings that have no meaning here: {names}")
    return bias


# ---- The facts of background predicates

_COMPARISONS = {
    "\\=": "!=", "\\==": "!=", "=\\=": "!=", "=": "=", "==": "=", "=:=": "=", "is": "=",
    "<": "<", ">": ">", "=<": "<=", ">=": ">=",
}  # fmt: skip
#: The remainder of clingo has the sign of the dividend, as `rem`.
_ARITHMETIC = {
    "+": "({0}+{1})", "-": "({0}-{1})", "*": "({0}*{1})", "//": "({0}/{1})",
    "rem": "({0}\\{1})", "mod": "((({0}\\{1})+{1})\\{1})",
}  # fmt: skip


def evaluate(
    clauses: _Clauses,
    examples: Sequence[Term],
    wanted: set[Signature] | None,
    declared: Declared,
    ground_lists: int | None,
    unused: list[str],
    seconds: float = math.inf,
) -> Facts:
    """Return the facts of the wanted predicates; of all that have facts or rules if None."""
    tables = {name: list(dict.fromkeys(rows)) for name, rows in clauses.tables.items()}
    rules: dict[Signature, list[Term]] = {}
    for rule in clauses.rules:
        rules.setdefault(signature(head_and_body(rule)[0]), []).append(rule)
    datalog = _datalog_predicates(rules, tables)
    texts = list(itertools.chain.from_iterable(datalog.values()))
    given = {f"{name}/{arity}": rows for (name, arity), rows in tables.items()}
    try:
        if texts:
            tables = {name: [] for name in tables} | derived_facts("\n".join(texts), given)
    except LatentGammaError as error:
        unused.append(f"bk.pl: {quantity(len(texts), 'rule')} that cannot be evaluated: {error}")
    prolog = [name for name in rules if name not in datalog]
    facts = {
        name: rows
        for name, rows in tables.items()
        if name not in prolog and (wanted is None or name in wanted)
    }
    others = prolog
    if wanted is not None:
        evaluated = {*prolog, *library()}
        others = [name for name in sorted(wanted) if name not in facts and name in evaluated]
    left = [name for name in prolog if name not in others]
    if left:
        count = quantity(sum(len(rules[name]) for name in left), "clause")
        unused.append(f"bk.pl: {count} on lists or numbers that no rule needs: {_listing(left)}")
    if not others:
        return facts
    if ground_lists == 0:
        unused.append(
            "bk.pl: predicates on lists or numbers, which ground_lists= evaluates: "
            f"{_listing(others)}"
        )
        return facts
    rows = ((name[0], *row) for name in others for row in clauses.tables.get(name, ()))
    ground = [term for row in rows for term in _as_atom(row).args]
    reached = _Tabulation(clauses, examples, ground, declared, ground_lists, unused, seconds)
    return facts | reached.facts(others, facts)


def _listing(names: Sequence[Signature]) -> str:
    return listing([f"{name}/{arity}" for name, arity in names], 4)


def _datalog_predicates(
    rules: Mapping[Signature, Sequence[Term]], tables: Facts
) -> dict[Signature, list[str]]:
    """Return the predicates whose clauses are function-free rules, with their text for clingo."""
    found: dict[Signature, list[tuple[str, set[Signature]]]] = {}
    for name, clauses in rules.items():
        texts = [text for text in map(_datalog, clauses) if text is not None]
        if len(texts) == len(clauses):
            found[name] = texts
    while True:
        known = {*found, *tables.keys() - rules.keys()}
        bad = [name for name, texts in found.items() if any(not used <= known for _, used in texts)]
        if not bad:
            return {name: [text for text, _ in texts] for name, texts in found.items()}
        for name in bad:
            del found[name]


def _datalog(clause: Term) -> tuple[str, set[Signature]] | None:
    """Return a clause as text for clingo, and the predicates it uses; None if it is other Prolog."""
    head, body = head_and_body(clause)
    occurrences = Counter(variables_of(clause))
    names: dict[Variable, str] = {}
    bound: set[Variable] = set()
    used: set[Signature] = set()

    def text(term: Term, *, arithmetic: bool = False) -> str:
        if isinstance(term, Variable):
            return names.setdefault(term, f"V{len(names)}")
        if arithmetic and isinstance(term, Compound) and term.name in _ARITHMETIC:
            one, other = (text(arg, arithmetic=True) for arg in term.args)
            return _ARITHMETIC[term.name].format(one, other)
        if isinstance(term, (Compound, float)):
            raise PrologError("a function term")
        return constant(term_text(term))

    def atom(term: Term) -> str:
        name, arity = signature(term)
        plain = re.fullmatch(r"[a-z]\w*", name, re.ASCII)
        if not plain or name in {"true", "fail", "false", "not"}:
            raise PrologError("not a predicate of the file")
        inside = [text(arg) for arg in term.args] if arity else []  # type: ignore[union-attr]
        return f"{name}({','.join(inside)})" if inside else name

    def literal(term: Term) -> str:
        name, arity = signature(term)
        args = term.args if isinstance(term, Compound) else ()
        if name in _COMPARISONS and arity == 2:
            if name == "is" and isinstance(args[0], Variable):
                bound.add(args[0])
            one, other = (text(arg, arithmetic=True) for arg in args)
            return f"{one}{_COMPARISONS[name]}{other}"
        if name in {"\\+", "not"} and arity == 1:
            used.add(signature(args[0]))
            anything = {v for v in variables_of(args[0]) if occurrences[v] == 1}
            names.update(dict.fromkeys(anything, "_"))
            bound.update(anything)
            return f"not {atom(args[0])}"
        used.add((name, arity))
        bound.update(variables_of(term))
        return atom(term)

    try:
        whole, parts = atom(head), [literal(part) for part in body]
    except (PrologError, ValueError):  # not two arguments
        return None
    if not set(names) <= bound:
        return None
    return f"{whole} :- {', '.join(parts)}." if parts else f"{whole}.", used


#: Calls of background predicates, terms of one type and the seconds that an evaluation may take.
_MOST_CALLS, _MOST_TERMS, _MOST_SECONDS = 60_000, 2_000, 4.0
#: The fraction of the time limit that it may take.
_EVALUATION_FRACTION = 0.3
#: Numbers beside those of the examples, if there are few enough in between.
_MOST_NUMBERS = 200


class _Tabulation:
    """The facts of predicates that are defined by Prolog, for the terms that the examples reach.

    Terms of the examples are the inputs of predicates; what these return are the inputs of the next
    round. Lists longer than a bound are left out. A predicate of several inputs returns only terms
    that are reached without it, and numbers between those of the examples and of ground facts.
    """

    def __init__(
        self,
        clauses: _Clauses,
        examples: Sequence[Term],
        ground: Sequence[Term],
        declared: Declared,
        ground_lists: int | None,
        unused: list[str],
        seconds: float,
    ) -> None:
        self._prolog = clauses.prolog()
        self._declared, self._unused = declared, unused
        self._terms: dict[str, dict[Term, None]] = {}
        self._longest = ground_lists or 0
        numbers: list[float] = []
        reached = [term for atom in examples for term in self._reach(atom)]
        for term in [*reached, *ground]:
            items = list_items(term)
            if items is not None and ground_lists is None:
                self._longest = max(self._longest, len(items))
            numbers += [t for t in [term, *(items or [])] if isinstance(t, int)]
        low, high = min([0, *numbers]), max([self._longest, *numbers])
        self._numbers = (low, high) if high - low <= _MOST_NUMBERS else (0, self._longest)
        self._calls = 0
        self._end = time.monotonic() + min(seconds, _MOST_SECONDS)

    def _reach(self, atom: Term) -> tuple[Term, ...]:
        """Return the arguments of an atom, which are inputs from now on."""
        args: tuple[Term, ...] = atom.args if isinstance(atom, Compound) else ()
        for term, kind in zip(args, self._declared.kinds(signature(atom)), strict=True):
            self._terms.setdefault(kind, {})[term] = None
        return args

    def facts(self, wanted: Sequence[Signature], known: Facts) -> Facts:
        """Return the facts of the wanted predicates; those of others are known."""
        found: dict[Signature, dict[tuple[Term, ...], None]] = {}
        failed: dict[Signature, str] = {}
        done: dict[Signature, set[tuple[Term, ...]]] = {name: set() for name in wanted}
        for name, rows in known.items():
            for row in rows:
                self._reach(_as_atom((name[0], *row)))
        order = sorted(wanted, key=lambda name: len(self._declared.inputs(name)))
        waiting = list(order)
        while waiting and not self._over():
            name = waiting.pop(0)
            try:
                if self._round(name, done[name], found.setdefault(name, {})):
                    # Predicates of several inputs come when the others reach no new terms.
                    waiting = [other for other in order if other not in failed]
            except PrologError as error:
                failed[name] = str(error)
        for (called, arity), why in failed.items():
            self._unused.append(f"bk.pl: {called}/{arity} cannot be evaluated: {why}")
        if self._over():
            self._unused.append("bk.pl: not every term that predicates reach was evaluated")
        return {
            name: [tuple(map(term_text, row)) for row in rows]
            for name, rows in found.items()
            if rows
        }

    def _over(self) -> bool:
        return self._calls >= _MOST_CALLS or time.monotonic() >= self._end

    def _round(
        self, name: Signature, done: set[tuple[Term, ...]], rows: dict[tuple[Term, ...], None]
    ) -> bool:
        """Call a predicate for the inputs that are new; return whether there are new terms."""
        kinds, inputs = self._declared.kinds(name), self._declared.inputs(name)
        pools = [list(self._terms.get(kinds[place], {})) for place in inputs]
        grows = False
        for values in itertools.product(*pools):
            if values in done:
                continue
            if self._over():
                return False
            done.add(values)
            self._calls += 1
            for row in self._prolog.rows(name, dict(zip(inputs, values, strict=True))):
                new = [
                    (term, kind)
                    for term, kind in zip(row, kinds, strict=True)
                    if term not in self._terms.setdefault(kind, {})
                ]
                if all(self._allowed(term, kind, len(inputs)) for term, kind in new):
                    rows[row] = None
                    for term, kind in new:
                        self._terms[kind][term] = None
                        grows = True
        return grows

    def _allowed(self, term: Term, kind: str, inputs: int) -> bool:
        """Return whether a new term is kept."""
        if len(self._terms[kind]) >= _MOST_TERMS:
            return False
        if isinstance(term, (int, float)):
            return self._numbers[0] <= term <= self._numbers[1]
        items = list_items(term)
        return inputs < 2 and (items is None or len(items) <= self._longest)
