"""Requirements: clauses over labels that the outputs of a network must satisfy."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from latentgamma._arguments import one_of, whole_number, wrong
from latentgamma._display import Display, Displayed
from latentgamma._progress import Progress
from latentgamma._text import listing, quantity
from latentgamma.errors import ArgumentError, DataError, MissingPackageError, unknown_atoms
from latentgamma.logic.planes import pack, unpack
from latentgamma.program.graph import Csr
from latentgamma.program.names import add_quotes, quote_argument
from latentgamma.program.program import Immutable, Program, require_program
from latentgamma.requirements import readers
from latentgamma.requirements.readers import ClauseList, EdgeOrder, Source

if TYPE_CHECKING:
    from latentgamma.requirements.layer import RequirementsLayer

Method: TypeAlias = Literal["auto", "closure", "exact", "strata"]
Format: TypeAlias = Literal["text", "dimacs", "edges", "obo", "arff", "rules", "pishield"]
Booleans: TypeAlias = npt.NDArray[np.bool_]

_FORMATS: dict[str, Format] = {
    ".cnf": "dimacs",
    ".csv": "edges",
    ".tsv": "edges",
    ".obo": "obo",
    ".arff": "arff",
}
_or = re.compile(r"or(?!\w)").match
#: How many requirements, rows or labels a printed result lists.
_SHOWN = 10


@dataclass(frozen=True, eq=False, repr=False)
class Requirements(Displayed, Immutable):
    r"""Clauses over labels: in each, at least one literal must hold.

    Clause c is `literals[indptr[c]:indptr[c + 1]]`; a literal is the index i of a label, or `~i`
    for its negation. The first `heads[c]` literals are the heads of the requirement as it was
    written: `b :- a, not c.` has the head b, and is the clause "b, or not a, or c".

    >>> pets = Requirements.from_text(":- cat, dog.\ncat ; dog :- pet.\n-wild :- pet.")
    >>> print(pets)
    :- cat, dog.
    cat ; dog :- pet.
    -wild :- pet.
    >>> pets.labels
    ('cat', 'dog', 'pet', 'wild')
    >>> print(pets.check([[1, 1, 1, 0], [1, 0, 1, 0]]))
    1 of 2 rows breaks 1 of 3 requirements
      1 row  line 1  :- cat, dog.  (row 0)
    """

    labels: tuple[str, ...]
    indptr: npt.NDArray[np.int64] = field(metadata={"shape": "(C + 1,)"})
    literals: npt.NDArray[np.int32]
    heads: npt.NDArray[np.int32] = field(metadata={"shape": "(C,)"})
    #: The line of each requirement in its text, or 0.
    lines: npt.NDArray[np.int64] = field(metadata={"shape": "(C,)"})
    #: What errors call the text.
    path: str = "<text>"
    #: Of mined requirements: the number of rows that support each, and that break it in the
    #: validation data.
    support: npt.NDArray[np.int64] | None = None
    cost: npt.NDArray[np.int64] | None = None

    # ---- Ways to build them

    @classmethod
    def _of(cls, found: ClauseList, labels: Sequence[str] | None = None) -> Requirements:
        made = cls(
            tuple(found.index),
            np.asarray(found.indptr, np.int64),
            np.asarray(found.literals, np.int32),
            np.asarray(found.heads, np.int32),
            np.asarray(found.lines, np.int64),
            found.path,
        )
        return made if labels is None else made.relabel(labels)

    @classmethod
    def from_text(cls, text: Source, *, labels: Sequence[str] | None = None) -> Requirements:
        """Return the requirements of a text.

        `:- a, b.` forbids both; `a ; b :- c.` asks for one of two if c; `-a :- b.` forbids a if b;
        `a or not b` is a clause, and `a, b => c` the same as `c :- a, b.` `not` and `-` both negate,
        `%` and `#` start a comment, and the end of a line ends a requirement as '.' does.

        >>> print(Requirements.from_text("bird or not penguin"))
        bird ; -penguin.

        Args:
            text: the text, or the `Path` of a file.
            labels: all labels, in the order of the network's outputs; by default those of the text,
                as they appear.

        Raises:
            ParseError: if a line cannot be read; the message shows the place.
            FactsError: if a requirement has a label that `labels` does not name.
        """
        return cls._of(readers.read_requirements(text), labels)

    @classmethod
    def from_dimacs(cls, source: Source, *, labels: Sequence[str] | None = None) -> Requirements:
        """Return the clauses of a DIMACS file or text.

        Args:
            source: the path of a file, or a text of several lines.
            labels: as in `from_text`; names of variables are read from comments `c 1 name`, and
                are x1, x2, … without them.
        """
        found = readers.read_dimacs_requirements(source)
        if labels is not None and len(labels) == len(found.index):
            unnamed = [f"x{i}" for i in range(1, len(labels) + 1)]
            if list(found.index) == unnamed:  # the labels are the names of the variables
                found.index = {name: i for i, name in enumerate(_names(labels))}
        return cls._of(found, labels)

    @classmethod
    def from_rules(
        cls, source: Source, *, labels: Sequence[str] | int | None = None
    ) -> Requirements:
        """Return the rules of a file of CCN: `weight head :- body`, labels as numbers from 0.

        >>> print(Requirements.from_rules("0.121 5 :- n2 4"))
        5 :- not 2, 4.

        Args:
            source: the path of a file, or a text.
            labels: the names of the labels, or their number; by default "0", "1", …

        Returns:
            The requirements; `n2` in a file is `not 2`.
        """
        return cls._of(readers.read_indexed_rules(source, labels, ""))

    @classmethod
    def from_pishield(
        cls, source: Source, *, labels: Sequence[str] | int | None = None
    ) -> Requirements:
        """Return the propositional requirements of a file of PiShield.

        >>> print(Requirements.from_pishield("y_0 or not y_1"))
        y_0 :- y_1.

        Args:
            source: the path of a file, or a text: `y_0 or not y_1`, or rules as in `from_rules`.
            labels: the names of the labels, or their number; by default "y_0", "y_1", …
        """
        return cls._of(readers.read_indexed_rules(source, labels, "y_"))

    @classmethod
    def from_edges(
        cls,
        edges: Any,
        *,
        order: EdgeOrder = "child parent",
        labels: Sequence[str] | None = None,
    ) -> Requirements:
        """Return a hierarchy: each child implies its parent.

        >>> print(Requirements.from_edges([("cat", "animal"), ("dog", "animal")]))
        animal :- cat.
        animal :- dog.

        Args:
            edges: pairs of names, a data frame of two columns, or the path of a CSV or TSV file. If
                there are columns named child and parent, these are taken. A child without a
                parent is a root.
            order: "child parent" or "parent child": which comes first in a pair.
            labels: as in `from_text`.
        """
        return cls._of(readers.read_edges(edges, order), labels)

    @classmethod
    def from_networkx(
        cls, graph: Any, *, order: EdgeOrder = "child parent", labels: Sequence[str] | None = None
    ) -> Requirements:
        """Return the hierarchy of a `networkx.DiGraph`, with its nodes as labels.

        Args:
            graph: the graph.
            order: whether an edge goes from child to parent, or from parent to child.
            labels: as in `from_text`.
        """
        return cls._of(readers.read_networkx(graph, order), labels)

    @classmethod
    def from_obo(
        cls,
        source: Source,
        *,
        relationships: Sequence[str] = ("is_a", "part_of"),
        labels: Sequence[str] | None = None,
    ) -> Requirements:
        """Return the hierarchy of an ontology in OBO; obsolete terms are left out.

        Args:
            source: the path of a file, or its text.
            relationships: those by which a term implies another.
            labels: as in `from_text`.
        """
        return cls._of(readers.read_obo(source, relationships), labels)

    @classmethod
    def from_arff(
        cls,
        source: Source,
        *,
        form: Literal["auto", "tree", "dag"] = "auto",
        labels: Sequence[str] | None = None,
    ) -> Requirements:
        """Return the class hierarchy of an arff file of CLUS.

        Args:
            source: the path of a file, which may end in .gz, or its text.
            form: "tree" for paths such as `01/01/03`, "dag" for edges such as `parent/child`;
                "auto" is "dag" if there are edges from `root`.
            labels: as in `from_text`.
        """
        return cls._of(readers.read_arff(source, form), labels)

    @classmethod
    def from_program(cls, program: Program) -> Requirements:
        """Return the rules of a program as requirements: one for each head of each rule.

        >>> from latentgamma import parse
        >>> print(Requirements.from_program(parse("fly :- bird, not penguin.")))
        fly :- bird, not penguin.
        """
        require_program(program, "Requirements.from_program")
        return cls._of(readers.read_program_rules(program))

    @classmethod
    def from_labels(
        cls,
        Y: Any,
        labels: Sequence[str] | None = None,
        *,
        support: int = 10,
        validation: Any = None,
        most_cost: int | None = None,
        progress: Progress | None = None,
    ) -> Requirements:
        """Return the implications and exclusions of two labels that a label matrix never breaks.

        An implication `b :- a.` is supported by the rows that have a. An exclusion `:- a, b.` is
        supported by the rows that would have both if the labels were independent.

        >>> Y = [[1, 1, 0]] * 20 + [[0, 1, 0]] * 20 + [[0, 0, 1]] * 40
        >>> mined = Requirements.from_labels(Y, ["cat", "pet", "wild"])
        >>> print(mined)
        pet :- cat.
        :- cat, wild.
        :- pet, wild.
        >>> mined.support.tolist()
        [20, 10, 20]

        Args:
            Y: 0 and 1, (rows, labels): an array or a data frame.
            labels: the names of the columns; by default those of the data frame, or y0, y1, …
            support: the least number of rows that support a requirement.
            validation: other rows. `cost` is then how many of them break each requirement.
            most_cost: the requirements with a larger cost are left out.
            progress: shows how far it is, such as `lg.learning.ProgressBar()`.

        Raises:
            DataError: if Y is not a matrix of 0 and 1.
        """
        whole_number("support", support, 1)
        rows, names = label_matrix(Y, labels, "Y")
        found, supported = readers.mine(rows, names, support, progress)
        mined = cls._of(found)
        counts = np.asarray(supported, np.int64)
        cost = None if validation is None else mined.check(validation).per_requirement
        mined = replace(mined, support=counts, cost=cost)
        if most_cost is None:
            return mined
        if cost is None:
            raise ArgumentError("most_cost needs validation=, the rows that the cost is counted on")
        return mined.subset(np.flatnonzero(cost <= most_cost))

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        format: Format | None = None,  # noqa: A002
        labels: Sequence[str] | None = None,
    ) -> Requirements:
        """Return the requirements in a file, which may end in .gz.

        Args:
            path: the file.
            format: "text", "dimacs", "edges", "obo", "arff", "rules" or "pishield". By default the
                name decides: .cnf is DIMACS, .csv and .tsv are edges (child, parent), .obo and .arff
                what they say, and everything else is text, or DIMACS if it has a line `p cnf`.
            labels: as in `from_text`.

        Raises:
            ParseError: if the file cannot be read as that.
        """
        if not isinstance(path, (str, os.PathLike)):
            raise wrong("path", "the path of a file", path)
        if format is None:
            suffix = Path(os.fsdecode(path).removesuffix(".gz")).suffix.lower()
            format = _FORMATS.get(suffix)  # noqa: A001
        if format is None:
            text, _ = readers.source_text(path)
            format = "dimacs" if re.search(r"^p cnf ", text, re.MULTILINE) else "text"  # noqa: A001
        one_of("format", format, get_args(Format))
        made: Requirements = getattr(cls, f"from_{format}")(Path(path), labels=labels)
        return made

    # ---- What they are

    def __len__(self) -> int:
        return len(self.heads)

    def clause(self, c: int) -> npt.NDArray[np.int32]:
        """Return the literals of one clause."""
        return self.literals[self.indptr[c] : self.indptr[c + 1]]

    @cached_property
    def index(self) -> Mapping[str, int]:
        """The place of each label."""
        return {name: i for i, name in enumerate(self.labels)}

    @cached_property
    def atoms(self) -> npt.NDArray[np.int32]:
        """The label of each literal."""
        return np.where(self.literals < 0, ~self.literals, self.literals)

    def __getitem__(self, c: int) -> str:
        """Return one requirement as text."""
        if not -len(self) <= c < len(self):
            raise IndexError(f"requirement {c} of {len(self)}")
        clause, heads = self.clause(c % len(self)).tolist(), int(self.heads[c])
        first = " ; ".join(("-" if x < 0 else "") + self._quoted(x) for x in clause[:heads])
        rest = ", ".join(("not " if x >= 0 else "") + self._quoted(x) for x in clause[heads:])
        return f"{first}{' ' if first and rest else ''}{':- ' if rest else ''}{rest}."

    def _quoted(self, literal: int) -> str:
        label = self.labels[literal if literal >= 0 else ~literal]
        return add_quotes(label, "'") if _or(label) else quote_argument(label)

    def place(self, c: int) -> str:
        """Return where a requirement stands: "line 3", or its number where there is no text."""
        return f"line {self.lines[c]}" if self.lines[c] else f"requirement {c}"

    def to_text(self) -> str:
        """Return the requirements as text that `from_text` reads."""
        return "".join(f"{self[c]}\n" for c in range(len(self)))

    def __str__(self) -> str:
        return self.to_text().removesuffix("\n")

    def __repr__(self) -> str:
        return f"Requirements({quantity(len(self), 'clause')} over {quantity(len(self.labels), 'label')})"

    def _display(self) -> Display:
        shown = [self[c] for c in range(min(len(self), 3 * _SHOWN))]
        more = len(self) - len(shown)
        return Display(repr(self), code=shown, notes=[f"and {more:,} more"] if more else [])

    def _key(self) -> tuple[Any, ...]:
        ends = self.indptr[1:-1]
        clauses = [tuple(sorted(part)) for part in np.split(self.literals, ends)]
        return self.labels, tuple(clauses if len(self) else ())

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Requirements) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def relabel(self, labels: Sequence[str]) -> Requirements:
        """Return the same clauses over these labels, in this order.

        Raises:
            FactsError: if a clause has a label that is not among them; the message has its line.
        """
        names = _names(labels)
        place = {name: i for i, name in enumerate(names)}
        used = np.zeros(len(self.labels), np.bool_)
        used[self.atoms] = True
        missing = [self.labels[i] for i in np.flatnonzero(used) if self.labels[i] not in place]
        if missing:
            error = unknown_atoms(
                missing, names, "requirements", kind="label", lacking="not among the labels"
            )
            row = Csr(self.indptr, self.literals).owner
            bad = {self.index[name] for name in missing}
            where = dict.fromkeys(
                self.place(c) for c in row[np.isin(self.atoms, sorted(bad))].tolist()[: 4 * _SHOWN]
            )
            raise type(error)(f"{error} ({listing(list(where))} of {self.path})")
        new = np.array([place.get(name, -1) for name in self.labels] or [0], np.int32)[self.atoms]
        return replace(self, labels=names, literals=np.where(self.literals < 0, ~new, new))

    def subset(self, chosen: Sequence[int] | npt.NDArray[Any]) -> Requirements:
        """Return some of the requirements, by number, or by a truth value for each."""
        rows = np.arange(len(self))[list(chosen)]
        clauses = Csr(self.indptr, self.literals).take(rows)
        changed: dict[str, Any] = {
            name: None if getattr(self, name) is None else getattr(self, name)[rows]
            for name in ("heads", "lines", "support", "cost")
        }
        return replace(self, indptr=clauses.indptr, literals=clauses.indices, **changed)

    # ---- Data

    def _satisfied(self, rows: Booleans) -> npt.NDArray[np.uint64]:
        """Return whether each row satisfies each requirement, as bit planes. (C, words)."""
        planes = pack(rows)
        flip = np.where(self.literals < 0, ~np.uint64(0), np.uint64(0))
        out = np.empty((len(self), planes.shape[1]), np.uint64)
        step = max(1, 10_000_000 // max(1, len(self.literals)))
        for start in range(0, planes.shape[1], step):
            part = planes[:, start : start + step][self.atoms] ^ flip[:, None]
            out[:, start : start + step] = np.bitwise_or.reduceat(part, self.indptr[:-1], axis=0)
        return out

    def check(self, Y: Any, labels: Sequence[str] | None = None) -> Violations:
        """Return which rows of a label matrix break which requirements.

        Args:
            Y: 0 and 1, (rows, labels): an array, a tensor or a data frame.
            labels: the names of the columns; by default those of the data frame, or those of the
                requirements. There may be others, which no requirement mentions.

        Returns:
            The violations; `str` of it lists the requirements that are broken most.

        Raises:
            DataError: if Y is not a matrix of 0 and 1, or a label has no column.
        """
        if labels is None and (columns := _frame_columns(Y)) is not None:
            own = [name for name in columns if str(name) in self.index]
            Y = Y.select(own) if hasattr(Y, "select") else Y[own]
        rows, names = label_matrix(Y, labels, "Y", self.labels)
        over = self if names == self.labels else self.relabel(names)
        broken = np.zeros((0, 2), np.int64)
        if len(self) and len(rows):
            present = pack(np.ones((len(rows), 1), np.bool_))  # no bits beyond the last row
            bad = ~over._satisfied(rows) & present
            some = np.flatnonzero(bad.any(1))
            broken = np.argwhere(unpack(bad[some], len(rows)))
            broken[:, 1] = some[broken[:, 1]]
        return Violations(self, len(rows), broken)

    # ---- Layers

    def layer(
        self,
        labels: Sequence[str] | None = None,
        method: Method = "auto",
        *,
        budget: int = 200_000,
        order: Sequence[str] | None = None,
        temperature: float = 0.0,
        progress: Progress | None = None,
    ) -> RequirementsLayer:
        """Return a module that turns log-odds of labels into log-odds that satisfy everything.

        >>> import torch
        >>> pets = Requirements.from_text(":- cat, dog.")
        >>> layer = pets.layer(["dog", "cat", "fish"]).eval()
        >>> layer.decide(torch.tensor([[2.0, 3.0, 1.0]]))
        tensor([[False,  True,  True]])

        Args:
            labels: the labels of the network's outputs, in their order; by default `self.labels`.
            method: "closure" for hierarchies and rules with one head: a label is as likely as
                the best proof of it. "exact" for all clauses: the most likely of all allowed
                answers, compiled once into a decision diagram. "strata" clamps one label after
                another. "auto" takes the first of these that the requirements allow.
            budget: the largest number of edges of the diagram, and of literals in the strata.
            order: of the labels, for "strata": earlier ones are changed less. By default that of
                `labels`. Scores and decisions depend on it.
            temperature: of the minima and maxima of "closure" in training; 0 is hard.
            progress: shows how far the diagram is compiled, such as `lg.learning.ProgressBar()`.

        Raises:
            ProgramError: if no assignment satisfies the requirements, with the lines that
                contradict each other; or if the method does not fit them.
            FactsError: if a requirement has a label that `labels` does not name.
        """
        try:
            from latentgamma.requirements.layer import build_layer
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise MissingPackageError("Requirements.layer needs PyTorch", "torch") from None
        return build_layer(
            self if labels is None else self.relabel(labels),
            method,
            budget=budget,
            order=order,
            temperature=temperature,
            progress=progress,
        )

    def report(self) -> Report:
        r"""Return what is wrong with the requirements, or superfluous: needs `python-sat`.

        Beyond 5,000 requirements, one is called redundant only if it follows from those before it
        by unit propagation.

        >>> print(Requirements.from_text("a :- b.\nb :- c.\na :- c.\n:- d.").report())
        4 labels, 4 requirements, satisfiable
        redundant: line 3  a :- c.
        true in no answer: d
        """
        from latentgamma.requirements.report import report_of

        return report_of(self)


@dataclass(frozen=True, eq=False)
class Violations(Displayed):
    """Rows of a label matrix that break requirements.

    >>> found = Requirements.from_text(":- cat, dog.").check([[1, 1], [0, 1], [1, 1]])
    >>> len(found), found.broken_rows.tolist(), found.per_requirement.tolist()
    (2, [0, 2], [2])

    Attributes:
        requirements: the requirements.
        rows: the number of rows that were checked.
        pairs: (row, requirement), one line for each violation. (V, 2).
    """

    requirements: Requirements
    rows: int
    pairs: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def broken_rows(self) -> npt.NDArray[np.int64]:
        """The rows that break some requirement."""
        return np.unique(self.pairs[:, 0])

    @property
    def per_requirement(self) -> npt.NDArray[np.int64]:
        """The number of rows that break each requirement. (C,)."""
        return np.bincount(self.pairs[:, 1], minlength=len(self.requirements)).astype(np.int64)

    def _worst(self) -> list[tuple[str, str, str, str]]:
        counts = self.per_requirement
        found = []
        for c in np.argsort(-counts, kind="stable")[:_SHOWN].tolist():
            if not counts[c]:
                break
            where = self.pairs[self.pairs[:, 1] == c, 0].tolist()
            shown = f"row{'s' if len(where) > 1 else ''} {listing(list(map(str, where)))}"
            rows = quantity(int(counts[c]), "row")
            found.append((rows, self.requirements.place(c), self.requirements[c], shown))
        return found

    @property
    def title(self) -> str:
        """How many rows break how many requirements, in words."""
        broken, kinds = len(self.broken_rows), int((self.per_requirement > 0).sum())
        verb = "breaks" if broken == 1 else "break"
        total = quantity(len(self.requirements), "requirement")
        return f"{broken:,} of {self.rows:,} rows {verb} {kinds:,} of {total}"

    def __str__(self) -> str:
        lines = [self.title]
        lines += [f"  {n}  {place}  {text}  ({rows})" for n, place, text, rows in self._worst()]
        more = int((self.per_requirement > 0).sum()) - _SHOWN
        return "\n".join([*lines, f"  and {more:,} more requirements"] if more > 0 else lines)

    def _display(self) -> Display:
        return Display(self.title, holds=not len(self), rows=self._worst())


@dataclass(frozen=True)
class Report(Displayed):
    """What is wrong with requirements, or superfluous; each by the number of the requirement.

    >>> report = Requirements.from_text("a. b :- a. -b.").report()
    >>> report.satisfiable, report.conflict
    (False, (0, 1, 2))
    """

    requirements: Requirements
    #: Requirements that contradict each other; empty if an answer satisfies everything.
    conflict: tuple[int, ...]
    #: Requirements that follow from the others that are not redundant.
    redundant: tuple[int, ...]
    #: Labels that are true, and false, in every answer.
    always_true: tuple[str, ...]
    always_false: tuple[str, ...]
    #: Labels that no requirement mentions.
    free: tuple[str, ...]

    @property
    def satisfiable(self) -> bool:
        """Whether an answer satisfies everything."""
        return not self.conflict

    def _display(self) -> Display:
        return replace(super()._display(), holds=self.satisfiable)

    def __str__(self) -> str:
        req = self.requirements
        state = "satisfiable" if self.satisfiable else "no answer satisfies all of them"
        lines = [
            f"{quantity(len(req.labels), 'label')}, {quantity(len(req), 'requirement')}, {state}"
        ]
        for chosen, what in ((self.conflict, "in conflict"), (self.redundant, "redundant")):
            lines += [f"{what}: {req.place(c)}  {req[c]}" for c in chosen[:_SHOWN]]
            lines += [f"{what}: {len(chosen) - _SHOWN:,} more"] if len(chosen) > _SHOWN else []
        for names, what in (
            (self.always_true, "true in every answer"),
            (self.always_false, "true in no answer"),
            (self.free, "in no requirement"),
        ):
            lines += [f"{what}: {listing(list(names), _SHOWN)}"] if names else []
        return "\n".join(lines)


# ---- Checks of what comes from outside


def _names(labels: Any) -> tuple[str, ...]:
    if isinstance(labels, str) or not hasattr(labels, "__iter__"):
        raise ArgumentError(f"labels are a sequence of names, not {labels!r}")
    names = tuple(str(name) for name in labels)
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ArgumentError(f"labels has {twice!r} twice")
    return names


def _frame_columns(Y: Any) -> Any:
    """Return the names of the columns of a frame; None for another table."""
    # The columns of pyarrow are data.
    return getattr(Y, "column_names", None) or getattr(Y, "columns", None)


def label_matrix(
    Y: Any, labels: Sequence[str] | None, what: str, default: tuple[str, ...] | None = None
) -> tuple[Booleans, tuple[str, ...]]:
    """Return a Boolean matrix and the names of its columns."""
    columns = _frame_columns(Y)
    if hasattr(Y, "toarray"):
        Y = Y.toarray()
    if hasattr(Y, "detach"):
        Y = Y.detach().cpu()
        Y = (Y.double() if Y.is_floating_point() else Y).numpy()
    try:
        values = np.asarray(Y.to_numpy() if hasattr(Y, "to_numpy") else Y)
        if values.dtype == np.object_:
            values = values.astype(np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{what} must be a matrix of 0 and 1") from None
    if values.ndim != 2 or values.dtype.kind not in "biuf":
        raise DataError(f"{what} must be a matrix of 0 and 1, not {values.dtype} {values.shape}")
    if labels is None and columns is not None:
        labels = [str(name) for name in columns]
    if labels is None:
        labels = default if default is not None else [f"y{i}" for i in range(values.shape[1])]
    names = _names(labels)
    if len(names) != values.shape[1]:
        raise DataError(
            f"{what} has {quantity(values.shape[1], 'column')}, but there are "
            f"{quantity(len(names), 'label')}"
        )
    rows = values.astype(np.bool_)
    if not np.array_equal(rows, values):
        row, column = np.argwhere(rows != values)[0].tolist()
        found = "no value" if np.isnan(values[row, column]) else f"{values[row, column]:g}"
        raise DataError(
            f"{what} must hold 0 and 1 only, but row {row} has {found} for {names[column]!r}"
        )
    return rows, names
