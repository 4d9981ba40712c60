"""Errors of rule text: each construct that is not read, and what to write instead."""

from __future__ import annotations

import re
import unicodedata
from typing import Literal, TypeAlias

from latentgamma._errors import ParseError
from latentgamma._program.source_text import error_at

#: What the reader expected: a statement, an atom among the heads (the first one after '=>' is
#: 'derived') or in the body, what comes after such an atom, the '.' of a declaration, or a
#: part of a term.
Expected: TypeAlias = Literal[
    "statement", "head", "derived", "condition", "heads", "body", "end", "term"
]

_NOT_DEFINITE = "is not part of a definite program"
_CONSTRAINT = (
    f"a constraint (a rule without a head) {_NOT_DEFINITE}; "
    "give it a head such as 'bad', and ask whether 'bad' is derived"
)
_GROUND = "ground the rules first, for example with 'clingo --text'"
_BEFORE_ATOM = "statement head derived condition"
_AFTER_ATOM = "heads body"

# (what was expected, a pattern of what stands there instead, what that is and what to do);
# the first match makes the message.
_CONSTRUCTS = tuple(
    (frozenset(expected.split()), re.compile(pattern).match, problem)
    for expected, pattern, problem in (
        ("statement", r":-|<-", _CONSTRAINT),
        ("derived", r"\.", _CONSTRAINT),
        (
            "statement",
            r":~",
            f"a weak constraint {_NOT_DEFINITE}; leave preferences to the code that asks",
        ),
        (
            "statement",
            r"\?-",
            "a query is not part of a program; ask for the closure or a derivation instead",
        ),
        ("statement", r"#show(?!\w)", "this '#show' is not closed by '.'"),
        (
            "statement",
            r"#\w+|\.[A-Za-z]\w*",
            "the directive {found} is not known; leave it out (only '#external a.' is read, and "
            "'#show' is skipped)",
        ),
        ("statement", r"\*/", "'*/' closes no comment; comments in '/* */' do not nest"),
        (
            "statement head derived heads",
            r"(?:[0-9]++\s*+)?\{",
            f"a choice ('{{{{…}}}}') {_NOT_DEFINITE}; give the chosen atoms as facts when asking",
        ),
        (
            "condition body",
            r"(?:[0-9]++\s*+)?\{|#(?:count|sum\+?|min|max|minimize|maximize)\b",
            f"an aggregate ({{found}}) {_NOT_DEFINITE}; "
            "write one rule for each set of atoms that meets it",
        ),
        (
            _BEFORE_ATOM,
            r"#\w+",
            "{found} is not an atom; leave it out",
        ),
        (_BEFORE_ATOM, r"!(?=\s*+[,.])", f"a cut ('!') {_NOT_DEFINITE}; leave it out"),
        (
            _BEFORE_ATOM,
            r"not(?!\w)|\\\+|[-~!¬]",
            f"negation ({{found}}) {_NOT_DEFINITE}; give the opposite a name of its own, "
            "such as 'not_a', and state it as a fact where it holds",
        ),
        (
            _BEFORE_ATOM,
            r"[0-9]++(?:\.[0-9]++)?\s*+::",
            f"a probability ({{found}}) {_NOT_DEFINITE}; write the plain rule without it",
        ),
        (_AFTER_ATOM, r"::", f"a probability ('::') {_NOT_DEFINITE}; write the plain rule"),
        (
            f"{_BEFORE_ATOM} {_AFTER_ATOM} term",
            r"(?:[0-9]++\s*+)?\.\.",
            f"an interval ('..') stands for many rules; {_GROUND}",
        ),
        (
            f"{_BEFORE_ATOM} term",
            r"[0-9]*+\.[0-9]",
            "a decimal number is not a name; put it in quotes",
        ),
        (
            f"{_BEFORE_ATOM} term",
            r"(?:_*+[A-Z]|_)\w*+\s*+(?:[!=<>\\]=|=(?!>)|[<>](?!-)|is\b)",
            f"a comparison {_NOT_DEFINITE}; {_GROUND}",
        ),
        (
            f"{_BEFORE_ATOM} term",
            r"(?:_*+[A-Z]|_)\w*+",
            f"{{found}} is a variable; {_GROUND}, or put it in quotes if it is a name",
        ),
        (
            f"{_BEFORE_ATOM} term",
            r"[0-9]\w*",
            "{found} starts with a digit but is not a number; put it in quotes",
        ),
        (
            "heads",
            r"[;|∨]|\\/",
            f"a disjunction ({{found}}) {_NOT_DEFINITE}; "
            "if every one of the heads follows, separate them by ','",
        ),
        (
            "condition body",
            r"[;|∨]|\\/",
            "{found} means 'and' to some readers and 'or' to others; "
            "write ',' for 'and', and one rule for each alternative for 'or'",
        ),
        ("term", r"\[", "a list is not known here; write it as a term, or put it in quotes"),
        (
            "term",
            r"[;|]",
            f"a pool of arguments ({{found}}) stands for many rules; {_GROUND}",
        ),
        (f"{_AFTER_ATOM} end", r"[&∧]|/\\", "{found} is not known here; write ',' for 'and'"),
        (_AFTER_ATOM, r"<->|<=>", "an equivalence is two rules; write one for each direction"),
        (_AFTER_ATOM, r"-->", "a grammar rule is not known here; write ':-' for a rule"),
        (
            _AFTER_ATOM,
            r"[!=<>\\]=|=|[<>]|is\b",
            f"a comparison ({{found}}) {_NOT_DEFINITE}; {_GROUND}",
        ),
        (
            f"{_AFTER_ATOM} term",
            r"[-+*/\\^?]",
            f"arithmetic ({{found}}) is not known here; {_GROUND}",
        ),
        (
            f"{_AFTER_ATOM} end",
            r":(?!-)",
            f"a condition on an atom (':') {_NOT_DEFINITE}; {_GROUND}",
        ),
        (_AFTER_ATOM, r"\(", "write the arguments right after the name, without a space"),
    )
)

#: What looks like the name of a file rather than a rule.
_PATH = re.compile(r"\s*[\w./\\-]+\.(lp|pl|dl|json|cnf|txt)(\.gz)?\s*")
_DESCRIPTIONS = {
    "statement": "a rule",
    "head": "an atom",
    "derived": "an atom",
    "condition": "an atom",
    "heads": "',' or ':-' or '.' after an atom",
    "body": "',' or '.' after an atom",
    "end": "'.' after the one atom of '#external'",
    "term": "an argument",
}
_blanks = re.compile(r"[ \t\n]*+").match
_symbol = re.compile(r"\w++|:-|<-|=>|->|.").match


def explain_error(
    text: str,
    at: int,
    expected: Expected,
    path: str,
    *,
    sign: str = "",
    token_end: int | None = None,
) -> ParseError:
    """The error for what stands at or after this place instead of what was expected.

    Args:
        text: the whole text.
        at: where it stands, blanks aside.
        expected: what was expected there.
        path: what the error calls the text.
        sign: the comma, arrow or directive after which an atom was expected.
        token_end: where the token before ends, if a comment is between.
    """
    token_end = at if token_end is None else token_end
    blanks = _blanks(text, at)
    start = blanks.end() if blanks else at
    for places, matches, problem in _CONSTRUCTS:
        if expected in places and (match := matches(text, start)):
            found = f"'{_shorten(match[0])}'"
            return error_at(text, start, problem.format(found=found), path)
    description = _DESCRIPTIONS[expected]
    if expected == "term" and text[:start].rstrip(" \t\n")[-1:] not in {"(", ","}:
        description = "',' or ')' in a term"
    elif expected in {"head", "derived", "condition"}:
        description += f" after {sign!r}"
    if start == len(text):
        if expected in {"heads", "body", "end"}:
            description = "'.' at the end of a rule"
        hint = "; to read a file, use lg.load" if _PATH.fullmatch(text) else ""
        return error_at(text, token_end, f"expected {description} but the text ends{hint}", path)
    problem = f"expected {description} but found {_describe_symbol(text, start)}"
    if expected in {"heads", "body"} and "\n" in text[token_end:start]:
        problem += "; is the '.' of the rule before it missing?"
    return error_at(text, start, problem, path)


def _describe_symbol(text: str, at: int) -> str:
    """The word or sign at this place, as an error shows it."""
    match = _symbol(text, at)
    found = _shorten(match[0]) if match else ""
    if len(found) == 1 and not (" " < found <= "~"):
        name = unicodedata.name(found, "a control character")
        return f"{found!r} (U+{ord(found):04X}, {name})"
    return f"'{found}'"


def _shorten(found: str) -> str:
    return found if len(found) <= 40 else f"{found[:40]}…"
