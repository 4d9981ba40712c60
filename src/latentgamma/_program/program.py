"""What a program is: atoms, and rules as index arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, TypeAlias, TypeVar, overload

import numpy as np
import numpy.typing as npt

from latentgamma._errors import FactsError, ProgramError, unknown_atoms
from latentgamma._html import caption, code, note
from latentgamma._program.facts import Facts as Facts  # noqa: PLC0414 - an alias re-exports
from latentgamma._program.facts import FactSets, fact_mask, fact_values
from latentgamma._program.facts import Mask as Mask  # noqa: PLC0414
from latentgamma._program.names import quote, rule_text
from latentgamma._program.origin import Origin

T = TypeVar("T")
Indices: TypeAlias = npt.NDArray[np.int32]
Offsets: TypeAlias = npt.NDArray[np.int64]
#: A rule as a plain pair: the head (or heads), then the body.
Pair: TypeAlias = "tuple[str | Iterable[str], str | Iterable[str]]"

#: A notebook shows this many rules of a program.
_SHOWN_RULES = 30


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: when every atom of the body is true, so is every head.

    >>> print(Rule(("bird",), frozenset({"penguin"})))
    bird :- penguin.
    """

    heads: tuple[str, ...]
    body: frozenset[str]
    #: The atoms that must not be derivable; only a rule of a `StratifiedProgram` has any.
    negated: frozenset[str] = frozenset()

    @property
    def head(self) -> str:
        """The head of a rule that has just one."""
        if len(self.heads) != 1:
            raise ProgramError(f"this rule has {len(self.heads)} heads; use .heads")
        return self.heads[0]

    def __str__(self) -> str:
        body = [quote(name) for name in sorted(self.body)]
        body += [f"not {quote(name)}" for name in sorted(self.negated)]
        return rule_text(map(quote, self.heads), body)


class Rules(Sequence[Rule]):
    """The rules of a program, made one at a time as they are asked for."""

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
        j = index % len(self)
        atoms = self._program.atoms
        heads, body = self._program.heads_of(j), self._program.body_of(j)
        return Rule(tuple(atoms[i] for i in heads), frozenset(atoms[i] for i in body))

    def __iter__(self) -> Iterator[Rule]:
        return (self[j] for j in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (Rules, tuple, list)):
            return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._program)

    def __repr__(self) -> str:
        shown = [repr(str(rule)) for rule in self[:5]] + ["…"] * (len(self) > 5)
        return f"Rules({', '.join(shown)})"


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """A definite Horn program: a tuple of atoms, and rules over their indices.

    Build one with `latentgamma.parse`, `latentgamma.load`, `Program.from_rules` or
    `Program.from_arrays`. The rules lie in two compressed-row structures: the body of
    rule j is `body_indices[body_indptr[j]:body_indptr[j + 1]]`, sorted and without
    repetition, and its heads likewise. A rule with an empty body is a fact of the program.

    >>> program = Program.from_rules([("bird", ["penguin"]), ("animal", ["bird"])])
    >>> program.M, program.R, program.k, program.rho_max
    (3, 2, 1, 1)
    >>> print(program)
    bird :- penguin.
    animal :- bird.
    """

    atoms: tuple[str, ...]
    body_indptr: Offsets = field(metadata={"shape": "(R + 1,)"})
    body_indices: Indices
    head_indptr: Offsets = field(metadata={"shape": "(R + 1,)"})
    head_indices: Indices
    #: The text it was grounded from, if it was: equal programs may differ in it.
    origin: Origin | None = None

    # ---------------------------------------------------------------- ways to build one

    @classmethod
    def from_rules(
        cls, rules: Iterable[Rule | Pair], atoms: Iterable[str] | None = None
    ) -> Program:
        """The program of these rules, given as `Rule`s or as (head or heads, body) pairs.

        `atoms` fixes the order of the atoms and may name some that no rule uses; without
        it they are numbered as they appear, heads before bodies.
        """
        index: dict[str, int] = {}
        for name in () if atoms is None else atoms:
            if _checked(name) in index:
                raise ProgramError(f"atoms names {name!r} twice")
            index[name] = len(index)
        declared = len(index) if atoms is not None else None
        bodies: list[int] = []
        heads: list[int] = []
        body_indptr, head_indptr = [0], [0]
        for rule in rules:
            rule_heads, rule_body = _as_names(rule)
            if not rule_heads:
                raise ProgramError(
                    "a rule needs a head; constraints are not part of a definite program"
                )
            for names, into, indptr in (
                (rule_heads, heads, head_indptr),
                (rule_body, bodies, body_indptr),
            ):
                into.extend(sorted({index.setdefault(_checked(n), len(index)) for n in names}))
                indptr.append(len(into))
        if declared is not None and len(index) > declared:
            extra = list(index)[declared:]
            raise unknown_atoms(extra, list(index)[:declared], what="rules")
        return cls._from_sorted_rows(
            tuple(index),
            np.asarray(body_indptr, np.int64),
            np.asarray(bodies, np.int32),
            np.asarray(head_indptr, np.int64),
            np.asarray(heads, np.int32),
        )

    @classmethod
    def from_arrays(
        cls,
        body_indptr: npt.ArrayLike,
        body_indices: npt.ArrayLike,
        head_indices: npt.ArrayLike,
        head_indptr: npt.ArrayLike | None = None,
        *,
        atoms: Sequence[str] | int | None = None,
    ) -> Program:
        """The program of these compressed rows; no Python object is made per rule.

        Without `head_indptr` every rule has one head. `atoms` is the tuple of names, or
        their number (they are then called a0, a1, …), or None for as many as are used.
        Bodies and heads are sets: repeated indices collapse.

        >>> print(Program.from_arrays([0, 2, 3], [0, 1, 2], [2, 3]))
        #external a0.
        #external a1.
        #external a2.
        #external a3.
        a2 :- a0, a1.
        a3 :- a2.
        """
        bodies, body_ptr = _rows("body", body_indices, body_indptr)
        head_count = np.size(head_indices)
        default = np.arange(head_count + 1) if head_indptr is None else head_indptr
        heads, head_ptr = _rows("head", head_indices, default)
        if len(body_ptr) != len(head_ptr):
            raise ProgramError(
                f"there are {len(body_ptr) - 1} bodies but {len(head_ptr) - 1} heads"
            )
        if np.any(np.diff(head_ptr) == 0):
            j = int(np.argmax(np.diff(head_ptr) == 0))
            raise ProgramError(f"rule {j} has no head; a definite rule has at least one")
        used = 1 + max(int(bodies.max(initial=-1)), int(heads.max(initial=-1)))
        names = _as_atoms(used if atoms is None else atoms)
        if used > len(names):
            raise ProgramError(f"the rules use atom index {used - 1}, but there are {len(names)}")
        return cls._from_sorted_rows(names, body_ptr, bodies, head_ptr, heads)

    @classmethod
    def _from_sorted_rows(
        cls,
        atoms: tuple[str, ...],
        body_indptr: Offsets,
        body_indices: Indices,
        head_indptr: Offsets,
        head_indices: Indices,
    ) -> Program:
        """A program of rows known to be sorted sets; it takes ownership of the arrays."""
        for array in (body_indptr, body_indices, head_indptr, head_indices):
            array.flags.writeable = False
        return cls(atoms, body_indptr, body_indices, head_indptr, head_indices)

    # ---------------------------------------------------------------- what it consists of

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
        return len(self.body_indices) + len(self.head_indices)

    @property
    def rules(self) -> Rules:
        """The rules, as a sequence that makes each one when it is asked for."""
        return Rules(self)

    @cached_property
    def body_sizes(self) -> Offsets:
        """k_j, the number of body atoms of each rule. Shape (R,)."""
        return np.diff(self.body_indptr)

    @cached_property
    def head_sizes(self) -> Offsets:
        """The number of heads of each rule. Shape (R,)."""
        return np.diff(self.head_indptr)

    @cached_property
    def rules_per_head(self) -> Offsets:
        """R_i, the number of rules with head i. Shape (M,)."""
        return np.bincount(self.head_indices, minlength=self.M)

    @cached_property
    def uses_per_atom(self) -> Offsets:
        """The number of bodies each atom occurs in. Shape (M,)."""
        return np.bincount(self.body_indices, minlength=self.M)

    @property
    def roots(self) -> tuple[str, ...]:
        """Atoms that rules use and none derives: where facts come in."""
        return self._named((self.rules_per_head == 0) & (self.uses_per_atom > 0))

    @property
    def leaves(self) -> tuple[str, ...]:
        """Atoms that occur in no body."""
        return self._named(self.uses_per_atom == 0)

    @property
    def sinks(self) -> tuple[str, ...]:
        """Atoms that no rule derives (R_i = 0 in the paper)."""
        return self._named(self.rules_per_head == 0)

    @cached_property
    def facts(self) -> frozenset[str]:
        """The atoms the program itself states: heads of rules with an empty body."""
        own = np.repeat(self.body_sizes == 0, self.head_sizes)
        return frozenset(self.atoms[i] for i in self.head_indices[own])

    @cached_property
    def index(self) -> dict[str, int]:
        """The index of each atom's name."""
        return {name: i for i, name in enumerate(self.atoms)}

    def body_of(self, rule: int) -> Indices:
        """The atom indices of one rule's body."""
        return self.body_indices[self.body_indptr[rule] : self.body_indptr[rule + 1]]

    def heads_of(self, rule: int) -> Indices:
        """The atom indices of one rule's heads."""
        return self.head_indices[self.head_indptr[rule] : self.head_indptr[rule + 1]]

    def _named(self, mask: Mask) -> tuple[str, ...]:
        return tuple(self.atoms[i] for i in np.flatnonzero(mask))

    # ---------------------------------------------------------------- facts and states

    def mask(self, facts: Facts = ()) -> Mask:
        """One boolean for each atom, from one fact set in any form. Shape (M,).

        >>> Program.from_rules([("bird", ["penguin"])]).mask(["penguin"])
        array([False,  True])

        Raises:
            FactsError: if these are not facts of this program, or a value is neither 0 nor 1.
        """
        return fact_mask(self, facts).copy()

    def state(self, facts: Facts | FactSets = ()) -> npt.NDArray[np.float64]:
        """The values of one fact set, shape (M,), or of many, shape (N, M), between 0 and 1.

        >>> program = Program.from_rules([("bird", ["penguin"])])
        >>> program.state(["penguin"])
        array([0., 1.])
        >>> program.state({"penguin": 0.7})
        array([0. , 0.7])

        Raises:
            FactsError: if these are not facts of this program, or a value lies outside [0, 1].
        """
        return fact_values(self, facts)

    def names(self, state: npt.ArrayLike) -> frozenset[str]:
        """The atoms above one half in a state (or true in a boolean one)."""
        values = np.asarray(state)
        if values.shape != (self.M,):
            raise FactsError(f"a state of this program has shape ({self.M},), not {values.shape}")
        above = values if values.dtype.kind == "b" else values > 0.5
        return frozenset(self.atoms[i] for i in np.flatnonzero(above))

    # ---------------------------------------------------------------- value semantics

    def cached(self, compute: Callable[[Program], T]) -> T:
        """The result of `compute(self)`, computed once and kept as long as this object.

        Nothing in a program changes, so neither does what follows from it. The result must not
        refer to the program, or the two would keep each other alive.
        """
        if compute not in self._results:
            self._results[compute] = compute(self)
        result: T = self._results[compute]
        return result

    @cached_property
    def _results(self) -> dict[Callable[[Program], Any], Any]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def _arrays(self) -> tuple[npt.NDArray[Any], ...]:
        return self.body_indptr, self.body_indices, self.head_indptr, self.head_indices

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Program):
            return NotImplemented
        return self.atoms == other.atoms and all(
            np.array_equal(a, b) for a, b in zip(self._arrays(), other._arrays(), strict=True)
        )

    @cached_property
    def _hash(self) -> int:
        return hash((self.atoms, *(array.tobytes() for array in self._arrays())))

    def __hash__(self) -> int:
        return self._hash

    def __copy__(self) -> Program:
        return self  # nothing in it can change

    def __deepcopy__(self, memo: dict[int, Any]) -> Program:
        return self

    def __str__(self) -> str:
        names = [quote(name) for name in self.atoms]
        lines = [] if self._numbered_as_read() else [f"#external {name}." for name in names]
        heads, bodies = self.head_indices.tolist(), self.body_indices.tolist()
        head_ends, body_ends = self.head_indptr.tolist(), self.body_indptr.tolist()
        for j in range(self.R):
            rule_heads = heads[head_ends[j] : head_ends[j + 1]]
            rule_body = bodies[body_ends[j] : body_ends[j + 1]]
            lines.append(rule_text([names[i] for i in rule_heads], [names[i] for i in rule_body]))
        return "\n".join(lines)

    def _numbered_as_read(self) -> bool:
        """Whether reading the printed rules alone gives the atoms the indices they have."""
        read = np.empty(self.size, np.int32)
        # Heads come before the body of their rule, and after all bodies of earlier rules.
        shift = np.repeat(self.body_indptr[:-1], self.head_sizes)
        read[np.arange(len(self.head_indices)) + shift] = self.head_indices
        shift = np.repeat(self.head_indptr[1:], self.body_sizes)
        read[np.arange(len(self.body_indices)) + shift] = self.body_indices
        return numbered_as_read(read, self.M)

    def __repr__(self) -> str:
        return f"Program(M={self.M}, R={self.R}, k={self.k}, rho_max={self.rho_max})"

    def _repr_html_(self) -> str:
        shown = [str(rule) for rule in self.rules[:_SHOWN_RULES]]
        more = f"… and {self.R - len(shown):,} more rules" if len(shown) < self.R else ""
        sizes = f"{self.M:,} atoms, {self.R:,} rules, bodies of up to {self.k}"
        return caption(sizes) + code(shown) + (note(more) if more else "")


def require_program(value: object, function: str) -> None:
    """Raise a `ProgramError` that says how to make a program, unless this is one."""
    if isinstance(value, Program):
        return
    hint = "; make one with lg.parse(text) or lg.load(path)" if isinstance(value, str) else ""
    raise ProgramError(f"{function} takes a Program, not {type(value).__name__}{hint}")


def numbered_as_read(read: Indices, M: int) -> bool:
    """Whether M atoms that are numbered as they are met get the numbers they have."""
    highest = np.maximum.accumulate(np.concatenate(([-1], read)))
    return bool(np.all(np.diff(highest) <= 1) and highest[-1] == M - 1)


def _checked(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise ProgramError(f"an atom's name is a non-empty string, not {name!r}")
    return name


def _as_names(rule: Rule | Pair) -> tuple[Iterable[str], Iterable[str]]:
    if isinstance(rule, Rule):
        if rule.negated:
            raise ProgramError(
                f"'{rule}' has a negated atom, and a Program is definite; use datalog.stratify"
            )
        return rule.heads, sorted(rule.body)
    try:
        heads, body = rule
    except (TypeError, ValueError):
        raise ProgramError(f"a rule is a pair (head or heads, body), not {rule!r}") from None
    # Keep the order in which a list names new atoms; a set has none, so sort it.
    return _listed(heads), _listed(body)


def _listed(names: str | Iterable[str]) -> list[str]:
    if isinstance(names, str):
        return [names]
    if isinstance(names, (set, frozenset)):
        return sorted(names)
    return list(names)


def _as_atoms(atoms: Sequence[str] | int) -> tuple[str, ...]:
    if isinstance(atoms, (int, np.integer)):
        return tuple(f"a{i}" for i in range(int(atoms)))
    names = tuple(atoms)
    if len(set(names)) != len(names):
        raise ProgramError("atoms names some atom twice")
    for name in names:
        _checked(name)
    return names


def _rows(what: str, indices: npt.ArrayLike, indptr: npt.ArrayLike) -> tuple[Indices, Offsets]:
    """The compressed rows as sorted sets, checked."""
    given, ptr = np.asarray(indices), np.asarray(indptr)
    for name, array in ((f"{what}_indices", given), (f"{what}_indptr", ptr)):
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise ProgramError(
                f"{name} must be a one-dimensional integer array, not "
                f"{array.dtype} of shape {array.shape}"
            )
    ptr = ptr.astype(np.int64)
    if not len(ptr) or ptr[0] != 0 or ptr[-1] != given.size or np.any(np.diff(ptr) < 0):
        raise ProgramError(
            f"{what}_indptr must rise from 0 to {given.size}, the number of {what}_indices"
        )
    if given.size and (given.min() < 0 or given.max() > np.iinfo(np.int32).max):
        raise ProgramError(f"{what}_indices must lie in 0…{np.iinfo(np.int32).max}")
    flat = given.astype(np.int32)
    row = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    rising = (np.diff(flat) > 0) | (np.diff(row) > 0)
    if np.all(rising):
        return flat, ptr
    order = np.lexsort((flat, row))
    flat, row = flat[order], row[order]
    keep = np.concatenate(([True], (np.diff(flat) != 0) | (np.diff(row) != 0)))
    counts = np.bincount(row[keep], minlength=len(ptr) - 1)
    return flat[keep], np.concatenate(([0], np.cumsum(counts)))
