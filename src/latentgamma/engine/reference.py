"""The table of semirings, and circuits in plain torch: any device, any dtype, every transform.

What the kernels compute is defined here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latentgamma.engine.circuit import CYCLE, INDEPENDENT, NEGATIONS, NOT, PRODUCTS, SUMS, Circuit
from latentgamma.engine.tensors import (
    CERTAIN,
    finite_log_odds,
    hold,
    kept_with_owner,
    log_complement,
    outside_transforms,
    values_can_be_read,
)
from latentgamma.errors import ModelError

# ---- What a semiring is

#: The value of a node that is not computed yet.
NEVER = -1e30


@dataclass(frozen=True)
class Semiring:
    """What sums, products and negations are: a row of the table at the end of this module."""

    name: str
    run: type[Run]  # in plain torch
    false: float  # the values of what is false or true whatever the inputs are
    true: float
    temperature: float | Tensor = 0.0

    @property
    def one(self) -> float:
        """False + true: what a value and its complement add up to."""
        return self.false + self.true

    def step(self, dtype: torch.dtype | np.dtype[Any]) -> float:
        """Return the least number to add to one half, `one / 2`, to be above it in this dtype."""
        kind = torch.finfo(dtype) if isinstance(dtype, torch.dtype) else np.finfo(dtype)
        return float(kind.eps) / 2 if self.one else float(kind.tiny)


# ---- Stages


class Nodes:
    """Nodes from `start` to `stop`, and where their terms and parts are.

    A node is an input, an atom, a rule or a negation: a column of the values. It is a sum of terms,
    a term is a product of parts, and a part is a node. `own` is the input of an atom that is an
    input too; it is 0 where `has_own` is False: mask it.
    """

    def __init__(self, circuit: Circuit, start: int, stop: int, device: torch.device) -> None:
        self._device, self._nodes = device, circuit.nodes
        self._terms = circuit.term_ptr[start : stop + 1].astype(np.int64)
        first, last = self._terms[[0, -1]].tolist()
        self._terms -= first
        self._parts = circuit.parts.indptr[first : last + 1].astype(np.int64)
        self._flat = circuit.parts.indices[self._parts[0] : self._parts[-1]].astype(np.int64)
        own, kind = circuit.own[start:stop].astype(np.int64), circuit.kind[start:stop]
        self.count = stop - start
        self.place = torch.arange(start, stop, device=device)
        self.child = self._put(self._flat)
        self.row = self._put(np.repeat(np.arange(self.count), np.diff(self._parts[self._terms])))
        self.any_own = bool((own >= 0).any())
        self.own, self.has_own = self._put(np.maximum(own, 0)), self._put(own >= 0)
        self.independent = self._put(kind == INDEPENDENT) if (kind == INDEPENDENT).any() else None
        self.negated = self._put(kind == NOT) if (kind == NOT).any() else None

    @cached_property
    def term_row(self) -> Tensor:
        """The node of each term."""
        return self._put(np.repeat(np.arange(self.count), np.diff(self._terms)))

    @cached_property
    def parts(self) -> Tensor:
        """Row k: the k-th part of each term, (longest, terms).

        Shorter terms are padded with the number `nodes`: append a neutral column first.
        """
        return self._put(_table(self._parts, self._flat, self._nodes))

    @cached_property
    def terms(self) -> Tensor:
        """Row k: the k-th term of each node, padded with the number of terms as `parts` is."""
        count = int(self._terms[-1])
        return self._put(_table(self._terms, np.arange(count), count))

    def _put(self, array: np.ndarray) -> Tensor:
        with outside_transforms():  # also where this is called later
            return torch.from_numpy(array).to(self._device)


def _table(ptr: np.ndarray, flat: np.ndarray, padding: int) -> np.ndarray:
    """Return compressed rows as the columns of a table, (longest, rows)."""
    sizes = np.diff(ptr)
    column = np.arange(sizes.max(initial=0))[:, None]
    table = np.full((len(column), len(sizes)), padding)
    table.T[(column < sizes).T] = flat
    return table


@kept_with_owner
def _stages(circuit: Circuit, device: torch.device) -> list[tuple[int, list[Nodes]]]:
    """Return the kinds of the stages and their nodes; those of a cycle in two parts."""
    found = []
    for stage, kind in enumerate(circuit.stage_kind.tolist()):
        cuts = circuit.stage_ptr[stage : stage + 2].tolist()
        if kind == CYCLE:
            cuts.insert(1, int(circuit.middle[stage]))
        found.append((kind, [Nodes(circuit, *span, device) for span in pairwise(cuts)]))
    return found


# ---- Running


def run(circuit: Circuit, semiring: Semiring, inputs: Tensor) -> Tensor:
    """Return the outputs (B, O) of a batch of inputs (B, I), on the scale of the semiring."""
    running = semiring.run(circuit, semiring, inputs)
    for kind, parts in _stages(circuit, inputs.device):
        if kind == CYCLE:
            running.cycle(*parts)
        else:
            running.stage(parts[0], kind)
    values = running.values
    ends = [values.new_full((len(values), 1), end) for end in (semiring.false, semiring.true)]
    return torch.cat((values, *ends), 1)[:, output_columns(circuit, values.device)]


@kept_with_owner
def output_columns(circuit: Circuit, device: torch.device) -> Tensor:
    """Return the columns of the outputs among the nodes, then FALSE, then TRUE."""
    columns = np.where(circuit.outputs < 0, circuit.nodes - 1 - circuit.outputs, circuit.outputs)
    return torch.from_numpy(columns.astype(np.int64)).to(device)


class Run:
    """The values of the nodes, stage by stage; a semiring says what a stage computes.

    `products(nodes, values)` returns the product of the children of each node,
    (B, nodes) -> (B, nodes.count), and `sums` the sum of its children and of its own input, if
    `nodes.has_own`. The children are `nodes.child` with their nodes `nodes.row`, or the tables
    `nodes.parts` and `nodes.terms`. `mixed` has both: sums over the terms of a node, of products.
    """

    def __init__(self, circuit: Circuit, semiring: Semiring, inputs: Tensor) -> None:
        more = circuit.nodes - circuit.inputs
        self.values = torch.cat([inputs, inputs.new_full((inputs.shape[0], more), NEVER)], 1)
        self.semiring = semiring

    def stage(self, nodes: Nodes, kind: int) -> None:
        """Fill in the values of the nodes of a stage, which is not a cycle."""
        if kind == NEGATIONS:
            value = self.negation(self.values[:, nodes.child])
        elif kind == PRODUCTS:
            value = self.products(nodes, self.values)
        elif kind == SUMS:
            value = self.sums(nodes, self.values)
        else:
            value = self.mixed(nodes, self.values)
        self.values = self.values.index_copy(1, nodes.place, value)

    def cycle(self, products: Nodes, sums: Nodes) -> None:
        """Fill in the values of the nodes of a cycle: rules, and the atoms that they derive."""
        raise ModelError(f"the semiring {self.semiring.name!r} has no cycles")

    def negation(self, values: Tensor) -> Tensor:
        """Return the complements."""
        return complement(self.semiring, values)

    def products(self, nodes: Nodes, values: Tensor) -> Tensor:
        """Return the products of the children."""
        raise NotImplementedError

    def sums(self, nodes: Nodes, values: Tensor) -> Tensor:
        """Return the sums of the children."""
        return self.mixed(nodes, values)

    def mixed(self, nodes: Nodes, values: Tensor) -> Tensor:
        """Return the sums of the products of the terms."""
        raise ModelError(f"the semiring {self.semiring.name!r} takes circuits of single sums")


def complement(semiring: Semiring, values: Tensor) -> Tensor:
    """Return the complements of values of min/max.

    What is not above one half has a complement that is, also where rounding says otherwise.
    """
    other, half = semiring.one - values, semiring.one / 2
    return torch.where(
        (values <= half) & (other <= half), other + semiring.step(values.dtype), other
    )


def _reduced(values: Tensor, nodes: Nodes, start: float, how: str) -> Tensor:
    """Return the least or greatest of the children's values. (B, E) -> (B, count)."""
    rows = nodes.row.expand(values.shape[0], -1)
    return values.new_full((values.shape[0], nodes.count), start).scatter_reduce(
        1, rows, values, how
    )


# ---- Hard minima and maxima
# An atom is the greatest of its own input and of its rules, a rule the least of its body; the least
# fixed point of that. Its gradient goes to the inputs that decide the value. Where several do, it
# goes along the shortest proofs from atoms that no rule derives, in equal shares, and within a rule
# to all atoms that have its value, in equal shares; to the own input of a derivable atom only where
# there is no such proof. Precisely: the rank of a negation is 0, that of an input is 0 if no rule
# derives its atom, and `LAST` otherwise; the rank of a rule is the greatest among those of its body
# atoms that have its value; and an atom takes the greatest value, then the least rank, of its own
# input and of its rules, whose ranks count one more.

#: The rank of an input whose atom rules derive as well: after every other proof.
LAST = 1 << 23


class _Hard(Run):
    """Values and ranks without gradients; gradients through fixed shares of the children."""

    def __init__(self, circuit: Circuit, semiring: Semiring, inputs: Tensor) -> None:
        super().__init__(circuit, semiring, inputs)
        self._ranks = torch.zeros(self.values.shape, dtype=torch.int64, device=inputs.device)

    def stage(self, nodes: Nodes, kind: int) -> None:
        if kind == PRODUCTS:
            self._put(nodes, *self._minima(nodes))
        elif kind == SUMS:
            self._put(nodes, *self._maxima(nodes))
        else:
            super().stage(nodes, kind)

    def cycle(self, products: Nodes, sums: Nodes) -> None:
        # The fixed point first, without gradients: each pass settles at least one more node.
        before = self.values
        self.values = before.detach()
        for _ in range(sums.count + 1):
            old = self.values, self._ranks
            self._put(products, *self._minima(products))
            self._put(sums, *self._maxima(sums))
            if _same(old[0], self.values) and _same(old[1], self._ranks):
                break
        # Then what led to it: each pass gets the gradient of at least one more rank right.
        cycle = torch.zeros(before.shape[1], dtype=torch.bool, device=before.device)
        cycle[products.place] = cycle[sums.place] = True
        ranks = self._ranks[:, sums.place]
        passes = len(torch.unique(ranks)) if values_can_be_read(ranks) else sums.count
        self.values = torch.where(cycle, self.values, before)
        for _ in range(passes):
            self._put(products, *self._minima(products))
            self._put(sums, *self._maxima(sums))

    def _minima(self, nodes: Nodes) -> tuple[Tensor, Tensor]:
        child, ranks = self.values[:, nodes.child], self._ranks[:, nodes.child]
        known = child.detach()
        least = _reduced(known, nodes, torch.inf, "amin")
        tied = known == least[:, nodes.row]
        rank = _reduced(torch.where(tied, ranks, 0), nodes, 0, "amax")
        return self._shared(least, child, tied, nodes), rank

    def _maxima(self, nodes: Nodes) -> tuple[Tensor, Tensor]:
        child, ranks = self.values[:, nodes.child], self._ranks[:, nodes.child]
        own = self.values[:, nodes.own]
        known, mine = child.detach(), own.detach()
        greatest = _reduced(known, nodes, NEVER, "amax")
        tied = known == greatest[:, nodes.row]
        rank = 1 + _reduced(torch.where(tied, ranks, 2 * LAST), nodes, 2 * LAST, "amin")
        tied = tied & (ranks + 1 == rank[:, nodes.row])
        itself = nodes.has_own & ((mine > greatest) | ((mine == greatest) & (rank > LAST)))
        share = torch.where(itself[:, nodes.row], False, tied)
        value = self._shared(torch.where(itself, mine, greatest), child, share, nodes)
        value = value + torch.where(itself, _zero(own), 0)
        return value, torch.where(itself, LAST, rank)

    def _shared(self, value: Tensor, child: Tensor, tied: Tensor, nodes: Nodes) -> Tensor:
        """Return these values, with a gradient that goes to the tied children in equal shares."""
        share = tied.to(value.dtype)
        rows = nodes.row.expand(value.shape[0], -1)
        count = torch.zeros_like(value).scatter_add(1, rows, share).clamp(min=1)
        share = share / count[:, nodes.row]
        return value.scatter_add(1, rows, share * _zero(child))

    def _put(self, nodes: Nodes, value: Tensor, rank: Tensor) -> None:
        self.values = self.values.index_copy(1, nodes.place, value)
        self._ranks = self._ranks.index_copy(1, nodes.place, rank)


def _zero(values: Tensor) -> Tensor:
    """Return zeros with the slope one, also where a value is infinite."""
    held = finite_log_odds(values)
    return held - held.detach()


def _same(one: Tensor, other: Tensor) -> bool:
    return values_can_be_read(one) and values_can_be_read(other) and torch.equal(one, other)


# ---- Smooth minima and maxima, on log-odds
# A rule is −T log Σ exp(−x/T), an atom T log Σ exp(x/T), and their derivatives are the gradient. On a
# cycle, atoms would support themselves without end. So the steps are counted there: as many as the
# hard closure of the same example takes.


class _Smooth(Run):
    def cycle(self, products: Nodes, sums: Nodes) -> None:
        own = torch.where(sums.has_own, self.values[:, sums.own], NEVER)
        self.values = self.values.index_copy(1, sums.place, own)
        steps = self._steps(products, sums)  # (B, 1)
        most = sums.count
        if values_can_be_read(steps):
            most = int(steps.max()) if steps.numel() else 0
        for step in range(most):
            least = self.products(products, self.values)
            within = self.values.index_copy(1, products.place, least)
            after = within.index_copy(1, sums.place, self.sums(sums, within))
            self.values = torch.where(step < steps, after, self.values)

    @torch.no_grad()
    def _steps(self, products: Nodes, sums: Nodes) -> Tensor:
        """Return after how many steps the hard closure rests, from the same values. (B, 1)."""
        values = self.values.detach()
        needed = torch.zeros(values.shape[0], 1, dtype=torch.int64, device=values.device)
        for step in range(sums.count):
            least = _reduced(values[:, products.child], products, torch.inf, "amin")
            within = values.index_copy(1, products.place, least)
            greatest = _reduced(within[:, sums.child], sums, NEVER, "amax")
            own = torch.where(sums.has_own, values[:, sums.own], NEVER)
            greatest = torch.maximum(own, greatest)
            moved = (greatest != values[:, sums.place]).any(1, keepdim=True)
            if values_can_be_read(moved) and not moved.any():
                break
            needed = torch.where(moved, step + 1, needed)
            values = within.index_copy(1, sums.place, greatest)
        return needed

    def products(self, nodes: Nodes, values: Tensor) -> Tensor:
        T, child = self.semiring.temperature, values[:, nodes.child]
        least = _reduced(child.detach(), nodes, torch.inf, "amin")
        terms = torch.exp((least[:, nodes.row] - child) / T)
        rows = nodes.row.expand(values.shape[0], -1)
        return least - T * torch.log(torch.zeros_like(least).scatter_add(1, rows, terms))

    def sums(self, nodes: Nodes, values: Tensor) -> Tensor:
        T, child = self.semiring.temperature, values[:, nodes.child]
        own = torch.where(nodes.has_own, values[:, nodes.own], NEVER)
        greatest = torch.maximum(own, _reduced(child, nodes, NEVER, "amax")).detach()
        terms = torch.exp((child - greatest[:, nodes.row]) / T)
        rows = nodes.row.expand(values.shape[0], -1)
        first = torch.where(nodes.has_own, torch.exp((own - greatest) / T), 0)
        return greatest + T * torch.log(first.scatter_add(1, rows, terms))


# ---- Sums and products of probabilities, and of logarithms of them
# Terms of an independent sum are alternatives of which several may hold: 1 − Π (1 − term).


class _Real(Run):
    multiply = staticmethod(torch.mul)

    def products(self, nodes: Nodes, values: Tensor) -> Tensor:
        neutral = values.new_full((len(values), 1), self.semiring.true)
        padded = torch.cat((values, neutral), 1)
        product = neutral.expand(-1, nodes.parts.shape[1])
        for parts in nodes.parts:
            product = self.multiply(product, padded[:, parts])
        return product

    def negation(self, values: Tensor) -> Tensor:
        return hold(1 - values, low=0.0)

    def mixed(self, nodes: Nodes, values: Tensor) -> Tensor:
        terms = self.products(nodes, values)
        total = torch.where(nodes.has_own, values[:, nodes.own], 0)
        if nodes.independent is not None:
            padded = torch.cat((terms, terms.new_zeros(len(terms), 1)), 1)
            some = total
            for each in nodes.terms:  # no difference of numbers near 1 for a small result
                some = some + padded[:, each] * (1 - some)
        total = total.index_add(1, nodes.term_row, terms)
        if nodes.independent is not None:
            total = torch.where(nodes.independent, some, total)
        if nodes.negated is not None:
            total = torch.where(nodes.negated, self.negation(total), total)
        return total


class _Log(_Real):
    multiply = staticmethod(torch.add)

    def negation(self, values: Tensor) -> Tensor:
        return _exactly(log_complement(values), log_complement(values.detach(), 0.0))

    def mixed(self, nodes: Nodes, values: Tensor) -> Tensor:
        logs, row = self.products(nodes, values), nodes.term_row
        if nodes.any_own:
            own = torch.where(nodes.has_own, values[:, nodes.own], -torch.inf)
            logs = torch.cat((logs, own), 1)
            row = torch.cat((row, torch.arange(nodes.count, device=row.device)))
        most = values.new_full((len(values), nodes.count), -torch.inf)
        most = most.scatter_reduce(1, row.expand_as(logs), logs.detach(), "amax")
        shift = most.clamp(min=torch.finfo(most.dtype).min)  # keeps -inf - -inf out
        total = torch.zeros_like(most).index_add(1, row, (logs - shift[:, row]).exp())
        some = most > -torch.inf
        result = torch.where(some, torch.where(some, total, 1).log() + shift, -torch.inf)
        if nodes.independent is not None:
            # Where all terms are this unlikely, their sum is right to the last digit.
            likely = nodes.independent & (result > -100.0)
            none = torch.zeros_like(most)
            exact = none.index_add(1, row, log_complement(logs.detach(), 0.0))
            none = none.index_add(1, row, log_complement(logs))
            result = torch.where(
                likely, _exactly(log_complement(none), log_complement(exact, 0.0)), result
            )
        if nodes.negated is not None:
            result = torch.where(nodes.negated, self.negation(result), result)
        return result


def _exactly(held: Tensor, value: Tensor) -> Tensor:
    """Return a value that may be infinite, with the finite slope of one that is held."""
    return held + (value - held).detach()


# ---- The table of semirings

#: Maxima and minima of values between 0 and 1; of log-odds; the same, smooth on log-odds.
GODEL = Semiring("hard", _Hard, 0.0, 1.0)
GODEL_ODDS = Semiring("hard", _Hard, -CERTAIN, CERTAIN)
SMOOTH = Semiring("smooth", _Smooth, -CERTAIN, CERTAIN, 1.0)
#: Sums and products of probabilities, and of their logarithms.
REAL = Semiring("real", _Real, 0.0, 1.0)
LOG = Semiring("log", _Log, -math.inf, 0.0)
