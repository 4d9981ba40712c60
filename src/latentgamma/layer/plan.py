"""How a layer computes, and whether that is exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from latentgamma._display import Display, Displayed
from latentgamma._text import quantity
from latentgamma.engine.circuit import FALSE, NOT, TRUE, Circuit
from latentgamma.engine.probability import ProbabilityMethods
from latentgamma.program.graph import rule_order
from latentgamma.program.names import quote

if TYPE_CHECKING:
    from latentgamma.layer.layer import Layer

#: What a semantics means, and what counts of an atom that is fed and derived by rules.
SENTENCES = {
    "godel": (
        "an atom is as true as its best proof, a proof as its weakest fact",
        "the better of the two counts",
    ),
    "gamma": (
        "a fact above ½ + δ is true, one below ½ − δ is false",
        "true where one of the two is",
    ),
    "probability": (
        "a fact at p is true with probability p, an atom's value is its probability",
        "its own value is one more way to be true",
    ),
}


@dataclass(frozen=True)
class Plan(Displayed):
    """How a layer computes; `str(plan)` says it in a few lines.

    >>> import latentgamma as lg
    >>> plan = lg.Layer(lg.parse("c :- a. d :- b."), ["a", "b"], "c").plan()
    >>> plan.exact, plan.idle
    (True, ('b',))
    """

    semantics: str
    exact: bool
    guarantee: str
    inputs: int
    outputs: int
    nodes: int
    edges: int
    cycles: int
    #: Inputs on which no output depends.
    idle: tuple[str, ...]
    #: Inputs that rules derive as well; `str(plan)` says what counts then.
    also_derived: tuple[str, ...]
    #: Outputs that are the same on every input; with negation there may be others.
    always_true: tuple[str, ...]
    always_false: tuple[str, ...]

    def __str__(self) -> str:
        meaning, both = SENTENCES[self.semantics]
        lines = [
            f"{self.semantics}: {meaning}",
            f"{'exact' if self.exact else 'not exact'}: {self.guarantee}",
            f"{quantity(self.inputs, 'input')}, {quantity(self.outputs, 'output')}; "
            f"{quantity(self.nodes, 'node')}, {quantity(self.edges, 'edge')}, "
            f"{quantity(self.cycles, 'cycle') if self.cycles else 'no cycles'}",
        ]
        for names, text in (
            (self.idle, "no output depends on"),
            (self.also_derived, f"fed and derived by rules, {both}:"),
            (self.always_true, "true on every input:"),
            (self.always_false, "false on every input:"),
        ):
            if names:
                shown = ", ".join(quote(name) for name in names[:10])
                more = f", … {len(names) - 10} more" if len(names) > 10 else ""
                lines.append(f"{text} {shown}{more}")
        return "\n".join(lines)

    def _display(self) -> Display:
        title = f"{self.semantics}: {'exact' if self.exact else 'not exact'}"
        return Display(title, holds=self.exact, code=str(self).split("\n"))


def circuit_plan(layer: Layer, circuit: Circuit, guarantee: tuple[bool, str]) -> Plan:
    """Return the plan of a layer that has this circuit, and whether and what it guarantees."""
    read = np.concatenate([group.atoms for group in layer.outputs])
    names = layer.program.atoms
    negations = int((circuit.kind == NOT).sum())
    fed = np.concatenate([group.atoms for group in layer.inputs])

    def outputs(constant: int) -> tuple[str, ...]:
        return tuple(names[i] for i, n in zip(read, circuit.outputs, strict=True) if n == constant)

    return _plan(
        layer,
        *guarantee,
        nodes=circuit.nodes - circuit.inputs - negations,
        edges=len(circuit.parts.indices) - negations,
        cycles=circuit.cycles,
        idle=tuple(names[i] for i, used in zip(fed, circuit.used, strict=False) if not used),
        always_true=outputs(TRUE),
        always_false=outputs(FALSE),
    )


def probability_plan(
    layer: Layer,
    methods: ProbabilityMethods,
    impossible: frozenset[int],
    guarantee: tuple[bool, str],
) -> Plan:
    """Return the plan of a layer that computes probabilities; `impossible` are its outputs that are 0."""
    read = [atom for group in layer.outputs for atom in group.atoms.tolist()]
    names = layer.program.atoms
    fed = [atom for group in layer.inputs for atom in group.atoms.tolist()]
    return _plan(
        layer,
        *guarantee,
        nodes=methods.chain.nodes
        if methods.chain
        else methods.circuit.nodes - methods.circuit.inputs,
        edges=methods.chain.edges if methods.chain else len(methods.circuit.parts.indices),
        cycles=sum(int(rule_order(part.program).cyclic.sum()) for part in layer.program.strata)
        if methods.tables or methods.sampled
        else 0,
        idle=tuple(names[i] for i in fed if i not in methods.inputs_used),
        always_true=tuple(names[i] for i in read if methods.certain[i]),
        always_false=tuple(names[i] for i in read if i in impossible),
    )


def _plan(layer: Layer, exact: bool, guarantee: str, **counts: Any) -> Plan:
    fed = [atom for group in layer.inputs for atom in group.atoms.tolist()]
    program = layer.program
    return Plan(
        layer.semantics,
        exact,
        guarantee,
        inputs=len(fed),
        outputs=sum(len(group.atoms) for group in layer.outputs),
        also_derived=tuple(program.atoms[i] for i in fed if program.rules_per_head[i]),
        **counts,
    )
