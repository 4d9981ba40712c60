"""DIMACS CNF: Horn clauses with exactly one positive literal are rules.

    c 1 bird                 the name of variable 1, written as in rule text
    c 2 penguin              (also read: 'c var 2 = penguin'); unnamed ones are x1, x2, …
    p cnf 3 2                three variables and two clauses
    1 -2 0                   bird :- penguin.
    2 0                      penguin.

A rule with several heads is one clause for each, announced by a comment: `c heads 2`. The comment
`c rule R12: Art. 6` gives the next rule a label.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from dataclasses import replace
from itertools import islice

import numpy as np

from latentgamma._text import quantity, shortened
from latentgamma.errors import ParseError, ProgramError
from latentgamma.program.facts import Mask
from latentgamma.program.names import UnreadableName, quote, read_atom
from latentgamma.program.program import Indices, Label, Offsets, Program, checked_labels
from latentgamma.program.rule_text import error_at

_line = re.compile(r"^[ \t]*+([cp])([^\n]*+)", re.MULTILINE)
_header = re.compile(r"[ \t]++cnf[ \t]++([0-9]{1,9})[ \t]++([0-9]{1,15})[ \t]*+").fullmatch
_naming = re.compile(
    r"[ \t]++(?:var[ \t]++)?([0-9]{1,9})(?:[ \t]*+(?:[=:]|->)[ \t]*+|[ \t]++)([^ \t].*)"
).fullmatch
_grouping = re.compile(r"[ \t]++heads[ \t]++([0-9]{1,9})[ \t]*+").fullmatch
_labelling = re.compile(r"[ \t]++rule[ \t]++([^\s:,]++)[ \t]*+(?::(.*))?").fullmatch
_end = re.compile(r"^%[ \t]*$", re.MULTILINE).search
_odd = re.compile(r"[^-0-9 \t\n]").search
_blank = re.compile(r"[ \t\n]").search
_word = re.compile(r"[^ \t\n]+")
# Characters whose literals are converted at once.
_BLOCK = 1 << 16
# A header of a few bytes must not make us name a thousand million atoms.
_MOST_UNUSED = 10_000_000


def write_dimacs(program: Program) -> str:
    """Return the program as a DIMACS text."""
    lines = [f"c {i} {quote(name)}" for i, name in enumerate(program.atoms, 1) if name != f"x{i}"]
    lines.append(f"p cnf {program.M} {len(program.head_indices)}")
    for j, (heads, body) in enumerate(program._row_lists()):
        if (label := program.label(j)) is not None:
            lines.append(f"c rule {label}")
        if len(heads) > 1:
            lines.append(f"c heads {len(heads)}")
        negative = "".join(f"{-1 - i} " for i in body)
        lines.extend(f"{head + 1} {negative}0" for head in heads)
    return "\n".join(lines) + "\n"


def read_dimacs(text: str, path: str) -> Program:
    """Return the program of a DIMACS text that has one positive literal in each clause."""
    return _DimacsReader(text, path).program()


def read_clauses(text: str, path: str) -> tuple[list[str], Indices, Offsets, list[int]]:
    """Return the names of the variables and all clauses of a DIMACS text, of any signs.

    Returns:
        The names; the literals, with a 0 after each clause; where these zeros are; and the line
        of the text in which each clause starts.
    """
    return _DimacsReader(text, path).clauses()


class _DimacsReader:
    """One pass over a text: what its comments and its header say, and its literals."""

    def __init__(self, text: str, path: str) -> None:
        last = _end(text)  # in the files of SATLIB, what follows is not part of the formula
        self.text = text = text[: last.start()] if last else text
        self.path = path
        self.header: tuple[int, int] | None = None  # the numbers of variables and of clauses
        self.names: dict[int, tuple[str, int]] = {}  # variable: name, and where it is given
        self.groups: list[tuple[int, int, int]] = []  # literals before, clauses, and where
        self.labels: list[tuple[int, Label, int]] = []  # literals before, the label, and where
        self.literals = array("i")
        self.blocks: list[tuple[int, int]] = []  # literals before a block, and where it starts
        end = 0
        for line in _line.finditer(text):
            if line.start() - end > 1:  # more than a line end
                self._read_literals(end, line.start())
            if line[1] == "c":
                self._read_comment(line[2], line.start())
            else:
                self._read_header(line[2], line.start())
            end = line.end()
        self._read_literals(end, len(text))

    def _error(self, at: int, problem: str) -> ParseError:
        return error_at(self.text, at, problem, self.path)

    def _read_header(self, content: str, at: int) -> None:
        match = _header(content)
        if match is None:
            raise self._error(at, "expected a header 'p cnf VARIABLES CLAUSES'")
        if self.header is not None:
            raise self._error(at, "expected one header, but this is the second")
        self.header = int(match[1]), int(match[2])
        if self.header[0] > max(_MOST_UNUSED, len(self.text)):
            raise self._error(at, f"{match[1]} variables are far more than this text can use")

    def _read_comment(self, content: str, at: int) -> None:
        if group := _grouping(content):
            self.groups.append((len(self.literals), int(group[1]), at))
        elif label := _labelling(content):
            citation = " ".join((label[2] or "").split())
            self.labels.append((len(self.literals), Label(label[1], citation), at))
        elif naming := _naming(content):
            variable, name = int(naming[1]), _name_in(naming[2].rstrip(" \t"))
            if name is None:
                return
            if self.names.setdefault(variable, (name, at))[0] != name:
                first = self.names[variable][0]
                raise self._error(at, f"variable {variable} is called {quote(first)} already")

    def _read_literals(self, start: int, end: int) -> None:
        """Add the literals of this stretch of lines, a block at a time to save memory."""
        while start < end:
            gap = _blank(self.text, min(start + _BLOCK, end), end)
            stop = gap.start() if gap else end
            words = self.text[start:stop].split()
            if words and self.header is None:
                at = self.text.index(words[0], start)
                raise self._error(at, "expected the header 'p cnf VARIABLES CLAUSES' first")
            self.blocks.append((len(self.literals), start))
            try:
                if _odd(self.text, start, stop):
                    raise ValueError
                self.literals.extend(map(int, words))
            except (ValueError, OverflowError):
                raise self._bad_literal(start) from None
            start = max(stop, start + 1)

    def _bad_literal(self, start: int) -> ParseError:
        for word in _word.finditer(self.text, start):
            if not re.fullmatch(r"-?[0-9]{1,9}", word[0]):
                problem = f"expected a literal but found '{shortened(word[0])}'"
                return self._error(word.start(), problem)
        return self._error(start, "expected a literal")

    def _at_literal(self, position: int) -> int:
        """Return where in the text a literal stands."""
        block = bisect_right(self.blocks, position, key=lambda entry: entry[0]) - 1
        before, start = self.blocks[block]
        words = islice(_word.finditer(self.text, start), position - before, None)
        return next((word.start() for word in words), start)

    def _checked_literals(self) -> tuple[Indices, Offsets]:
        """Return the literals and where the clauses end, once they fit the header."""
        variables, announced = self.header or (0, 0)
        literals = np.array(self.literals, np.int32)
        ends = np.flatnonzero(literals == 0)
        if len(literals) and literals[-1] != 0:
            at = self._at_literal(len(literals) - 1)
            raise self._error(at, "expected a 0 at the end of the last clause")
        if len(ends) != announced:
            raise ParseError(
                f"the header announces {quantity(announced, 'clause')}, but the file has "
                f"{len(ends):,}",
                path=self.path,
            )
        if np.any(large := np.abs(literals) > variables):
            at = self._at_literal(int(np.argmax(large)))
            raise self._error(
                at, f"this literal is beyond the {quantity(variables, 'variable')} announced"
            )
        return literals, ends

    def clauses(self) -> tuple[list[str], Indices, Offsets, list[int]]:
        """Return the names, the literals, where the clauses end, and their lines."""
        literals, ends = self._checked_literals()
        starts = np.concatenate(([0], ends[:-1] + 1))[: len(ends)]
        rows = self.text.split("\n")
        words = [0 if row.lstrip(" \t")[:1] in ("c", "p") else len(row.split()) for row in rows]
        lines = (np.searchsorted(np.cumsum(words), starts, "right") + 1).tolist()
        return self._atoms((self.header or (0, 0))[0]), literals, ends, lines

    def program(self) -> Program:
        """Return the program that has been read, once it is checked."""
        literals, ends = self._checked_literals()
        row = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=-1))
        positive, negative = literals > 0, literals < 0
        heads = self._one_head_each(literals, row, positive, ends)
        sizes = np.bincount(row[negative], minlength=len(ends))
        atoms = self._atoms((self.header or (0, 0))[0])
        bodies = np.concatenate(([0], np.cumsum(sizes))), -1 - literals[negative]
        return self._group(Program.from_arrays(*bodies, heads - 1, atoms=atoms), ends)

    def _one_head_each(
        self, literals: Indices, row: Offsets, positive: Mask, ends: Offsets
    ) -> Indices:
        where = np.flatnonzero(positive)
        counts = np.bincount(row[where], minlength=len(ends))
        if np.any(counts == 0):
            j = int(np.argmax(counts == 0))
            at = self._at_literal(int(ends[j - 1]) + 1 if j else 0)
            raise self._error(
                at,
                "a clause without a positive literal is a constraint, which is not part of a "
                "definite program; give it a head, and ask whether that is derived",
            )
        heads: Indices = literals[where[np.cumsum(counts) - counts]]
        other = literals[where] != heads[row[where]]
        if np.any(other):
            at = self._at_literal(int(where[np.argmax(other)]))
            raise self._error(
                at,
                "a second positive literal makes a clause a disjunction, which is not part of a "
                "definite program; write one clause for each head that follows",
            )
        return heads

    def _atoms(self, variables: int) -> list[str]:
        atoms = [f"x{i}" for i in range(1, variables + 1)]
        for variable, (name, _) in self.names.items():
            if 1 <= variable <= variables:
                atoms[variable - 1] = name
        if len(set(atoms)) < variables:
            seen: dict[str, int] = {}
            for variable, name in enumerate(atoms, 1):
                if seen.setdefault(name, variable) != variable:
                    at = max(self.names.get(v, ("", 0))[1] for v in (seen[name], variable))
                    raise self._error(
                        at, f"variables {seen[name]} and {variable} are both called {quote(name)}"
                    )
        return atoms

    def _group(self, flat: Program, ends: Offsets) -> Program:
        """Return the program in which the clauses of each group are one rule."""
        first = np.ones(flat.R, np.bool_)  # whether a clause starts a rule
        if not self.groups:
            return self._label(flat, ends, first)
        done = 0
        for before, size, at in self.groups:
            start = int(np.searchsorted(ends, before))
            between = start == 0 if before == 0 else start > 0 and ends[start - 1] == before - 1
            if not between or start < done or size < 1 or start + size > flat.R:
                raise self._error(at, f"expected {size} whole clauses after this line")
            done = start + size
            body = flat.body_of(start)
            for j in range(start + 1, done):
                if not np.array_equal(flat.body_of(j), body):
                    at = self._at_literal(int(ends[j - 1]) + 1)
                    raise self._error(at, "the clauses of one rule have the same body")
            first[start + 1 : done] = False
        starts = np.flatnonzero(first)
        kept = np.repeat(first, flat.body_sizes)
        grouped = Program.from_arrays(
            np.concatenate(([0], np.cumsum(flat.body_sizes[first]))),
            flat.body_indices[kept],
            flat.head_indices,
            np.concatenate((starts, [flat.R])),
            atoms=flat.atoms,
        )
        return self._label(grouped, ends, first)

    def _label(self, program: Program, ends: Offsets, first: Mask) -> Program:
        """Return the program with the labels that comments give."""
        labels: list[Label | None] = [None] * program.R
        rule = np.cumsum(first) - 1  # of each clause
        for before, label, at in self.labels:
            clause = int(np.searchsorted(ends, before))
            if clause == len(first) or not first[clause] or labels[rule[clause]]:
                raise self._error(at, "a label stands before its rule")
            labels[rule[clause]] = label
        try:
            return replace(program, labels=checked_labels(labels))
        except ProgramError as error:
            raise self._error(self.labels[-1][2], str(error)) from None


def _name_in(written: str) -> str | None:
    """Return the name in a comment: as in rule text, or any one word; None if there is none."""
    try:
        name, end = read_atom(written)
    except UnreadableName:
        name, end = "", 0
    if end == len(written):
        return name
    return written if not re.search(r"\s", written) and written[0] not in "'\"" else None
