"""Clingo's ground rules as a program."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from latentgamma._program.program import Program
from latentgamma.datalog.clingo_names import decode_name
from latentgamma.datalog.clingo_run import Output
from latentgamma.datalog.source import CANDIDATE

Numbers = npt.NDArray[np.int32]


def assembled(output: Output) -> Program:
    """The program of clingo's output; its atoms are numbered as the printed rules have them.

    Raises:
        NotStratifiedError: if an atom depends on its own negation.
    """
    sizes = np.frombuffer(output.sizes, np.int32)
    heads = np.frombuffer(output.heads, np.int32)
    bodies = np.frombuffer(output.bodies, np.int32)
    facts = list(output.facts)
    # A complete output has a name for its facts, too; parts of evaluated aggregates have none.
    facts += [output.names[atom] for atom in heads[sizes == 0].tolist() if atom in output.names]
    facts = [name for name in dict.fromkeys(facts) if not name.startswith(CANDIDATE)]
    stated = {name: n for n, name in enumerate(facts)}
    heads, bodies, counts = _without_nameless(heads, bodies, sizes, output.names)
    externals = np.array([i for i in output.externals if i in output.names], np.int32)
    numbers = _first_seen(heads, bodies, counts, externals)
    place = np.zeros(int(numbers.max(initial=0)) + 1, np.int32)
    fresh: list[str] = []
    for atom in numbers.tolist():
        name = output.names[atom]
        number = stated.get(name)
        if number is None:
            number = len(facts) + len(fresh)
            fresh.append(name)
        place[atom] = number
    F = len(facts)
    atoms = tuple(map(decode_name, (*facts, *fresh)))
    ends: npt.NDArray[np.int64] = np.concatenate((np.zeros(F + 1, np.int64), np.cumsum(counts)))
    all_heads = np.concatenate((np.arange(F, dtype=np.int32), place[heads]))
    negated = bodies < 0
    return Program.from_arrays(
        ends,
        place[np.abs(bodies)],
        all_heads,
        body_negated=negated if negated.any() else None,
        atoms=atoms,
    )


def _without_nameless(
    heads: Numbers, bodies: Numbers, sizes: Numbers, names: dict[int, str]
) -> tuple[Numbers, Numbers, npt.NDArray[np.int64]]:
    """The rules that have a body, without the atoms that have no name.

    Such an atom stands for an aggregate that was found true, if a rule derives it; otherwise for
    an atom that nothing derives.
    """
    most = max(int(np.abs(bodies).max(initial=0)), int(heads.max(initial=0)), max(names, default=0))
    named = np.zeros(most + 1, np.bool_)
    named[np.fromiter(names, np.int64, len(names))] = True
    rules = sizes > 0
    counts = sizes.astype(np.int64)
    known = named[np.abs(bodies)]
    if known.all() and named[heads[rules]].all():
        return heads[rules], bodies, counts[rules]
    derived = np.zeros(most + 1, np.bool_)
    derived[heads] = True
    rule = np.repeat(np.arange(len(heads)), counts)
    # A literal that holds is left out; a rule with one that does not is left out.
    fails = ~known & (derived[np.abs(bodies)] == (bodies < 0))
    rules[rule[fails]] = False
    rules &= named[heads]
    kept = known & rules[rule]
    counts = np.bincount(rule[kept], minlength=len(heads))
    return heads[rules], bodies[kept], counts[rules]


def _first_seen(
    heads: npt.NDArray[np.int32],
    bodies: npt.NDArray[np.int32],
    sizes: npt.NDArray[np.int64],
    others: npt.NDArray[np.int32],
) -> npt.NDArray[np.int32]:
    """The atoms in the order in which the rules mention them, heads first; then the others."""
    ends = np.cumsum(sizes)
    sequence = np.empty(len(heads) + len(bodies) + len(others), np.int32)
    at = np.arange(len(heads))
    sequence[at + ends - sizes] = heads
    sequence[np.arange(len(bodies)) + np.repeat(at, sizes) + 1] = np.abs(bodies)
    sequence[len(heads) + len(bodies) :] = others
    first = np.full(int(sequence.max(initial=0)) + 1, -1, np.int64)
    first[sequence[::-1]] = np.arange(len(sequence))[::-1]  # the earliest is written last
    seen = np.flatnonzero(first >= 0)
    order: npt.NDArray[np.int32] = seen[np.argsort(first[seen])].astype(np.int32)
    return order
