"""Popper's three files: background `bk.pl`, examples `exs.pl` and limits `bias.pl`.

Facts and function-free rules are used. What cannot be used is listed.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from latentgamma._text import listing, quantity
from latentgamma.errors import (
    DataError,
    ParseError,
    ProgramError,
)
from latentgamma.program.files import read_text
from latentgamma.relational.problem import Facts, read_facts

_QUOTED = r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
_comment = re.compile(_QUOTED + r"|%[^\n]*|/\*.*?\*/", re.DOTALL)
_single = re.compile(r"'((?:[^'\\]|\\.)*)'")
_clause = re.compile(r'((?:"(?:[^"\\]|\\.)*"|[^".]|\.(?=[0-9]))+)\.(?=\s|$)')
# Lists, arithmetic, comparison, cuts, negation and disjunction: Prolog that is not used here.
_prolog = re.compile(r"[\[|!;@<>]|\\[+=]|->|=|\b(?:is|not|findall|forall)\b")
_example = re.compile(r"(pos|neg)\s*\((.*)\)", re.DOTALL)
_setting = re.compile(r"(\w+)\s*(?:\((.*)\))?", re.DOTALL)
_IGNORED = ("discontiguous", "dynamic", "style_check")


@dataclass
class PopperFiles:
    """What the files hold, as arguments of `fit`.

    Attributes:
        background: tables by predicate.
        positive: examples.
        negative: examples; None without any.
        options: the limits, as keyword arguments.
        unused: what was left out, one sentence each.
    """

    background: dict[str, list[tuple[str, ...]]]
    positive: list[str]
    negative: list[str] | None
    options: dict[str, Any] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)


def read_popper(folder: str | os.PathLike[str]) -> PopperFiles:
    """Return what the three files in a folder hold; `bias.pl` may be missing.

    Raises:
        DataError: a file is missing, or has no facts or examples that can be used.
    """
    where = Path(folder)
    for name in ("bk.pl", "exs.pl"):
        if not (where / name).is_file():
            raise DataError(f"{os.fsdecode(folder)!r} has no {name}; it must hold bk.pl and exs.pl")
    found = PopperFiles(background={}, positive=[], negative=None)
    facts = _background(where / "bk.pl", found)
    read_examples(where / "exs.pl", found)
    bias = where / "bias.pl"
    wanted = _bias(bias, found) if bias.is_file() else None
    for (name, arity), rows in facts.items():
        if wanted is None or (name, arity) in wanted:
            found.background[f"{name}/{arity}"] = rows
    for name, arity in sorted((wanted or set()) - set(facts)):
        found.unused.append(f"bias.pl: body_pred {name}/{arity} has no facts in bk.pl")
    if not found.background:
        raise DataError(f"{where / 'bk.pl'} has no facts that can be used")
    return found


def _clauses(path: Path) -> list[str]:
    text = _comment.sub(lambda m: m[1] or " ", read_text(path))
    text = _single.sub(
        lambda m: m[1] if re.fullmatch(r"[a-z]\w*", m[1], re.ASCII) else f'"{m[1]}"', text
    )
    return [found[1].strip() for found in _clause.finditer(text)]


def _background(path: Path, found: PopperFiles) -> Facts:
    usable, refused = [], []
    for clause in _clauses(path):
        if clause.startswith(":-"):
            if not clause[2:].strip().startswith(_IGNORED):
                refused.append(clause)
        elif _prolog.search(re.sub(r'"[^"]*"', "", clause)):
            refused.append(clause)
        else:
            usable.append(clause)
    if refused:
        count = quantity(len(refused), "clause")
        shown = listing([repr(clause[:60]) for clause in refused], 2)
        found.unused.append(f"{path.name}: {count}, not function-free Datalog: {shown}")
    if not usable:
        return {}
    try:
        return read_facts(". ".join(usable) + ".", path.name)
    except ParseError as error:
        raise DataError(f"{path}: {error.problem}") from None
    except ProgramError as error:
        raise DataError(f"{path}: {error}") from None


def read_examples(path: str | os.PathLike[str], found: PopperFiles) -> None:
    """Add the examples of a file: `pos(…)` and `neg(…)`, or facts, which are positive.

    Raises:
        DataError: a clause is no example, or there is no positive one.
    """
    path = Path(path)
    negative: list[str] = []
    for clause in _clauses(path):
        if clause.startswith(":-"):
            continue
        match = _example.fullmatch(clause)
        if ":-" in clause:
            raise DataError(
                f"{path}: {clause[:60]!r} is no example; write pos(atom). or neg(atom)."
            )
        atom = clause if match is None else match[2].strip()
        if "[" in atom:
            raise DataError(f"{path}: {clause[:60]!r} holds a list; examples are function-free")
        (negative if match and match[1] == "neg" else found.positive).append(atom)
    if not found.positive:
        raise DataError(f"{path} has no positive example; write pos(atom).")
    found.negative = negative or None


def _bias(path: Path, found: PopperFiles) -> set[tuple[str, int]] | None:
    """Add the limits, and return the predicates that bodies may use."""
    body: set[tuple[str, int]] = set()
    heads: list[str] = []
    found.options["recursive"] = False  # unless the file allows it
    unknown: list[str] = []
    for clause in _clauses(path):
        match = _setting.fullmatch(clause)
        name, inside = (match[1], match[2]) if match else (clause, None)
        values = [value.strip() for value in (inside or "").split(",")]
        if name in {"head_pred", "body_pred"} and len(values) == 2 and values[1].isdigit():
            if name == "head_pred":
                heads.append(f"{values[0]}/{values[1]}")
            else:
                body.add((values[0], int(values[1])))
        elif name in {"max_vars", "max_body"} and values[0].isdigit():
            found.options["max_variables" if name == "max_vars" else "max_body"] = int(values[0])
        elif name in {"enable_recursion", "allow_recursion"}:
            found.options["recursive"] = True
        elif name in {"enable_pi", "allow_predicate_invention"}:
            found.options.update(invent=1, recursive=True)
        else:
            unknown.append(name)
    if heads:
        found.options["target"] = heads
    if unknown:
        names = listing(sorted(set(unknown)), 6)
        found.unused.append(f"bias.pl: settings that have no meaning here: {names}")
    return body or None
