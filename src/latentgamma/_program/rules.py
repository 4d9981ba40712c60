"""Rules as Python objects, and the sequence of the rules of a program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, overload

from latentgamma._errors import ProgramError
from latentgamma._program.names import quote, rule_text


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: when every atom of the body is true and no negated one is, every head is true.

    >>> print(Rule(("bird",), frozenset({"penguin"})))
    bird :- penguin.

    Attributes:
        heads: the atoms that follow.
        body: the atoms that must be true.
        negated: the atoms that must not follow.
    """

    heads: tuple[str, ...]
    body: frozenset[str]
    negated: frozenset[str] = frozenset()

    @property
    def head(self) -> str:
        """The head of a rule that has just one; a `ProgramError` for other rules."""
        if len(self.heads) != 1:
            raise ProgramError(f"this rule has {len(self.heads)} heads; use .heads")
        return self.heads[0]

    def __str__(self) -> str:
        body = [quote(name) for name in sorted(self.body)]
        body += [f"not {quote(name)}" for name in sorted(self.negated)]
        return rule_text(map(quote, self.heads), body)


class _HasRules(Protocol):
    @property
    def R(self) -> int:
        """The number of rules."""

    def rule(self, index: int) -> Rule:
        """The rule with this index."""


class Rules(Sequence[Rule]):
    """The rules of a program; each `Rule` is made when it is read.

    >>> from latentgamma import parse
    >>> rules = parse("bird :- penguin. animal :- bird.").rules
    >>> len(rules), str(rules[0])
    (2, 'bird :- penguin.')
    """

    __slots__ = ("_program",)

    def __init__(self, program: _HasRules) -> None:
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

    def __iter__(self) -> Iterator[Rule]:
        return (self[j] for j in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (Rules, tuple, list)):
            return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))
        return NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        shown = [repr(str(rule)) for rule in self[:5]] + ["…"] * (len(self) > 5)
        return f"Rules({', '.join(shown)})"
