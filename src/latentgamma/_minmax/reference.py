"""The min/max closure in plain torch: any device, any dtype, every transform of torch.

What the kernels compute is defined here.

Hard (temperature 0): an atom is the greatest of its own input and of its rules, a rule the
least of its body; the least fixed point of that. Its gradient goes to the inputs that decide
the value. Where several do, it goes along the shortest proofs from atoms that no rule derives,
in equal shares, and within a rule to all atoms that have its value, in equal shares; to the own
input of a derivable atom only where there is no such proof. Precisely: the rank of an input is 0
if no rule derives its atom, and `LAST` otherwise; the rank of a rule is the greatest among those
of its body atoms that have its value; and an atom takes the greatest value, then the least rank,
of its own input and of its rules, whose ranks count one more.

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
#: The rank of an input whose atom rules derive as well: after every other proof.
LAST = 1 << 23


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


def _is_readable(tensor: Tensor) -> bool:
    """Whether Python may look at the values: not while they are traced or transformed."""
    if torch.compiler.is_compiling() or tensor.device.type == "meta":
        return False
    return bool(torch._C._functorch.maybe_get_level(tensor) == -1)


def _same(one: Tensor, other: Tensor) -> bool:
    return _is_readable(one) and _is_readable(other) and torch.equal(one, other)


def _reduced(values: Tensor, nodes: _Nodes, start: float, how: str) -> Tensor:
    """The least or greatest of the children's values. (B, E) -> (B, count)."""
    rows = nodes.row.expand(values.shape[0], -1)
    return values.new_full((values.shape[0], nodes.count), start).scatter_reduce(
        1, rows, values, how
    )


class _Hard:
    """Values and ranks without gradients; gradients through fixed shares of the children."""

    def __init__(self, circuit: Circuit, inputs: Tensor) -> None:
        more = circuit.nodes - circuit.inputs
        self.values = torch.cat([inputs, inputs.new_full((inputs.shape[0], more), NEVER)], 1)
        self._ranks = torch.zeros(self.values.shape, dtype=torch.int64, device=inputs.device)

    def stage(self, nodes: _Nodes, *, minima: bool) -> None:
        self._put(nodes, *(self._minima(nodes) if minima else self._maxima(nodes)))

    def cycle(self, minima: _Nodes, maxima: _Nodes) -> None:
        # The fixed point first, without gradients: each pass settles at least one more node.
        before = self.values
        self.values = before.detach()
        for _ in range(maxima.count + 1):
            old = self.values, self._ranks
            self._put(minima, *self._minima(minima))
            self._put(maxima, *self._maxima(maxima))
            if _same(old[0], self.values) and _same(old[1], self._ranks):
                break
        # Then what led to it: each pass gets the gradient of at least one more rank right.
        cycle = torch.zeros(before.shape[1], dtype=torch.bool, device=before.device)
        cycle[minima.place] = cycle[maxima.place] = True
        ranks = self._ranks[:, maxima.place]
        passes = len(torch.unique(ranks)) if _is_readable(ranks) else maxima.count
        self.values = torch.where(cycle, self.values, before)
        for _ in range(passes):
            self._put(minima, *self._minima(minima))
            self._put(maxima, *self._maxima(maxima))

    def _minima(self, nodes: _Nodes) -> tuple[Tensor, Tensor]:
        child, ranks = self.values[:, nodes.child], self._ranks[:, nodes.child]
        known = child.detach()
        least = _reduced(known, nodes, torch.inf, "amin")
        tied = known == least[:, nodes.row]
        rank = _reduced(torch.where(tied, ranks, 0), nodes, 0, "amax")
        return self._shared(least, child, tied, nodes), rank

    def _maxima(self, nodes: _Nodes) -> tuple[Tensor, Tensor]:
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
        value = value + torch.where(itself, own - mine, 0)
        return value, torch.where(itself, LAST, rank)

    def _shared(self, value: Tensor, child: Tensor, tied: Tensor, nodes: _Nodes) -> Tensor:
        """These values, with a gradient that goes to the tied children in equal shares."""
        share = tied.to(value.dtype)
        rows = nodes.row.expand(value.shape[0], -1)
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
        self.values = torch.cat([inputs, inputs.new_full((inputs.shape[0], more), NEVER)], 1)
        self._temperature = temperature

    def stage(self, nodes: _Nodes, *, minima: bool) -> None:
        value = self._minima(nodes, self.values) if minima else self._maxima(nodes, self.values)
        self.values = self.values.index_copy(1, nodes.place, value)

    def cycle(self, minima: _Nodes, maxima: _Nodes) -> None:
        own = torch.where(maxima.has_own, self.values[:, maxima.own], NEVER)
        self.values = self.values.index_copy(1, maxima.place, own)
        steps = self._steps(minima, maxima)  # (B, 1)
        most = maxima.count
        if _is_readable(steps):
            most = int(steps.max()) if steps.numel() else 0
        for step in range(most):
            least = self._minima(minima, self.values)
            within = self.values.index_copy(1, minima.place, least)
            after = within.index_copy(1, maxima.place, self._maxima(maxima, within))
            self.values = torch.where(step < steps, after, self.values)

    @torch.no_grad()
    def _steps(self, minima: _Nodes, maxima: _Nodes) -> Tensor:
        """After how many steps the hard closure rests, from the same values. (B, 1)."""
        values = self.values.detach()
        needed = torch.zeros(values.shape[0], 1, dtype=torch.int64, device=values.device)
        for step in range(maxima.count):
            least = _reduced(values[:, minima.child], minima, torch.inf, "amin")
            within = values.index_copy(1, minima.place, least)
            greatest = _reduced(within[:, maxima.child], maxima, NEVER, "amax")
            own = torch.where(maxima.has_own, values[:, maxima.own], NEVER)
            greatest = torch.maximum(own, greatest)
            moved = (greatest != values[:, maxima.place]).any(1, keepdim=True)
            if _is_readable(moved) and not moved.any():
                break
            needed = torch.where(moved, step + 1, needed)
            values = within.index_copy(1, maxima.place, greatest)
        return needed

    def _minima(self, nodes: _Nodes, values: Tensor) -> Tensor:
        child = values[:, nodes.child]
        least = _reduced(child.detach(), nodes, torch.inf, "amin")
        terms = torch.exp((least[:, nodes.row] - child) / self._temperature)
        rows = nodes.row.expand(values.shape[0], -1)
        total = torch.zeros_like(least).scatter_add(1, rows, terms)
        return least - self._temperature * torch.log(total)

    def _maxima(self, nodes: _Nodes, values: Tensor) -> Tensor:
        child = values[:, nodes.child]
        own = torch.where(nodes.has_own, values[:, nodes.own], NEVER)
        greatest = torch.maximum(own, _reduced(child, nodes, NEVER, "amax")).detach()
        terms = torch.exp((child - greatest[:, nodes.row]) / self._temperature)
        rows = nodes.row.expand(values.shape[0], -1)
        first = torch.where(nodes.has_own, torch.exp((own - greatest) / self._temperature), 0)
        total = first.scatter_add(1, rows, terms)
        return greatest + self._temperature * torch.log(total)
