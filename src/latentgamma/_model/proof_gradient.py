"""The slope of the proof gradient: that of the min/max closure of the same state."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from latentgamma._minmax.circuit import compile_circuit
from latentgamma._minmax.closure import KernelChoice, MinMax
from latentgamma._model.rules import AbstractRules, Literals
from latentgamma._model.tracing import are_plain
from latentgamma._program.program import Program


def wants_slope(state: Tensor) -> bool:
    """Whether a derivative in this state may be asked for."""
    if not torch.is_grad_enabled():
        return False
    if torch.compiler.is_compiling() or are_plain(state):
        return state.requires_grad
    return True


@dataclass(frozen=True, eq=False)
class ProofClosure:
    """The min/max closure from all atoms to all atoms, and the literals it was made from."""

    literals: Literals
    closure: MinMax

    def slope(self, state: Tensor, kernel: KernelChoice) -> Tensor:
        """Zeros with the slope of the min/max closure of a state. (…, M).

        See `latentgamma._minmax.reference` for what that slope is.
        """
        flat = state.reshape(-1, state.shape[-1])
        plain = kernel == "reference"
        closed: Tensor = self.closure(flat, 0.0, hard=True, low=0.0, high=1.0, plain=plain)
        values = closed.reshape(state.shape)
        return values - values.detach()


def proof_closure(rules: AbstractRules, held: ProofClosure | None) -> ProofClosure:
    """The closure of these rules as they are now: the one held, if the literals are the same."""
    literals = rules.all_literals()
    if held is not None and all(map(_equal, held.literals, literals)):
        return held
    atoms = np.arange(rules.M)
    circuit = compile_circuit(_program_of(literals, rules.M, rules.total), atoms, atoms)
    copies = Literals(*(index.clone() for index in literals))
    return ProofClosure(copies, MinMax(circuit).to(literals.body_atom.device))


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.device == other.device and torch.equal(one, other)


def _program_of(literals: Literals, M: int, R: int) -> Program:
    """The program that has these literals, less the rules that have no head."""
    # By way of lists: inside a transform of torch.func a tensor has no array.
    rows = [np.array(index.tolist(), np.int64) for index in literals]
    body_rule, body_atom, head_rule, head_atom = rows
    number = np.cumsum(np.bincount(head_rule, minlength=R) > 0) - 1
    keep = np.isin(body_rule, head_rule)
    body_rule, body_atom = number[body_rule[keep]], body_atom[keep]
    head_rule, count = number[head_rule], int(number[-1]) + 1 if R else 0

    def compressed(rule: np.ndarray, atom: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        order = np.argsort(rule, kind="stable")
        ends = np.cumsum(np.bincount(rule, minlength=count))
        return np.concatenate(([0], ends)), atom[order]

    body_ptr, bodies = compressed(body_rule, body_atom)
    head_ptr, heads = compressed(head_rule, head_atom)
    return Program.from_arrays(body_ptr, bodies, heads, head_ptr, atoms=M)
