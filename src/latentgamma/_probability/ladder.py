"""Chooses for every output the cheapest way to its probability, exact ways first.

1. One sum-product pass, where the check of `sum_product` proves it exact.
2. A table of all worlds of the variables that the output depends on, within a budget.
3. Sampled worlds: unbiased, with a standard error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from torch import Tensor

from latentgamma._errors import ModelError
from latentgamma._probability.enumeration import WorldTable, world_table
from latentgamma._probability.fused_pass import SMALLEST
from latentgamma._probability.log_pass import pass_log_values
from latentgamma._probability.logarithms import (
    LEAST_COMPLEMENT,
    log_complement,
    log_odds_of_log,
)
from latentgamma._probability.pass_circuit import UNKNOWN, SumProduct
from latentgamma._probability.passes import pass_values
from latentgamma._probability.relevant_rules import RelevantRules, relevant_rules
from latentgamma._probability.sampling import sampled_probabilities
from latentgamma._probability.sum_product import sum_product
from latentgamma._probability.variables import Variables
from latentgamma._program.facts import Mask
from latentgamma._program.program import Program


@dataclass(frozen=True, eq=False)
class Ladder:
    """How the probability of each output is computed.

    `passed`, `tabled` and `sampled` are places in the list of outputs; `reasons` says why an
    output has no sum-product pass.
    """

    program: Program
    variables: Variables
    outputs: tuple[int, ...]
    true: tuple[int, ...]
    circuit: SumProduct
    passed: tuple[int, ...]
    tables: tuple[tuple[tuple[int, ...], WorldTable], ...]
    sampled: tuple[int, ...]
    budget: int  # the most worlds of a table
    reasons: dict[int, str]
    certain: Mask  # (M,) atoms true in every world
    impossible: frozenset[int]  # outputs true in none
    inputs_used: frozenset[int]  # input atoms that some output depends on

    @property
    def exact(self) -> bool:
        """Whether every output is computed exactly."""
        return not self.sampled

    def __str__(self) -> str:
        lines = []
        if self.passed:
            lines.append(
                f"{_outputs(len(self.passed))}: one sum-product pass over "
                f"{len(self.circuit.body_ptr) - 1} rules, proved exact"
            )
        for places, table in self.tables:
            reason = self.reasons[self.outputs[places[0]]]
            lines.append(
                f"{_outputs(len(places))}: exact, by a table of {len(table.holds)} worlds "
                f"(no pass: {reason})"
            )
        if self.sampled:
            reason = self.reasons[self.outputs[self.sampled[0]]]
            lines.append(
                f"{_outputs(len(self.sampled))}: estimated from sampled worlds (no pass: {reason})"
            )
        return "\n".join(lines)

    def probabilities(
        self,
        inputs: Tensor,
        worlds: int = 64,
        generator: torch.Generator | None = None,
        *,
        complements: Tensor | None = None,
    ) -> Tensor:
        """Return the probability of each output, shape (B, outputs), in float64.

        Args:
            inputs: Probabilities of the input atoms in the order of `variables.atoms`, (B, n).
            worlds: Worlds drawn for each example, where an output is sampled.
            generator: The source of randomness for them.
            complements: One minus the inputs, where it is known to more digits.
        """
        parts: list[tuple[Sequence[int], Tensor]] = []
        if self.passed:
            given = self._pass_inputs(inputs, complements)
            if inputs.is_cuda:
                tiny = torch.finfo(torch.float64).tiny
                value = pass_log_values(self.circuit, given.clamp(min=tiny).log()).exp()
            else:
                value = pass_values(self.circuit, given)
            parts.append((self.passed, self._read(value, 0.0, 1.0)))
        parts += [
            (places, table.probabilities(inputs, complements)) for places, table in self.tables
        ]
        if self.sampled:
            atoms = [self.outputs[place] for place in self.sampled]
            estimate = sampled_probabilities(
                self.program, self.variables, atoms, inputs, worlds, generator, self.true
            )
            parts.append((self.sampled, estimate))
        return _in_order(parts)

    def estimate(
        self,
        inputs: Tensor,
        worlds: int,
        generator: torch.Generator | None = None,
        *,
        error: float | None = None,
        most_worlds: int = 1 << 20,
    ) -> tuple[Tensor, Tensor]:
        """Return the probabilities and their standard errors, each (B, outputs), no gradients.

        Args:
            inputs: Probabilities of the input atoms, (B, n).
            worlds: Worlds drawn for each example at first.
            generator: The source of randomness.
            error: Draw more worlds for the examples with a larger standard error than this.
            most_worlds: The most worlds of an example.
        """
        with torch.no_grad():
            value = self.probabilities(inputs, worlds, generator)
            if not self.sampled:
                return value, torch.zeros_like(value)
            columns = list(self.sampled)
            drawn = torch.full((len(inputs), 1), worlds, dtype=torch.float64, device=value.device)
            while True:
                deviation = torch.zeros_like(value)
                part = value[:, columns]
                # One more world of either kind: an estimate of 0 or 1 is not certain either.
                safe = (part * drawn + 1) / (drawn + 2)
                deviation[:, columns] = (safe * (1 - safe) / drawn).sqrt()
                rough = deviation.amax(1) > (torch.inf if error is None else error)
                rough &= drawn[:, 0] < most_worlds
                if not bool(rough.any()):
                    return value, deviation
                more = int(drawn[rough].min())
                more = min(more, most_worlds - more) or 1
                fresh = self.probabilities(inputs[rough], max(more, 2), generator)[:, columns]
                before = drawn[rough]
                mixed = (part[rough] * before + fresh * max(more, 2)) / (before + max(more, 2))
                rows = rough.nonzero()[:, 0]
                value[rows[:, None], torch.tensor(columns, device=value.device)] = mixed
                drawn[rough] += max(more, 2)

    def log_probabilities(
        self,
        log_inputs: Tensor,
        worlds: int = 64,
        generator: torch.Generator | None = None,
        *,
        log_complements: Tensor | None = None,
    ) -> Tensor:
        """Return the log-probability of each output, also where it underflows as a number.

        Args:
            log_inputs: Log-probabilities of the input atoms, (B, n).
            worlds: Worlds drawn for each example, where an output is sampled.
            generator: The source of randomness for them.
            log_complements: The logarithm of one minus their probabilities, where it is known
                to more digits.
        """
        logs = log_inputs.double()
        if log_complements is None:
            log_complements = log_complement(logs)
        if log_inputs.is_cuda and not self.tables and not self.sampled:
            value = pass_log_values(self.circuit, self._pass_inputs(logs, log_complements))
            return self._read(value, -torch.inf, 0.0)
        linear = self.probabilities(
            logs.exp(),
            worlds,
            generator,
            complements=log_complements.exp() if self._needs_complements else None,
        )
        logs = linear.clamp(min=torch.finfo(torch.float64).tiny).log()
        logs = torch.where(linear > 0, logs, -torch.inf)
        small = linear.detach() < SMALLEST
        parts: list[tuple[Sequence[int], Tensor]] = []
        if self.passed and bool(small[:, list(self.passed)].any()):
            given = self._pass_inputs(log_inputs.double(), log_complements)
            value = pass_log_values(self.circuit, given)
            parts.append((self.passed, self._read(value, -torch.inf, 0.0)))
        parts += [
            (places, table.log_probabilities(log_inputs, log_complements))
            for places, table in self.tables
            if bool(small[:, list(places)].any())
        ]
        if not parts:
            return logs
        again = {place for places, _ in parts for place in places}
        rest = [place for place in range(len(self.outputs)) if place not in again]
        if rest:
            parts.append((rest, logs[:, rest]))
        return torch.where(small, _in_order(parts), logs)

    def log_odds(
        self,
        logs: Tensor,
        log_inputs: Tensor,
        log_complements: Tensor,
    ) -> Tensor:
        """Return the log-odds of each output, (B, outputs), also where it is almost certain.

        Args:
            logs: What `log_probabilities` returned.
            log_inputs: Log-probabilities of the input atoms, (B, n).
            log_complements: The logarithm of one minus their probabilities.
        """
        odds = log_odds_of_log(logs)
        likely = logs.detach() > math.log1p(-LEAST_COMPLEMENT)
        if not logs.is_cuda and not bool(likely.any()):  # on a device that would be waited for
            return odds
        circuit, tables = self._complements
        parts: list[tuple[Sequence[int], Tensor]] = [
            (places, table.log_probabilities(log_inputs, log_complements))
            for places, table in tables
        ]
        known = {place for places, _ in parts for place in places}
        columns = [
            n
            for n, (place, node) in enumerate(zip(self.passed, circuit.complements, strict=True))
            if node != UNKNOWN and place not in known
        ]
        if columns:
            value = pass_log_values(circuit, _pass_inputs(circuit, log_inputs, log_complements))
            value = _columns(value, _indices_on(circuit, value.device)[2], -torch.inf, 0.0)
            if len(columns) < len(self.passed):
                value = value[:, columns]
            parts.append(([self.passed[n] for n in columns], value))
        known.update(self.passed[n] for n in columns)
        rest = [place for place in range(len(self.outputs)) if place not in known]
        if rest:
            likely[:, rest] = False
            parts.append((rest, logs[:, rest]))
        return torch.where(likely, -log_odds_of_log(_in_order(parts)), odds)

    @cached_property
    def with_complements(self) -> SumProduct:
        """The pass with nodes for the negations of the outputs, where they need no difference."""
        atoms = [self.outputs[place] for place in self.passed]
        return sum_product(
            self.program, self.variables, self._rules(atoms), atoms, complements=True
        )[0]

    @cached_property
    def _complements(self) -> tuple[SumProduct, list[tuple[tuple[int, ...], WorldTable]]]:
        """How the negations of the outputs are computed: by a pass, and by tables."""
        circuit = self.with_complements
        tables = [(places, table.complement()) for places, table in self.tables]
        for place, node in zip(self.passed, circuit.complements.tolist(), strict=True):
            if node == UNKNOWN:
                atom = self.outputs[place]
                used = sorted(_support(self.variables, self._rules([atom]), atom))
                if _worlds(self.variables, used) <= self.budget:
                    table = world_table(self.program, self.variables, used, [atom], self.true)
                    tables.append(((place,), table.complement()))
        return circuit, tables

    def _rules(self, atoms: Sequence[int]) -> RelevantRules:
        return relevant_rules(self.program, self.variables, atoms, self.true)

    @property
    def _needs_complements(self) -> bool:
        return bool(self.tables) or bool(self.circuit.input_negated.any())

    def _pass_inputs(self, values: Tensor, complements: Tensor | None) -> Tensor:
        return _pass_inputs(self.circuit, values, complements)

    def _read(self, value: Tensor, impossible: float, certain: float) -> Tensor:
        """The columns of the outputs of the pass."""
        columns = _indices_on(self.circuit, value.device)[1]
        return _columns(value, columns, impossible, certain)


def _pass_inputs(circuit: SumProduct, values: Tensor, complements: Tensor | None) -> Tensor:
    """The columns of the input nodes of a pass, in float64."""
    used, _, _, negated = _indices_on(circuit, values.device)
    given = values[:, used].double()
    if not circuit.input_negated.any():
        return given
    rest = 1 - given if complements is None else complements[:, used].double()
    return torch.where(negated, rest, given)


def _columns(value: Tensor, columns: Tensor, impossible: float, certain: float) -> Tensor:
    """These columns of the nodes followed by one that is impossible and one that is certain."""
    ends = [value.new_full((len(value), 1), end) for end in (impossible, certain)]
    return torch.cat((value, *ends), 1)[:, columns]


@lru_cache(maxsize=16)
def _indices_on(circuit: SumProduct, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The places of inputs, the columns of outputs and negations, and whether inputs are negated."""
    columns = [
        np.where(nodes < 0, circuit.nodes + 2 + nodes, nodes)
        for nodes in (circuit.outputs, circuit.complements)
    ]
    arrays = (circuit.input_places, *columns)
    with torch.inference_mode(False):  # these may be needed for a gradient later
        places, outputs, complements = (
            torch.from_numpy(a.astype(np.int64)).to(device) for a in arrays
        )
        return places, outputs, complements, torch.from_numpy(circuit.input_negated).to(device)


def plan_ladder(
    program: Program,
    variables: Variables,
    outputs: Sequence[int],
    *,
    true: Sequence[int] = (),
    budget: int = 1 << 16,
    method: str = "auto",
    subtract: bool = True,
) -> Ladder:
    """Return how the probability of each output is computed.

    Args:
        program: The program.
        variables: Its random variables.
        outputs: The atoms whose probability is asked for.
        true: Atoms that are true in every world, besides those that rules derive.
        budget: The most worlds of a table.
        method: "auto", or one of "pass", "table" and "sample" to use that one alone.
        subtract: Whether a pass may compute a negation as one minus a probability, with an
            absolute error of rounding; "auto" prefers a table within the budget to that.

    Raises:
        ModelError: The method that was asked for is not exact here, or goes over the budget.
    """
    atoms = list(outputs)
    rules = relevant_rules(program, variables, atoms, true)
    circuit, reasons = sum_product(program, variables, rules, atoms)
    if method != "pass" and circuit.subtracts:
        for atom in circuit.subtracts:
            if not subtract or _worlds(variables, _support(variables, rules, atom)) <= budget:
                reasons[atom] = "a negation would be one minus the sum of exclusive rules"
        circuit, _ = sum_product(program, variables, rules, [a for a in atoms if a not in reasons])
    if method == "pass" and reasons:
        atom, reason = next(iter(reasons.items()))
        raise ModelError(
            f"no sum-product pass is proved exact for {program.atoms[atom]!r}: {reason}"
        )
    if method in ("table", "sample"):
        reasons = dict.fromkeys(atoms, f'method="{method}" was asked for')
        circuit, _ = sum_product(program, variables, rules, [])
    passed = tuple(p for p, atom in enumerate(atoms) if atom not in reasons)
    clusters: dict[tuple[int, ...], list[int]] = {}
    sampled: list[int] = []
    for place, atom in enumerate(atoms):
        if atom not in reasons:
            continue
        used = tuple(sorted(_support(variables, rules, atom)))
        size = _worlds(variables, used)
        if method == "sample" or (method == "auto" and size > budget):
            sampled.append(place)
        elif size > budget:
            raise ModelError(
                f"{program.atoms[atom]!r} depends on {size} worlds, more than the budget of "
                f'{budget}: raise budget=, or use method="sample"'
            )
        else:
            clusters.setdefault(used, []).append(place)
    tables = tuple(
        (tuple(places), world_table(program, variables, used, [atoms[p] for p in places], true))
        for used, places in clusters.items()
    )
    return Ladder(
        program,
        variables,
        tuple(atoms),
        tuple(true),
        circuit,
        passed,
        tables,
        tuple(sampled),
        budget,
        reasons,
        rules.certain,
        frozenset(atom for atom in atoms if not rules.bodies.get(atom, (atom,))),
        frozenset(rules.inputs),
    )


def _worlds(variables: Variables, used: Iterable[int]) -> int:
    """The number of worlds of some variables."""
    return math.prod(variables.sizes[v] for v in used)


def _support(variables: Variables, rules: RelevantRules, atom: int) -> set[int]:
    """The variables that an atom depends on."""
    found: set[int] = set()
    seen = {atom}
    stack = [atom]
    while stack:
        i = stack.pop()
        if i not in rules.bodies:
            owner = variables.owner.get(-1 - i if i < 0 else i)
            found |= set() if owner is None else {owner}
            continue
        for part in (rules.atom_of(literal) for body in rules.bodies[i] for literal in body):
            if part not in seen:
                seen.add(part)
                stack.append(part)
    return found


def _in_order(parts: Sequence[tuple[Sequence[int], Tensor]]) -> Tensor:
    """The columns of several parts, each at its place."""
    places = [place for some, _ in parts for place in some]
    columns = torch.cat([tensor for _, tensor in parts], 1)
    if places == sorted(places):
        return columns
    order = torch.tensor(np.argsort(places), device=columns.device)
    return columns[:, order]


def _outputs(n: int) -> str:
    return "1 output" if n == 1 else f"{n} outputs"
