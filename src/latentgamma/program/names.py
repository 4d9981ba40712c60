r"""How an atom's name is written in rule text.

A name is any non-empty string. It is written without quotes when it is a word that does not start like a
variable (`bird`, `_x1`, `größe`), a number (`3`), or a ground term without spaces
(`edge(a,b)`, `p(f(x),-3,"x y")`); every other name is written in quotes (`'not'`, `'x y'`).
Between quotes `\\ \' \" \n \r \t \uXXXX \UXXXXXXXX` mean what they mean in Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# Non-ASCII word characters count as lower-case letters; 'not' is reserved for an error.
_WORD = r"(?!not(?!\w))_*+[^\WA-Z0-9_]\w*+"
_NUMBER = r"[0-9]++(?!\w)"
# A quoted argument that is its own canonical form: printable, and nothing to escape.
_SIMPLE = r'"[ !#-\[\]-~\w]*+"'
_ARGUMENT = rf"(?:{_WORD}|-?{_NUMBER}|{_SIMPLE})"
#: A word with plain arguments or none: the atoms that one regular expression can read.
FLAT = rf"{_WORD}(?:\({_ARGUMENT}(?:,{_ARGUMENT})*+\))?+"

_bare = re.compile(rf"{FLAT}|{_NUMBER}")
_plain_word = re.compile(_WORD).fullmatch
_opening = re.compile(rf"{_WORD}\(").match
_functors = re.compile(rf"(?:{_WORD}\()++").match
_simple_arguments = re.compile(rf"(?:{_ARGUMENT},)++").match
_gap = re.compile(r"[ \t\n]++").match
_part = re.compile(rf"{_ARGUMENT}|[('\"]").match
_ESCAPE = r"\\(?:[\\'\"nrt]|u[0-9A-Fa-f]{4}|U(?:0010[0-9A-Fa-f]{4}|000[0-9A-Fa-f]{5}))"
_content = {mark: re.compile(rf"(?:[^{mark}\\\n]++|{_ESCAPE})*+").match for mark in ("'", '"')}

_ESCAPES = {"\\": r"\\", "\n": r"\n", "\r": r"\r", "\t": r"\t"}


class UnreadableName(Exception):  # noqa: N818 - never leaves the readers, who add the place
    """A text has no name at `position`; an empty `problem` means that a part is missing."""

    def __init__(self, position: int, problem: str = "") -> None:
        self.position = position
        self.problem = problem
        super().__init__(position, problem)


def quote(name: str) -> str:
    r"""Return the name as rule text has it: bare if it can be, else in single quotes.

    >>> print(quote("bird"), quote("edge(a,b)"), quote("edge(a, b)"), quote("it's\n"))
    bird edge(a,b) 'edge(a, b)' 'it\'s\n'
    """
    return name if _bare.fullmatch(name) or _is_nested_term(name) else add_quotes(name, "'")


def is_word(name: str) -> bool:
    """Return whether a name is a word: letters, digits and '_', not like a variable or a number."""
    return _plain_word(name) is not None


def rule_text(heads: Iterable[str], body: Iterable[str]) -> str:
    """Return one rule as text, from names that are already written as text.

    >>> rule_text(["h"], ["a", "b"]), rule_text(["a"], [])
    ('h :- a, b.', 'a.')
    """
    conditions = ", ".join(body)
    return f"{', '.join(heads)} :- {conditions}." if conditions else f"{', '.join(heads)}."


def read_name(text: str, start: int = 0) -> tuple[str, int]:
    """Return the name written at `start`, quoted or bare, and where it ends.

    >>> read_name("edge( a , f(b) ).")
    ('edge(a,f(b))', 16)
    """
    if text[start : start + 1] in {"'", '"'}:
        name, end = _read_quoted(text, start)
        if not name:
            raise UnreadableName(start, "a name must not be empty")
        return name, end
    if functor := _opening(text, start):
        return _read_term(text, start, functor.end())
    if plain := _bare.match(text, start):
        return plain[0], plain.end()
    raise UnreadableName(start)


def _is_nested_term(name: str) -> bool:
    if not name.endswith(")") or not _opening(name):
        return False
    try:
        return read_name(name) == (name, len(name))
    except UnreadableName:
        return False


def add_quotes(content: str, mark: str) -> str:
    """Return the content between two of these quotes, with escapes where they are needed."""
    if content.isprintable() and "\\" not in content:
        return f"{mark}{content.replace(mark, chr(92) + mark)}{mark}"
    return f"{mark}{''.join(_escape(c, mark) for c in content)}{mark}"


def _escape(character: str, mark: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character == mark:
        return f"\\{mark}"
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _read_quoted(text: str, start: int) -> tuple[str, int]:
    """Return the content between two quotes, unescaped, and where it ends."""
    mark = text[start]
    match = _content[mark](text, start + 1)
    end = match.end() if match else start + 1
    content = text[start + 1 : end]
    if text.startswith("\\", end):
        raise UnreadableName(
            end,
            f"unknown escape '{text[end : end + 2].strip()}' in a quoted name; "
            r"use \\ \' \" \n \r \t \uXXXX or \UXXXXXXXX",
        )
    if not text.startswith(mark, end):
        raise UnreadableName(start, f"this quote is not closed on its line; close it with {mark}")
    if "\\" in content:  # only such escapes are left as Python has, too
        content = content.encode("ascii", "backslashreplace").decode("unicode_escape")
    return content, end + 1


def _read_term(text: str, start: int, at: int) -> tuple[str, int]:
    """Return the term whose first argument is due at `at`, without its spaces, and where it ends.

    Terms may be nested as deep as memory allows, so the levels lie in an array: a level is 0
    in a compound term, 1 in a tuple, and 2 in a tuple that has had a comma.
    """
    levels = bytearray(1)
    pieces = []  # what comes before a gap, or an argument rewritten
    copied = start
    while True:
        if gap := _gap(text, at):
            pieces.append(text[copied:at])
            copied = at = gap.end()
        if simple := _simple_arguments(text, at):
            at = simple.end()
            levels[-1] = 2 if levels[-1] else 0
            continue
        if functors := _functors(text, at):
            levels.extend(bytes(functors[0].count("(")))
            at = functors.end()
            continue
        part = _part(text, at)
        if part is None:
            raise UnreadableName(at)
        if part[0] == "(":
            levels.append(1)
            at = part.end()
            continue
        if part[0] in _content:
            content, end = _read_quoted(text, at)
            written = add_quotes(content, '"') if part[0] == '"' else quote(content)
            if not content and part[0] == "'":
                raise UnreadableName(at, "a name must not be empty")
            if written != text[at:end]:
                pieces += [text[copied:at], written]
                copied = end
            at = end
        else:
            at = part.end()
        while True:  # after an argument: another one, or the end of this level
            if gap := _gap(text, at):
                pieces.append(text[copied:at])
                copied = at = gap.end()
            mark = text[at : at + 1]
            at += 1
            if mark == ",":
                levels[-1] = 2 if levels[-1] else 0
                break
            if mark != ")":
                raise UnreadableName(at - 1)
            if levels.pop() == 1:
                raise UnreadableName(at - 1, "a tuple of arguments has at least two members")
            if not levels:
                return "".join((*pieces, text[copied:at])), at
