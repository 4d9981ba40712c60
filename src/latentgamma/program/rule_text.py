"""Reads rules and facts from text, and says where a text is not one."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace
from typing import Literal, TypeAlias

from latentgamma._text import shortened
from latentgamma.errors import FactsError, ParseError
from latentgamma.program.counting import compile_counts
from latentgamma.program.facts import find_name
from latentgamma.program.names import (
    FLAT,
    UnreadableName,
    condition_text,
    is_column,
    read_comparison,
    read_count,
    read_name,
)
from latentgamma.program.program import Label, Program, RuleRows

# ---- Texts as they come from files, and errors that show a place in one


def decode_text(data: bytes, path: str) -> str:
    """Return the text of these bytes, which must be UTF-8, with plain line ends."""
    try:
        return normalize_text(data.decode(), path)
    except UnicodeDecodeError as error:
        at = error.start
    hint = "save the file as UTF-8"
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        hint = f"it looks like UTF-16; {hint}"
    elif data.startswith(b"\x1f\x8b"):
        hint = "it is compressed; end its name with .gz"
    start = data.rfind(b"\n", 0, at) + 1
    raise ParseError(
        f"byte 0x{data[at]:02x} at offset {at} is not UTF-8; {hint}",
        source=data[start : at + 200].partition(b"\n")[0].decode(errors="replace"),
        line=data.count(b"\n", 0, at) + 1,
        column=len(data[start:at].decode()) + 1,
        path=path,
    )


def normalize_text(text: str, path: str) -> str:
    """Return the text without a byte order mark and with plain line ends; it must not hold NUL."""
    text = text.removeprefix("\ufeff")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    at = text.find("\0")
    if at >= 0:
        raise error_at(text, at, "found a NUL character; this is not a text file", path)
    return text


class ConditionError(ParseError):
    """A text has a condition that cannot be read, and could not be one of rules with variables."""


def error_at(
    text: str, at: int, problem: str, path: str, kind: type[ParseError] = ParseError
) -> ParseError:
    """Return the error that shows this place of a text."""
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at, at + 200)  # a line may be very long; the error shows a part
    return kind(
        problem,
        source=text[start : at + 200 if end < 0 else end],
        line=text.count("\n", 0, at) + 1,
        column=at - start + 1,
        path=path,
    )


# ---- Errors of rule text: each construct that is not read, and what to write instead

#: What the reader expected: a statement, an atom among the heads (the first one after '=>' is
#: 'derived') or in the body, what comes after such an atom, the '.' of a declaration, or a
#: part of a term.
Expected: TypeAlias = Literal[
    "statement", "head", "derived", "condition", "heads", "body", "end", "term"
]

_NOT_DEFINITE = "is not part of a definite program"
_GROUND = "ground the rules first, for example with 'clingo --text'"
_BEFORE_ATOM = "statement head derived condition"
_AFTER_ATOM = "heads body"

# (what was expected, a pattern of what stands there instead, what that is and what to do);
# the first match makes the message.
_CONSTRUCTS = tuple(
    (frozenset(expected.split()), re.compile(pattern).match, problem)
    for expected, pattern, problem in (
        ("derived", r"\.", "write a requirement as a rule without a head: ':- a, b.'"),
        (f"{_BEFORE_ATOM} {_AFTER_ATOM}", r"#(?![\w])|//", "a comment starts with '%'"),
        ("heads", r"if(?!\w)", "'if' is written ':-'"),
        (_AFTER_ATOM, r"and(?!\w)", "'and' is written ','"),
        (_AFTER_ATOM, r"or(?!\w)", "'or' is not known here; write one rule for each alternative"),
        (_AFTER_ATOM, r"(?:not\s++in|is\s++not\s++(?:missing|in))(?!\w)",
         "'not' stands before the column: 'not country in {{ir, kp}}', 'not age is missing'"),
        (_AFTER_ATOM, r"in(?!\w)",
         "one of several values is written with braces: 'country in {{ir, kp}}'"),
        (_AFTER_ATOM, r"(?<=\d{4})-\d\d?-\d\d?(?!\d)",
         'a date is a text; write it in quotes, such as "2026-01-31"'),
        ("statement", r":~",
         f"a weak constraint {_NOT_DEFINITE}; leave preferences to the code that asks"),
        ("statement", r"\?-",
         "a query is not part of a program; ask for the closure or a derivation instead"),
        ("statement", r"#show(?!\w)", "this '#show' is not closed by '.'"),
        ("statement", r"#\w+|\.[A-Za-z]\w*",
         "the directive {found} is not known; leave it out (only '#external a.' is read, and "
         "'#show' is skipped)"),
        ("statement", r"\*/", "'*/' closes no comment; comments in '/* */' do not nest"),
        ("statement head derived heads", r"(?:[0-9]++\s*+)?\{|(?:(?<=\})|(?<=\}\s))[0-9]",
         f"a choice ('{{{{…}}}}') {_NOT_DEFINITE}; give the chosen atoms as facts when asking"),
        ("body", r"[0-9]++(?=\s*+[,.])",
         "a count has no upper bound; 'at most 3' is written as 'not 4 {{ … }}'"),
        ("condition body", r"(?:[0-9]++\s*+)?\{|#(?:count|sum\+?|min|max|minimize|maximize)\b",
         f"an aggregate ({{found}}) {_NOT_DEFINITE}; "
         "write one rule for each set of atoms that meets it"),
        (_BEFORE_ATOM, r"#\w+",
         "{found} is not an atom; leave out '#true', and every rule with '#false' in its body"),
        (_BEFORE_ATOM, r"!(?=\s*+[,.])", f"a cut ('!') {_NOT_DEFINITE}; leave it out"),
        ("condition", r"(?<=not\s)not(?!\w)", "'not not' is not known here; write the plain atom"),
        (_BEFORE_ATOM, r"not\(|\\\+|[~!¬]",
         "negation ({found}) is written 'not' and a blank before an atom of the body: "
         "'h :- a, not b.'"),
        (_BEFORE_ATOM, r"not(?!\w)|-",
         f"negation ({{found}}) {_NOT_DEFINITE}; give the opposite a name of its own, "
         "such as 'not_a', and state it as a fact where it holds"),
        (_BEFORE_ATOM, r"[0-9]++(?:\.[0-9]++)?\s*+::",
         f"a probability ({{found}}) {_NOT_DEFINITE}; write the plain rule without it"),
        (_AFTER_ATOM, r"::", f"a probability ('::') {_NOT_DEFINITE}; write the plain rule"),
        (f"{_BEFORE_ATOM} {_AFTER_ATOM} term", r"(?:[0-9]++\s*+)?\.\.",
         f"an interval ('..') stands for many rules; {_GROUND}"),
        (f"{_BEFORE_ATOM} term", r"[0-9]*+\.[0-9]",
         "a decimal number is not a name; put it in quotes"),
        (f"{_BEFORE_ATOM} term", r"(?:_*+[A-Z]|_)\w*+\s*+(?:[!=<>\\]=|=(?!>)|[<>](?!-)|is\b)",
         f"a comparison {_NOT_DEFINITE}; {_GROUND}; a column whose name has a capital first letter "
         "is written in quotes"),
        (f"{_BEFORE_ATOM} term", r"(?:_*+[A-Z]|_)\w*+",
         f"{{found}} is a variable; {_GROUND}, or put it in quotes if it is a name"),
        (f"{_BEFORE_ATOM} term", r"[0-9]\w*",
         "{found} starts with a digit but is not a number; put it in quotes"),
        ("heads", r"[;|∨]|\\/",
         f"a disjunction ({{found}}) {_NOT_DEFINITE}; "
         "if every one of the heads follows, separate them by ','"),
        ("condition body", r"[;|∨]|\\/",
         "{found} means 'and' to some readers and 'or' to others; "
         "write ',' for 'and', and one rule for each alternative for 'or'"),
        ("term", r"\[", "a list is not known here; write it as a term, or put it in quotes"),
        ("term", r"[;|]", f"a pool of arguments ({{found}}) stands for many rules; {_GROUND}"),
        (f"{_AFTER_ATOM} end", r"[&∧]|/\\", "{found} is not known here; write ',' for 'and'"),
        (_AFTER_ATOM, r"<->|<=>", "an equivalence is two rules; write one for each direction"),
        (_AFTER_ATOM, r"-->", "a grammar rule is not known here; write ':-' for a rule"),
        (_AFTER_ATOM, "=>", "a comparison has no '=>'; did you mean '>='?"),
        (_AFTER_ATOM, r"[!=<>\\]=|=|[<>]|is\b",
         "a comparison ({found}) has a column on its left, a word or a name in quotes, and a "
         f"constant on its right; if it is about variables, {_GROUND}"),
        (f"{_AFTER_ATOM} term", r"[-+*/\\^?]",
         f"arithmetic ({{found}}) is not known here; {_GROUND}"),
        (f"{_AFTER_ATOM} end", r":(?!-)",
         f"a condition on an atom (':') {_NOT_DEFINITE}; {_GROUND}"),
        (_AFTER_ATOM, r"\(", "write the arguments right after the name, without a space"),
    )
)  # fmt: skip

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


def _describe_symbol(text: str, at: int) -> str:
    """Return the word or sign at this place, as an error shows it."""
    match = _symbol(text, at)
    found = shortened(match[0]) if match else ""
    if len(found) == 1 and not (" " < found <= "~"):
        name = unicodedata.name(found, "a control character")
        return f"{found!r} (U+{ord(found):04X}, {name})"
    return f"'{found}'"


# ---- Rule text: from what people write to a program
# text      = { statement }
#     statement = heads "." | heads ":-" [ body ] "." | [ body ] "=>" heads "."
#               | ":-" body "."            a requirement: its body must not hold
#               | "#external" atom "." | "#show" anything "."
#     heads     = atom { "," atom }        every one of them follows (clingo would read "or")
#     body      = literal { "," literal }
#     literal   = [ "not" ] ( atom | condition | count )
#     atom      = word | number | term | quoted name       (see `latentgamma.program.names`)
#     condition = column comparison        the column is a word or a quoted name
#     count     = number "{" literal { ";" literal } "}"   at least so many of them
#
# `<-` is another way to write `:-`, and `->` to write `=>`. The comment `% @rule ID: citation` on
# the line before a rule gives it a label. Other comments are `% …` to the end of
# the line, `/* … */`, and clingo's `%* … *%`, of which only the last nest. `#external a.`
# declares an atom without saying anything about it; `#show` is skipped, since clingo prints it
# with ground rules. Atoms are numbered as they appear, the heads of a rule before its body.

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
    | (\#show(?!\w)(?:[^."%]|"(?:[^"\\\n]|\\.)*+"|\.\.|\.(?=[0-9]))*+\.)   # 10
    | (not(?![\w(]))                                # 11 before an atom that must not follow
    | \Z                                            # nothing but blanks
    )""",
    re.VERBOSE,
).match
_ATOM, _COMMA, _END, _ARROW, _REVERSED, _COMMENT, _BLOCK, _CAREFUL = range(1, 9)
_EXTERNAL, _SHOW, _NOT = range(9, 12)
_ARROWS = (_ARROW, _REVERSED)
_ATOMS = rf"{FLAT}(?!\()(?:[ \t\n]*+,[ \t\n]*+{FLAT}(?!\())*+"
#: A whole rule whose atoms one expression can read, as nearly all are in a large text: this way
#: takes half the time.
_plain_rule = re.compile(
    rf"[ \t\n]*+({_ATOMS})[ \t\n]*+(?::-[ \t\n]*+({_ATOMS})[ \t\n]*+)?+\.(?!\.)"
).match
_flat_atoms = re.compile(FLAT).findall
#: Whether a comment gives a label to the next rule.
starts_label = re.compile(r"%[ \t]*+@rule(?!\w)").match
_label = re.compile(r"%[ \t]*+@rule[ \t]++([^\s:,]++)[ \t]*+(?::(.*))?").fullmatch
_opening_brace = re.compile(r"[ \t\n]*+\{").match
_variable = re.compile(r"(?:_*+[A-Z])\w*+").match
_nesting = re.compile(r"%\*|\*%|%[^\n]*+")
_end_of_statement = re.compile(r"\.(?![.0-9])").search


def read_rules(text: str, path: str, *, negation: bool = True) -> Program:
    """Return the program of a text of rules.

    Raises:
        ParseError: if the text is not a program.
        NotStratifiedError: if an atom depends on its own negation.
    """
    return _RuleReader(normalize_text(text, path), path, negation).read()


class _RuleReader:
    """The rules read so far, and the statement being read.

    There is a method for each kind of token. It returns whether such a token may stand here.
    """

    def __init__(self, text: str, path: str, negation: bool) -> None:
        self.text, self.path, self.negation = text, path, negation
        self.at = 0  # where the next token may start
        self.token_end = 0  # where the token before ends, comments aside
        self.rows = RuleRows()
        self.ids: set[str] = set()
        self.label: Label | None = None  # of the rule to come
        self.line, self.line_at = 1, 0  # of the last rule with a label, and where that rule starts
        self.start_statement()

    def start_statement(self) -> None:
        self.start = self.token_end
        # A dictionary is a set that keeps its order; a rule's names may be many and repeated.
        self.left: dict[str, None] = {}
        self.right: dict[str, None] = {}
        self.denied: dict[str, None] = {}
        self.arrow = 0  # the kind of this statement's arrow, or _EXTERNAL
        self.last = 0  # the kind of the token before; 0 at the start of a statement
        # Where the first literal before any arrow stands that is not an atom, and what is expected
        # there, for the error if it turns out to be a head.
        self.literal: tuple[int, Expected] | None = None
        self.sign = ""  # the comma, arrow or directive before, for errors

    def read(self) -> Program:
        methods = {
            _ATOM: self.read_atom,
            _COMMA: self.read_comma,
            _END: self.end_statement,
            _ARROW: self.read_arrow,
            _REVERSED: self.read_arrow,
            _COMMENT: self.skip_line_comment,
            _BLOCK: self.skip_block_comment,
            _CAREFUL: self.read_quoted_or_term,
            _EXTERNAL: self.start_declaration,
            _SHOW: self.skip_show,
            _NOT: self.read_not,
        }
        while True:
            if self.last == 0 and self.label is None:
                self.read_plain_rules()
            token = _token(self.text, self.at)
            if token is not None and token.lastindex is None:
                self.at = len(self.text) if self.last == 0 else self.at
                break
            read = token is not None and methods[token.lastindex or 0](token)
            if not (read or self.read_condition()):
                break
        if self.last or self.at < len(self.text):
            raise self.unexpected(self.at, self.expected(), self.token_end)
        if self.label is not None:
            raise misplaced_label(self.text, self.label_start, self.path)
        return compile_counts(self.rows.program())

    def read_plain_rules(self) -> None:
        """Read the rules from here on that one expression can read."""
        while rule := _plain_rule(self.text, self.at):
            self.rows.add(_flat_atoms(rule[1]), _flat_atoms(rule[2] or ""))
            self.at = self.token_end = self.start = rule.end()

    def read_atom(self, token: re.Match[str]) -> bool:
        return self.add_atom(token[_ATOM], token.start(_ATOM), token.end())

    def read_quoted_or_term(self, token: re.Match[str]) -> bool:
        if self.last == _ATOM:
            return False
        try:
            name, end = read_name(self.text, token.start(_CAREFUL))
        except UnreadableName as error:
            at, problem = error.position, error.problem
        else:
            return self.add_atom(name, token.start(_CAREFUL), end)
        if problem:
            raise error_at(self.text, at, problem, self.path)
        raise self.unexpected(at, "term", at)

    def add_atom(self, name: str, start: int, end: int) -> bool:
        if self.last == _ATOM:
            return False
        atoms = self.right if self.arrow in _ARROWS else self.left
        if self.last == _NOT:
            atoms = self.denied
        if self.last == 0:
            self.first = start
        self.atom = atoms, name, name in atoms, start
        atoms[name] = None
        self.last = _ATOM
        self.at = self.token_end = end
        return True

    def read_condition(self) -> bool:
        """Make the name that was read last a condition, if a comparison follows it."""
        if self.last != _ATOM:
            return False
        atoms, name, repeated, start = self.atom
        if self.arrow != _REVERSED and name.isdigit() and _opening_brace(self.text, self.at):
            return self.read_count(start)
        if not is_column(self.text, start, self.token_end):
            return False
        try:
            found = read_comparison(self.text, self.at, arrow=self.arrow in _ARROWS)
        except UnreadableName as error:
            raise self.unreadable_constant(error) from None
        if found is None:
            return False
        if self.arrow == _REVERSED:
            raise self.derived(start)
        if self.arrow == 0 and self.literal is None:
            self.literal = start, "condition"
        if not repeated:
            del atoms[name]
        atoms[condition_text(name, *found[:2])] = None
        self.at = self.token_end = found[2]
        self.atom = atoms, name, True, self.at - 1  # not a column: another comparison is an error
        return True

    def read_count(self, start: int) -> bool:
        """Make the number that was read last the bound of a count."""
        try:
            count, end = read_count(self.text, start)
        except UnreadableName as error:
            if self.arrow == 0:
                raise self.unexpected(self.at, "heads", self.at) from None
            raise error_at(self.text, error.position, error.problem, self.path) from None
        if self.arrow == 0 and self.literal is None:
            self.literal = self.at, "heads"
        atoms, name, repeated, _ = self.atom
        if not repeated:
            del atoms[name]
        atoms[count] = None
        self.at = self.token_end = end
        self.atom = atoms, count, True, end - 1
        return True

    def unreadable_constant(self, error: UnreadableName) -> ParseError:
        """Return the error for what a column is compared with, which may look like a variable."""
        at, problem, kind = error.position, error.problem, ParseError
        if variable := _variable(self.text, at):
            # Rules with variables have it twice; here it is a text whose quotes are missing.
            end = _end_of_statement(self.text, at)
            statement = self.text[self.start : end.end() if end else len(self.text)]
            if len(re.findall(rf"\b{variable[0]}\b", statement)) == 1:
                kind = ConditionError
                problem = f'{variable[0]} starts like a variable; write "{variable[0]}", in quotes'
        return error_at(self.text, at, problem, self.path, kind)

    def derived(self, start: int, expected: Expected = "condition") -> ParseError:
        """Return the error for a head that is a condition, a negation or a count."""
        if expected != "condition":
            return self.unexpected(start, expected, start)
        problem = (
            "a rule does not derive a condition, whose truth comes from the column; derive a name"
        )
        return error_at(self.text, start, problem, self.path)

    def read_comma(self, token: re.Match[str]) -> bool:
        return self.last == _ATOM and self.arrow != _EXTERNAL and self.take(token)

    def read_arrow(self, token: re.Match[str]) -> bool:
        if self.arrow or self.last not in {_ATOM, 0}:
            return False
        self.arrow = token.lastindex or 0
        if self.arrow == _ARROW and self.literal is not None:
            raise self.derived(*self.literal)
        return self.take(token)

    def start_declaration(self, token: re.Match[str]) -> bool:
        if self.label is not None:
            raise misplaced_label(self.text, self.label_start, self.path)
        if self.last != 0:
            return False
        self.arrow = _EXTERNAL
        return self.take(token)

    def read_not(self, token: re.Match[str]) -> bool:
        before = self.last in {0, _ARROW, _COMMA} and self.arrow in {0, _ARROW}
        if not (self.negation and before):
            return False
        if self.arrow == 0 and self.literal is None:
            self.literal = token.start(_NOT), self.expected()
        return self.take(token)

    def take(self, token: re.Match[str]) -> bool:
        """Go on after a sign or a word that is not an atom."""
        kind = token.lastindex or 0
        if self.last == 0:
            self.first = token.start(kind)
        self.last, self.sign = kind, token[kind]
        self.at = self.token_end = token.end()
        return True

    def end_statement(self, token: re.Match[str]) -> bool:
        if self.last != _ATOM and not (self.last == _ARROW and self.left):
            return False  # also ':- .', which no facts would meet
        if self.arrow == 0 and self.literal is not None:
            raise self.derived(*self.literal)
        heads, body = self.left, self.right
        if self.arrow == _REVERSED:
            heads, body = body, heads
        if self.arrow == _EXTERNAL:
            self.rows.numbers(heads)
        else:
            if self.label is not None:
                self.line += self.text.count("\n", self.line_at, self.first)
                self.line_at = self.first
                self.label = replace(self.label, line=self.line)
            self.rows.add(heads, body, self.denied, self.label)
            self.label = None
        self.at = self.token_end = token.end()
        self.start_statement()
        return True

    def skip_show(self, token: re.Match[str]) -> bool:
        if self.last != 0:
            return False
        self.at = self.token_end = token.end()
        return True

    def skip_line_comment(self, token: re.Match[str]) -> bool:
        self.at = token.end()
        comment, start = token[_COMMENT], token.start(_COMMENT)
        if "@rule" in comment and starts_label(comment):  # for the rule that comes next
            if self.last != 0 or self.label is not None:
                raise misplaced_label(self.text, start, self.path)
            self.label = read_label(self.text, comment, start, self.path, self.ids)
            self.label_start = start
        return True

    def skip_block_comment(self, token: re.Match[str]) -> bool:
        self.at = _end_of_comment(self.text, token.start(_BLOCK), self.path)
        return True

    def expected(self) -> Expected:
        """Return what could have come next, for an error."""
        if self.last == 0:
            return "statement"
        if self.last == _ATOM:
            if self.arrow == _EXTERNAL:
                return "end"
            return "body" if self.arrow == _ARROW else "heads"
        if self.last == _REVERSED:
            return "derived"
        return "condition" if self.arrow == _ARROW or self.last == _NOT else "head"

    def unexpected(self, at: int, expected: Expected, token_end: int) -> ParseError:
        """Return the error for what stands at or after this place instead of what was expected.

        The token before it ends at `token_end`: a comment may be between.
        """
        text, path = self.text, self.path
        blanks = _blanks(text, at)
        start = blanks.end() if blanks else at
        for places, matches, problem in _CONSTRUCTS:
            if expected in places and (match := matches(text, start)):
                found = f"'{shortened(match[0])}'"
                return error_at(text, start, problem.format(found=found), path)
        description = _DESCRIPTIONS[expected]
        if expected == "term" and text[:start].rstrip(" \t\n")[-1:] not in {"(", ","}:
            description = "',' or ')' in a term"
        elif expected in {"head", "derived", "condition"}:
            description += f" after {self.sign!r}"
        if start == len(text):
            if expected in {"heads", "body", "end"}:
                description = "'.' at the end of a rule"
            hint = "; to read a file, use lg.load" if _PATH.fullmatch(text) else ""
            hint = hint or _percent_hint(text, token_end)
            return error_at(
                text, token_end, f"expected {description} but the text ends{hint}", path
            )
        problem = f"expected {description} but found {_describe_symbol(text, start)}"
        if expected in {"heads", "body"} and "\n" in text[token_end:start]:
            hint = _percent_hint(text, token_end)
            problem += hint or "; is the '.' of the rule before it missing?"
        return error_at(text, start, problem, path)


def _percent_hint(text: str, end: int) -> str:
    """Return a hint if a sign of percent right after a number has made the rest a comment."""
    percent = text[end : end + 1] == "%" and text[end - 1 : end].isdigit()
    return "; what follows '%' is a comment" if percent else ""


def misplaced_label(text: str, start: int, path: str) -> ParseError:
    """Return the error for a label without a rule."""
    problem = "a label stands on the line before its rule, and there is no rule after this one"
    return error_at(text, start, problem, path)


def read_label(text: str, comment: str, start: int, path: str, ids: set[str]) -> Label:
    """Return the label in a comment, and add its id to those that are taken."""
    found = _label(comment)
    if found is None:
        problem = "expected an id and perhaps a citation, such as '% @rule R12: Art. 6(1)(a)'"
        raise error_at(text, start, problem, path)
    if found[1] in ids:
        raise error_at(text, start, f"two rules have the id {found[1]!r}", path)
    ids.add(found[1])
    return Label(found[1], " ".join((found[2] or "").split()))


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


# ---- Facts from the command line: names between commas, or in a file

# Characters of the facts that a message shows.
_SHOWN = 200
_fact_mark = re.compile(r"""["'(){},]""").search
_fact_quoted = re.compile(r"""(["'])(?:\\.|(?!\1)[^\\])*+\1""", re.DOTALL).match


def split_facts(text: str) -> list[str]:
    """Return the names between commas, as written; commas in parentheses, braces or quotes do not count.

    >>> split_facts("bird, edge(a,b), 'night train, late', country in {ir, kp}")
    ['bird', 'edge(a,b)', "'night train, late'", 'country in {ir, kp}']
    """
    if not text.strip():
        return []
    names = []
    start = at = depth = 0
    while found := _fact_mark(text, at):
        mark, at = found[0], found.end()
        if mark in "({":
            depth += 1
        elif mark in ")}":
            depth = max(0, depth - 1)
        elif mark == "," and not depth:
            names.append(text[start : found.start()].strip())
            start = at
        elif mark in "'\"" and (depth or not text[start : found.start()].strip()):
            quoted = _fact_quoted(text, found.start())
            if quoted is None:
                shown = shortened(repr(text[found.start() :]), _SHOWN)
                raise FactsError(f"a quote ({mark}) is never closed in the facts {shown}")
            at = quoted.end()
    names.append(text[start:].strip())
    shown = shortened(repr(text), _SHOWN)
    if depth:
        raise FactsError(f"a '(' or '{{' is never closed in the facts {shown}")
    if not all(names):
        raise FactsError(f"there is no name between two commas of the facts {shown}")
    return names


def atom_name(program: Program, text: str) -> str:
    """Return the name of the atom that a text means: the text, or what rule text makes of it.

    A text that names no atom comes back as it is, for an error to show.

    >>> from latentgamma import parse
    >>> program = parse("edge(a,b). 'night train'.")
    >>> atom_name(program, "edge( a, b )"), atom_name(program, "night train")
    ('edge(a,b)', 'night train')
    """
    index = find_name(program, text)
    return text if index is None else program.atoms[index]


def facts_in_file(program: Program, data: bytes, path: str) -> list[str]:
    """Return the names of the facts in a file that has one name on each line, or rule text.

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
