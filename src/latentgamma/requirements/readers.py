"""Readers of requirements: text, DIMACS, files of PiShield and CCN, OBO, CLUS, edges, programs."""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from latentgamma._arguments import one_of
from latentgamma._progress import Progress
from latentgamma.errors import ArgumentError, ParseError, ProgramError
from latentgamma.program.counting import counts_of
from latentgamma.program.dimacs import read_clauses
from latentgamma.program.files import decompress, read_bytes
from latentgamma.program.names import UnreadableName, read_name
from latentgamma.program.program import Program
from latentgamma.program.rule_text import decode_text, error_at, normalize_text

#: A text, or the path of a file.
Source: TypeAlias = "str | os.PathLike[str]"
#: Which end of an edge comes first.
EdgeOrder: TypeAlias = Literal["child parent", "parent child"]


@dataclass
class ClauseList:
    """Clauses while they are read: literals i or ~i of labels that are numbered as they appear."""

    path: str = "<text>"
    index: dict[str, int] = field(default_factory=dict)
    literals: list[int] = field(default_factory=list)
    indptr: list[int] = field(default_factory=lambda: [0])
    heads: list[int] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)

    def label(self, name: str) -> int:
        """Return the number of a label."""
        return self.index.setdefault(name, len(self.index))

    def add(self, heads: Iterable[int], body: Iterable[int] = (), line: int = 0) -> None:
        """Add the clause 'one of the heads, if all of the body': literals, heads first."""
        first = dict.fromkeys(heads)
        rest = [~b for b in dict.fromkeys(body) if ~b not in first]
        self.literals += [*first, *rest]
        self.indptr.append(len(self.literals))
        self.heads.append(len(first))
        self.lines.append(line)


# ---- Where a text comes from


def source_text(source: Source, *marks: str) -> tuple[str, str]:
    """Return a text and what errors call it; a string is a text if it has one of the marks."""
    if not isinstance(source, (str, os.PathLike)):
        raise ArgumentError(f"expected a text or a path, not {type(source).__name__}")
    if isinstance(source, str) and any(mark in source for mark in marks):
        return normalize_text(source, "<text>"), "<text>"
    shown = os.fsdecode(source)
    data = read_bytes(source)
    data = decompress(data, shown) if shown.endswith(".gz") else data
    return decode_text(data, shown), shown


def _lines(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the number, the start and the content of each line."""
    start = 0
    for number, line in enumerate(text.split("\n"), 1):
        yield number, start, line
        start += len(line) + 1


# ---- Rule text: `:- cat, dog.`, `cat ; dog :- pet.`, `-wild :- pet.`, `a or not b`

_token = re.compile(r"(?P<blank>[ \t]+)|(?P<comment>[%#].*)|(?P<mark>:-|<-|=>|->|[;,.|\-])")
#: How a mark is called that has several forms.
_MARKS = {"<-": ":-", "|": ";", "->": "=>"}
#: What to write instead of marks of other languages.
_HINTS = {
    "~": "a negated label is written '-a' or 'not a'",
    "!": "a negated label is written '-a' or 'not a'",
    "&": "'and' is written ','",
    ";": "';' stands between heads; write one requirement for each body",
    "not": "write the label without two negations",
}
_word = re.compile(r"\w+")


def read_requirements(source: Source) -> ClauseList:
    """Return the clauses of a text, one or more statements a line."""
    text, path = source_text(source, "")
    found = ClauseList(path)
    for number, start, line in _lines(text):
        reader = _LineReader(text, start, start + len(line), found)
        while reader.kind != "end":
            reader.statement(number)
    return found


class _LineReader:
    """The tokens of one line, and the statements that they make."""

    def __init__(self, text: str, start: int, end: int, found: ClauseList) -> None:
        self.text, self.at, self.end, self.found = text, start, end, found
        self.kind = "start"
        self.advance()

    def advance(self) -> None:
        """Read the next token: its kind is a mark, 'not', 'or', 'name' or 'end'."""
        while (match := _token.match(self.text, self.at, self.end)) and not match["mark"]:
            self.at = match.end()
        self.start = self.at
        if self.at >= self.end:
            self.kind = "end"
        elif match:
            self.kind, self.at = _MARKS.get(match["mark"], match["mark"]), match.end()
        else:
            self._read_name()

    def _read_name(self) -> None:
        word = _word.match(self.text, self.at, self.end)
        if word and word[0] in ("not", "or"):
            self.kind, self.at = word[0], word.end()
            return
        try:
            self.name, self.at = read_name(self.text, self.at)
        except UnreadableName as error:
            if error.problem:
                raise error_at(self.text, error.position, error.problem, self.found.path) from None
            if not word:
                raise self._expected("a label") from None
            self.name, self.at = word[0], word.end()
        self.kind = "name"

    def _expected(self, what: str) -> ParseError:
        shown = self.text[self.start : self.at] or self.text[self.start : self.start + 1]
        seen = f"found '{shown}'" if self.start < self.end else "the line ends"
        problem = f"expected {what}, but {seen}"
        if self.kind == "name" and what != "a label":
            problem += "; a label with spaces is written in quotes, and 'and' as ','"
        elif hint := _HINTS.get(shown):
            problem += f"; {hint}"
        elif self.start < self.end and not (
            shown.isalnum() or shown in {*_MARKS.values(), ",", "."}
        ):
            problem += "; a label with other characters than letters, digits and _ is in quotes"
        return error_at(self.text, self.start, problem, self.found.path)

    def _literal(self) -> int:
        """Read a label, or its negation."""
        negative = self.kind in ("not", "-")
        if negative:
            self.advance()
        if self.kind != "name":
            raise self._expected("a label")
        label = self.found.label(self.name)
        self.advance()
        return ~label if negative else label

    def _literals(self, *marks: str) -> list[int]:
        read = [self._literal()]
        while self.kind in marks:
            self.advance()
            read.append(self._literal())
        return read

    def statement(self, line: int) -> None:
        """Read one requirement, up to its '.' or the end of the line."""
        heads = [] if self.kind == ":-" else self._literals(";", "or")
        comma = self.start if self.kind == "," else -1
        if comma >= 0:  # `a, b => c`, or a mistake
            self.advance()
            heads += self._literals(",")
        body: list[int] = []
        if self.kind == "=>" and (comma >= 0 or len(heads) == 1):
            self.advance()
            heads, body, comma = self._literals(";", "or"), heads, -1
        elif self.kind == ":-":
            self.advance()
            body = self._literals(",")
        if comma >= 0:
            problem = "write ';' between labels of which one must hold, and ',' after ':-' only"
            raise error_at(self.text, comma, problem, self.found.path)
        if self.kind not in (".", "end"):
            raise self._expected("'.' or the end of the line")
        if self.kind == ".":
            if self.at < self.end and self.text[self.at] not in " \t%#":
                problem = "expected a space after '.'; " + (
                    "the name of a file goes to Requirements.load"
                    if self.found.path == "<text>"
                    else "rules with weights, as CCN has them, have the format 'rules'"
                )
                raise error_at(self.text, self.at, problem, self.found.path)
            self.advance()
        self.found.add(heads, body, line)


# ---- DIMACS


def read_dimacs_requirements(source: Source) -> ClauseList:
    """Return the clauses of a DIMACS text; the positive literals of each are its heads."""
    text, path = source_text(source, "\n")
    names, literals, ends, lines = read_clauses(text, path)
    found = ClauseList(path, {name: i for i, name in enumerate(names)})
    starts = [0, *ends[:-1] + 1][: len(ends)]
    for start, end, line in zip(starts, ends, lines, strict=True):
        clause = literals[start:end].tolist()
        if not clause:
            raise ParseError(
                "an empty clause cannot be satisfied", line=int(line), column=1, path=path
            )
        found.add([x - 1 for x in clause if x > 0], [-x - 1 for x in clause if x < 0], int(line))
    return found


# ---- The rules of CCN, and PiShield's files: labels are numbers

_indexed = re.compile(r"(n|-|not y_|y_)?(\d{1,6})")  # all labels below the largest get names


def read_indexed_rules(
    source: Source, labels: Sequence[str] | int | None, prefix: str
) -> ClauseList:
    """Return rules `weight head :- body`, or clauses `y_1 or not y_2`, over numbered labels."""
    text, path = source_text(source, "\n", ":-", " or ")
    rows: list[tuple[list[int], list[int], int]] = []
    for number, start, line in _lines(text):
        words = line.split()
        if not words or line.lstrip().startswith(("#", "ordering")):
            continue

        def literal(word: str, start: int = start, line: str = line) -> int:
            match = _indexed.fullmatch(word)
            if match is None:
                at = start + max(0, line.find(word.rsplit(" ", maxsplit=1)[-1]))
                raise error_at(
                    text, at, f"expected the number of a label, but found {word!r}", path
                )
            return ~int(match[2]) if match[1] in ("n", "-", "not y_") else int(match[2])

        if ":-" in words:
            cut = words.index(":-")
            heads = [literal(word) for word in words[max(0, cut - 1) : cut]]
            rows.append((heads, [literal(word) for word in words[cut + 1 :]], number))
        else:
            clause = [literal(" ".join(part.split())) for part in line.split(" or ")]
            rows.append(
                ([x for x in clause if x >= 0] or clause[:1],
                 [~x for x in clause if x < 0], number)
            )  # fmt: skip
    used = [x if x >= 0 else ~x for heads, body, _ in rows for x in (*heads, *body)]
    names = _numbered(labels, max(used, default=-1) + 1, prefix)
    found = ClauseList(path, {name: i for i, name in enumerate(names)})
    for heads, body, number in rows:
        if not heads and not body:
            raise ParseError("expected a head or a body", line=number, column=1, path=path)
        found.add(heads, body, number)
    return found


def _numbered(labels: Sequence[str] | int | None, least: int, prefix: str) -> list[str]:
    names = (
        [f"{prefix}{i}" for i in range(max(least, labels or 0))]
        if labels is None or isinstance(labels, int)
        else list(labels)
    )
    if len(names) < least:
        raise ArgumentError(
            f"the rules use label {least - 1:,}, counted from 0, but labels has {len(names):,}"
        )
    return names


# ---- Hierarchies


def read_edges(edges: Any, order: EdgeOrder) -> ClauseList:
    """Return 'a child implies its parent' for pairs, a data frame, or a CSV or TSV file."""
    one_of("order", order, ("child parent", "parent child"))
    path = "<edges>"
    rows: list[tuple[int, Any]]  # the line, and its cells
    head: list[str] = []
    if isinstance(edges, (str, os.PathLike)):
        text, path = source_text(edges, "\n")
        dialect = "\t" if "\t" in text.partition("\n")[0] else ","
        reader = csv.reader(text.splitlines(), delimiter=dialect)
        rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
        head = [cell.lower() for cell in rows[0][1]] if rows else []
        if {"child", "parent"} <= set(head):
            del rows[0]
    elif hasattr(edges, "columns"):
        is_arrow = hasattr(edges, "to_pydict")  # whose columns are data
        head = [str(name).lower() for name in (edges.column_names if is_arrow else edges.columns)]
        columns = edges.to_pydict().values() if is_arrow else edges.to_numpy().T.tolist()
        rows = list(enumerate(zip(*columns, strict=True), 1))
    else:
        try:
            rows = list(enumerate(edges, 1))
        except TypeError:
            raise ArgumentError(_PAIRS) from None
    if {"child", "parent"} <= set(head):
        places = [head.index("child"), head.index("parent")]
        rows = [(n, [row[c] for c in places] if len(row) == len(head) else row) for n, row in rows]
        order = "child parent"
    found = ClauseList(path)
    for number, row in rows:
        where = f"line {number} of {path}" if path != "<edges>" else f"pair {number}"
        if isinstance(row, str) or not hasattr(row, "__len__") or len(row) != 2:
            raise ArgumentError(f"{_PAIRS}; {where} is {str(row)[:80]}")
        child, parent = row if order == "child parent" else (row[1], row[0])
        if _is_empty(child):
            raise ArgumentError(f"{_PAIRS}; {where} has no child")
        implied = found.label(str(child))
        if not _is_empty(parent):  # else it is a root
            found.add([found.label(str(parent))], [implied], number)
    return found


_PAIRS = "edges are pairs of names, such as [('cat', 'animal')], or a table of two columns, child and parent"


def _is_empty(name: Any) -> bool:
    return name is None or name == "" or (isinstance(name, float) and math.isnan(name))


def read_networkx(graph: Any, order: EdgeOrder) -> ClauseList:
    """Return the hierarchy of a `networkx.DiGraph`."""
    if not hasattr(graph, "edges") or not getattr(graph, "is_directed", lambda: False)():
        raise ArgumentError(f"expected a networkx.DiGraph, not {type(graph).__name__}")
    found = read_edges(list(graph.edges()), order)
    for node in graph.nodes():
        found.label(str(node))
    return found


def read_obo(source: Source, relationships: Sequence[str]) -> ClauseList:
    """Return 'a term implies the terms it is related to' for an ontology in OBO."""
    text, path = source_text(source, "\n")
    found = ClauseList(path)
    term, obsolete, in_term = "", False, False
    edges: list[tuple[str, int]] = []

    def close() -> None:
        if term and not obsolete:
            found.label(term)
            for parent, line in edges:
                found.add([found.label(parent)], [found.label(term)], line)

    for number, _, line in _lines(text):
        key, _, value = line.partition(":")
        value = value.partition("!")[0].strip()
        if line.startswith("["):
            close()
            in_term = line.strip() == "[Term]"
            term, edges, obsolete = "", [], False
        elif not in_term:
            continue
        elif key == "id":
            term = value
        elif key == "is_obsolete":
            obsolete = value == "true"
        elif key == "is_a" and not value:
            raise ParseError("expected a term after 'is_a:'", line=number, column=1, path=path)
        elif key == "is_a" and "is_a" in relationships:
            edges.append((value.split()[0], number))
        elif key == "relationship" and len(value.split()) > 1:
            kind, target = value.split()[:2]
            if kind in relationships:
                edges.append((target, number))
    close()
    if not found.index:
        raise ParseError("found no [Term] with an id; this is not an OBO file", path=path)
    return found


_hierarchical = re.compile(r"^@attribute\s+\S+\s+hierarchical\s+(.*)$", re.IGNORECASE)


def read_arff(source: Source, form: Literal["auto", "tree", "dag"]) -> ClauseList:
    """Return the hierarchy of the class attribute of an arff file of CLUS.

    A tree lists paths such as `01/01/03`; a DAG lists edges such as `root/GO0003674`, and its
    root is not a label.
    """
    one_of("form", form, ("auto", "tree", "dag"))
    text, path = source_text(source, "\n")
    found = ClauseList(path)
    for number, _, line in _lines(text):
        match = _hierarchical.match(line)
        if match is None:
            continue
        items = [item.strip() for item in match[1].split(",") if item.strip()]
        if form == "dag" or (form == "auto" and any(item.startswith("root/") for item in items)):
            pairs = [(item.partition("/")[2], item.partition("/")[0]) for item in items]
        else:
            paths = dict.fromkeys(
                "/".join(parts[:depth])
                for parts in (item.split("/") for item in items)
                for depth in range(1, len(parts) + 1)
            )
            pairs = [(one, one.rpartition("/")[0]) for one in paths]
        for child, _parent in pairs:
            found.label(child)
        for child, parent in dict.fromkeys(pairs):
            if parent not in ("", "root"):
                found.add([found.label(parent)], [found.label(child)], number)
        return found
    raise ParseError(
        "found no line '@ATTRIBUTE class hierarchical …'; this is not a hierarchy of CLUS",
        path=path,
    )


def read_program_rules(program: Program) -> ClauseList:
    """Return one clause for each head of each rule of a program; a requirement of it has none."""
    found = ClauseList("<program>")
    if counts := counts_of(program):
        raise ProgramError(
            f"a requirement is a clause, which has no counts: {program.atoms[min(counts)]}; write a "
            "clause for each set of labels that decides it, such as ':- a, b.' for any two"
        )
    violated = {program.index[name] for name in program.requirements.values()}
    for i, name in enumerate(program.atoms):
        if i not in violated:
            found.label(name)
    place = [found.index.get(name, -1) for name in program.atoms]
    for j, (heads, body) in enumerate(program._row_lists()):
        literals = [place[x] if x >= 0 else ~place[~x] for x in body]
        for head in heads:
            found.add([] if j in program.requirements else [place[head]], literals, j + 1)
    return found


# ---- Mined from a label matrix


#: Rows in which pairs of labels are counted at once.
_MINED_AT_ONCE = 50_000


def mine(
    Y: np.ndarray[Any, np.dtype[np.bool_]],
    names: Sequence[str],
    support: int,
    progress: Progress | None = None,
) -> tuple[ClauseList, list[int]]:
    """Return implications and exclusions of two labels that no row contradicts, and their support.

    An implication `b :- a` is supported by the rows that have a; an exclusion `:- a, b` by the
    rows that would have both if the labels were independent, rounded down.
    """
    found = ClauseList("<mined>", {name: i for i, name in enumerate(names)})
    together = np.zeros((len(names), len(names)))
    for start in range(0, len(Y), _MINED_AT_ONCE):
        # float32 counts that many exactly.
        part = Y[start : start + _MINED_AT_ONCE].astype(np.float32)
        together += part.T @ part
        if progress is not None:
            progress("rows mined", start + len(part), len(Y))
    count = np.diagonal(together).copy()
    supported = []
    implied = (together == count[:, None]) & (count[:, None] >= support)
    np.fill_diagonal(implied, False)
    for a, b in np.argwhere(implied).tolist():
        found.add([b], [a])
        supported.append(int(count[a]))
    expected = count[:, None] * count[None, :] / max(len(Y), 1)
    excluded = np.triu((together == 0) & (expected >= support), 1)
    for a, b in np.argwhere(excluded).tolist():
        found.add([], [a, b])
        supported.append(int(expected[a, b]))
    return found, supported
