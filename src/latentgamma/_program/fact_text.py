"""Facts from the command line: names between commas, or in a file."""

from __future__ import annotations

from latentgamma._errors import FactsError
from latentgamma._program.fact_arrays import Atoms
from latentgamma._program.facts import find_name
from latentgamma._program.rule_text import read_rules
from latentgamma._program.source_text import decode_text

# Characters of the facts that a message shows.
_SHOWN = 200


def split_facts(text: str) -> list[str]:
    """The names between commas, as written; commas in parentheses or quotes do not count.

    >>> split_facts("bird, edge(a,b), 'night train, late'")
    ['bird', 'edge(a,b)', "'night train, late'"]
    """
    if not text.strip():
        return []
    names = []
    start = 0
    while True:
        end = _end_of_name(text, start)
        name = text[start:end].strip()
        if not name:
            raise FactsError(f"there is no name between two commas of the facts {_shown(text)}")
        names.append(name)
        if end == len(text):
            return names
        start = end + 1


def _end_of_name(text: str, start: int) -> int:
    """Where the name at `start` ends: at a comma, or at the end of the text."""
    at = start + len(text[start:]) - len(text[start:].lstrip())
    if text[at : at + 1] in {"'", '"'}:
        at = _end_of_quote(text, at)
    depth = 0
    while at < len(text):
        mark = text[at]
        if mark == "," and depth == 0:
            return at
        if mark in {"'", '"'} and depth:
            at = _end_of_quote(text, at)
            continue
        depth = max(0, depth + (mark == "(") - (mark == ")"))
        at += 1
    if depth:
        raise FactsError(f"a '(' is never closed in the facts {_shown(text)}")
    return at


def _end_of_quote(text: str, at: int) -> int:
    mark, start = text[at], at
    at += 1
    while at < len(text):
        if text[at] == mark:
            return at + 1
        at += 2 if text[at] == "\\" else 1
    raise FactsError(f"a quote ({mark}) is never closed in the facts {_shown(text[start:])}")


def _shown(text: str) -> str:
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}…"


def atom_name(program: Atoms, text: str) -> str:
    """The name of the atom that a text means: the text itself, or what rule text makes of it.

    A text that names no atom comes back as it is, for an error to show.

    >>> from latentgamma import parse
    >>> program = parse("edge(a,b). 'night train'.")
    >>> atom_name(program, "edge( a, b )"), atom_name(program, "night train")
    ('edge(a,b)', 'night train')
    """
    index = find_name(program, text)
    return text if index is None else program.atoms[index]


def facts_in_file(program: Atoms, data: bytes, path: str) -> list[str]:
    """The names of the facts in a file that has one name on each line, or rule text.

    It is rule text if its first line that is not a comment ends with a full stop.

    Raises:
        FactsError: if the file contains a rule.
        ParseError: if it is not rule text, or not UTF-8.
    """
    text = decode_text(data, path)
    lines = [line.strip() for line in text.split("\n")]
    names = [line for line in lines if line and not line.startswith("%")]
    if not names:
        return []
    if not names[0].partition("%")[0].rstrip().endswith("."):
        return [atom_name(program, line) for line in names]
    stated = read_rules(text, path, negation=False)
    for j in stated.body_sizes.nonzero()[0][:1].tolist():
        raise FactsError(f"{path}: '{stated.rules[j]}' is a rule, not a fact; add it to the rules")
    return [name for name in stated.atoms if name in stated.facts]
