"""Programs from texts and files: definite rules, negation, and rules with variables.

What grounds rules with variables is imported when a text has some.
"""

from __future__ import annotations

import os
import re

from latentgamma.errors import ParseError, ProgramError
from latentgamma.program import files
from latentgamma.program.graph import NotStratifiedError
from latentgamma.program.names import quote
from latentgamma.program.program import Program
from latentgamma.program.rule_text import ConditionError, error_at, normalize_text, read_rules

# Strings and comments, or something that only rules with variables have.
_sign_of_datalog = re.compile(
    r"""
    "(?:[^"\\\n]|\\[^\n])*+" | '(?:[^'\\\n]|\\[^\n])*+' | %\*.*?\*% | %[^\n]*+ | /\*.*?\*/
    | (?P<sign>
        (?<!\w)_*+(?:[A-Z]\w*+)?+(?=[\s,;:.()=<>!+*/|-])(?<=\w)   # a variable
        | \([^()"'%]*?\w\s*+[-+*/\\]\s*+[\w(]                         # arithmetic in an argument
        | \.\. | \#(?:show|const|input|defined|program)\b | \#external\b[^.]*[/:]
      )
    """,
    re.VERBOSE | re.DOTALL,
)


def parse(text: str, *, path: str = "<text>") -> Program:
    """Return the program that a text of rules describes.

    Rules with variables are grounded by clingo, as `datalog.ground` does where nothing is open.

    >>> program = parse("bird :- penguin.  animal :- bird.  penguin.")
    >>> program.atoms
    ('bird', 'penguin', 'animal')
    >>> print(program)
    bird :- penguin.
    animal :- bird.
    penguin.

    Args:
        text: rules such as `h :- b1, b2.`, `h1, h2 :- b.`, `b => h.` and `a.`, or rules with
            variables such as `path(X,Z) :- edge(X,Y), path(Y,Z).`
        path: what an error calls the text.

    Returns:
        The program; it is `definite` if no rule has `not`.

    Raises:
        ParseError: if the text is not a program; the message shows the place.
        ProgramError: if it is not stratified; the message shows the cycle.
    """
    if not isinstance(text, str):
        raise ProgramError(f"parse reads a string of rules, not {type(text).__name__}")
    return _read_rules(text, path)


def load(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,  # noqa: A002 - what everybody calls it
) -> Program:
    """Return the program in a file. A model is loaded by `LatentGamma.load`.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import latentgamma as lg
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "birds.lp")
    ...     lg.save(lg.parse("bird :- penguin."), path)
    ...     print(lg.load(path))
    bird :- penguin.

    Args:
        path: a file that ends in .lp, .pl or .dl (rule text), .cnf (DIMACS) or .json, and
            after that perhaps in .gz.
        format: how to read it whatever its name is: "lp", "cnf" or "json", or one of them
            and ".gz".

    Returns:
        The program; it is `definite` if no rule has `not`.

    Raises:
        ProgramError: if the file cannot be read, its name does not say how, or the program is
            not stratified.
        ParseError: if its content is not a program.
        ArgumentError: if there is no such format.
    """
    data, suffix, shown = files.content(path, format)
    return read(data, suffix, path=shown)


def read(data: bytes, suffix: str = ".lp", *, path: str = "<stdin>") -> Program:
    """Return the program in these bytes, read as the suffix says."""
    text, suffix = files.unpacked(data, suffix, path)
    if suffix in files.RULE_TEXT:
        return _read_rules(text, path)
    try:
        return files.read_program(text, suffix, path)
    except NotStratifiedError as error:
        raise ParseError(error.problem, path=path) from None


def _read_rules(text: str, path: str) -> Program:
    """Return the program of a text of rules, grounded if they have variables."""
    try:
        return read_rules(text, path)
    except ParseError as error:
        return _ground_text(text, path, error)
    except NotStratifiedError as error:
        place = re.search(rf"\bnot\s+{re.escape(quote(error.negated))}(?!\w)", text)
        if place:
            raise error_at(text, place.start(), error.problem, path) from None
        raise ParseError(error.problem, path=path) from None


def _ground_text(text: str, path: str, error: ParseError) -> Program:
    """Return the program of a text that the reader of ground rules refused, if it has variables."""
    has_variables = any(found["sign"] for found in _sign_of_datalog.finditer(text))
    if isinstance(error, ConditionError) or not has_variables:
        raise error
    from latentgamma.datalog.grounding import ground_text, has_clingo

    if not has_clingo():
        raise ParseError(
            f"{error.problem}; or install clingo, which grounds them here: "
            "pip install 'latentgamma[datalog]'",
            source=error.source,
            line=error.line,
            column=error.column,
            path=path,
        )
    return ground_text(normalize_text(text, path), path)
