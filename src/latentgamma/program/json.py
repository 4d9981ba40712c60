"""JSON: an object with the atoms in order and the rules by name.

    {"latentgamma": 1, "kind": "program",
     "atoms": ["bird", "penguin"],
     "rules": [{"head": ["bird"], "body": ["penguin"]}, {"head": ["penguin"], "body": []}]}

A rule of a program with negation also has "not", the names of its negated atoms; one with a label
has "id" and perhaps "citation". A rule with an empty "head" is a requirement. Read are also a
bare list of rules, a single name in place of a list, and a rule without
"body" (a fact). Without "atoms" they are numbered as they appear, heads before bodies.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np

from latentgamma._text import shortened
from latentgamma.errors import ParseError, ProgramError
from latentgamma.program.counting import compile_counts, written_program
from latentgamma.program.graph import NotStratifiedError
from latentgamma.program.program import Label, Program, RuleRows, atoms_of_literals
from latentgamma.program.rule_text import error_at

_VERSION = 1
_KEYS = ("latentgamma", "kind", "atoms", "rules")
_RULE = object()  # stands in a list for a rule that has been stored


def write_json(program: Program) -> str:
    """Return the program as a JSON text, one rule to a line."""
    program = written_program(program)
    names = [json.dumps(name, ensure_ascii=False) for name in program.atoms]
    rules = []
    headless = program.requirements
    for j, (heads, literals) in enumerate(program._row_lists()):
        head = ", ".join([] if j in headless else [names[i] for i in heads])
        body = ", ".join([names[i] for i in literals if i >= 0])
        denied = ", ".join([names[~i] for i in literals if i < 0])
        negated = f', "not": [{denied}]' if denied else ""
        rules.append(f'{{"head": [{head}], "body": [{body}]{negated}{_label_text(program, j)}}}')
    separator = ",\n  "
    text = (
        f'{{"latentgamma": {_VERSION}, "kind": "program",\n'
        f' "atoms": [{", ".join(names)}],\n "rules": [\n  {separator.join(rules)}\n]}}\n'
    )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ProgramError(
            f"JSON cannot hold the lone surrogate {error.object[error.start]!r} in an atom's "
            "name; rename the atom, or write rule text"
        ) from None
    return text


def _label_text(program: Program, rule: int) -> str:
    label = program.label(rule)
    if label is None:
        return ""
    values = {"id": label.id, **({"citation": label.citation} if label.citation else {})}
    return f", {json.dumps(values, ensure_ascii=False)[1:-1]}"


def read_json(text: str, path: str) -> Program:
    """Return the program of a JSON text."""
    return _JsonReader(text, path).found


class _JsonReader:
    """The rules of a text, stored as soon as the parser has seen each of them."""

    def __init__(self, text: str, path: str) -> None:
        self.path = path
        self.rows = RuleRows()
        try:
            top = json.loads(text, object_pairs_hook=self._object)
        except json.JSONDecodeError as error:
            problem = f"not valid JSON: {error.msg[:1].lower()}{error.msg[1:]}"
            raise error_at(text, error.pos, problem, path) from None
        except RecursionError:
            raise self._error("this JSON is nested too deeply for a program") from None
        except ParseError:
            raise
        except ValueError as error:  # a number of thousands of digits
            raise self._error(f"not valid JSON: {error}") from None
        self.found = self._build(top)

    def _error(self, problem: str) -> ParseError:
        return ParseError(problem, path=self.path)

    def _object(self, pairs: list[tuple[str, Any]]) -> Any:
        content = dict(pairs)
        if len(content) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for i, key in enumerate(keys) if key in keys[:i])
            raise self._error(f"an object has the key {twice!r} twice")
        if "head" in content or "body" in content:
            self._store(content)
            return _RULE
        return content

    def _store(self, rule: dict[str, Any]) -> None:
        j = len(self.rows.labels)
        for key in rule:
            if key not in {"head", "body", "not", "id", "citation"}:
                raise self._error(
                    f"rules[{j}] has a key {key!r}; a rule has 'head' and 'body', and perhaps 'not', "
                    "'id' and 'citation'"
                )
        if "head" not in rule:
            raise self._error(f"rules[{j}] has no 'head'; it is [] for a requirement")
        try:
            label = Label(rule["id"], rule.get("citation", "")) if "id" in rule else None
        except ProgramError as error:
            raise self._error(f"rules[{j}]: {error}") from None
        if "citation" in rule and label is None:
            raise self._error(f"rules[{j}] has a citation but no id")
        parts: dict[str, dict[str, None]] = {}
        for key in ("head", "body", "not"):
            names = rule.get(key, [])
            listed = [names] if isinstance(names, str) else names
            if not isinstance(listed, list):
                raise self._error(f"rules[{j}].{key} must be a list of names, not {_show(names)}")
            for name in listed:
                if not isinstance(name, str) or not name:
                    raise self._error(
                        f"rules[{j}].{key}: a name is a non-empty string, not {_show(name)}"
                    )
            parts[key] = dict.fromkeys(listed)
        if not any(parts.values()):
            raise self._error(f"rules[{j}] has neither a head nor a body of names")
        self.rows.add(parts["head"], parts["body"], parts["not"], label)

    def _build(self, top: Any) -> Program:
        atoms = None
        rules = top
        if isinstance(top, dict):
            for key in top:
                if key not in _KEYS:
                    raise self._error(f"unknown key {key!r}; a program has {', '.join(_KEYS)}")
            version, kind = top.get("latentgamma", _VERSION), top.get("kind", "program")
            if type(version) is not int or version != _VERSION:
                raise self._error(f'"latentgamma" must be {_VERSION}, not {_show(version)}')
            if kind != "program":
                raise self._error(f'"kind" must be "program", not {_show(kind)}')
            if "rules" not in top:
                raise self._error("the object has no 'rules', the list of its rules")
            rules, atoms = top["rules"], top.get("atoms")
        if not isinstance(rules, list):
            raise self._error(
                f"expected a list of rules, or an object with a list of 'rules', not {_show(rules)}"
            )
        for j, rule in enumerate(rules):
            if rule is not _RULE:
                raise self._error(
                    f"rules[{j}] must be an object with 'head' and 'body', not {_show(rule)}"
                )
        try:
            program = self.rows.program()
            if atoms is not None:
                program = self._reordered(program, atoms)
            return compile_counts(program)
        except (NotStratifiedError, ParseError):
            raise
        except ProgramError as error:
            raise self._error(str(error)) from None

    def _reordered(self, program: Program, atoms: Any) -> Program:
        """Return the program with its atoms in this order."""
        if not isinstance(atoms, list):
            raise self._error(f"'atoms' must be a list of names, not {_show(atoms)}")
        place: dict[str, int] = {}
        for i, name in enumerate(atoms):
            if not isinstance(name, str) or not name:
                raise self._error(f"atoms[{i}]: a name is a non-empty string, not {_show(name)}")
            if place.setdefault(name, i) != i:
                raise self._error(f"'atoms' names {name!r} twice")
        for name in program.atoms:
            if name not in place:
                raise self._error(f"the rules use {name!r}, which 'atoms' does not name")
        new = np.array([place[name] for name in program.atoms], np.int32)
        found = Program.from_arrays(
            program.body_indptr,
            new[atoms_of_literals(program.body_literals)],
            new[program.head_indices],
            program.head_indptr,
            body_negated=program.body_literals < 0,
            atoms=atoms,
        )
        return replace(found, labels=program.labels)


def _show(value: object) -> str:
    """Return a value as an error shows it; never a long one."""
    if value is None or isinstance(value, (bool, int, float)):
        return json.dumps(value)[:40]
    if isinstance(value, str):
        return repr(shortened(value))
    return "a list" if isinstance(value, list) else "an object"
