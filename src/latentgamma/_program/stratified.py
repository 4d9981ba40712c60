"""What a program with negation is: definite programs in a row, each fed by those before it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from latentgamma._errors import ProgramError
from latentgamma._program.atoms_of_program import AtomsOfProgram
from latentgamma._program.immutable import Immutable, read_only
from latentgamma._program.names import quote
from latentgamma._program.origin import Origin
from latentgamma._program.program import (
    Indices,
    Offsets,
    Program,
    Stratum,
    require_program,
)
from latentgamma._program.program_arguments import numbered_as_read
from latentgamma._program.rules import Rule, Rules


@dataclass(frozen=True, eq=False, repr=False)
class StratifiedProgram(AtomsOfProgram, Immutable):
    """A program with negation: a sequence of definite programs.

    An atom is negated only above the stratum that decides it, so there is one answer for each
    fact set. `latentgamma.parse`, `latentgamma.load`, `datalog.ground` and `datalog.stratify`
    make one where rules say `not`. Rules are numbered stratum by stratum.

    >>> from latentgamma import closure, parse
    >>> program = parse("fly :- bird, not penguin. bird :- penguin.")
    >>> program
    StratifiedProgram(M=3, R=2, strata=2)
    >>> sorted(closure(program, ["bird"]))
    ['bird', 'fly']
    >>> print(program)
    #external fly.
    #external bird.
    #external penguin.
    bird :- penguin.
    fly :- bird, not penguin.
    """

    atoms: tuple[str, ...]
    strata: tuple[Stratum, ...]
    #: The text it was grounded from, if it was: equal programs may differ in it.
    origin: Origin | None = None

    @property
    def definite(self) -> bool:
        """Whether no rule has a negated atom: always False for this class."""
        return False

    @property
    def R(self) -> int:
        """The number of rules, facts of the program included."""
        return sum(stratum.program.R for stratum in self.strata)

    @property
    def k(self) -> int:
        """The size of the largest body."""
        return max((stratum.program.k for stratum in self.strata), default=0)

    @property
    def rho_max(self) -> int:
        """The largest number of rules that share one head."""
        return max((stratum.program.rho_max for stratum in self.strata), default=0)

    @property
    def size(self) -> int:
        """The number of literals."""
        return sum(stratum.program.size for stratum in self.strata)

    @property
    def rules(self) -> Rules:
        """The rules, as a sequence; each `Rule` is made when it is read."""
        return Rules(self)

    def rule(self, index: int) -> Rule:
        """The rule with this index, as an object.

        Args:
            index: the index of the rule, from 0 to R − 1.

        Returns:
            A `Rule` with the names of its head, of its body and of its negated atoms.
        """
        stratum, j = self.locate(index)
        body = stratum.program.body_of(j)
        negated = stratum.negated[body]
        return Rule(
            tuple(self.atoms[i] for i in stratum.atom[stratum.program.heads_of(j)]),
            frozenset(self.atoms[i] for i in stratum.atom[body[~negated]]),
            frozenset(self.atoms[i] for i in stratum.atom[body[negated]]),
        )

    @cached_property
    def first_rule(self) -> Offsets:
        """The number of the first rule of each stratum, and the number of all. Shape (S + 1,)."""
        return read_only(np.cumsum([0, *(stratum.program.R for stratum in self.strata)]))

    def locate(self, rule: int) -> tuple[Stratum, int]:
        """The stratum of a rule, and its number there.

        Args:
            rule: the index of the rule in this program, from 0 to R − 1.

        Returns:
            The stratum, and the index of the rule in `stratum.program`.
        """
        s = int(np.searchsorted(self.first_rule, rule, "right")) - 1
        return self.strata[s], rule - int(self.first_rule[s])

    @cached_property
    def rules_per_head(self) -> Offsets:
        """The number of rules with head i. Shape (M,)."""
        count = np.zeros(self.M, np.int64)
        for stratum in self.strata:
            count[stratum.atom[stratum.derived]] += stratum.program.rules_per_head[stratum.derived]
        return read_only(count)

    @cached_property
    def uses_per_atom(self) -> Offsets:
        """The number of bodies each atom occurs in, negated or not. Shape (M,)."""
        count = np.zeros(self.M, np.int64)
        for stratum in self.strata:
            np.add.at(count, stratum.atom, stratum.program.uses_per_atom)
        return read_only(count)

    @cached_property
    def facts(self) -> frozenset[str]:
        """The atoms the program itself states: heads of rules with an empty body."""
        return frozenset(name for stratum in self.strata for name in stratum.program.facts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StratifiedProgram):
            return NotImplemented
        return self.atoms == other.atoms and self._programs() == other._programs()

    def __hash__(self) -> int:
        return hash((self.atoms, self._programs()))

    def _programs(self) -> tuple[Program, ...]:
        return tuple(stratum.program for stratum in self.strata)

    def __str__(self) -> str:
        names = [quote(name) for name in self.atoms]
        lines = []
        read: list[Indices] = []  # the atoms as a reader meets them
        for stratum in self.strata:
            program = stratum.program
            local = [
                f"not {names[i]}" if negated else names[i]
                for i, negated in zip(stratum.atom.tolist(), stratum.negated.tolist(), strict=True)
            ]
            for j in range(program.R):
                heads, body = program.heads_of(j), program.body_of(j)
                positive = ", ".join([local[i] for i in body.tolist()])
                head = ", ".join([local[i] for i in heads.tolist()])
                lines.append(f"{head} :- {positive}." if positive else f"{head}.")
                read += [stratum.atom[heads], stratum.atom[body]]
        if not numbered_as_read(np.concatenate([np.zeros(0, np.int32), *read]), self.M):
            lines = [f"#external {name}." for name in names] + lines
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"StratifiedProgram(M={self.M}, R={self.R}, strata={len(self.strata)})"


def require_any_program(value: object, function: str) -> None:
    """Raise a ProgramError that says how to make a program, unless this is one."""
    if not isinstance(value, StratifiedProgram):
        require_program(value, function)


def require_definite(program: Program | StratifiedProgram, function: str) -> Program:
    """The program, which must not have negation."""
    if isinstance(program, StratifiedProgram):
        raise ProgramError(
            f"{function} takes a definite program, but this one has negation; its strata are definite"
        )
    require_program(program, function)
    return program
