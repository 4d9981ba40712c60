"""What a program is: atoms, and rules as compressed rows of atom indices."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol, TypeAlias, TypeVar, overload

import numpy as np
import numpy.typing as npt

from latentgamma._display import Display, Displayed
from latentgamma.errors import FactsError, ProgramError, unknown_atoms
from latentgamma.program.conditions import Condition
from latentgamma.program.facts import Facts, FactSets, Mask, fact_mask, fact_values
from latentgamma.program.names import quote, quote_argument, rule_text

# ---- Values whose arrays cannot be written to, however they were made

Array = TypeVar("Array", bound=npt.NDArray[Any])


def read_only(array: Array) -> Array:
    """Return the same array, made read-only together with the arrays that it is a view of."""
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner.flags.writeable = False
        owner = owner.base
    return array


class Immutable:
    """A dataclass whose arrays are read-only, also in its pickled and copied forms.

    What was computed from a value is kept with it, so nothing in it may change. It takes
    ownership of the arrays that it is made from.
    """

    def __post_init__(self) -> None:
        for item in fields(self):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            if isinstance(value, np.ndarray):
                read_only(value)

    def __reduce__(self) -> tuple[Any, ...]:
        # Unpickled arrays are writable, so unpickling makes the value anew.
        return type(self), tuple(getattr(self, item.name) for item in fields(self))  # type: ignore[arg-type]

    def __copy__(self) -> Any:
        return self  # nothing in it can change

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self


# ---- Rules as Python objects, and the sequence of the rules of a program


@dataclass(frozen=True, slots=True)
class Label:
    """What a rule is called, and the text that it comes from, such as an article of a law.

    Rule text has it on the line before the rule: `% @rule R12: Art. 6(1)(a)`.

    >>> print(Label("R12", "Art. 6(1)(a)"))
    R12: Art. 6(1)(a)

    Attributes:
        id: a word without spaces and colons; no two rules of a program have the same.
        citation: any text on one line, or nothing.
        line: the line of the rule in the text that it was read from, if it was.
    """

    id: str
    citation: str = ""
    line: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not _is_id(self.id):
            raise ProgramError(f"the id of a rule is a word without ':' or ',', not {self.id!r}")
        if not isinstance(self.citation, str) or self.citation != " ".join(self.citation.split()):
            raise ProgramError(f"a citation is a text on one line, not {self.citation!r}")

    def __str__(self) -> str:
        return f"{self.id}: {self.citation}" if self.citation else self.id


_is_id = re.compile(r"[^\s:,]+").fullmatch


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: when every atom of the body is true and no negated one is, every head is true.

    >>> print(Rule(("bird",), frozenset({"penguin"})))
    bird :- penguin.

    Attributes:
        heads: the atoms that follow.
        body: the atoms that must be true.
        negated: the atoms that must not follow.
        label: its id and citation, if it has them.
    """

    heads: tuple[str, ...]
    body: frozenset[str]
    negated: frozenset[str] = frozenset()
    label: Label | None = None

    @property
    def head(self) -> str:
        """The head of a rule that has just one; a `ProgramError` for other rules."""
        if len(self.heads) != 1:
            raise ProgramError(f"this rule has {len(self.heads)} heads; use .heads")
        return self.heads[0]

    @property
    def is_requirement(self) -> bool:
        """Whether it is written without a head: its head says that its body holds."""
        return self.heads == (requirement_name(self.body, self.negated),)

    def __str__(self) -> str:
        body = [quote(name) for name in sorted(self.body)]
        body += [f"not {quote(name)}" for name in sorted(self.negated)]
        return rule_text([] if self.is_requirement else map(quote_argument, self.heads), body)


#: How the name of an atom starts that says that a requirement is violated.
_REQUIREMENT = ":- "


def requirement_name(body: Iterable[str], negated: Iterable[str]) -> str:
    """Return the name of the atom that follows when a requirement is violated.

    >>> requirement_name(["approved"], ["checked"])
    ':- approved, not checked'
    """
    literals = [quote(name) for name in sorted(body)]
    literals += [f"not {quote(name)}" for name in sorted(negated)]
    return _REQUIREMENT + ", ".join(literals)


class Rules(Sequence[Rule]):
    """The rules of a program; each `Rule` is made when it is read.

    >>> from latentgamma import parse
    >>> rules = parse("bird :- penguin. animal :- bird.").rules
    >>> len(rules), str(rules[0])
    (2, 'bird :- penguin.')
    """

    __slots__ = ("_program",)

    def __init__(self, program: Program) -> None:
        self._program = program

    def __len__(self) -> int:
        return self._program.R

    @overload
    def __getitem__(self, index: int) -> Rule: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Rule, ...]: ...
    def __getitem__(self, index: int | slice) -> Rule | tuple[Rule, ...]:
        if isinstance(index, slice):
            return tuple(self[j] for j in range(*index.indices(len(self))))
        if not -len(self) <= index < len(self):
            raise IndexError(f"rule {index} of a program with {len(self)} rules")
        return self._program.rule(index % len(self))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (Rules, tuple, list)):
            return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))
        return NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        shown = [repr(str(rule)) for rule in self[:5]] + ["…"] * (len(self) > 5)
        return f"Rules({', '.join(shown)})"


# ---- Where the rules of a grounded program come from, so that proofs can name the source


@dataclass(frozen=True, slots=True)
class Instance:
    """A ground rule as an instance of the text it comes from.

    `place` says where the text has it ("line 3"), `substitution` pairs the variables of the rule
    with their values, and `absent` lists the negated atoms that nothing can derive, which a
    ground rule does not mention. `label` is that of the rule in the text.

    >>> print(Instance("line 3", (("X", "a"), ("Y", "b"))))
    line 3 with X=a, Y=b
    """

    place: str
    substitution: tuple[tuple[str, str], ...] = ()
    absent: tuple[str, ...] = ()
    label: Label | None = None

    def __str__(self) -> str:
        pairs = ", ".join(f"{variable}={value}" for variable, value in self.substitution)
        place = self.place if self.label is None else f"{self.label}, {self.place}"
        return f"{place} with {pairs}" if pairs else place


class Origin(Protocol):
    """The text that a program was grounded from."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The atoms that can be given."""

    def complete(self) -> Any:
        """Return the same program with every body as it was written, nothing evaluated away."""

    def instance(self, rule: int) -> Instance | None:
        """Return where a rule of the complete program comes from, if that is known."""

    def places(self, atom: str) -> list[str]:
        """Return where the rules for the predicate of an atom stand."""

    def atom_name(self, text: str) -> str | None:
        """Return the name of the atom that the text writes, if the rules have its predicate."""


# ---- Checks of what a program is made from: names, rules as pairs, compressed rows

#: A rule as a plain pair: the head (or heads), then the body.
Pair: TypeAlias = "tuple[str | Iterable[str], str | Iterable[str]]"


def check_name(name: object) -> str:
    """Return the name of an atom; a `ProgramError` if it is not one."""
    if not isinstance(name, str) or not name:
        raise ProgramError(f"an atom's name is a non-empty string, not {name!r}")
    return name


def names_of_rule(rule: Rule | Pair) -> tuple[Iterable[str], Iterable[str], Iterable[str]]:
    """Return the names of the heads, of the body and of the negated atoms of a rule."""
    if isinstance(rule, Rule):
        return rule.heads, sorted(rule.body), sorted(rule.negated)
    try:
        heads, body = rule
    except (TypeError, ValueError):
        raise ProgramError(f"a rule is a pair (head or heads, body), not {rule!r}") from None
    # Keep the order in which a list names new atoms; a set has none, so sort it.
    return _name_list(heads), _name_list(body), ()


def _name_list(names: str | Iterable[str]) -> list[str]:
    if isinstance(names, str):
        return [names]
    if isinstance(names, (set, frozenset)):
        return sorted(names)
    return list(names)


def atom_names(atoms: Sequence[str] | int) -> tuple[str, ...]:
    """Return the names of the atoms, or a0, a1, … for a number of them."""
    if isinstance(atoms, (int, np.integer)):
        return tuple(f"a{i}" for i in range(int(atoms)))
    names = tuple(atoms)
    if len(set(names)) != len(names):
        raise ProgramError("atoms names some atom twice")
    for name in names:
        check_name(name)
    return names


def checked_labels(labels: Sequence[Label | None]) -> tuple[Label | None, ...]:
    """Return the labels of the rules, nothing if no rule has one; no id may occur twice."""
    ids = [label.id for label in labels if label is not None]
    if len(set(ids)) < len(ids):
        twice = Counter(ids).most_common(1)[0][0]
        raise ProgramError(f"two rules have the id {twice!r}")
    return tuple(labels) if ids else ()


def sorted_literals(
    indices: npt.ArrayLike, indptr: npt.ArrayLike, negated: npt.ArrayLike | None
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Return the bodies as sorted sets of literals, positive ones first, checked."""
    flat, ptr = _checked_rows("body", indices, indptr)
    if negated is None:
        return sorted_sets(flat, ptr)
    signs = np.asarray(negated)
    if signs.shape != flat.shape or (signs.size and signs.dtype != np.bool_):
        raise ProgramError(
            f"body_negated must be one boolean for each of the {flat.size} body_indices, not "
            f"{signs.dtype} of shape {signs.shape}"
        )
    # As unsigned numbers with the sign in the highest bit, literals sort as they should.
    high = np.uint32(1 << 31)
    ordered, ptr = sorted_sets(flat.astype(np.uint32) | signs.astype(np.uint32) * high, ptr)
    atoms = (ordered & ~high).astype(np.int32)
    return np.where(ordered >= high, ~atoms, atoms), ptr


def _checked_rows(
    what: str, indices: npt.ArrayLike, indptr: npt.ArrayLike
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    given, ptr = np.asarray(indices), np.asarray(indptr)
    for name, values in ((f"{what}_indices", given), (f"{what}_indptr", ptr)):
        if values.ndim != 1 or (values.size and values.dtype.kind not in "iu"):
            raise ProgramError(
                f"{name} must be a one-dimensional integer array, not "
                f"{values.dtype} of shape {values.shape}"
            )
    ptr = ptr.astype(np.int64)
    if not len(ptr) or ptr[0] != 0 or ptr[-1] != given.size or np.any(np.diff(ptr) < 0):
        raise ProgramError(
            f"{what}_indptr must rise from 0 to {given.size}, the number of {what}_indices"
        )
    if given.size and (given.min() < 0 or given.max() > np.iinfo(np.int32).max):
        raise ProgramError(f"{what}_indices must lie in 0…{np.iinfo(np.int32).max}")
    return given.astype(np.int32), ptr


def sorted_sets(
    flat: npt.NDArray[Any], ptr: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Return compressed rows of numbers from 0 to 2**32 - 1 sorted and without repetitions."""
    row = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    keys = row << 32 | flat
    if np.all(np.diff(keys) > 0):
        return flat, ptr
    keys.sort()
    keys = keys[np.diff(keys, prepend=-1) > 0]
    counts = np.bincount(keys >> 32, minlength=len(ptr) - 1)
    return keys.astype(np.uint32).astype(flat.dtype), np.concatenate(([0], np.cumsum(counts)))


# ---- What a program is: atoms, rules as index arrays, and strata

T = TypeVar("T")
Indices: TypeAlias = npt.NDArray[np.int32]
Offsets: TypeAlias = npt.NDArray[np.int64]

#: A notebook shows this many rules of a program.
_SHOWN_RULES = 30


@dataclass(frozen=True, eq=False, repr=False)
class Program(Displayed, Immutable):
    """A stratified logic program: a tuple of atoms, and rules over their indices.

    Build one with `latentgamma.parse`, `latentgamma.load`, `Program.from_rules` or
    `Program.from_arrays`. Rules keep the order in which they were given. They lie in two
    compressed-row structures: the body of rule j is
    `body_literals[body_indptr[j]:body_indptr[j + 1]]`, sorted and without repetition, and its
    heads likewise in `head_indices`. A literal is the index i of an atom, or `~i` (that is
    −1 − i) for its negation; positive literals come first. A rule with an empty body is a fact
    of the program.

    A program without negation is `definite`. Otherwise no atom may depend on its own negation, so
    that every fact set has one answer: `strata` are definite programs that are closed one after
    another, and none negates an atom that it or a later one derives.

    >>> program = Program.from_rules([("bird", ["penguin"]), ("animal", ["bird"])])
    >>> program.M, program.R, program.k, program.rho_max
    (3, 2, 1, 1)
    >>> print(program)
    bird :- penguin.
    animal :- bird.
    """

    atoms: tuple[str, ...]
    body_indptr: Offsets = field(metadata={"shape": "(R + 1,)"})
    body_literals: Indices
    head_indptr: Offsets = field(metadata={"shape": "(R + 1,)"})
    head_indices: Indices
    #: The text it was grounded from, if it was: equal programs may differ in it.
    origin: Origin | None = None
    #: The labels of the rules, None for a rule without one; empty if no rule has one.
    labels: tuple[Label | None, ...] = ()

    # ---- Ways to build one

    @classmethod
    def from_rules(
        cls, rules: Iterable[Rule | Pair], atoms: Iterable[str] | None = None
    ) -> Program:
        """Return the program of these rules.

        >>> print(Program.from_rules([(["b", "c"], ["a"]), ("d", ["b", "c"]), ("a", [])]))
        b, c :- a.
        d :- b, c.
        a.
        >>> print(Program.from_rules([Rule(("fly",), frozenset({"bird"}), frozenset({"penguin"}))]))
        fly :- bird, not penguin.

        Args:
            rules: `Rule`s, which may have negated atoms, or pairs (head or heads, body) of names.
                A rule without a head is a requirement, and a name such as `2 { a; b; c }` a count.
            atoms: the order of the atoms; it may name some that no rule uses. Those of
                requirements and counts may be left out, and come last. By default atoms are
                numbered as they appear, heads before bodies.

        Raises:
            ProgramError: if a name is not a string, two rules have the same id, or an atom depends
                on its own negation; the message shows the cycle.
            FactsError: if a rule has an atom that `atoms` does not name.
        """
        from latentgamma.program.counting import compile_counts

        rows = RuleRows()
        for name in () if atoms is None else atoms:
            if check_name(name) in rows.index:
                raise ProgramError(f"atoms names {name!r} twice")
            rows.index[name] = len(rows.index)
        declared = len(rows.index)
        for rule in rules:
            heads, body, negated = map(list, names_of_rule(rule))
            for name in (*heads, *body, *negated):
                check_name(name)
            rows.add(heads, body, negated, rule.label if isinstance(rule, Rule) else None)
        names = list(rows.index)
        extra = [name for name in names[declared:] if name not in rows.requirements]
        if atoms is not None and extra:
            raise unknown_atoms(extra, names[:declared], what="rules")
        program = rows.program()
        return compile_counts(program)

    @classmethod
    def from_arrays(
        cls,
        body_indptr: npt.ArrayLike,
        body_indices: npt.ArrayLike,
        head_indices: npt.ArrayLike,
        head_indptr: npt.ArrayLike | None = None,
        *,
        body_negated: npt.ArrayLike | None = None,
        atoms: Sequence[str] | int | None = None,
    ) -> Program:
        """Return the program of these compressed rows, without a Python object for each rule.

        Bodies and heads are sets: repeated indices collapse. A name such as `2 { a; b }` is that of
        an atom as any other; give `from_rules` the rules for a count.

        >>> print(Program.from_arrays([0, 2, 3], [0, 1, 2], [2, 3]))
        #external a0.
        #external a1.
        #external a2.
        #external a3.
        a2 :- a0, a1.
        a3 :- a2.

        Args:
            body_indptr: where the body of each rule starts in `body_indices`, shape (R + 1,).
            body_indices: the atoms of the bodies.
            head_indices: the atoms of the heads.
            head_indptr: where the heads of each rule start; by default every rule has one head.
            body_negated: for each of `body_indices` whether it is negated; by default none is.
            atoms: the names, or their number (they are then called a0, a1, …); by default as
                many as are used.

        Raises:
            ProgramError: if these are not compressed rows, use an atom that is not there, or an
                atom depends on its own negation.
        """
        bodies, body_ptr = sorted_literals(body_indices, body_indptr, body_negated)
        head_count = np.size(head_indices)
        default = np.arange(head_count + 1) if head_indptr is None else head_indptr
        heads, head_ptr = sorted_sets(*_checked_rows("head", head_indices, default))
        if len(body_ptr) != len(head_ptr):
            raise ProgramError(
                f"there are {len(body_ptr) - 1} bodies but {len(head_ptr) - 1} heads"
            )
        if np.any(np.diff(head_ptr) == 0):
            j = int(np.argmax(np.diff(head_ptr) == 0))
            raise ProgramError(f"rule {j} has no head; a rule has at least one")
        used = 1 + max(
            int(bodies.max(initial=-1)), int(heads.max(initial=-1)), -1 - int(bodies.min(initial=0))
        )
        names = atom_names(used if atoms is None else atoms)
        if used > len(names):
            raise ProgramError(f"the rules use atom index {used - 1}, but there are {len(names)}")
        return cls._from_sorted_rows(names, body_ptr, bodies, head_ptr, heads)

    @classmethod
    def _from_sorted_rows(
        cls,
        atoms: tuple[str, ...],
        body_indptr: Offsets,
        body_literals: Indices,
        head_indptr: Offsets,
        head_indices: Indices,
        *,
        labels: tuple[Label | None, ...] = (),
    ) -> Program:
        """Return a program of rows known to be sorted sets; it takes ownership of the arrays.

        Raises:
            NotStratifiedError: if an atom depends on its own negation.
        """
        program = cls(atoms, body_indptr, body_literals, head_indptr, head_indices, labels=labels)
        if not program.definite:
            _ = program._levels  # stratified, or an error
        return program

    # ---- What it consists of

    @property
    def M(self) -> int:
        """The number of atoms."""
        return len(self.atoms)

    @property
    def R(self) -> int:
        """The number of rules, facts of the program included."""
        return len(self.body_indptr) - 1

    @property
    def k(self) -> int:
        """The size of the largest body."""
        return int(self.body_sizes.max(initial=0))

    @property
    def rho_max(self) -> int:
        """The largest number of rules that share one head."""
        return int(self.rules_per_head.max(initial=0))

    @property
    def size(self) -> int:
        """The number of literals: what linear time is linear in."""
        return len(self.body_literals) + len(self.head_indices)

    @property
    def rules(self) -> Rules:
        """The rules, as a sequence; each `Rule` is made when it is read."""
        return Rules(self)

    @cached_property
    def body_sizes(self) -> Offsets:
        """k_j, the number of literals in the body of each rule. Shape (R,)."""
        return read_only(np.diff(self.body_indptr))

    @cached_property
    def head_sizes(self) -> Offsets:
        """The number of heads of each rule. Shape (R,)."""
        return read_only(np.diff(self.head_indptr))

    @cached_property
    def rules_per_head(self) -> Offsets:
        """R_i, the number of rules with head i. Shape (M,)."""
        return read_only(np.bincount(self.head_indices, minlength=self.M))

    @cached_property
    def uses_per_atom(self) -> Offsets:
        """How often each atom occurs in bodies, negated or not. Shape (M,)."""
        atoms = atoms_of_literals(self.body_literals)
        return read_only(np.bincount(atoms, minlength=self.M))

    @cached_property
    def facts(self) -> frozenset[str]:
        """The atoms the program itself states: heads of rules with an empty body."""
        own = np.repeat(self.body_sizes == 0, self.head_sizes)
        return frozenset(self.atoms[i] for i in self.head_indices[own])

    @cached_property
    def definite(self) -> bool:
        """Whether no rule has a negated atom."""
        return bool(self.body_literals.min(initial=0) >= 0)

    @property
    def body_indices(self) -> Indices:
        """The atoms of the bodies of a definite program: its `body_literals`.

        Raises:
            ProgramError: if the program has negation, so that no code can overlook the signs.
        """
        if not self.definite:
            require_definite(self, "reading body_indices")
        return self.body_literals

    @property
    def strata(self) -> tuple[Stratum, ...]:
        """The definite programs it consists of, in the order in which they are closed.

        A definite program has one stratum, itself.

        >>> from latentgamma import parse
        >>> for stratum in parse("fly :- bird, not penguin. bird :- penguin.").strata:
        ...     print(stratum.program)
        bird :- penguin.
        fly :- bird, 'not penguin'.
        """
        if self.definite:  # made when it is read: kept here, the two would keep each other alive
            return (Stratum(self, *self._identity),)
        return self._strata

    @cached_property
    def _identity(self) -> tuple[Indices, Mask, Indices]:
        return (
            read_only(np.arange(self.M, dtype=np.int32)),
            read_only(np.zeros(self.M, np.bool_)),
            read_only(np.arange(self.R, dtype=np.int32)),
        )

    @cached_property
    def _levels(self) -> Indices:
        from latentgamma.program.graph import levels_of

        return levels_of(self)

    @cached_property
    def _strata(self) -> tuple[Stratum, ...]:
        from latentgamma.program.graph import divide

        return divide(self, self._levels)

    def literals_of(self, rule: int) -> Indices:
        """Return the literals of a rule's body: i for an atom, `~i` for a negated one, which come last."""
        return self.body_literals[self.body_indptr[rule] : self.body_indptr[rule + 1]]

    def body_of(self, rule: int) -> Indices:
        """Return the atom indices of a rule's body, rising; a `ProgramError` if there is negation."""
        return self.body_indices[self.body_indptr[rule] : self.body_indptr[rule + 1]]

    def heads_of(self, rule: int) -> Indices:
        """Return the atom indices of a rule's heads, at least one."""
        return self.head_indices[self.head_indptr[rule] : self.head_indptr[rule + 1]]

    def rule(self, index: int) -> Rule:
        """Return the rule with this index, with the names of its heads and literals."""
        names, body = self.atoms, self.literals_of(index).tolist()
        return Rule(
            tuple(names[i] for i in self.heads_of(index)),
            frozenset(names[i] for i in body if i >= 0),
            frozenset(names[~i] for i in body if i < 0),
            self.label(index),
        )

    def label(self, rule: int) -> Label | None:
        """Return the id and the citation of a rule, if it has them."""
        return self.labels[rule] if self.labels else None

    @cached_property
    def requirements(self) -> dict[int, str]:
        """The rules without a head, and the name of the atom that follows when one is violated.

        >>> from latentgamma import parse
        >>> program = parse(":- approved, sanctioned.")
        >>> program.requirements
        {0: ':- approved, sanctioned'}
        """
        marked = [name.startswith(_REQUIREMENT) for name in self.atoms]
        if not any(marked):
            return {}
        first = self.head_indices[self.head_indptr[:-1]]
        rules = np.flatnonzero(np.array(marked)[first]).tolist()
        return {j: self.atoms[first[j]] for j in rules if self.rule(j).is_requirement}

    # ---- Atoms and facts

    @cached_property
    def index(self) -> dict[str, int]:
        """The index of each atom's name."""
        return {name: i for i, name in enumerate(self.atoms)}

    @cached_property
    def conditions(self) -> dict[str, Condition]:
        """The atoms that are conditions on a column, such as `age < 18`, by name.

        >>> from latentgamma import parse
        >>> parse("minor :- age < 18.").conditions
        {'age < 18': Condition(column='age', op='<', value=18)}
        """
        found = ((name, Condition.parse(name)) for name in self.atoms)
        return {name: condition for name, condition in found if condition is not None}

    @cached_property
    def auxiliary(self) -> Mask:
        """Which atoms are only there for counts, so that no answer names them. Shape (M,)."""
        from latentgamma.program.counting import auxiliary_atoms

        return read_only(auxiliary_atoms(self))

    @property
    def roots(self) -> tuple[str, ...]:
        """Atoms that rules use and none derives: where facts come in."""
        return self._atoms_where((self.rules_per_head == 0) & (self.uses_per_atom > 0))

    @property
    def leaves(self) -> tuple[str, ...]:
        """Atoms that occur in no body."""
        return self._atoms_where(self.uses_per_atom == 0)

    @property
    def underivable(self) -> tuple[str, ...]:
        """Atoms that no rule derives: R_i = 0. The paper calls them sinks."""
        return self._atoms_where(self.rules_per_head == 0)

    def _atoms_where(self, mask: Mask) -> tuple[str, ...]:
        return tuple(self.atoms[i] for i in np.flatnonzero(mask))

    def mask(self, facts: Facts = ()) -> Mask:
        """Return one boolean for each atom, from one fact set in any form.

        >>> from latentgamma import parse
        >>> parse("bird :- penguin.").mask(["penguin"])
        array([False,  True])

        Args:
            facts: names, indices, one value for each atom, or a dictionary from names to values.

        Raises:
            FactsError: if these are not facts of this program, or a value is neither 0 nor 1.
        """
        return fact_mask(self, facts).copy()

    def state(self, facts: Facts | FactSets = ()) -> npt.NDArray[np.float64]:
        """Return the values of one fact set or of many, between 0 and 1.

        >>> from latentgamma import parse
        >>> program = parse("bird :- penguin.")
        >>> program.state(["penguin"])
        array([0., 1.])
        >>> program.state({"penguin": 0.7})
        array([0. , 0.7])

        Args:
            facts: a fact set as in `mask`, whose values may be between 0 and 1, or several of them.

        Returns:
            A float64 array of shape (M,), or (N, M) for several fact sets.

        Raises:
            FactsError: if these are not facts of this program, or a value lies outside [0, 1].
        """
        return fact_values(self, facts)

    def names(self, state: npt.ArrayLike) -> frozenset[str]:
        """Return the names of the atoms above one half in a state, or true in a boolean one.

        Args:
            state: one value for each atom, shape (M,).

        Raises:
            FactsError: if the shape is not (M,).
        """
        values = np.asarray(state)
        if isinstance(state, (set, frozenset)):
            raise FactsError("names takes a state, one value for each atom; this is a set already")
        if values.shape != (self.M,):
            raise FactsError(f"a state of this program has shape ({self.M},), not {values.shape}")
        true = values if values.dtype.kind == "b" else values > 0.5
        return frozenset(self._atoms_where(true & ~self.auxiliary))

    # ---- Value semantics

    def cached(self, compute: Callable[[Program], T]) -> T:
        """Return the result of `compute(self)`, computed once and kept as long as this object.

        Nothing in a program changes, so neither does what follows from it: an array, or a tuple
        with arrays, becomes read-only. The result must not refer to the program, or the two
        would keep each other alive.

        Args:
            compute: a function of the program, the same object in every call.
        """
        if compute not in self._results:
            result = compute(self)
            for part in result if isinstance(result, tuple) else (result,):
                if isinstance(part, np.ndarray):
                    read_only(part)
            self._results[compute] = result
        kept: T = self._results[compute]
        return kept

    @cached_property
    def _results(self) -> dict[Callable[[Program], Any], Any]:
        return {}

    def _row_lists(self) -> Iterator[tuple[list[int], list[int]]]:
        """Yield the heads and the literals of each rule, as lists."""
        heads, literals = self.head_indices.tolist(), self.body_literals.tolist()
        head_ends, body_ends = self.head_indptr.tolist(), self.body_indptr.tolist()
        for (a, b), (c, d) in zip(pairwise(head_ends), pairwise(body_ends), strict=True):
            yield heads[a:b], literals[c:d]

    def _arrays(self) -> tuple[npt.NDArray[Any], ...]:
        return self.body_indptr, self.body_literals, self.head_indptr, self.head_indices

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Program):
            return NotImplemented
        return (self.atoms, self.labels) == (other.atoms, other.labels) and all(
            np.array_equal(a, b) for a, b in zip(self._arrays(), other._arrays(), strict=True)
        )

    @cached_property
    def _hash(self) -> int:
        return hash((self.atoms, *(array.tobytes() for array in self._arrays())))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        from latentgamma.program.counting import written_program

        written = written_program(self)
        return written._text()

    def _text(self) -> str:
        names = [quote(name) for name in self.atoms]
        # Conditions and counts, which have blanks, are quoted where a rule derives them.
        pairs = zip(self.atoms, names, strict=True)
        derived = [quote_argument(name) if " " in name else text for name, text in pairs]
        lines = [] if self._numbered_as_read() else [f"#external {name}." for name in names]
        if not self.definite:  # so that names[~i] is the negation of names[i]
            names += [f"not {name}" for name in reversed(names)]
        headless = self.requirements
        for j, (heads, literals) in enumerate(self._row_lists()):
            if (label := self.label(j)) is not None:
                lines.append(f"% @rule {label}")
            shown = [] if j in headless else [derived[i] for i in heads]
            lines.append(rule_text(shown, [names[i] for i in literals]))
        return "\n".join(lines)

    def _numbered_as_read(self) -> bool:
        """Return whether reading the printed rules alone gives the atoms the indices they have."""
        read = np.empty(self.size, np.int32)
        # Heads come before the body of their rule, and after all bodies of earlier rules.
        shift = np.repeat(self.body_indptr[:-1], self.head_sizes)
        read[np.arange(len(self.head_indices)) + shift] = self.head_indices
        shift = np.repeat(self.head_indptr[1:], self.body_sizes)
        read[np.arange(len(self.body_literals)) + shift] = atoms_of_literals(self.body_literals)
        highest = np.maximum.accumulate(np.concatenate(([-1], read)))
        return bool(np.all(np.diff(highest) <= 1) and highest[-1] == self.M - 1)

    def __repr__(self) -> str:
        strata = "" if self.definite else f", strata={len(self.strata)}"
        return f"Program(M={self.M}, R={self.R}, k={self.k}, rho_max={self.rho_max}{strata})"

    def _display(self) -> Display:
        shown = [str(rule) for rule in self.rules[:_SHOWN_RULES]]
        more = [f"… and {self.R - len(shown):,} more rules"] if len(shown) < self.R else []
        sizes = f"{self.M:,} atoms, {self.R:,} rules, bodies of up to {self.k}"
        return Display(sizes, code=shown, notes=more)


class RuleRows:
    """Rules while they are read, with atoms numbered as they appear, heads before bodies."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}
        self.heads, self.bodies = array("i"), array("i")
        self.head_ends, self.body_ends = array("q", [0]), array("q", [0])
        self.labels: list[Label | None] = []
        #: The names that rules without a head have been given as their heads.
        self.requirements: set[str] = set()

    def numbers(self, names: Iterable[str]) -> list[int]:
        """Return the different indices of these names, rising; new ones get the next index."""
        index = self.index
        return sorted({index.setdefault(name, len(index)) for name in names})

    def add(
        self,
        heads: Collection[str],
        body: Collection[str],
        negated: Collection[str] = (),
        label: Label | None = None,
    ) -> None:
        """Add a rule; one without heads is a requirement."""
        if not heads:
            heads = (requirement_name(body, negated),)
            self.requirements.update(heads)
        self.heads.extend(self.numbers(heads))
        self.bodies.extend(self.numbers(body))
        if negated:
            self.bodies.extend([~i for i in self.numbers(negated)])
        self.head_ends.append(len(self.heads))
        self.body_ends.append(len(self.bodies))
        self.labels.append(label)

    def extend(self, program: Program) -> None:
        """Add the rules of a program, which has all atoms so far."""
        self.index = {name: i for i, name in enumerate(program.atoms)}
        rows = (self.body_ends, self.bodies, self.head_ends, self.heads)
        for row, given in zip(rows, program._arrays(), strict=True):
            row[:] = array(row.typecode, given.tobytes())
        self.labels = list(program.labels) or [None] * program.R

    def program(self) -> Program:
        """Return the program of these rules.

        Raises:
            ProgramError: if two rules have the same id.
            NotStratifiedError: if an atom depends on its own negation.
        """
        return Program._from_sorted_rows(
            tuple(self.index),
            np.array(self.body_ends, np.int64),
            np.array(self.bodies, np.int32),
            np.array(self.head_ends, np.int64),
            np.array(self.heads, np.int32),
            labels=checked_labels(self.labels),
        )


@dataclass(frozen=True, eq=False)
class Stratum(Immutable):
    """A definite program some of whose inputs are the negations of atoms derived before it."""

    #: Its rules; the negation of the atom `a` is an atom of its own, called 'not a'.
    program: Program
    #: For each atom of it the atom of the whole that it is, or that it negates. Shape (m,).
    atom: Indices
    #: Which of its atoms are negations. Shape (m,).
    negated: Mask
    #: For each rule of it the index of the rule in the whole. Shape (r,).
    rules: Indices

    @cached_property
    def derived(self) -> npt.NDArray[np.int64]:
        """Its atoms that rules derive."""
        return read_only(np.flatnonzero(self.program.rules_per_head))


def atoms_of_literals(literals: Indices) -> Indices:
    """Return the atoms of literals, whatever their signs."""
    if literals.min(initial=0) >= 0:
        return literals
    return np.where(literals < 0, ~literals, literals)


def require_program(value: object, function: str) -> Program:
    """Return the program; a `ProgramError` that says how to make one if this is something else."""
    if isinstance(value, Program):
        return value
    hint = "; make one with lg.parse(text) or lg.load(path)" if isinstance(value, str) else ""
    raise ProgramError(f"{function} takes a Program, not {type(value).__name__}{hint}")


def require_definite(value: object, function: str) -> Program:
    """Return the program, which must not have negation."""
    program = require_program(value, function)
    if not program.definite:
        first = int(
            np.searchsorted(program.body_indptr, np.argmax(program.body_literals < 0), "right")
        )
        raise ProgramError(
            f"{function} takes a definite program, but this one has negation: its first rule with "
            f"'not' is rule {first - 1}, '{program.rules[first - 1]}'"
        )
    return program
