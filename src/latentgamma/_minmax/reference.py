"""The min/max closure in plain torch: any device, any dtype, every transform of torch.

What the kernels compute is defined here.

Hard (temperature 0): an atom is the greatest of its own input and of its rules, a rule the
least of its body; the least fixed point of that. Its gradient goes to the inputs that decide
the value. Where several do, it goes along the shortest proof: to the atom's own input if that
has the value, else to the rules of least rank, in equal shares, and within a rule to all atoms
that have its value, in equal shares. (The rank of an atom is 0 if its own input has its value.
Otherwise it is one more than that of its best rule, whose rank is the greatest among the body
atoms that have its value.)

Smooth (temperature T > 0), on log-odds: a rule is −T log Σ exp(−x/T), an atom T log Σ exp(x/T).
On a cycle, atoms would support themselves without end. So the steps are counted there: as many
as the hard closure of the same example takes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from latentgamma._minmax.circuit import CYCLE, MINIMA, Circuit

#: The value of an atom on a cycle that no step has reached yet.
NEVER = -1e30


def reference(circuit: Circuit, inputs: Tensor, temperature: float) -> Tensor:
    """The values of all nodes. (B, inputs) -> (B, nodes).

    Args:
        circuit: between which inputs and nodes.
        inputs: values on any scale if hard, log-odds if smooth.
        temperature: 0 for the hard closure.

    Returns:
        The values, differentiable.
    """
    run = _Hard(circuit, inputs) if temperature == 0 else _Smooth(circuit, inputs, temperature)
    for stage, kind in enumerate(circuit.stage_kind.tolist()):
        start, stop = circuit.stage_ptr[stage : stage + 2].tolist()
        if kind == CYCLE:
            run.cycle(_Nodes(circuit, start, int(circuit.middle[stage]), inputs.device),
                      _Nodes(circuit, int(circuit.middle[stage]), stop, inputs.device))  # fmt: skip
        else:
            run.stage(_Nodes(circuit, start, stop, inputs.device), minima=kind == MINIMA)
    return run.values


class _Nodes:
    """Some nodes in a row, and where their children are."""

    def __init__(self, circuit: Circuit, start: int, stop: int, device: torch.device) -> None:
        ptr = torch.from_numpy(circuit.child_ptr[start : stop + 1].astype("int64"))
        self.count = stop - start
        self.place = torch.arange(start, stop, device=device)
        self.child = torch.from_numpy(circuit.child[ptr[0] : ptr[-1]].astype("int64")).to(device)
        self.row = torch.repeat_interleave(torch.arange(self.count), ptr.diff()).to(device)
        own = torch.from_numpy(circuit.own[start:stop].astype("int64")).to(device)
        self.has_own = own >= 0
        self.own = own.clamp(min=0)


def _reduced(values: Tensor, nodes: _Nodes, start: float, how: str) -> Tensor:
    """The least or greatest of the children's values. (B, E) -> (B, count)."""
    rows = nodes.row.expand(len(values), -1)
    return values.new_full((len(values), nodes.count), start).scatter_reduce(1, rows, values, how)


class _Hard:
    """Values and ranks without gradients; gradients through fixed shares of the children."""

    def __init__(self, circuit: Circuit, inputs: Tensor) -> None:
        more = circuit.nodes - circuit.inputs
        self.values = torch.cat([inputs, inputs.new_full((len(inputs), more), NEVER)], 1)
        self._ranks = torch.zeros(self.values.shape, dtype=torch.int64, device=inputs.device)

    def stage(self, nodes: _Nodes, *, minima: bool) -> None:
        self._put(nodes, *(self._minima(nodes) if minima else self._maxima(nodes)))

    def cycle(self, minima: _Nodes, maxima: _Nodes) -> None:
        # The fixed point first, without gradients; then what led to it, from rank to rank.
        before = self.values
        self.values = before.detach()
        while True:
            old = self.values, self._ranks
            self._put(minima, *self._minima(minima))
            self._put(maxima, *self._maxima(maxima))
            if torch.equal(old[0], self.values) and torch.equal(old[1], self._ranks):
                break
        found = self.values
        self.values = torch.where(
            torch.isin(torch.arange(found.shape[1], device=found.device),
                       torch.cat([minima.place, maxima.place])), found, before)  # fmt: skip
        for rank in torch.unique(self._ranks[:, maxima.place]).tolist():
            self._put(minima, *self._minima(minima))
            value, ranks = self._maxima(maxima)
            value = torch.where(ranks == rank, value, self.values[:, maxima.place])
            self._put(maxima, value, ranks)

    def _minima(self, nodes: _Nodes) -> tuple[Tensor, Tensor]:
        child, ranks = self.values[:, nodes.child], self._ranks[:, nodes.child]
        with torch.no_grad():
            least = _reduced(child, nodes, torch.inf, "amin")
            tied = child == least[:, nodes.row]
            rank = _reduced(torch.where(tied, ranks, 0), nodes, 0, "amax")
        return self._shared(least, child, tied, nodes), rank

    def _maxima(self, nodes: _Nodes) -> tuple[Tensor, Tensor]:
        child, ranks = self.values[:, nodes.child], self._ranks[:, nodes.child]
        own = self.values[:, nodes.own]
        with torch.no_grad():
            greatest = _reduced(child, nodes, NEVER, "amax")
            itself = nodes.has_own & (own >= greatest)
            best = torch.where(itself, own, greatest)
            far = torch.iinfo(torch.int64).max - 1
            tied = child == greatest[:, nodes.row]
            rank = _reduced(torch.where(tied, ranks, far), nodes, far, "amin")
            first = tied & (ranks == rank[:, nodes.row])
            share = torch.where(itself[:, nodes.row], False, first)
        value = self._shared(best, child, share, nodes)
        value = value + torch.where(itself, own - own.detach(), 0)
        return value, torch.where(itself, 0, rank + 1)

    def _shared(self, value: Tensor, child: Tensor, tied: Tensor, nodes: _Nodes) -> Tensor:
        """These values, with a gradient that goes to the tied children in equal shares."""
        share = tied.to(value.dtype)
        rows = nodes.row.expand(len(value), -1)
        count = torch.zeros_like(value).scatter_add(1, rows, share).clamp(min=1)
        share = share / count[:, nodes.row]
        return value.scatter_add(1, rows, share * (child - child.detach()))

    def _put(self, nodes: _Nodes, value: Tensor, rank: Tensor) -> None:
        self.values = self.values.index_copy(1, nodes.place, value)
        self._ranks = self._ranks.index_copy(1, nodes.place, rank)


class _Smooth:
    """Log-sum-exp of the children; its derivative is the gradient."""

    def __init__(self, circuit: Circuit, inputs: Tensor, temperature: float) -> None:
        more = circuit.nodes - circuit.inputs
        self.values = torch.cat([inputs, inputs.new_full((len(inputs), more), NEVER)], 1)
        self._temperature = temperature

    def stage(self, nodes: _Nodes, *, minima: bool) -> None:
        value = self._minima(nodes, self.values) if minima else self._maxima(nodes, self.values)
        self.values = self.values.index_copy(1, nodes.place, value)

    def cycle(self, minima: _Nodes, maxima: _Nodes) -> None:
        own = torch.where(maxima.has_own, self.values[:, maxima.own], NEVER)
        self.values = self.values.index_copy(1, maxima.place, own)
        steps = self._steps(minima, maxima)  # (B, 1)
        for step in range(int(steps.max()) if steps.numel() else 0):
            least = self._minima(minima, self.values)
            within = self.values.index_copy(1, minima.place, least)
            after = within.index_copy(1, maxima.place, self._maxima(maxima, within))
            self.values = torch.where(step < steps, after, self.values)

    @torch.no_grad()
    def _steps(self, minima: _Nodes, maxima: _Nodes) -> Tensor:
        """After how many steps the hard closure rests, from the same values. (B, 1)."""
        values, steps = self.values.detach(), 0
        needed = torch.zeros(len(values), 1, dtype=torch.int64, device=values.device)
        while True:
            least = _reduced(values[:, minima.child], minima, torch.inf, "amin")
            within = values.index_copy(1, minima.place, least)
            greatest = _reduced(within[:, maxima.child], maxima, NEVER, "amax")
            own = torch.where(maxima.has_own, values[:, maxima.own], NEVER)
            greatest = torch.maximum(own, greatest)
            moved = (greatest != values[:, maxima.place]).any(1, keepdim=True)
            if not moved.any():
                return needed
            steps += 1
            needed = torch.where(moved, steps, needed)
            values = within.index_copy(1, maxima.place, greatest)

    def _minima(self, nodes: _Nodes, values: Tensor) -> Tensor:
        child = values[:, nodes.child]
        least = _reduced(child.detach(), nodes, torch.inf, "amin")
        terms = torch.exp((least[:, nodes.row] - child) / self._temperature)
        rows = nodes.row.expand(len(values), -1)
        total = torch.zeros_like(least).scatter_add(1, rows, terms)
        return least - self._temperature * torch.log(total)

    def _maxima(self, nodes: _Nodes, values: Tensor) -> Tensor:
        child = values[:, nodes.child]
        own = torch.where(nodes.has_own, values[:, nodes.own], NEVER)
        greatest = torch.maximum(own, _reduced(child, nodes, NEVER, "amax")).detach()
        terms = torch.exp((child - greatest[:, nodes.row]) / self._temperature)
        rows = nodes.row.expand(len(values), -1)
        first = torch.where(nodes.has_own, torch.exp((own - greatest) / self._temperature), 0)
        total = first.scatter_add(1, rows, terms)
        return greatest + self._temperature * torch.log(total)
