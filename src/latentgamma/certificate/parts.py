"""The parts of a model, one for each stratum, compared atom by atom with a program.

A model of a definite program is one part. Atoms are compared by name. A literal of a program with M
atoms has a number: 2i for atom i, and 2i + 1 for its negation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from latentgamma._text import shortened
from latentgamma.certificate.bounds import LiteralWeights
from latentgamma.certificate.ends import Worst, worst_cases
from latentgamma.errors import ModelError
from latentgamma.logic.equivalence import not_entailed
from latentgamma.program.facts import Mask
from latentgamma.program.graph import Csr, negation_name
from latentgamma.program.program import Program, Rule

#: Names that a message shows, and characters of a rule.
_SHOWN_NAMES, _SHOWN_CHARACTERS = 5, 100


class Places(NamedTuple):
    """How a part of a model is connected with the state of the whole, as it runs."""

    atom: npt.NDArray[np.integer]  # (m,) the atom of the whole that each place reads
    negated: Mask  # (m,) whether it reads 1 − s instead of s
    written: npt.NDArray[np.integer]  # the places whose values become those of their atoms


class Certifiable(Protocol):
    """A model, as far as a certificate is concerned: its parts, or the rows of a single one."""

    @property
    def R(self) -> int:
        """The number of rows."""

    @property
    def atoms(self) -> tuple[str, ...] | None:
        """The names of the atoms, in the order of the state, if the model knows them."""

    @property
    def parts(self) -> Sequence[Certifiable]:
        """The model of each stratum; of a definite program, the model itself."""

    @property
    def places(self) -> Sequence[Places]:
        """What each part reads and writes."""

    def literal_weights(
        self,
        program: Program,
        rows: npt.NDArray[np.int64] | None = None,
        *,
        dtype: str | None = None,
    ) -> LiteralWeights:
        """Return the weights on the literals of a program, whose rules are these rows."""

    def rows(self, atoms: tuple[str, ...]) -> tuple[Program, npt.NDArray[np.int64]]:
        """Return the rules over these atoms that the rows look like, and which rows they are."""


class LiteralRules(NamedTuple):
    """A definite program over literals of the whole."""

    program: Program
    literal: npt.NDArray[np.int64]  # (m,) the literal that each of its atoms is


@dataclass(frozen=True, eq=False)
class Part:
    """A part of a model, with its places as literals of the program that it is compared with."""

    model: Certifiable
    literal: npt.NDArray[np.int64]  # (m,)
    written: Mask  # (m,)
    names: tuple[str, ...]  # of the literals
    stratum: LiteralRules | None  # the program's rules for it, over the same places
    dtype: str | None

    @cached_property
    def aligned(self) -> Worst | None:
        """What bounds it if row j stands for rule j of its stratum; None where it cannot."""
        if self.stratum is None or self.model.R != self.stratum.program.R:
            return None
        return worst_cases(self.model.literal_weights(self.stratum.program, dtype=self.dtype))

    @cached_property
    def own(self) -> Worst:
        """What bounds it if the rows stand for the rules that they look like."""
        program, rows = self.model.rows(self.names)
        return worst_cases(self.model.literal_weights(program, rows, dtype=self.dtype))


def parts_of(model: Certifiable, program: Program, dtype: str | None) -> list[Part]:
    """Return the parts of a model, with the program's atoms and, where they match, its strata.

    Raises:
        ModelError: the atoms differ, or a part reads a literal twice or writes a negated one.
    """
    number = _numbers(model, program)
    models, places, strata = model.parts, model.places, program.strata
    stratum_of = strata if len(strata) == len(models) else [None] * len(models)
    found = []
    for one, (atom, negated, places_written), stratum in zip(
        models, places, stratum_of, strict=True
    ):
        literal = 2 * number[atom] + negated
        written = np.zeros(len(literal), bool)
        written[places_written] = True
        names = _names(literal, program)
        _check_places(literal, written, names)
        rules = None
        if stratum is not None:
            own = LiteralRules(stratum.program, 2 * stratum.atom.astype(np.int64) + stratum.negated)
            rules = _align(own, literal, names)
            if rules is not None and not written[rules.program.head_indices].all():
                rules = None
        found.append(Part(one, literal, written, names, rules, dtype))
    return found


def _numbers(model: Certifiable, program: Program) -> npt.NDArray[np.int64]:
    """Return the program's number of each atom of a model's state. (M,)."""
    atoms = model.atoms
    if atoms is None:  # a model of a definite program, whose one part has all atoms
        found = len(model.places[0].atom)
        if found != program.M:
            raise ModelError(f"the model has {found} atoms, but the program has {program.M}")
    if atoms is None or atoms == program.atoms:
        return np.arange(program.M)
    unknown = set(program.atoms) ^ set(atoms)
    if unknown:
        shown = ", ".join(repr(name) for name in sorted(unknown)[:_SHOWN_NAMES])
        raise ModelError(f"the model and the program do not have the same atoms: {shown} differ")
    return np.array([program.index[name] for name in atoms], np.int64)


def _names(literal: npt.NDArray[np.int64], program: Program) -> tuple[str, ...]:
    """Return the names of literals."""
    atoms = program.atoms
    if np.array_equal(literal, 2 * np.arange(program.M)):
        return atoms
    taken = set(atoms)
    return tuple(
        negation_name(atoms[x // 2], taken) if x % 2 else atoms[x // 2] for x in literal.tolist()
    )


def _check_places(literal: npt.NDArray[np.int64], written: Mask, names: Sequence[str]) -> None:
    _, first, counts = np.unique(literal, return_index=True, return_counts=True)
    if np.any(counts > 1):
        twice = names[first[counts > 1][0]]
        raise ModelError(f"nothing can be proved of a part of a model that reads '{twice}' twice")
    wrong = np.flatnonzero(written & (literal % 2 == 1))
    if len(wrong):
        raise ModelError(
            f"nothing can be proved of a part of a model that writes to '{names[wrong[0]]}'"
        )


def _align(
    rules: LiteralRules, literal: npt.NDArray[np.int64], names: tuple[str, ...]
) -> LiteralRules | None:
    """Return the same rules over these literals in their order; None if they are others."""
    if np.array_equal(rules.literal, literal):
        return rules
    if not np.array_equal(np.sort(rules.literal), np.sort(literal)):
        return None
    order = np.argsort(literal)
    place = order[np.searchsorted(literal, rules.literal, sorter=order)]
    program = rules.program
    moved = Program.from_arrays(
        program.body_indptr,
        place[program.body_indices],
        place[program.head_indices],
        program.head_indptr,
        atoms=names,
    )
    return LiteralRules(moved, literal)


# ---- Whether two sequences of rules agree


def differences(parts: Sequence[Part], chosen: Sequence[Program], program: Program) -> list[str]:
    """Return what prevents parts with these rules from having the closures of the program.

    Two programs have the same closures if each implies the rules of the other, negated atoms
    being atoms of their own, and if in both every atom is decided before it is used: then the
    closure of a fact set is the one stable model of either, and they have the same stable models.
    """
    own = [LiteralRules(rules, part.literal) for part, rules in zip(parts, chosen, strict=True)]
    given = [
        LiteralRules(stratum.program, 2 * stratum.atom.astype(np.int64) + stratum.negated)
        for stratum in program.strata
    ]
    if problem := _order_problem(given, [None] * len(given), program):
        raise ModelError(f"the strata of the program are not in order: {problem}")
    if problem := _order_problem(own, [part.written for part in parts], program):
        return [problem]
    one, other = _join(own, program), _join(given, program)
    number = np.concatenate([np.zeros(0, np.int32), *(stratum.rules for stratum in program.strata)])
    lost = [
        f"the program has '{_rule_text(other, j, program)}' (rule {number[j]}), which the rows do not "
        "imply"
        for j in not_entailed(one.program, other.program).tolist()
    ]
    extra = [
        f"a row acts as '{_rule_text(one, j, program)}', which the program does not imply"
        for j in not_entailed(other.program, one.program).tolist()
    ]
    return lost + extra


def _order_problem(
    strata: Sequence[LiteralRules], written: Sequence[Mask | None], program: Program
) -> str | None:
    """Return why strata are not in order: a literal used too early, or derived in vain; or None."""
    later = np.zeros(program.M, bool)  # atoms that later strata derive
    for (rules, literal), outputs in reversed(list(zip(strata, written, strict=True))):
        heads, used = literal[rules.head_indices], literal[rules.body_indices]
        if np.any(heads % 2):
            atom = program.atoms[heads[heads % 2 == 1][0] // 2]
            return f"a row derives the negation of '{atom}', which is an input of its stratum"
        if outputs is not None and not outputs[rules.head_indices].all():
            atom = program.atoms[heads[~outputs[rules.head_indices]][0] // 2]
            return f"a row derives '{atom}', which its stratum does not pass on"
        own = np.zeros(program.M, bool)
        own[heads // 2] = True
        early = later[used // 2] | (own[used // 2] & (used % 2 == 1))
        if early.any():
            return f"'{program.atoms[used[early][0] // 2]}' is used before all its rules were"
        later |= own
    return None


def _join(strata: Sequence[LiteralRules], program: Program) -> LiteralRules:
    """Return the rules of all strata as one definite program over literals."""
    literal = np.unique(np.concatenate([np.zeros(0, np.int64), *(one.literal for one in strata)]))
    programs = [(one.program, np.searchsorted(literal, one.literal)) for one in strata]
    bodies = Csr.joined(Csr(one.body_indptr, place[one.body_indices]) for one, place in programs)
    heads = Csr.joined(Csr(one.head_indptr, place[one.head_indices]) for one, place in programs)
    names = _names(literal, program)
    whole = Program.from_arrays(*bodies, heads.indices, heads.indptr, atoms=names)
    return LiteralRules(whole, literal)


def _rule_text(rules: LiteralRules, rule: int, program: Program) -> str:
    """Return a rule over literals as text, cut where it is too long for a message."""
    body = rules.literal[rules.program.body_of(rule)].tolist()
    heads = rules.literal[rules.program.heads_of(rule)].tolist()
    name = program.atoms.__getitem__
    return shown_rule(
        Rule(
            tuple(name(x // 2) for x in heads),
            frozenset(name(x // 2) for x in body if x % 2 == 0),
            frozenset(name(x // 2) for x in body if x % 2),
        )
    )


def shown_rule(rule: Rule) -> str:
    """Return a rule as text, cut where it is too long for a message."""
    return shortened(str(rule), _SHOWN_CHARACTERS)
