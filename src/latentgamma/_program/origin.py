"""Where the rules of a grounded program come from, so that proofs can speak of the source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Instance:
    """A ground rule as an instance of the text it comes from.

    `place` says where the text has it ("line 3"), `substitution` pairs the variables of the rule
    with their values, and `absent` lists the negated atoms that nothing can derive, which a
    ground rule does not mention.

    >>> print(Instance("line 3", (("X", "a"), ("Y", "b"))))
    line 3 with X=a, Y=b
    """

    place: str
    substitution: tuple[tuple[str, str], ...] = ()
    absent: tuple[str, ...] = ()

    def __str__(self) -> str:
        pairs = ", ".join(f"{variable}={value}" for variable, value in self.substitution)
        return f"{self.place} with {pairs}" if pairs else self.place


class Origin(Protocol):
    """The text that a program was grounded from."""

    def complete(self) -> Any:
        """The same program with every body as it was written, nothing evaluated away."""

    def instance(self, head: str, body: frozenset[str], negated: frozenset[str]) -> Instance | None:
        """Where a rule of the complete program comes from, if that can be told."""

    def places(self, atom: str) -> list[str]:
        """Where the rules for the predicate of an atom stand."""

    def atom_name(self, text: str) -> str | None:
        """The name of the atom that the text writes, if the rules have its predicate."""
