"""Rule text: from what people write to a program.

    text      = { statement }
    statement = heads "." | heads ":-" [ body ] "." | [ body ] "=>" heads "." | "#external" atom "."
    heads     = atom { "," atom }        every one of them follows (clingo would read "or")
    body      = atom { "," atom }
    atom      = word | number | term | quoted name       (see `latentgamma._program.names`)

`<-` is another way to write `:-`, and `->` to write `=>`. Comments are `% …` to the end of
the line, `/* … */`, and clingo's `%* … *%`, of which only the last nest. `#external a.`
makes the atom known without saying anything about it. Atoms are numbered as they appear,
the heads of a rule before its body.
"""

from __future__ import annotations

import codecs
import re
from array import array
from typing import TYPE_CHECKING

import numpy as np

from latentgamma._errors import ProgramError
from latentgamma._program.names import FLAT, UnreadableName, read_name
from latentgamma._program.program import Program
from latentgamma._program.source_text import decoded, error_at, prepared
from latentgamma._program.syntax_errors import Due, explained

if TYPE_CHECKING:
    from latentgamma._program.fast_scanner import Rest

#: From this many bytes on, a text is worth the time to load compiled code.
LARGE = 1 << 21

_token = re.compile(
    rf"""[ \t\n]*+(?:
      ({FLAT}(?!\()|[0-9]++(?![\w(]|\.[0-9.]|::))   # 1 an atom that one expression can read
    | (,)                                           # 2
    | (\.(?!\.))                                    # 3
    | (:-|<-(?!>))                                  # 4 heads, then body
    | (=>|->)                                       # 5 body, then heads
    | (%(?!\*)[^\n]*+)                              # 6
    | (/\*|%\*)                                     # 7 a comment that has an end
    | (["']|{FLAT}(?=\())                           # 8 an atom to be read with care
    | (\#external(?!\w))                            # 9
    | \Z                                            # nothing but blanks
    )""",
    re.VERBOSE,
).match
_ATOM, _COMMA, _END, _ARROW, _REVERSED, _COMMENT, _BLOCK, _CAREFUL, _EXTERNAL = range(1, 10)
_ATOMS, _ARROWS = frozenset({_ATOM, _CAREFUL}), frozenset({_ARROW, _REVERSED})
_nesting = re.compile(r"%\*|\*%|%[^\n]*+")


def parse(text: str, *, path: str = "<text>") -> Program:
    """The program that a text of rules describes.

    >>> program = parse("bird :- penguin.  animal :- bird.  penguin.")
    >>> program.atoms
    ('bird', 'penguin', 'animal')
    >>> print(program)
    bird :- penguin.
    animal :- bird.
    penguin.

    Args:
        text: rules such as `h :- b1, b2.`, `h1, h2 :- b.`, `b => h.` and `a.`
        path: what an error calls the text.
    """
    if not isinstance(text, str):
        raise ProgramError(f"parse reads a string of rules, not {type(text).__name__}")
    if len(text) >= LARGE:
        try:
            return read_rule_bytes(text.encode(), path)
        except UnicodeEncodeError:  # lone surrogates, which only the careful reader takes
            pass
    return _read_rules(prepared(text, path), path)


def read_rule_bytes(data: bytes, path: str) -> Program:
    """The program of a rule text in UTF-8; a large one is read by compiled code."""
    if len(data) < LARGE:
        return _read_rules(decoded(data, path), path)
    from latentgamma._program.fast_scanner import (
        scan_rules,  # compiled code is loaded for large texts only
    )

    unmarked = data.removeprefix(codecs.BOM_UTF8)
    scanned = scan_rules(unmarked)
    if scanned is None:
        return _read_rules(decoded(data, path), path)
    program, rest = scanned
    if rest is None:
        return program
    text = decoded(data, path)
    at, seen = (  # in the text, where every line end is one character
        len(unmarked[:n].decode()) - unmarked.count(b"\r", 0, n) for n in (rest.at, rest.seen)
    )
    return _read_rules(text, path, (program, rest._replace(at=at, seen=seen)))


def _read_rules(
    text: str, path: str = "<text>", scanned: tuple[Program, Rest] | None = None
) -> Program:
    """The program of a prepared text, read token by token: it knows all forms and all errors.

    Args:
        text: what to read.
        path: what an error calls it.
        scanned: what compiled code has read of it, and where it has stopped.
    """
    index: dict[str, int] = {}
    heads, bodies = array("i"), array("i")
    head_ends, body_ends = array("q", [0]), array("q", [0])
    # A dictionary is a set that keeps its order; a rule's names may be many and repeated.
    left: dict[str, None] = {}
    right: dict[str, None] = {}
    arrow = 0  # the kind of this statement's arrow, or _EXTERNAL
    last = 0  # the kind of the token before; 0 at the start of a statement
    sign = ""  # the comma, arrow or directive before, for errors
    seen = at = 0  # where the token before ends, and where the next may start
    if scanned is not None:
        program, rest = scanned
        names = program.atoms
        index = {name: i for i, name in enumerate(names)}
        for into, given in zip(
            (body_ends, bodies, head_ends, heads), program._arrays(), strict=True
        ):
            into[:] = array(into.typecode, given.tobytes())
        at, seen = rest.at, rest.seen
        if rest.last:  # it stopped in a body
            arrow, sign = _ARROW, rest.last
            last = {"atom": _ATOM, ",": _COMMA}.get(rest.last, _ARROW)
            left = dict.fromkeys(names[i] for i in rest.heads.tolist())
            right = dict.fromkeys(names[i] for i in np.unique(rest.body).tolist())
    while token := _token(text, at):
        kind = token.lastindex
        if kind is None:
            at = len(text) if last == 0 else at
            break
        if kind in _ATOMS:
            if last == _ATOM:
                break
            if kind == _ATOM:
                name, at = token[_ATOM], token.end()
            else:
                name, at = _read_with_care(text, token.start(_CAREFUL), path)
            (right if arrow in _ARROWS else left)[name] = None
            last, seen = _ATOM, at
            continue
        if kind == _COMMA:
            if last != _ATOM or arrow == _EXTERNAL:
                break
            last, sign = _COMMA, ","
        elif kind == _END:
            if last != _ATOM and not (last == _ARROW and left):
                break
            if arrow == _REVERSED:
                left, right = right, left
            numbers = sorted([index.setdefault(name, len(index)) for name in left])
            if arrow != _EXTERNAL:
                heads.extend(numbers)
                head_ends.append(len(heads))
                bodies.extend(sorted([index.setdefault(name, len(index)) for name in right]))
                body_ends.append(len(bodies))
            left, right, arrow, last = {}, {}, 0, 0
        elif kind in _ARROWS:
            if arrow or not (last == _ATOM or (last == 0 and kind == _REVERSED)):
                break
            arrow, last, sign = kind, kind, token[kind]
        elif kind == _EXTERNAL:
            if last != 0:
                break
            arrow, last, sign = kind, kind, token[kind]
        elif kind == _BLOCK:
            at = _end_of_comment(text, token.start(_BLOCK), path)
            continue
        at = token.end()
        seen = seen if kind == _COMMENT else at
    if last or text[at : at + 1]:
        raise explained(text, at, _due(last, arrow), path, sign=sign, seen=seen)
    return Program._sealed(
        tuple(index),
        np.array(body_ends, np.int64),
        np.array(bodies, np.int32),
        np.array(head_ends, np.int64),
        np.array(heads, np.int32),
    )


def _read_with_care(text: str, start: int, path: str) -> tuple[str, int]:
    try:
        return read_name(text, start)
    except UnreadableName as error:
        at, problem = error.position, error.problem
    if problem:
        raise error_at(text, at, problem, path)
    raise explained(text, at, "term", path)


def _due(last: int, arrow: int) -> Due:
    if last == 0:
        return "statement"
    if last == _ATOM:
        if arrow == _EXTERNAL:
            return "end"
        return "body" if arrow == _ARROW else "heads"
    if last == _REVERSED:
        return "derived"
    return "condition" if arrow == _ARROW else "head"


def _end_of_comment(text: str, start: int, path: str) -> int:
    if text.startswith("/*", start):
        end = text.find("*/", start + 2)
        if end >= 0:
            return end + 2
    else:
        depth = 0
        for mark in _nesting.finditer(text, start):
            depth += {"%*": 1, "*%": -1}.get(mark[0], 0)
            if depth == 0:
                return mark.end()
    opening = text[start : start + 2]
    hint = "; write '% *' if it is a line comment" if opening == "%*" else ""
    raise error_at(text, start, f"this comment is not closed by '{opening[::-1]}'{hint}", path)
