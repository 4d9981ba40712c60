"""Programs with variables: grounding them, and their inputs and outputs."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from latentgamma._arguments import level_of_caller, real_number, whole_number
from latentgamma.datalog.clingo import DivisionCrash, GroundingFailed, assembled, may_crash
from latentgamma.datalog.clingo_names import decode_name, encode_name
from latentgamma.datalog.clingo_names import decode_text as decode_names
from latentgamma.datalog.clingo_run import Output
from latentgamma.datalog.origin import Grounding
from latentgamma.datalog.overflow import check_arithmetic
from latentgamma.datalog.source import (
    CANDIDATE,
    Signature,
    Source,
    arguments_of,
    clingo_error,
    head_of,
    predicates,
    read_source,
    signature,
    signature_of,
    signatures,
    walk,
)
from latentgamma.datalog.tables import Table, table_facts
from latentgamma.errors import MissingPackageError, ParseError, ProgramError
from latentgamma.program.files import read_text
from latentgamma.program.graph import NotStratifiedError
from latentgamma.program.names import is_word
from latentgamma.program.program import Program
from latentgamma.program.rule_text import error_at, normalize_text

# ---- From Datalog text to a ground program

#: More ground rules than this are refused unless the caller asks for more.
MAX_RULES = 20_000_000
#: Grounding is stopped after this many seconds unless the caller allows more.
MAX_SECONDS = 600.0
#: How a warning says that facts may come from a table.
TABLE_HINT = "lg.datalog.ground(text, facts=…)"

_extreme = re.compile(r"#(?:sup|inf)\b")
_string = re.compile(r'"(?:[^"\\]|\\.)*+"')
# A cell of a table that is a number for its reader, and a string for clingo.
_number_as_string = re.compile(
    r"""(?<=[(,])"(-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:e[-+]?[0-9]++)?)"(?=[,)])"""
)
_remark = re.compile(r"<\w+>:([0-9]+):([0-9]+)[-0-9:]*: info: (.*?):\n  (.*)\n")


class GroundingWarning(UserWarning):
    """A warning about a text that is valid and probably has a mistake.

    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as found:
    ...     warnings.simplefilter("always")
    ...     program = ground("p(X) :- e(X), f(X). e(1).")
    >>> print(found[0].category.__name__)
    GroundingWarning
    """


def ground(
    source: str | os.PathLike[str],
    *,
    open: str | Iterable[str] = (),  # noqa: A002 - the word of the field
    facts: Mapping[str, Table] | None = None,
    max_rules: int = MAX_RULES,
    max_seconds: float = MAX_SECONDS,
) -> Program:
    """Return the ground program of Datalog rules with comparisons, strings and arithmetic.

    What follows whatever the open facts are is evaluated: it becomes a fact of the program.
    Facts of open predicates, in the text or in tables, are candidates: nothing holds until it is
    given to `closure` and the other functions.

    >>> program = ground('''
    ...     edge(a,b).  edge(b,c).
    ...     path(X,Y) :- edge(X,Y).
    ...     path(X,Z) :- edge(X,Y), path(Y,Z).
    ... ''', open=["edge/2"])
    >>> print(program)
    path(a,b) :- edge(a,b).
    path(b,c) :- edge(b,c).
    path(a,c) :- edge(a,b), path(b,c).

    Args:
        source: the text, or the path of a file (a `Path`, or a string that ends in .lp, .pl or .dl).
        open: predicates whose facts are given when asking, such as `["edge/2"]`. The text can
            declare them too: `#input edge/2.`, or `#external edge(X,Y) : node(X), node(Y).`
        facts: tables by predicate: `{"edge": "edges.csv"}`, `{"edge(from,to)": "edges.parquet"}`
            where the columns have names, frames, arrays, or rows: `{"edge": [("a", "b")]}`.
        max_rules: stop beyond this many ground rules.
        max_seconds: stop after this many seconds.

    Returns:
        The program; it is `definite` if no ground rule has negation.

    Raises:
        ParseError: if the text is not Datalog; the message shows the place.
        ProgramError: if grounding exceeds a limit.
        MissingPackageError: if clingo is not installed.
        DataError: if a table cannot be read.
        ArgumentError: if a limit is not a number from 0 on.
    """
    whole_number("max_rules", max_rules)
    real_number("max_seconds", max_seconds, "a number of seconds from 0 on", lambda x: x >= 0)
    require_clingo()
    text, path = _read(source)
    return ground_text(
        text,
        path,
        open_predicates=signatures(open),
        tables=tuple(table_facts(facts)),
        max_rules=max_rules,
        max_seconds=max_seconds,
    )


def ground_text(
    text: str,
    path: str,
    *,
    open_predicates: Iterable[Signature] = (),
    tables: tuple[tuple[Signature, str], ...] = (),
    max_rules: int = MAX_RULES,
    max_seconds: float = MAX_SECONDS,
) -> Program:
    """Return the ground program of a prepared text."""
    source = read_source(text, path, open_predicates)
    _refuse_open_aggregates(source)
    grounding = Grounding(text, path, source.open, tables)
    output = _run(grounding, source, max_rules=max_rules, max_seconds=max_seconds)
    _refuse_extremes(source, output)
    _warn(source, output, tables)
    # An open atom without a name is a fact of the text as well.
    named = (output.names[atom] for atom in output.externals if atom in output.names)
    inputs = tuple(map(decode_name, named))
    origin = replace(grounding, inputs=inputs, shown=source.shown)
    try:
        return replace(assembled(output)[0], origin=origin)
    except NotStratifiedError as error:
        raise _at_the_negation(source, error) from None


def require_clingo() -> None:
    """Raise an error if clingo is not installed."""
    if not has_clingo():
        raise MissingPackageError("rules with variables need clingo", "datalog")


def has_clingo() -> bool:
    """Return whether clingo is installed."""
    try:
        import clingo  # noqa: F401
    except ImportError:
        return False
    return True


def _read(source: str | os.PathLike[str]) -> tuple[str, str]:
    """Return the prepared text, and what an error calls it."""
    if not isinstance(source, (str, os.PathLike)):
        raise ProgramError(f"ground takes a text or a path, not {type(source).__name__}")
    if isinstance(source, str) and not re.fullmatch(r"[^\n:]+\.(lp|pl|dl)(\.gz)?", source.strip()):
        return normalize_text(source, "<text>"), "<text>"
    return read_text(source), os.fsdecode(source)


def _run(grounding: Grounding, source: Source, *, max_rules: int, max_seconds: float) -> Output:
    try:
        run = partial(grounding.run, source, max_rules=max_rules, max_seconds=max_seconds)
        output = run()
        overflow = check_arithmetic(source, output, lambda rules: run(more=rules))
        if overflow is not None:
            raise overflow
        return output
    except GroundingFailed as failure:
        raise clingo_error(source, failure.messages) from None
    except ParseError:
        raise
    except DivisionCrash as error:
        divisions = (n for rule in source.rules for n in walk(rule) if may_crash(n))
        raise source.error_of(next(divisions, source.rules[0]), str(error)) from None
    except ProgramError as error:
        endless = _endless_rule(source)
        if endless is None:
            raise
        raise source.error_of(endless, str(error)) from None


# ---- What may be wrong


def _refuse_open_aggregates(source: Source) -> None:
    """Raise a ParseError if an aggregate or a condition depends on facts given when asking."""
    asked = [n for rule in source.rules for n in rule.body if _kind_of_aggregate(n)]
    dependent = _dependent_on_open(source) if asked else set()
    for node in asked:
        if predicates(node) & dependent:
            raise source.error_of(
                node,
                f"{_kind_of_aggregate(node)} depends on the open facts, so its value is not known "
                "when grounding; use it over predicates whose facts are in the text, or write one "
                "rule for each case",
            )


def _refuse_extremes(source: Source, output: Output) -> None:
    """Raise a ParseError if an atom has '#sup' or '#inf', the least or the largest of no values."""
    if "#" not in source.scanned.unchecked:
        return
    for atom in (*output.facts, *output.names.values()):
        found = _extreme.search(_string.sub("", atom)) if "#" in atom else None
        if found:
            name = atom.partition("(")[0].removeprefix(CANDIDATE)
            heads = (r for r in source.rules if signature(head_of(r))[0] == name)
            raise source.error_of(
                head_of(next(heads, source.rules[0])).symbol,
                f"{atom} would hold, but '{found[0]}' is not a value: it stands for the "
                f"{'least' if found[0] == '#sup' else 'largest'} of no values; exclude it in the "
                f"body, for example by 'X != {found[0]}'",
            )


def _dependent_on_open(source: Source) -> set[Signature]:
    """Return the predicates whose facts may depend on what is given when asking."""
    found = set(source.open)
    uses: list[tuple[Signature, set[Signature]]] = []
    for rule in source.rules:
        if rule.ast_type.name == "External":
            found.add(signature(head_of(rule)))
            continue
        uses.append((signature(rule.head.atom), predicates(*rule.body)))
    for _, head, body_atoms, negated in source.ground_statements():
        if body_atoms or negated:
            names = {signature_of(encode_name(name)) for name in (*body_atoms, *negated)}
            uses.append((signature_of(encode_name(head)), names))
    while True:
        more = {head for head, body in uses if body & found} - found
        if not more:
            return found
        found |= more


def _kind_of_aggregate(literal: Any) -> str | None:
    name = literal.ast_type.name
    if name == "ConditionalLiteral":
        return "a condition (':')"
    if name == "Literal" and literal.atom.ast_type.name in {"Aggregate", "BodyAggregate"}:
        return "an aggregate"
    return None


def _at_the_negation(source: Source, error: NotStratifiedError) -> ProgramError:
    """Return the same error, at the place in the text where the negation stands."""
    head, denied = (encode_name(name).partition("(")[0] for name in (error.head, error.negated))
    for rule in source.rules:
        for part in (part for literal in rule.body for part in walk(literal)):
            if (
                part.ast_type.name == "Literal"
                and part.sign == 1
                and part.atom.ast_type.name == "SymbolicAtom"
                and (signature(part.atom)[0], signature(rule.head.atom)[0]) == (denied, head)
            ):
                return source.error_of(part, error.problem)
    for (start, _), name, _, negated in source.ground_statements():
        if name == error.head and error.negated in negated:
            return error_at(source.text, source.scanned.place(start), error.problem, source.path)
    return ParseError(error.problem, path=source.path)


def _endless_rule(source: Source) -> Any:
    """Return the rule most likely to have no end: it computes its head, or joins most."""
    rules = [rule for rule in source.rules if rule.ast_type.name == "Rule"]
    for rule in rules:
        if any(node.ast_type.name == "BinaryOperation" for node in walk(rule.head)):
            return rule.head
    return max(rules, key=lambda rule: len(rule.body), default=None)


def _warn(source: Source, output: Output, tables: tuple[tuple[Signature, str], ...]) -> None:
    used = {given for given in output.signatures if not given[0].startswith("__")}
    used |= {given for given, facts in tables if facts}
    empty = {name for (name, _), facts in tables if not facts}
    written = [n for rule in source.rules for n in walk(rule) if n.ast_type.name == "SymbolicAtom"]
    used |= set(map(signature, written))
    arities: dict[str, set[int]] = {}
    for name, arity in used:
        arities.setdefault(name, set()).add(arity)
    for name, several in sorted(arities.items()):
        if len(several) > 1:
            forms = " and ".join(f"{decode_names(name)}/{arity}" for arity in sorted(several))
            _say(f"{source.path}: {forms} are different predicates; is an argument missing?")
    if any(_uses_size(node) for rule in source.rules for node in walk(rule)):
        for (name, _), facts in tables:
            if found := _number_as_string.search(facts):
                line = facts.rfind("\n", 0, found.start()) + 1
                column = len(arguments_of(facts[line : found.end()] + ")")[1])
                _say(
                    f"{source.path}: {found[1]} in column {column} of the table of '{decode_names(name)}' "
                    "is a string, since it is not a whole number of 32 bits, and a string is larger than "
                    "every number; scale or round it if the rules compare this column"
                )
    remarks: dict[str, None] = {}  # each once: a rule with two heads is two rules to clingo
    for literal in _compared_constants(source):
        problem = (
            f"'{literal}' compares two constants; only rules without variables compare columns"
        )
        remarks[str(source.error_of(literal, problem))] = None
    for line, column, problem, what in _remark.findall("\n".join(output.messages)):
        if "does not occur in any rule head" in problem:
            if what.startswith(CANDIDATE):
                name = decode_name(what.partition("(")[0].removeprefix(CANDIDATE))
                _say(
                    f"{source.path}: no fact of the open predicate {name!r} is possible: list its "
                    "possible facts, give a table, or declare '#external p(X) : domain(X).'"
                )
                continue
            begin, name = (int(line), int(column)), signature_of(what)[0]
            places = ((atom.symbol.location.begin, atom) for atom in written)
            here = (str(atom) for at, atom in places if (at.line, at.column) == begin)
            shown = decode_names(next(here, what))
            shown = shown if shown.startswith("'") else f"'{shown}'"
            problem = f"{shown} never holds: it has no facts and no rules, and is not open"
            problem += f"; facts from a table: {TABLE_HINT}"
            if name in empty:
                problem = f"{shown} never holds: the table of '{name}' is empty"
        else:
            problem = f"{problem}: {what}"
        remarks[str(source.error(int(line), int(column), problem))] = None
    for remark in remarks:
        _say(remark)


def _uses_size(node: Any) -> bool:
    """Return whether a node of clingo's tree computes, or compares values by size."""
    kind = node.ast_type.name
    if kind == "Comparison":
        return any(guard.comparison < 4 for guard in node.guards)  # neither != nor =
    return kind in {"BinaryOperation", "UnaryOperation", "BodyAggregate"}


def _compared_constants(source: Source) -> Iterator[Any]:
    """Yield the comparisons of a name with a constant, which a reader may take for a condition."""
    for rule in source.rules:
        for literal in rule.body if rule.ast_type.name == "Rule" else ():
            if literal.ast_type.name != "Literal" or literal.atom.ast_type.name != "Comparison":
                continue
            term = literal.atom.term
            kinds = {node.ast_type.name for node in walk(literal)}
            if "Variable" in kinds or term.ast_type.name not in {"SymbolicTerm", "Function"}:
                continue
            if is_word(decode_name(str(term))) and str(term) not in source.constants:
                yield literal


def _say(message: str) -> None:
    warnings.warn(message, GroundingWarning, stacklevel=level_of_caller())


# ---- Which atoms of a program are given, and which are asked for


def inputs(program: Program) -> tuple[str, ...]:
    """Return the atoms that can be given: open facts of a grounded program, else the roots.

    >>> from latentgamma.datalog import ground
    >>> inputs(ground("p(X) :- e(X).  e(1..2).", open=["e/1"]))
    ('e(1)', 'e(2)')

    Args:
        program: any program, grounded or not.
    """
    if isinstance(program.origin, Grounding):
        return program.origin.inputs
    return program.roots


def outputs(program: Program) -> tuple[str, ...]:
    """Return the atoms of the predicates that `#show` names; without it, those that rules derive.

    >>> from latentgamma.datalog import ground
    >>> outputs(ground("p(X) :- e(X). q(X) :- p(X). e(1..2). #show q/1.", open=["e/1"]))
    ('q(1)', 'q(2)')

    Args:
        program: any program, grounded or not.
    """
    origin = program.origin
    if isinstance(origin, Grounding) and origin.shown is not None:
        return atoms_of(program, origin.shown)
    return tuple(
        name
        for name, rules in zip(program.atoms, program.rules_per_head.tolist(), strict=True)
        if rules
    )


def atoms_of(program: Program, predicates: tuple[Signature, ...]) -> tuple[str, ...]:
    """Return the atoms of some predicates, in the order of the program."""
    wanted = set(predicates)
    return tuple(name for name in program.atoms if signature_of(encode_name(name)) in wanted)
