"""Which atoms of a program are given, and which are asked for."""

from __future__ import annotations

from latentgamma._program.program import Program
from latentgamma.datalog.clingo_names import decode_name
from latentgamma.datalog.origin import Grounding
from latentgamma.datalog.scanner import Signature, signature_of


def inputs(program: Program) -> tuple[str, ...]:
    """The atoms that can be given: open facts of a grounded program, else the roots.

    >>> from latentgamma.datalog import ground
    >>> inputs(ground("p(X) :- e(X).  e(1..2).", open=["e/1"]))
    ('e(1)', 'e(2)')

    Args:
        program: any program, grounded or not.

    Returns:
        The names of the atoms.
    """
    if isinstance(program.origin, Grounding):
        return program.origin.inputs
    return program.roots


def outputs(program: Program) -> tuple[str, ...]:
    """The atoms of the predicates that `#show` names; without it, those that rules derive.

    >>> from latentgamma.datalog import ground
    >>> outputs(ground("p(X) :- e(X). q(X) :- p(X). e(1..2). #show q/1.", open=["e/1"]))
    ('q(1)', 'q(2)')

    Args:
        program: any program, grounded or not.

    Returns:
        The names of the atoms, in the order of the program.
    """
    origin = program.origin
    if isinstance(origin, Grounding) and origin.shown is not None:
        return atoms_of(program, origin.shown)
    return tuple(
        name
        for name, rules in zip(program.atoms, program.rules_per_head.tolist(), strict=True)
        if rules
    )


def atoms_of(program: Program, predicates: tuple[Signature, ...]) -> tuple[str, ...]:
    """The atoms of some predicates, in the order of the program."""
    wanted = {(decode_name(name), arity) for name, arity in predicates}
    return tuple(name for name in program.atoms if signature_of(name) in wanted)
