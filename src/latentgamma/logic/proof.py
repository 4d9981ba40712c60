"""Proofs of derived atoms, and which rules are blocked."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._display import Display, Displayed, caption, tree
from latentgamma._text import listing, quantity
from latentgamma.logic.closure import Closure, closure, closure_of_mask
from latentgamma.program.conditions import value_text
from latentgamma.program.facts import Facts, Mask, atom_index, fact_mask
from latentgamma.program.graph import Csr, rules_deriving
from latentgamma.program.names import quote, split_count
from latentgamma.program.program import (
    Indices,
    Instance,
    Label,
    Program,
    read_only,
    require_program,
)

# ---- The rules that could derive an atom, and what keeps each of them from it


@dataclass(frozen=True, slots=True)
class Blocked:
    """A rule that could derive the atom, and why it does not.

    `missing` are the atoms of its body that do not follow, and `holding` its negated atoms that
    do. `origin` says where a grounded rule comes from, and `label` has its id and citation.

    >>> print(Blocked(3, ("a",), ("b",)))
    rule 3 needs a, and b holds
    """

    rule: int
    missing: tuple[str, ...]
    holding: tuple[str, ...] = ()
    origin: Instance | None = None
    label: Label | None = None
    #: For a count, the literals that hold and how many are needed.
    counted: tuple[tuple[str, ...], int] | None = None

    def __str__(self) -> str:
        if self.counted is not None:
            return _count_note(*self.counted)
        place = str(self.origin or self.label or f"rule {self.rule}")
        reasons = [f"needs {join_names(self.missing)}"] if self.missing else []
        if self.holding:
            verb = "holds" if len(self.holding) == 1 else "hold"
            reasons.append(f"{'and ' * bool(reasons)}{join_names(self.holding)} {verb}")
        joined = ", ".join(reasons)
        return f"{place} {joined}" if self.missing else f"{place} does not apply: {joined}"


def complete_program(program: Program, facts: Facts) -> tuple[Program, Mask]:
    """Return the program that proofs speak about, and its facts.

    A grounded program has had everything evaluated that does not depend on what is given; proofs
    show the rules as they were written.
    """
    given = fact_mask(program, facts)
    if program.origin is None:
        return program, given
    complete: Program = program.origin.complete()
    return complete, complete.mask(list(program.names(given)))


def atom_of_goal(program: Program, atom: str | int) -> str:
    """Return the name of the atom; a grounded program is asked about underivable atoms too."""
    if isinstance(atom, str) and program.origin is not None:
        name = program.origin.atom_name(atom)
        if name is not None:
            return name
    return program.atoms[atom_index(program, atom)]


def instance_of(program: Program, rule: int) -> Instance | None:
    """Return where a rule of a complete program comes from, if it has been grounded."""
    return None if program.origin is None else program.origin.instance(rule)


def blocked_rules(program: Program, state: Mask, goal: int) -> tuple[Blocked, ...]:
    """Return an entry for each rule of an atom that is not derived; one for a count."""
    names = program.atoms
    if (count := split_count(names[goal])) is not None:
        bound, atoms, negated = count
        true = {name: bool(state[program.index[name]]) for name in (*atoms, *negated)}
        met = [quote(n) for n in atoms if true[n]] + [
            f"not {quote(n)}" for n in negated if not true[n]
        ]
        missing = tuple(name for name in atoms if not true[name])
        holding = tuple(name for name in negated if true[name])
        return (Blocked(-1, missing, holding, counted=(tuple(met), bound)),)
    found = []
    ends, rules = rules_deriving(program)
    for rule in rules[ends[goal] : ends[goal + 1]].tolist():
        literals = program.literals_of(rule).tolist()
        found.append(
            Blocked(
                rule,
                tuple(names[i] for i in literals if i >= 0 and not state[i]),
                tuple(names[~i] for i in literals if i < 0 and state[~i]),
                origin := instance_of(program, rule),
                origin.label if origin else program.label(rule),
            )
        )
    return tuple(found)


def _count_note(met: tuple[str, ...], needed: int) -> str:
    """Return how many of the literals of a count hold, as texts."""
    shown = " and ".join(met) if len(met) <= 2 else f"{', '.join(met[:-1])} and {met[-1]}"
    return f"{shown or 'none'}: {len(met)} of the {needed} needed"


def join_names(names: Iterable[str]) -> str:
    """Return some of the names, as a sentence has them."""
    return listing([quote(name) for name in names], 10)


# ---- Why an atom follows from some facts

# A branch deeper than this goes on in a tree of its own, or a long chain would run off the page.
_DEEPEST = 24
#: A proof with more steps is shown as text in a notebook.
_MOST_FOLDED = 200


@dataclass(frozen=True, slots=True)
class ProofStep:
    """One atom of a proof: a given fact (`rule` is None), or the head of a rule's premises.

    `negated` are the atoms that must not follow, `origin` says where a grounded rule comes from,
    and `label` has the id and the citation of the rule.

    >>> program = Program.from_rules([("bird", ["penguin"])])
    >>> step = derivation(program, ["penguin"], "bird").steps[-1]
    >>> step.atom, step.rule, step.premises
    ('bird', 0, ('penguin',))
    """

    atom: str
    rule: int | None
    premises: tuple[str, ...]
    negated: tuple[str, ...] = ()
    origin: Instance | None = None
    label: Label | None = None
    #: For a count, how many of its literals are needed: its premises and negated atoms.
    needed: int | None = None
    #: For a condition of a request, the column and its value.
    value: tuple[str, Any] | None = None

    @property
    def note(self) -> str:
        """How the atom comes about, as a proof shows it."""
        if self.needed is not None:
            met = (*map(quote, self.premises), *(f"not {quote(name)}" for name in self.negated))
            return _count_note(met, self.needed)
        if self.origin is not None:
            return f"by {self.origin}"
        if self.label is not None:
            return str(self.label)
        if self.value is not None:
            return value_text(*self.value)
        return "given" if self.rule is None else f"rule {self.rule}"


@dataclass(frozen=True, slots=True)
class Absent:
    """A negated atom of a proof, and for each of its rules what keeps it from deriving the atom.

    >>> from latentgamma import parse
    >>> proof = derivation(parse("fly :- bird, not penguin."), ["bird"], "fly")
    >>> print(proof.absent[0].atom, "is", proof.absent[0])
    penguin is not given, and no rule derives it
    """

    atom: str
    blocked: tuple[Blocked, ...]
    #: Where the rules for its predicate stand, if grounding has found no instance for it.
    places: tuple[str, ...] = ()
    #: The columns without a value that it depends on.
    unknown: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.unknown:
            reason = replace(self, unknown=())
            return f"{reason}; {', '.join(value_text(name, None) for name in self.unknown)}"
        if self.places:
            return f"no instance of {', '.join(self.places)} derives it"
        if not self.blocked:
            return "not given, and no rule derives it"
        more = f"; and {len(self.blocked) - 2} more rules" if len(self.blocked) > 2 else ""
        return "; ".join(map(str, self.blocked[:2])) + more


class Explanation(Displayed, ABC):
    """An answer that can be written as JSON."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain values, for JSON."""

    def to_json(self, *, indent: int | None = None) -> str:
        """Return `to_dict()` as JSON text.

        Args:
            indent: the spaces of each level, as in `json.dumps`; None for one line.
        """
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=indent)


@dataclass(frozen=True)
class Derivation(Explanation):
    """A proof of least depth that an atom follows from some facts.

    `steps` come premises first, each atom once, however often it is used. Printed, it is a
    tree in which a sub-proof stands where it is first needed. Where a program has negation,
    `absent` says of each negated atom why it cannot be derived from the facts.

    >>> program = Program.from_rules([("bird", ["penguin"]), ("animal", ["bird"])])
    >>> proof = derivation(program, ["penguin"], "animal")
    >>> print(proof)
    animal  (rule 1)
    └─ bird  (rule 0)
       └─ penguin  (given)
    >>> proof.depth, sorted(proof.facts), proof.rules
    (2, ['penguin'], (0, 1))
    """

    program: Program
    atom: str
    depth: int
    steps: tuple[ProofStep, ...]
    absent: tuple[Absent, ...] = ()
    #: All facts that were given, where a negation depends on them.
    given: frozenset[str] = frozenset()

    @property
    def facts(self) -> frozenset[str]:
        """The given facts it rests on."""
        return frozenset(
            step.atom for step in self.steps if step.rule is None and step.needed is None
        )

    @property
    def rules(self) -> tuple[int, ...]:
        """The indices of the rules it uses, rising."""
        return tuple(sorted({step.rule for step in self.steps if step.rule is not None}))

    def holds(self) -> bool:
        """Return whether each step is licensed by its rule and by the steps before it."""
        proved: set[str] = set()
        absent = {leaf.atom for leaf in self.absent}
        for step in self.steps:
            if step.needed is not None:
                bound, atoms, denied = split_count(step.atom) or (0, (), ())
                if not (set(step.premises) <= proved & set(atoms)) or len(
                    {*step.premises, *(f"not {name}" for name in step.negated)}
                ) < max(bound, 1):
                    return False
                if not set(step.negated) <= absent & set(denied):
                    return False
            elif step.rule is not None:
                rule = self.program.rules[step.rule]
                licensed = step.atom in rule.heads and rule.body == set(step.premises) <= proved
                if not licensed or not rule.negated <= set(step.negated) <= absent:
                    return False
            proved.add(step.atom)
        if absent and not absent.isdisjoint(closure(self.program, list(self.given))):
            return False
        return self.atom in proved

    def to_dict(self) -> dict[str, Any]:
        """Return the proof as plain values."""
        return {
            "atom": self.atom,
            "depth": self.depth,
            "facts": sorted(self.facts),
            "rules": list(self.rules),
            "steps": [_step_values(step) for step in self.steps],
            **({"absent": [_absent_values(leaf) for leaf in self.absent]} if self.absent else {}),
        }

    def to_dot(self) -> str:
        """Return the proof as a Graphviz graph, premises below what they prove."""
        number = {step.atom: n for n, step in enumerate(self.steps)}
        leaves = {leaf.atom: n for n, leaf in enumerate(self.absent)}
        lines = ["digraph derivation {", "  rankdir=BT;"]
        for n, step in enumerate(self.steps):
            shape = "box" if step.rule is None and step.needed is None else "ellipse"
            label = f"{_dot(quote(step.atom))}\\n{_dot(step.note)}"
            lines.append(f'  n{n} [label="{label}", shape={shape}];')
            lines += [f"  n{number[premise]} -> n{n};" for premise in step.premises]
            lines += [f"  a{leaves[atom]} -> n{n};" for atom in step.negated]
        for atom, n in leaves.items():
            lines.append(f'  a{n} [label="not {_dot(quote(atom))}", shape=box, style=dashed];')
        return "\n".join([*lines, "}"])

    def __str__(self) -> str:
        by_atom = {step.atom: step for step in self.steps}
        leaves = {leaf.atom: leaf for leaf in self.absent}
        lines: list[str] = []
        shown: set[str] = set()
        later = [self.atom]
        postponed = set(later)
        for root in later:  # grows as deep branches are put off
            lines += [""] * bool(lines)
            postponed.discard(root)
            stack: list[tuple[str | None, str, str, int]] = [(root, "", "", 0)]
            while stack:
                atom, above, branch, depth = stack.pop()
                if atom is None:  # a negated leaf, whose text is the branch
                    lines.append(f"{above}{branch}")
                    continue
                step = by_atom[atom]
                note = step.note
                below = bool(step.premises or step.negated)
                expand = below and atom not in shown
                if expand and (depth == _DEEPEST or atom in postponed):
                    note, expand = f"{note}, continued below", False
                    if atom not in postponed:
                        postponed.add(atom)
                        later.append(atom)
                elif below and not expand:
                    note = f"{note}, shown above"
                note = note if step.origin else f"({note})"
                lines.append(f"{above}{branch}{quote(atom)}  {note}")
                if expand:
                    shown.add(atom)
                    inner = above + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
                    parts: list[tuple[str | None, str]] = [(name, "") for name in step.premises]
                    parts += [
                        (None, f"not {quote(name)}  ({leaves[name]})") for name in step.negated
                    ]
                    marks = ["├─ "] * (len(parts) - 1) + ["└─ "]
                    for (name, text), mark in reversed(list(zip(parts, marks, strict=True))):
                        stack.append((name, inner, f"{mark}{text}", depth + 1))
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Derivation({self.atom!r}, depth {self.depth}, {len(self.steps)} steps)"

    def _display(self) -> Display:
        title = f"{quote(self.atom)} follows in {self.depth} steps"
        return Display(title, code=str(self).splitlines())

    def _repr_html_(self) -> str:
        if self.depth > _DEEPEST or len(self.steps) > _MOST_FOLDED:
            return super()._repr_html_()
        leaves = {leaf.atom: str(leaf) for leaf in self.absent}
        shown: dict[str, str] = {}  # premises come first, so each is there when it is needed
        for step in self.steps:
            parts = [shown[premise] for premise in step.premises]
            parts += [tree(f"not {quote(name)}", leaves[name], ()) for name in step.negated]
            rule = "" if step.rule is None else f": {self.program.rules[step.rule]}"
            shown[step.atom] = tree(quote(step.atom), f"{step.note}{rule}", parts)
        return caption(self._display().title) + shown[self.atom]


def derivation(program: Program, facts: Facts, atom: str | int) -> Derivation | None:
    """Return a proof of least depth that the atom follows from the facts, or None if it does not.

    An atom that is given is its own proof, even where a rule derives it as well. The proof of a
    program that was grounded shows the lines and the substitutions its rules come from. It may be
    deeper than need be below atoms that follow from no open facts: clingo keeps one rule of those.

    >>> program = Program.from_rules([("bird", ["penguin"])])
    >>> derivation(program, [], "bird") is None
    True

    Args:
        program: any program, with negation or without.
        facts: one fact set in any form.
        atom: the name or the index of an atom.

    Returns:
        The proof, or None.

    Raises:
        FactsError: if the program does not have these facts or this atom.
        ProgramError: if the first argument is not a program.
    """
    require_program(program, "derivation")
    name = atom_of_goal(program, atom)
    return Derivations(closure_of_mask(*complete_program(program, facts))).proof(name)


# ---- Why every derived atom follows, in one pass

#: A notebook and `print` show this many steps.
_SHOWN_STEPS = 100


@dataclass(frozen=True, repr=False)
class Derivations(Displayed):
    """One proof step for every atom that follows from some facts and is not given.

    The steps come in an order in which every premise that is not given has its step before: by
    depth, then by the index of the atom. `atom`, `rule` and `depth` have them as arrays, `steps`
    as `ProofStep`s and `table()` as columns. Given facts, also those that a rule derives, have no
    step; they are `facts`.

    It has a length, iterates over the names of the atoms in the order of the steps, and supports
    `in` for names and indices.

    Attributes:
        closure: the closure of the facts. The program of a grounded one has every body as it was
            written.

    >>> program = Program.from_rules([("animal", ["bird"]), ("bird", ["penguin"])])
    >>> found = derivations(program, ["penguin"])
    >>> found
    Derivations(2 atoms from 1 fact, depth 2)
    >>> print(found)
    1  bird    rule 1  penguin
    2  animal  rule 0  bird
    >>> found.atom, found.rule, found.depth
    (array([1, 0], dtype=int32), array([1, 0], dtype=int32), array([1, 2], dtype=int32))
    """

    closure: Closure

    @property
    def program(self) -> Program:
        """The program whose atoms and rules the arrays number."""
        return self.closure.program

    @cached_property
    def _reasons(self) -> Indices:
        return read_only(reasons_of(self.closure))

    @cached_property
    def atom(self) -> Indices:
        """The index of the atom of each step."""
        shown = (self.closure.level > 0) & ~self.program.auxiliary
        derived = np.flatnonzero(shown).astype(np.int32)
        rows = Csr(np.arange(len(derived) + 1), self.closure.level[derived])
        by_level = rows.transpose(self.closure.depth + 1).indices  # a stable sort, linear
        return read_only(derived[by_level])

    @cached_property
    def rule(self) -> Indices:
        """The index of the rule of each step."""
        return read_only(self._reasons[self.atom])

    @cached_property
    def depth(self) -> Indices:
        """The level of the closure that each step derives, rising, from 1 on."""
        return read_only(self.closure.level[self.atom])

    @cached_property
    def facts(self) -> frozenset[str]:
        """The given facts."""
        return self.program.names(self.closure.level == 0)

    @cached_property
    def steps(self) -> tuple[ProofStep, ...]:
        """The steps; they are made when this is first read."""
        return tuple(self._steps(self.atom.tolist()))

    def _steps(self, atoms: Iterable[int]) -> Iterator[ProofStep]:
        return (proof_step(self.program, self._reasons, i) for i in atoms)

    def proof(self, atom: str | int) -> Derivation | None:
        """Return the proof of one atom, made of these steps.

        Args:
            atom: the name of an atom, or its index in `program`.

        Returns:
            What `derivation` returns: None if the atom does not follow.

        Raises:
            FactsError: if the program does not have this atom.
        """
        program, level = self.program, self.closure.level
        goal = program.index.get(atom_of_goal(program, atom))
        if goal is None or level[goal] < 0:  # None: no instance of its rules was possible
            return None
        needed = np.array(sorted(atoms_needed(program, self._reasons, goal)))
        needed = needed[~program.auxiliary[needed]]
        steps = tuple(self._steps(needed[np.argsort(level[needed], kind="stable")].tolist()))
        denied = dict.fromkeys(name for step in steps for name in step.negated)
        leaves = tuple(absent_leaf(program, self.closure.state, name) for name in denied)
        given = self.facts if leaves else frozenset()
        return Derivation(program, program.atoms[goal], int(level[goal]), steps, leaves, given)

    def table(self) -> dict[str, list[Any]]:
        """Return the steps as columns, for example for `pandas.DataFrame`.

        Returns:
            `atom`, `depth` and `rule`; `by`, the rule or the line it comes from as text; then
            the names of the `premises`, of those among them that are `given`, and of the
            `negated` atoms, which do not follow.
        """
        return {
            "atom": list(self),
            "depth": self.depth.tolist(),
            "rule": self.rule.tolist(),
            "by": [_by(step) for step in self.steps],
            "premises": [step.premises for step in self.steps],
            "given": [
                tuple(name for name in step.premises if name in self.facts) for step in self.steps
            ],
            "negated": [step.negated for step in self.steps],
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the steps as plain values."""
        return {
            "facts": sorted(self.facts),
            "depth": self.closure.depth,
            "steps": [
                {**_step_values(step), "depth": depth}
                for step, depth in zip(self.steps, self.depth.tolist(), strict=True)
            ],
        }

    def rows(self, most: int | None = None) -> list[tuple[str, str, str, str]]:
        """Return the depth, the atom, its rule or line, and the body of each step, as text.

        Args:
            most: the number of steps; None for all.

        Returns:
            The cells of a table, row by row.
        """
        atoms = self.atom[:most].tolist()
        return [
            (
                str(depth),
                quote(step.atom),
                _by(step),
                ", ".join([*map(quote, step.premises), *(f"not {quote(n)}" for n in step.negated)]),
            )
            for depth, step in zip(self.depth.tolist(), self._steps(atoms), strict=False)
        ]

    def __len__(self) -> int:
        return len(self.atom)

    def __iter__(self) -> Iterator[str]:
        return (self.program.atoms[i] for i in self.atom.tolist())

    def __contains__(self, atom: object) -> bool:
        if not isinstance(atom, (str, int, np.integer)) or atom not in self.closure:
            return False
        return bool(self._reasons[self.program.index[atom] if isinstance(atom, str) else atom] >= 0)

    def __repr__(self) -> str:
        return f"Derivations({self._sizes()}, depth {self.closure.depth})"

    def _sizes(self) -> str:
        return f"{quantity(len(self), 'atom')} from {quantity(len(self.facts), 'fact')}"

    def _more(self) -> list[str]:
        more = len(self) - _SHOWN_STEPS
        return [f"… {more:,} more"] if more > 0 else []

    def __str__(self) -> str:
        rows = self.rows(_SHOWN_STEPS)
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join(lines + self._more())

    def _display(self) -> Display:
        title = f"{self._sizes()}, in {quantity(self.closure.depth, 'step')}"
        columns = ("depth", "atom", "by", "from")
        return Display(title, columns=columns, rows=self.rows(_SHOWN_STEPS), notes=self._more())


def _by(step: ProofStep) -> str:
    return step.note.removeprefix("by ")


def derivations(program: Program, facts: Facts = ()) -> Derivations:
    """Return one proof step for every atom that follows from the facts, in one pass.

    The time is linear in the size of the program. `derivation` is for one atom, with its proof
    as a tree.

    >>> program = Program.from_rules([("bird", ["penguin"]), ("animal", ["bird"])])
    >>> for step in derivations(program, ["penguin"]).steps:
    ...     print(step.atom, step.note, step.premises)
    bird rule 0 ('penguin',)
    animal rule 1 ('bird',)

    Args:
        program: any program, with negation or without.
        facts: one fact set in any form.

    Returns:
        The steps, as arrays, as a table, and as a proof of each atom.

    Raises:
        FactsError: if these are not facts of the program, or some are neither true nor false.
        ProgramError: if the first argument is not a program.
    """
    require_program(program, "derivations")
    return Derivations(closure_of_mask(*complete_program(program, facts)))


# ---- Proofs

#: For each atom the rule that derives it, −1 if it is given.
Reasons: TypeAlias = "npt.NDArray[Any] | Mapping[int, int]"


def atoms_needed(program: Program, reasons: npt.NDArray[Any], goal: int) -> set[int]:
    """Return the atoms of the proof that the reasons make up."""
    needed = {goal}
    stack = [goal]
    while stack:
        rule = int(reasons[stack.pop()])
        if rule >= 0:
            fresh = {i for i in program.literals_of(rule).tolist() if i >= 0} - needed
            needed |= fresh
            stack += fresh
    return needed


def counted_literals(program: Program, reasons: Reasons, count: int) -> list[int]:
    """Return the literals by which a derived count holds, atoms before negations."""
    found: set[int] = set()
    stack = [count]
    while stack:
        for literal in program.literals_of(int(reasons[stack.pop()])).tolist():
            if literal >= 0 and program.auxiliary[literal]:
                stack.append(literal)
            else:
                found.add(literal)
    return sorted(found, key=lambda i: (i < 0, abs(i)))


def proof_step(program: Program, reasons: Reasons, atom: int) -> ProofStep:
    """Return the step of one atom, derived by the rule that is its reason, or given (−1)."""
    names = program.atoms
    rule = int(reasons[atom])
    if rule < 0:
        return ProofStep(names[atom], None, ())
    if (count := split_count(names[atom])) is not None:
        met = counted_literals(program, reasons, atom)
        premises = tuple(names[b] for b in met if b >= 0)
        return ProofStep(
            names[atom], None, premises, tuple(names[~b] for b in met if b < 0), needed=count[0]
        )
    literals = program.literals_of(rule).tolist()
    premises = tuple(names[b] for b in literals if b >= 0)
    origin = instance_of(program, rule)
    negated = [names[~b] for b in literals if b < 0] + list(origin.absent if origin else ())
    label = origin.label if origin else program.label(rule)
    return ProofStep(names[atom], rule, premises, tuple(negated), origin, label)


def absent_leaf(program: Program, state: Mask, name: str) -> Absent:
    """Return why an atom does not follow, where `state` is what does."""
    goal = program.index.get(name)
    blocked = () if goal is None else blocked_rules(program, state, goal)
    if blocked or program.origin is None:
        return Absent(name, blocked)
    return Absent(name, (), tuple(program.origin.places(name)))


def reasons_of(known: Closure) -> Indices:
    """Return, for each derived atom, a rule that derives it first; −1 for others. (M,)."""
    program, level = known.program, known.level
    never = np.iinfo(np.int32).max
    # The step after which each literal is true; literal ~i stands i places from the end.
    times = np.concatenate([np.where(level < 0, never, level), np.where(level < 0, 0, never)[::-1]])
    ready = np.zeros(program.R, times.dtype)  # the step after which the body is true
    bodies = np.flatnonzero(program.body_sizes)
    if len(bodies):
        starts = program.body_indptr[bodies]
        ready[bodies] = np.maximum.reduceat(times[program.body_literals], starts)
    rule = np.repeat(np.arange(program.R), program.head_sizes)
    first = np.flatnonzero(ready[rule] < level[program.head_indices])
    # Of several the one with the shortest body, then the earliest.
    rank = np.full(program.M, np.iinfo(np.int64).max)
    ranks = program.body_sizes[rule[first]] * program.R + rule[first]
    np.minimum.at(rank, program.head_indices[first], ranks)
    derived = level > 0
    reasons = np.full(program.M, -1, np.int32)
    reasons[derived] = rank[derived] % program.R
    return reasons


def _step_values(step: ProofStep) -> dict[str, Any]:
    """Return a step as plain values; negation and origin only where there are any."""
    return {
        "atom": step.atom,
        "rule": step.rule,
        "premises": list(step.premises),
        **({"needed": step.needed} if step.needed is not None else {}),
        **({"value": value_text(*step.value)} if step.value else {}),
        **({"negated": list(step.negated)} if step.negated else {}),
        **({"origin": str(step.origin)} if step.origin else {}),
        **label_values(step.label),
    }


def label_values(label: Label | None) -> dict[str, str]:
    """Return the id and the citation of a rule as plain values; nothing if it has none."""
    if label is None:
        return {}
    return {"id": label.id, **({"citation": label.citation} if label.citation else {})}


def _absent_values(leaf: Absent) -> dict[str, Any]:
    unknown = [value_text(name, None) for name in leaf.unknown]
    return {"atom": leaf.atom, "because": [*map(str, leaf.blocked), *unknown]}


def _dot(text: str) -> str:
    """Return the text as it stands inside a Graphviz string."""
    return text.replace("\\", "\\\\").replace('"', '\\"')
