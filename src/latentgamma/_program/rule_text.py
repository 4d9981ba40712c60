"""Rule text: from what people write to a program.

    text      = { statement }
    statement = heads "." | heads ":-" [ body ] "." | [ body ] "=>" heads "."
              | "#external" atom "." | "#show" anything "."
    heads     = atom { "," atom }        every one of them follows (clingo would read "or")
    body      = literal { "," literal }
    literal   = [ "not" ] atom           "not" after ":-" only
    atom      = word | number | term | quoted name       (see `latentgamma._program.names`)

`<-` is another way to write `:-`, and `->` to write `=>`. Comments are `% …` to the end of
the line, `/* … */`, and clingo's `%* … *%`, of which only the last nest. `#external a.`
declares an atom without saying anything about it; `#show` is skipped, since clingo prints it
with ground rules. Atoms are numbered as they appear, the heads of a rule before its body.
"""

from __future__ import annotations

import codecs
import re
from array import array
from typing import TYPE_CHECKING

import numpy as np

from latentgamma._program.names import FLAT, UnreadableName, read_name
from latentgamma._program.program import Program
from latentgamma._program.source_text import decode_text, error_at, normalize_text
from latentgamma._program.syntax_errors import Expected, explain_error

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
    | (\#show(?!\w)(?:[^."%]|"(?:[^"\\\n]|\\.)*+"|\.\.|\.(?=[0-9]))*+\.)   # 10
    | (not(?![\w(]))                                # 11 before an atom that must not follow
    | \Z                                            # nothing but blanks
    )""",
    re.VERBOSE,
).match
_ATOM, _COMMA, _END, _ARROW, _REVERSED, _COMMENT, _BLOCK, _CAREFUL = range(1, 9)
_EXTERNAL, _SHOW, _NOT = range(9, 12)
_ARROWS = (_ARROW, _REVERSED)
_nesting = re.compile(r"%\*|\*%|%[^\n]*+")


def read_rules(text: str, path: str, *, negation: bool = True) -> Program:
    """The program of a text of rules.

    Args:
        text: what to read.
        path: what an error calls it.
        negation: whether bodies may have `not`.

    Raises:
        ParseError: if the text is not a program.
        NotStratifiedError: if an atom depends on its own negation.
    """
    if len(text) >= LARGE:
        try:
            return read_rule_bytes(text.encode(), path, negation=negation)
        except UnicodeEncodeError:  # lone surrogates, which only the careful reader takes
            pass
    return _read_rules(normalize_text(text, path), path, negation)


def read_rule_bytes(data: bytes, path: str, *, negation: bool = True) -> Program:
    """The program of a text in UTF-8; a large one is read by compiled code."""
    if len(data) < LARGE:
        return _read_rules(decode_text(data, path), path, negation)
    from latentgamma._program.fast_scanner import (
        scan_rules,  # compiled code is loaded for large texts only
    )

    unmarked = data.removeprefix(codecs.BOM_UTF8)
    scanned = scan_rules(unmarked)
    if scanned is None:
        return _read_rules(decode_text(data, path), path, negation)
    program, rest = scanned
    if rest is None:
        return program
    text = decode_text(data, path)
    at, token_end = (  # in the text, where every line end is one character
        len(unmarked[:n].decode()) - unmarked.count(b"\r", 0, n) for n in (rest.at, rest.token_end)
    )
    rest = rest._replace(at=at, token_end=token_end)
    return _read_rules(text, path, negation, (program, rest))


def _read_rules(
    text: str, path: str, negation: bool, scanned: tuple[Program, Rest] | None = None
) -> Program:
    """The program of a prepared text, read token by token: it knows all forms and all errors.

    Args:
        text: what to read.
        path: what an error calls it.
        negation: whether bodies may have `not`.
        scanned: what compiled code has read of it, and where it has stopped.
    """
    reader = _RuleReader(text, path, negation)
    if scanned is not None:
        reader.resume(*scanned)
    return reader.read()


class _RuleReader:
    """The rules read so far, and the statement being read.

    There is a method for each kind of token. It returns whether such a token may stand here.
    """

    def __init__(self, text: str, path: str, negation: bool) -> None:
        self.text, self.path, self.negation = text, path, negation
        self.at = 0  # where the next token may start
        self.token_end = 0  # where the token before ends, comments aside
        self.index: dict[str, int] = {}
        self.heads, self.bodies = array("i"), array("i")
        self.head_ends, self.body_ends = array("q", [0]), array("q", [0])
        self.start_statement()

    def start_statement(self) -> None:
        # A dictionary is a set that keeps its order; a rule's names may be many and repeated.
        self.left: dict[str, None] = {}
        self.right: dict[str, None] = {}
        self.denied: dict[str, None] = {}
        self.arrow = 0  # the kind of this statement's arrow, or _EXTERNAL
        self.last = 0  # the kind of the token before; 0 at the start of a statement
        self.sign = ""  # the comma, arrow or directive before, for errors

    def resume(self, program: Program, rest: Rest) -> None:
        """Go on from where compiled code has stopped."""
        names = program.atoms
        self.index = {name: i for i, name in enumerate(names)}
        rows = (self.body_ends, self.bodies, self.head_ends, self.heads)
        for row, given in zip(rows, program._arrays(), strict=True):
            row[:] = array(row.typecode, given.tobytes())
        self.at, self.token_end = rest.at, rest.token_end
        if rest.last:  # it stopped in a body
            self.arrow, self.sign = _ARROW, rest.last
            self.last = {"atom": _ATOM, ",": _COMMA}.get(rest.last, _ARROW)
            self.left = dict.fromkeys(names[i] for i in rest.heads.tolist())
            self.right = dict.fromkeys(names[i] for i in np.unique(rest.body).tolist())

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
        while token := _token(self.text, self.at):
            if token.lastindex is None:
                self.at = len(self.text) if self.last == 0 else self.at
                break
            if not methods[token.lastindex](token):
                break
        if self.last or self.at < len(self.text):
            raise explain_error(
                self.text,
                self.at,
                self.expected(),
                self.path,
                sign=self.sign,
                token_end=self.token_end,
            )
        body_ends, bodies = np.array(self.body_ends, np.int64), np.array(self.bodies, np.int32)
        head_ends, heads = np.array(self.head_ends, np.int64), np.array(self.heads, np.int32)
        return Program._from_sorted_rows(tuple(self.index), body_ends, bodies, head_ends, heads)

    def read_atom(self, token: re.Match[str]) -> bool:
        return self.add_atom(token[_ATOM], token.end())

    def read_quoted_or_term(self, token: re.Match[str]) -> bool:
        if self.last == _ATOM:
            return False
        try:
            name, end = read_name(self.text, token.start(_CAREFUL))
        except UnreadableName as error:
            at, problem = error.position, error.problem
        else:
            return self.add_atom(name, end)
        if problem:
            raise error_at(self.text, at, problem, self.path)
        raise explain_error(self.text, at, "term", self.path)

    def add_atom(self, name: str, end: int) -> bool:
        if self.last == _ATOM:
            return False
        if self.last == _NOT:
            self.denied[name] = None
        else:
            (self.right if self.arrow in _ARROWS else self.left)[name] = None
        self.last = _ATOM
        self.at = self.token_end = end
        return True

    def read_comma(self, token: re.Match[str]) -> bool:
        if self.last != _ATOM or self.arrow == _EXTERNAL:
            return False
        self.last, self.sign = _COMMA, ","
        self.at = self.token_end = token.end()
        return True

    def read_arrow(self, token: re.Match[str]) -> bool:
        kind = token.lastindex or 0
        if self.arrow or not (self.last == _ATOM or (self.last == 0 and kind == _REVERSED)):
            return False
        return self.take_sign(token, kind)

    def start_declaration(self, token: re.Match[str]) -> bool:
        return self.last == 0 and self.take_sign(token, _EXTERNAL)

    def take_sign(self, token: re.Match[str], kind: int) -> bool:
        self.arrow = self.last = kind
        self.sign = token[kind]
        self.at = self.token_end = token.end()
        return True

    def end_statement(self, token: re.Match[str]) -> bool:
        if self.last != _ATOM and not (self.last == _ARROW and self.left):
            return False
        index = self.index
        heads, body = self.left, self.right
        if self.arrow == _REVERSED:
            heads, body = body, heads
        numbers = sorted([index.setdefault(name, len(index)) for name in heads])
        if self.arrow != _EXTERNAL:
            self.heads.extend(numbers)
            self.head_ends.append(len(self.heads))
            self.bodies.extend(sorted([index.setdefault(name, len(index)) for name in body]))
            if self.denied:
                numbers = sorted([index.setdefault(name, len(index)) for name in self.denied])
                self.bodies.extend([~number for number in numbers])
            self.body_ends.append(len(self.bodies))
        self.start_statement()
        self.at = self.token_end = token.end()
        return True

    def read_not(self, token: re.Match[str]) -> bool:
        if not self.negation or self.arrow != _ARROW or self.last not in {_ARROW, _COMMA}:
            return False
        self.last, self.sign = _NOT, "not"
        self.at = self.token_end = token.end()
        return True

    def skip_show(self, token: re.Match[str]) -> bool:
        if self.last != 0:
            return False
        self.at = self.token_end = token.end()
        return True

    def skip_line_comment(self, token: re.Match[str]) -> bool:
        self.at = token.end()
        return True

    def skip_block_comment(self, token: re.Match[str]) -> bool:
        self.at = _end_of_comment(self.text, token.start(_BLOCK), self.path)
        return True

    def expected(self) -> Expected:
        """What could have come next, for an error."""
        if self.last == 0:
            return "statement"
        if self.last == _ATOM:
            if self.arrow == _EXTERNAL:
                return "end"
            return "body" if self.arrow == _ARROW else "heads"
        if self.last == _REVERSED:
            return "derived"
        return "condition" if self.arrow == _ARROW else "head"


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
