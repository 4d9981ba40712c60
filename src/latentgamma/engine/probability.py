"""The probability of an atom: by a pass, by enumeration or by sampling, and the likeliest proofs."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from latentgamma._text import quantity
from latentgamma.engine.chain import Chain, find_chain
from latentgamma.engine.circuit import UNKNOWN, Circuit
from latentgamma.engine.exactness import (
    PassProof,
    RelevantRules,
    SumProduct,
    Variables,
    WorldTable,
    atom_of,
    relevant_rules,
)
from latentgamma.engine.execute import run
from latentgamma.engine.fused import SMALLEST
from latentgamma.engine.reference import LOG, REAL
from latentgamma.engine.tensors import (
    LEAST_COMPLEMENT,
    is_mapped,
    kept_with_owner,
    log_complement,
    log_odds_of_log,
    may_be_any,
)
from latentgamma.errors import ModelError
from latentgamma.logic.closure import closure_of_mask
from latentgamma.logic.closures import closures
from latentgamma.program.facts import Mask
from latentgamma.program.program import Program

# ---- Exact probabilities by enumerating the worlds of the variables that an output depends on

# Worlds that are closed together.
_CHUNK = 1 << 16


def world_table(
    program: Program,
    variables: Variables,
    used: Sequence[int],
    outputs: Sequence[int],
    true: Sequence[int] = (),
) -> WorldTable:
    """Return the table of the outputs over the worlds of the variables in `used`."""
    sizes = [variables.sizes[v] for v in used]
    worlds = int(np.prod(sizes, dtype=np.int64)) if sizes else 1
    holds = np.empty((worlds, len(outputs)), np.bool_)
    columns = np.asarray(outputs, np.int64)
    for first in range(0, worlds, _CHUNK):
        index = np.arange(first, min(first + _CHUNK, worlds))
        facts = np.zeros((len(index), program.M), np.bool_)
        facts[:, list(true)] = True
        rest = index
        for v, size in zip(reversed(used), reversed(sizes), strict=True):
            rest, value = np.divmod(rest, size)
            if v < len(variables.facts):
                facts[value == 0, variables.facts[v]] = True
            else:
                atoms = np.asarray(variables.groups[v - len(variables.facts)])
                facts[np.arange(len(index)), atoms[value]] = True
        holds[index] = closures(program, facts)[:, columns]
    return WorldTable(tuple(used), tuple(outputs), holds)


# ---- Unbiased estimates of probabilities and of their gradients from sampled worlds
# The value of an output is the mean over S sampled worlds. Its gradient is the leave-one-out
# score-function estimator: with f_s the outputs in world s, weighted by the incoming gradient,
#
#     grad = 1 / (S - 1) * sum_s (f_s - mean f) * d log P(world s)
#
# which is unbiased for the gradient of the expectation. A value of probability zero is in no sampled
# world; its gradient is the mean change of f when it is put into every world, and that of a fact of
# probability one when it is taken out. All of this needs closures only, so the program may have
# cycles.


class _Refusal(torch.autograd.Function):
    """Returns a gradient that is not a constant, and cannot be differentiated again."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor, *of: Tensor) -> Tensor:
        return grad.detach()

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        raise ModelError(
            "sampled worlds have no second derivative; "
            'lg.Inference(method="table") has, where the worlds fit into its budget'
        )


# Worlds that the gradient closes together.
_WORLDS_AT_ONCE = 1 << 16


def draw_worlds(
    variables: Variables, inputs: Tensor, worlds: int, generator: torch.Generator | None
) -> Tensor:
    """Return the truth of the input atoms in sampled worlds, shape (B, worlds, inputs)."""
    p = inputs.detach().double()  # uniform numbers of fewer digits would be biased
    B = len(p)
    facts = len(variables.facts)
    uniform = torch.rand(B, worlds, facts, generator=generator, dtype=p.dtype, device=p.device)
    parts = [uniform < p[:, None, :facts]]
    place = facts
    for group in variables.groups:
        q = p[:, place : place + len(group)]
        chosen = torch.multinomial(q, worlds, replacement=True, generator=generator)  # (B, worlds)
        parts.append(torch.nn.functional.one_hot(chosen, len(group)).bool())
        place += len(group)
    return torch.cat(parts, 2)


def close_worlds(
    program: Program,
    variables: Variables,
    drawn: Tensor,
    outputs: Sequence[int],
    true: Sequence[int],
) -> Tensor:
    """Return which outputs hold in each world, shape (N, outputs), on the device of the worlds.

    `drawn` (N, inputs) is the truth of the input atoms in each world.
    """
    N = len(drawn)
    if not drawn.is_cuda:
        facts = np.zeros((N, program.M), np.bool_)
        facts[:, variables.atoms] = drawn.numpy()
        facts[:, list(true)] = True
        return torch.from_numpy(closures(program, facts)[:, np.asarray(outputs, np.int64)])
    W = -(-N // 64)
    place = torch.arange(64, device=drawn.device)
    bits = drawn.new_zeros(64 * W, drawn.shape[1])
    bits[:N] = drawn
    words = (bits.view(W, 64, -1).long() << place[:, None]).sum(1).T  # (inputs, W)
    planes = torch.zeros(program.M, W, dtype=torch.int64, device=drawn.device)
    planes[torch.from_numpy(variables.atoms.astype(np.int64)).to(drawn.device)] = words
    planes[list(true)] = -1
    closed = closures(program, planes, packed=True)[list(outputs)]  # (outputs, W)
    holds: Tensor = (closed[:, :, None] >> place & 1).bool().flatten(1)[:, :N].T
    return holds


class _Estimate(torch.autograd.Function):
    """Estimates of the probabilities of the outputs from sampled worlds, in float64, (B, outputs)."""

    @staticmethod
    def forward(
        ctx: Any,
        program: Program,
        variables: Variables,
        outputs: Sequence[int],
        true: Sequence[int],
        inputs: Tensor,
        drawn: Tensor,
    ) -> Tensor:
        B, S, n = drawn.shape
        holds = close_worlds(program, variables, drawn.reshape(B * S, n), outputs, true)
        holds = holds.reshape(B, S, len(outputs))
        ctx.save_for_backward(inputs, drawn, holds)
        ctx.facts = len(variables.facts)
        ctx.variables = variables
        ctx.close = partial(close_worlds, program, variables, outputs=outputs, true=true)
        return holds.double().mean(1)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        inputs, drawn, holds = ctx.saved_tensors
        S = drawn.shape[1]
        f = (holds.double() * grad_out.double()[:, None, :]).sum(2)  # (B, S)
        weight = (f - f.mean(1, keepdim=True)) / (S - 1)
        kind = torch.finfo(torch.float64)  # away from 0 and 1 alone: more would be a bias
        p = inputs.double().clamp(kind.tiny, 1 - kind.eps / 2)
        x = drawn.double()
        score = x / p[:, None, :]
        coins = slice(0, ctx.facts)
        score[:, :, coins] -= (1 - x[:, :, coins]) / (1 - p[:, None, coins])
        grad = torch.einsum("bs,bsn->bn", weight, score)
        changed = inputs == 0
        changed[:, coins] |= inputs[:, coins] == 1
        if bool(changed.any()):
            pairs = changed.nonzero()  # (pairs, 2): example, input
            size = max(_WORLDS_AT_ONCE // S, 1)
            for part in pairs.split(size):
                grad[part[:, 0], part[:, 1]] = _changes(
                    ctx.close, ctx.variables, drawn, f, grad_out.double(), inputs, part
                )
        grad = grad.to(inputs.dtype)
        if torch.is_grad_enabled():
            grad = _Refusal.apply(grad, inputs, grad_out)  # type: ignore[no-untyped-call]
        return None, None, None, None, grad, None


def _changes(
    close: Callable[..., Tensor],
    variables: Variables,
    drawn: Tensor,
    f: Tensor,
    grad_out: Tensor,
    inputs: Tensor,
    pairs: Tensor,
) -> Tensor:
    """Return the slopes of inputs of probability 0, or of facts of probability 1. (pairs,).

    `close` returns the outputs of worlds, `f` (B, S) are the weighted outputs in the sampled ones,
    and `pairs` (pairs, 2) are examples and inputs.
    """
    example, place = pairs.unbind(1)
    owner = torch.tensor(
        [variables.owner[i] for i in variables.atoms.tolist()], device=drawn.device
    )
    column = torch.arange(drawn.shape[2], device=drawn.device)
    same = owner == owner[place][:, None]  # (pairs, inputs)
    worlds = drawn[example] & ~same[:, None, :]
    rises = inputs[example, place] == 0
    worlds |= ((column == place[:, None]) & rises[:, None])[:, None, :]
    N, S, n = worlds.shape
    holds = close(worlds.reshape(N * S, n)).reshape(N, S, -1).double()
    other = (holds * grad_out[example][:, None, :]).sum(2)
    change = (other - f[example]).mean(1)
    return torch.where(rises, change, -change)


# ---- The most likely proofs of an atom: minimal sets of inputs from which it follows
# The probability of a proof is the product of its inputs' probabilities. The search is A* over
# partial proofs, from the atom back to the inputs. The cost of a partial proof is the negative
# logarithm of the inputs chosen so far plus a lower bound on what its open goals still need: the
# largest, over the goals, of the cheapest single input that each cannot do without. The proofs
# therefore come in the order of their probability.


@dataclass(frozen=True)
class LikelyProof:
    """Inputs from which an atom follows, none of them superfluous, and their joint probability.

    >>> print(LikelyProof(("smoke", "heat"), 0.63))
    0.63  smoke, heat
    """

    facts: tuple[str, ...]
    probability: float

    def __str__(self) -> str:
        return f"{self.probability:.6g}  {', '.join(self.facts) or 'no input needed'}"


def likely_proofs(
    program: Program,
    variables: Variables,
    probabilities: npt.NDArray[np.float64],
    atom: int,
    *,
    true: Sequence[int] = (),
    most: int = 5,
    budget: int = 200_000,
) -> tuple[LikelyProof, ...]:
    """Return the `most` likeliest proofs of an atom, the likeliest first.

    Args:
        program: The program.
        variables: Its random variables.
        probabilities: The probability of each input atom, in the order of `variables.atoms`.
        atom: The atom to prove.
        true: Atoms that are true in every world.
        most: How many proofs to return; fewer come back where there are fewer.
        budget: The number of partial proofs that the search may visit.

    Raises:
        ModelError: The budget was spent before `most` proofs were found.
    """
    rules = relevant_rules(program, variables, [atom], true)
    if rules.certain[atom]:
        return (LikelyProof((), 1.0),)
    cost = {
        int(i): -float(np.log(p)) if p > 0 else np.inf
        for i, p in zip(variables.atoms, probabilities, strict=True)
    }
    bound = _lower_bounds(rules, cost)
    found: list[frozenset[int]] = []
    proofs: list[LikelyProof] = []
    tie = count()
    seen: set[tuple[frozenset[int], frozenset[int], frozenset[int]]] = set()
    start = (frozenset[int](), frozenset((atom,)), frozenset[int]())
    queue = [(bound.get(atom, np.inf), next(tie), 0.0, start)]
    visited = 0
    while queue and len(proofs) < most:
        total, _, spent, state = heapq.heappop(queue)
        if total == np.inf:
            break
        if state in seen:
            continue
        seen.add(state)
        visited += 1
        if visited > budget:
            raise ModelError(
                f"{len(proofs)} of {most} proofs found within the budget of {budget} partial "
                f"proofs; raise budget="
            )
        chosen, goals, expanded = state
        if not goals:
            if any(other <= chosen for other in found) or not _derives(program, chosen, true, atom):
                continue
            # An input of probability 1 costs nothing: a proof without it may come later.
            if any(_derives(program, chosen - {i}, true, atom) for i in chosen):
                continue
            found.append(chosen)
            names = tuple(program.atoms[i] for i in sorted(chosen))
            proofs.append(LikelyProof(names, float(np.exp(-spent))))
            continue
        goal = max(goals, key=lambda i: (bound.get(i, np.inf), i))
        rest = goals - {goal}
        for body in rules.bodies.get(goal, ((goal,),)):
            new = chosen | {i % program.M for i in body if i not in rules.bodies}
            owners = [variables.owner[i] for i in new]
            if len(set(owners)) < len(owners):
                continue
            spent_now = sum(cost[i] for i in new)
            open_now = (rest | {i for i in body if i in rules.bodies}) - expanded - {goal}
            left = max((_remaining_cost(bound, cost, i, new) for i in open_now), default=0.0)
            state = new, frozenset(open_now), expanded | {goal}
            heapq.heappush(queue, (spent_now + left, next(tie), spent_now, state))
    return tuple(proofs)


def _remaining_cost(
    bound: dict[int, float], cost: dict[int, float], goal: int, chosen: frozenset[int]
) -> float:
    """Return a lower bound on the further cost of a goal; 0 if a chosen input may decide it."""
    needed = bound.get(goal, np.inf)
    return needed if all(cost[i] < needed for i in chosen) else 0.0


def _lower_bounds(rules: RelevantRules, cost: dict[int, float]) -> dict[int, float]:
    """Return, for each atom, the least over its proofs of the dearest input in the proof."""
    bound = {rules.input_literal(i): cost[i] for i in rules.inputs}
    changed = True
    while changed:
        changed = False
        for atom, bodies in rules.bodies.items():
            best = min(
                (max((bound.get(i, np.inf) for i in body), default=0.0) for body in bodies),
                default=np.inf,
            )
            if best < bound.get(atom, np.inf):
                bound[atom] = best
                changed = True
    return bound


def _derives(program: Program, chosen: frozenset[int], true: Sequence[int], atom: int) -> bool:
    facts = np.zeros(program.M, np.bool_)
    facts[[*chosen, *true]] = True
    return bool(closure_of_mask(program, facts).state[atom])


# ---- The cheapest method for every output, exact methods first
# 1. One sum-product pass, where `exactness.py` proves it exact; as a tree, where the rules are a
#    long chain (`chain.py`).
# 2. A table of all worlds of the variables that the output depends on, within a budget.
# 3. Sampled worlds: unbiased, with a standard error.


@dataclass(frozen=True, eq=False)
class ProbabilityMethods:
    """How the probability of each output is computed.

    `passed` and `sampled` are places in the list of outputs. Tables are computed by the same pass
    as the outputs that are `passed`. `reasons` says why an output is not one of these.
    """

    program: Program
    variables: Variables
    outputs: tuple[int, ...]
    true: tuple[int, ...]
    budget: int  # the most worlds of a table
    certain: Mask  # (M,) atoms true in every world
    inputs_used: frozenset[int]  # input atoms that some output depends on
    chain: Chain | None = None  # all outputs are at its end
    proved: PassProof | None = None  # where there is a chain, it is made when it is needed
    passed: tuple[int, ...] = ()
    tables: tuple[WorldTable, ...] = ()
    sampled: tuple[int, ...] = ()
    reasons: dict[int, str] = field(default_factory=dict)
    impossible: frozenset[int] = frozenset()  # outputs true in no world

    @cached_property
    def _proof(self) -> PassProof:
        if self.proved is not None:
            return self.proved
        rules = relevant_rules(self.program, self.variables, self.outputs, self.true)
        chain = self.chain is not None
        return PassProof(self.program, self.variables, rules, self.outputs, chain=chain)

    @cached_property
    def computed(self) -> list[int]:
        """The places of the outputs that the pass computes: all but those that are sampled."""
        sampled = set(self.sampled)
        return [place for place in range(len(self.outputs)) if place not in sampled]

    @cached_property
    def _computed_atoms(self) -> list[int]:
        return [self.outputs[place] for place in self.computed]

    @cached_property
    def sum_product(self) -> SumProduct:
        """The pass, also where there is a chain."""
        return self._proof.build(self._computed_atoms, self.tables)

    @property
    def circuit(self) -> Circuit:
        """What the pass computes."""
        return self.sum_product.circuit

    @property
    def exact(self) -> bool:
        """Whether every output is computed exactly."""
        return not self.sampled

    def __str__(self) -> str:
        if self.chain is not None:
            return f"{quantity(len(self.outputs), 'output')}: {self.chain}"
        lines = []
        if self.passed:
            passed = self._proof.build([self.outputs[place] for place in self.passed])
            lines.append(
                f"{quantity(len(self.passed), 'output')}: one sum-product pass over "
                f"{passed.circuit.term_ptr[-1]} rules, proved exact"
            )
        for table in self.tables:
            reason = self.reasons[table.atoms[0]]
            lines.append(
                f"{quantity(len(table.atoms), 'output')}: exact, by a table of {len(table.holds)} worlds "
                f"(no pass: {reason})"
            )
        if self.sampled:
            reason = self.reasons[self.outputs[self.sampled[0]]]
            lines.append(
                f"{quantity(len(self.sampled), 'output')}: estimated from sampled worlds (no pass: {reason})"
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

        `inputs` (B, n) are in the order of `variables.atoms`; `complements` is one minus them,
        where that is known to more digits.
        """
        if self.chain is not None:
            rest = 1 - inputs.double() if complements is None else complements
            logs, none = (self.chain.logs(part.double()) for part in (inputs, rest))
            return self._along_chain(self.chain, logs, none).exp()
        parts: list[tuple[Sequence[int], Tensor]] = []
        if self.computed:
            given = _pass_inputs(self.sum_product, inputs, complements)
            if inputs.is_cuda:
                tiny = torch.finfo(torch.float64).tiny
                value = run(self.circuit, LOG, given.clamp(min=tiny).log()).exp()
            else:
                value = run(self.circuit, REAL, given)
            parts.append((self.computed, value))
        if self.sampled:
            atoms = [self.outputs[place] for place in self.sampled]
            drawn = draw_worlds(self.variables, inputs, worlds, generator)
            estimate = _Estimate.apply(  # type: ignore[no-untyped-call]
                self.program, self.variables, atoms, self.true, inputs, drawn
            )
            parts.append((self.sampled, estimate))
        return parts[0][1] if len(parts) == 1 else _in_order(parts)

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

        More worlds are drawn for the examples with a larger standard error than `error`.
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
                before = drawn[rough]
                least = int(before.min())
                more = max(min(least, most_worlds - least), 2)
                fresh = self.probabilities(inputs[rough], more, generator)[:, columns]
                mixed = (part[rough] * before + fresh * more) / (before + more)
                rows = rough.nonzero()[:, 0]
                value[rows[:, None], torch.tensor(columns, device=value.device)] = mixed
                drawn[rough] += more

    def log_probabilities(
        self,
        log_inputs: Tensor,
        worlds: int = 64,
        generator: torch.Generator | None = None,
        *,
        log_complements: Tensor | None = None,
    ) -> Tensor:
        """Return the log-probability of each output, also where it underflows as a number.

        `log_complements` are those of the negations of the inputs, where they are known to more
        digits.
        """
        logs = log_inputs.double()
        if log_complements is None:
            log_complements = log_complement(logs)
        if self.chain is not None:
            return self._along_chain(self.chain, logs, log_complements.double())
        if log_inputs.is_cuda and not self.sampled:
            return run(self.circuit, LOG, _pass_inputs(self.sum_product, logs, log_complements))
        linear = self.probabilities(
            logs.exp(),
            worlds,
            generator,
            complements=log_complements.exp(),
        )
        logs = linear.clamp(min=torch.finfo(torch.float64).tiny).log()
        logs = torch.where(linear > 0, logs, -torch.inf)
        small = linear.detach() < SMALLEST
        if not self.computed or not may_be_any(small[:, self.computed]):
            return logs
        again = run(self.circuit, LOG, _pass_inputs(self.sum_product, log_inputs, log_complements))
        if self.sampled:
            again = _in_order([(self.computed, again), (self.sampled, logs[:, self.sampled])])
        return torch.where(small, again, logs)

    def _along_chain(self, chain: Chain, logs: Tensor, log_complements: Tensor) -> Tensor:
        """Return the log-probabilities along a chain; what may be rounding, by the pass."""
        if is_mapped(logs):
            return run(self.circuit, LOG, _pass_inputs(self.sum_product, logs, log_complements))
        found, doubtful = chain.log_probabilities(logs, log_complements)
        capturing = logs.is_cuda and torch.cuda.is_current_stream_capturing()
        if capturing or not bool(doubtful.any()):  # a graph cannot be told to compute more
            return found
        rows = doubtful.any(1).nonzero()[:, 0]
        given = _pass_inputs(self.sum_product, logs[rows], log_complements[rows])
        again = run(self.circuit, LOG, given)
        return found.index_copy(0, rows, torch.where(doubtful[rows], again, found[rows]))

    def log_odds(
        self,
        logs: Tensor,
        log_inputs: Tensor,
        log_complements: Tensor,
    ) -> Tensor:
        """Return the log-odds of each output, (B, outputs), also where it is almost certain.

        `logs` is what `log_probabilities` returned for these inputs.
        """
        odds = log_odds_of_log(logs)
        if self.chain is not None:
            return odds
        likely = logs.detach() > math.log1p(-LEAST_COMPLEMENT)
        if not logs.is_cuda and not may_be_any(likely):  # on a device that would be waited for
            return odds
        negation = self.with_complements
        known = negation.complements != UNKNOWN
        if not known.any():
            return odds
        given = _pass_inputs(negation, log_inputs, log_complements)
        others = run(negation.negated, LOG, given)
        places = self.computed
        if not known.all():
            columns = np.flatnonzero(known)
            others, places = others[:, columns], [places[n] for n in columns]
        rest = [place for place in range(len(self.outputs)) if place not in set(places)]
        if rest:
            likely[:, rest] = False
            others = _in_order([(places, others), (rest, logs[:, rest])])
        return torch.where(likely, -log_odds_of_log(others), odds)

    @cached_property
    def with_complements(self) -> SumProduct:
        """The pass with nodes for the negations of the outputs, where they need no difference."""
        atoms = self._computed_atoms
        found = self._proof.build(atoms, self.tables, complements=True)
        tables = []
        for atom, node in zip(atoms, found.complements.tolist(), strict=True):
            if node == UNKNOWN:
                rules = relevant_rules(self.program, self.variables, [atom], self.true)
                used = sorted(_support(self.variables, rules, atom))
                if _worlds(self.variables, used) <= self.budget:
                    table = world_table(self.program, self.variables, used, [atom], self.true)
                    tables.append(table)
        if tables:
            found = self._proof.build(atoms, [*self.tables, *tables], complements=True)
        return found


def _pass_inputs(passed: SumProduct, values: Tensor, complements: Tensor | None) -> Tensor:
    """Return the columns of the input nodes of a pass, in float64."""
    used, negated = _inputs_on(passed, values.device)
    given = values[:, used].double()
    if not passed.input_negated.any():
        return given
    rest = 1 - given if complements is None else complements[:, used].double()
    return torch.where(negated, rest, given)


@kept_with_owner
def _inputs_on(passed: SumProduct, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the places of the inputs of a pass, and which of them are negated."""
    places = torch.from_numpy(passed.input_places.astype(np.int64)).to(device)
    return places, torch.from_numpy(passed.input_negated).to(device)


def choose_methods(
    program: Program,
    variables: Variables,
    outputs: Sequence[int],
    *,
    true: Sequence[int] = (),
    budget: int = 1 << 16,
    method: str = "auto",
    subtract: bool = True,
) -> ProbabilityMethods:
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
    chain = find_chain(program, variables, atoms, true) if method == "auto" else None
    if chain is not None:
        inputs = [
            (*((fact,) for fact in variables.facts), *variables.groups)[v] for v in chain.variables
        ]
        return ProbabilityMethods(
            program, variables, tuple(atoms), tuple(true), budget, np.zeros(program.M, np.bool_),
            frozenset(atom for some in inputs for atom in some),
            chain=chain, passed=tuple(range(len(atoms))),
        )  # fmt: skip
    rules = relevant_rules(program, variables, atoms, true)
    proof = PassProof(program, variables, rules, atoms)
    reasons = dict(proof.refused)
    if method in ("table", "sample"):
        reasons = dict.fromkeys(atoms, f'method="{method}" was asked for')
    elif method == "pass":
        for atom, reason in reasons.items():
            raise ModelError(
                f"no sum-product pass is proved exact for {program.atoms[atom]!r}: {reason}"
            )
    else:
        for atom in proof.build([atom for atom in atoms if atom not in reasons]).subtracts:
            if not subtract or _worlds(variables, _support(variables, rules, atom)) <= budget:
                reasons[atom] = "a negation would be one minus the sum of exclusive rules"
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
        world_table(program, variables, used, [atoms[p] for p in places], true)
        for used, places in clusters.items()
    )
    return ProbabilityMethods(
        program, variables, tuple(atoms), tuple(true), budget, rules.certain,
        frozenset(rules.inputs),
        proved=proof, passed=passed, tables=tables, sampled=tuple(sampled), reasons=reasons,
        impossible=frozenset(atom for atom in atoms if not rules.bodies.get(atom, (atom,))),
    )  # fmt: skip


def _worlds(variables: Variables, used: Iterable[int]) -> int:
    """Return the number of worlds of some variables."""
    return math.prod(variables.sizes[v] for v in used)


def _support(variables: Variables, rules: RelevantRules, atom: int) -> set[int]:
    """Return the variables that an atom depends on."""
    found: set[int] = set()
    seen = {atom}
    stack = [atom]
    while stack:
        i = stack.pop()
        if i not in rules.bodies:
            owner = variables.owner.get(i % len(rules.certain))
            found |= set() if owner is None else {owner}
            continue
        for part in (atom_of(literal) for body in rules.bodies[i] for literal in body):
            if part not in seen:
                seen.add(part)
                stack.append(part)
    return found


def _in_order(parts: Sequence[tuple[Sequence[int], Tensor]]) -> Tensor:
    """Return the columns of several parts, each at its place."""
    places = [place for some, _ in parts for place in some]
    columns = torch.cat([tensor for _, tensor in parts], 1)
    if places == sorted(places):
        return columns
    order = torch.tensor(np.argsort(places), device=columns.device)
    return columns[:, order]
