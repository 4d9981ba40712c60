"""Rules divided among processes by rule or by atom."""

from __future__ import annotations

from typing import NamedTuple, final

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from latentgamma.distributed.collectives import (
    Ranks,
    balanced_ranges,
    copy_to_ranks,
    even_ranges,
    exchange,
    mixed_bits,
    ranks_of,
    sum_over_ranks,
)
from latentgamma.errors import ModelError
from latentgamma.operator.model import LatentGamma, model_of_raw, require_definite_model
from latentgamma.operator.rules import (
    AbstractRules,
    DenseRules,
    Literals,
    Part,
    SparseRules,
    StepParameters,
    Weights,
    add_at,
    take,
)
from latentgamma.program.program import Program

# ---- Rules divided among processes: each matches and routes its own, and the sums are combined


class DividedRules(AbstractRules):
    """The rules of this process, while the others have the rest.

    Attributes:
        local: the rules of this process, sparse or dense.
        first: the number of the first of them among all rules.
        total: the number of all rules.
        ranks: the processes.
    """

    sharded = True
    atoms_divided = False

    def __init__(
        self, local: SparseRules | DenseRules, *, first: int, total: int, ranks: Ranks
    ) -> None:
        super().__init__()
        self.local, self.R = local, local.R
        self.first, self.ranks, self._total = first, ranks, total

    @property
    def total(self) -> int:
        """The number of rules of the model, those in other processes included."""
        return self._total

    def read(self) -> Weights:
        """Return the weights of the rules of this process."""
        return self.local.read()

    def _joined_literals(self) -> Literals:
        """Return the literals of the rules of all processes."""
        join, held = self.ranks.concatenate, self.literals()
        return Literals(
            join(held.body_rule + self.first),
            join(held.body_atom),
            join(held.head_rule + self.first),
            join(held.head_atom),
        )

    def gathered(self) -> SparseRules | DenseRules:
        """Return all rules in this process, with copies of all logits."""
        join = self.ranks.concatenate
        with torch.no_grad():
            logits = {name: join(values) for name, values in self.local.named_parameters()}
            if isinstance(self.local, DenseRules):
                return DenseRules(**logits)
            return SparseRules(self._joined_literals(), M=self.total_atoms, **logits)

    def whole(self, parameters: StepParameters) -> tuple[AbstractRules, StepParameters]:
        """Return the rules of all processes, in this one, and their parameters."""
        join = self.ranks.concatenate
        offset = join(parameters.offset) if self.atoms_divided else parameters.offset
        joined = [*map(join, parameters[:8]), offset, parameters.gate]
        return self.gathered(), StepParameters._make(joined)

    def in_any_process(self, condition: bool) -> bool:
        """Return whether the condition is true in any process."""
        return bool(self.ranks.largest(condition)[0])

    def weight_at(
        self, part: Part, parameters: StepParameters, rule: Tensor, atom: Tensor
    ) -> Tensor:
        """Raise an error: a certificate reads the weights of `whole` rules."""
        raise ModelError(
            "the weight of an atom needs all rules in one process; use "
            "latentgamma.distributed.gather(model)"
        )

    def to_dense(self) -> DenseRules:
        """Return the rules of all processes as full matrices."""
        return self.gathered().to_dense()

    def extra_repr(self) -> str:
        """Return the rules and, where they are divided, the atoms of this process among all."""
        own, ranks = self.own_atoms, self.ranks
        atoms = f"atoms {own.start} to {own.stop} of {self.total_atoms}, " * self.atoms_divided
        rules = f"rules {self.first} to {self.first + self.R} of {self.total}, "
        return f"{rules}{atoms}rank {ranks.rank} of {ranks.size}"


@final
class ShardedRules(DividedRules):
    """The rules of this process; the others have the rest. The state is the same in all of them.

    Matching is local. Routing is a sum over the rules, so each process computes its part of it
    and the parts are added up. An atom receives exact zeros from processes that have no rule for
    it, and the background is added up in float64. So no sum has more roundings than in one
    process, and the certificate of the whole model holds for the divided one.
    """

    def __init__(
        self, local: SparseRules | DenseRules, *, first: int, total: int, ranks: Ranks
    ) -> None:
        super().__init__(local, first=first, total=total, ranks=ranks)
        self.M = local.M
        self._all_literals: Literals | None = None

    def match(self, state: Tensor, parameters: StepParameters) -> Tensor:
        """Compute stage 1 for the rules of this process. (…, R)."""
        (state,) = copy_to_ranks(self.ranks, state)
        return self.local.match(state, parameters)

    def route(self, firing: Tensor, parameters: StepParameters) -> Tensor:
        """Compute stages 2 and 4: the sum over the rules of all processes. (…, M)."""
        if not isinstance(self.local, SparseRules):
            return sum_over_ranks(self.ranks, self.local.route(firing, parameters))[0]
        sums, total = self.local.head_sums(firing, parameters, self.M)
        sums, total = sum_over_ranks(self.ranks, sums, total)
        return total.to(firing.dtype) + sums

    def shared(self, gain: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
        """Return gain and gate; the gradient of the gain is summed over the processes."""
        # Each process uses the gain for its own rules, and the gate for all atoms.
        return copy_to_ranks(self.ranks, gain)[0], gate

    # ---- The rules of this process

    def literals(self) -> Literals:
        """Return the literals of the rules of this process, which are numbered from 0."""
        return self.local.literals()

    # ---- All rules

    def all_literals(self) -> Literals:
        """Return the literals of the rules of all processes."""
        if self._all_literals is None or isinstance(self.local, DenseRules):
            self._all_literals = self._joined_literals()
        return self._all_literals


def rows_between(rules: AbstractRules, start: int, stop: int) -> SparseRules | DenseRules:
    """Return copies of the rules from `start` up to `stop`.

    Raises:
        ModelError: the rules are neither sparse nor dense.
    """
    with torch.no_grad():
        if isinstance(rules, DenseRules):
            return DenseRules(
                rules.body_logits[start:stop].clone(), rules.head_logits[start:stop].clone()
            )
        if not isinstance(rules, SparseRules):
            raise ModelError(
                f"these rules are {type(rules).__name__}; only dense or sparse rules can be sharded"
            )
        held = rules.literals()
        body, head = (_between(rule, start, stop) for rule in (held.body_rule, held.head_rule))
        return SparseRules(
            Literals(
                held.body_rule[body] - start,
                held.body_atom[body],
                held.head_rule[head] - start,
                held.head_atom[head],
            ),
            M=rules.M,
            body_logits=rules.body_logits[body],
            body_background=rules.body_background[start:stop].clone(),
            head_logits=rules.head_logits[head],
            head_background=rules.head_background[start:stop].clone(),
        )


def _between(rule: Tensor, start: int, stop: int) -> Tensor:
    """Return the places of the literals of these rules, sorted by rule."""
    places = torch.nonzero((rule >= start) & (rule < stop)).flatten()
    return places[torch.argsort(rule[places], stable=True)]


# ---- Rules and atoms divided among processes, for programs whose state does not fit into one


class AtomTraffic(NamedTuple):
    """Which atoms the rules of this process use, and which of its atoms the others use.

    The used atoms are sorted, so those of one owner stand together.
    """

    used: Tensor  # (used,) numbers among all atoms
    used_counts: list[int]  # how many of them each process owns
    served: Tensor  # (served,) numbers among the atoms of this process
    served_counts: list[int]  # how many of them each process uses


@final
class AtomShardedRules(DividedRules):
    """The rules and the atoms of this process; the others have the rest.

    A state holds the values of `own_atoms` alone, and `M` is their number. For each step the
    processes send each other the values that their rules use, and what their rules add to atoms of
    other processes. The loss is the sum over the processes of what each computes from its own atoms.

    Attributes:
        local: the rules of this process; their atoms are numbered among those that they use.
        own_atoms: the range of the atoms of this process among all atoms.
    """

    local: SparseRules
    atoms_divided = True

    def __init__(
        self,
        local: SparseRules,
        *,
        body: AtomTraffic,
        head: AtomTraffic,
        first: int,
        total: int,
        ranks: Ranks,
    ) -> None:
        super().__init__(local, first=first, total=total, ranks=ranks)
        start, stop = even_ranges(local.M, ranks.size)[ranks.rank : ranks.rank + 2]
        self.own_atoms, self.M = slice(start, stop), stop - start
        for name, traffic in (("body", body), ("head", head)):
            self.register_buffer(f"{name}_used", traffic.used, persistent=False)
            self.register_buffer(f"{name}_served", traffic.served, persistent=False)
        self._body_counts = body.used_counts, body.served_counts
        self._head_counts = head.used_counts, head.served_counts

    @property
    def total_atoms(self) -> int:
        """The number of atoms of the model, those in other processes included."""
        return self.local.M

    def match(self, state: Tensor, parameters: StepParameters) -> Tensor:
        """Compute stage 1 for the rules of this process. (…, R)."""
        missing = 1 - state
        total = self._replicate(missing.sum(-1, keepdim=True, dtype=torch.float64))
        used, served = self._body_counts
        sent = take(missing, self.get_buffer("body_served"))
        return self.local.margins(self._exchange(sent, served, used), total, parameters)

    def route(self, firing: Tensor, parameters: StepParameters) -> Tensor:
        """Compute stages 2 and 4 of own atoms, over the rules of all processes. (…, M)."""
        used, served = self._head_counts
        sums, total = self.local.head_sums(firing, parameters, sum(used))
        arrived = self._exchange(sums, used, served)
        received = add_at(
            firing.new_zeros(*firing.shape[:-1], self.M), self.get_buffer("head_served"), arrived
        )
        return self._replicate(total).to(firing.dtype) + received

    def shared(self, gain: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
        """Return gain and gate; their gradients are summed over the processes."""
        gain, gate = copy_to_ranks(self.ranks, gain, gate)
        return gain, gate

    def _replicate(self, partial: Tensor) -> Tensor:
        """Return the sum over the processes, which each of them uses for something else."""
        return copy_to_ranks(self.ranks, *sum_over_ranks(self.ranks, partial))[0]

    def _exchange(self, values: Tensor, send: list[int], receive: list[int]) -> Tensor:
        rows = values.movedim(-1, 0)
        return exchange(self.ranks, rows, send, receive).movedim(0, -1)

    # ---- The rules of this process

    def literals(self) -> Literals:
        """Return the literals of the rules of this process, with atoms numbered among all atoms."""
        held = self.local.literals()
        return held._replace(
            body_atom=self.get_buffer("body_used")[held.body_atom],
            head_atom=self.get_buffer("head_used")[held.head_atom],
        )

    # ---- All rules and atoms

    def all_literals(self) -> Literals:
        """Raise an error: what needs all literals needs the whole state too."""
        raise ModelError(
            'gradient="proof" needs all atoms in one process; shard the model without atoms=True, '
            "or use latentgamma.distributed.gather(model)"
        )

    def gather_state(self, state: Tensor) -> Tensor:
        """Return the values of all atoms, from the states of all processes; no gradients."""
        return self.ranks.concatenate(state.movedim(-1, 0)).movedim(0, -1)


def divide_atoms(rules: SparseRules, *, first: int, total: int, ranks: Ranks) -> AtomShardedRules:
    """Return these rules of one process, over all atoms, with the atoms divided too.

    All processes call it together. The logits are those of the rules given, not copies.
    """
    held = rules.literals()
    body, body_atom = _traffic(held.body_atom, rules.M, ranks)
    head, head_atom = _traffic(held.head_atom, rules.M, ranks)
    logits = {name: values.detach() for name, values in rules.named_parameters()}
    used = held._replace(body_atom=body_atom, head_atom=head_atom)
    local = SparseRules(used, M=rules.M, **logits)
    return AtomShardedRules(local, body=body, head=head, first=first, total=total, ranks=ranks)


def _traffic(atoms: Tensor, M: int, ranks: Ranks) -> tuple[AtomTraffic, Tensor]:
    """Return the traffic for these atoms, and their numbers among those that are used."""
    used, number = torch.unique(atoms, sorted=True, return_inverse=True)
    bounds = torch.tensor(even_ranges(M, ranks.size), device=used.device)
    places = torch.searchsorted(used, bounds)
    used_counts = [int(count) for count in places.diff().tolist()]
    served_counts = [row[ranks.rank] for row in ranks.counts(*used_counts)]
    served = ranks.exchange(used, used_counts, served_counts) - bounds[ranks.rank]
    return AtomTraffic(used, used_counts, served, served_counts), number


# ---- `shard` and `gather`: from a model in one process to one in many, and back

#: The parameters that have one number for each rule.
OF_RULES = ("threshold", "sharpness_raw", "confidence_raw")
#: The parameters that have one number for each atom.
OF_ATOMS = ("offset",)
#: The parameters that are one number.
OF_ALL = ("gain_raw", "gate_raw")


def shard(model: LatentGamma, mesh: DeviceMesh, *, atoms: bool = False) -> LatentGamma:
    """Return a model that computes the same with its rules divided among the processes of a mesh.

    Every process calls it with the same model, and later with the same states; each gets the
    same values, and the gradients of its own rules. Parameters that all rules share, and the
    state, get the same gradient in every process. Optimisers work as usual.

    Each process keeps a contiguous range of the rules with about the same number of literals.
    The model that was given is not changed.

    With `atoms`, the state is divided as well. Each process passes and gets the values of its own
    atoms, `state[..., model.rules.own_atoms]`, and the loss is the sum of what the processes
    compute from these. Such a model has no program.

    Args:
        model: a model with dense or sparse rules, the same in every process.
        mesh: a one-dimensional mesh of processes.
        atoms: whether to divide the atoms too, of a model with sparse rules.

    Returns:
        A model whose `rules` are `ShardedRules`, or with `atoms` `AtomShardedRules`.

    Raises:
        ModelError: this is not such a model, it is sharded already, or the processes have different
            ones.
        ArgumentError: the mesh does not have one dimension.
        DistributedError: a process has stopped or does not answer.
    """
    require_definite_model(model, "shard")
    ranks = ranks_of(mesh)
    rules = model.rules
    if rules.sharded:
        raise ModelError("this model is sharded already; gather it first")
    if atoms and not isinstance(rules, SparseRules):
        raise ModelError(
            'atoms=True needs sparse rules; make the model with oracle(program, form="sparse")'
        )
    if not ranks.agree(_checksum(model)):
        raise ModelError(
            "the processes have different models; make them from the same program, with the same "
            "seed, or load the same file"
        )
    held = rules.literals()
    costs = torch.ones(rules.R, dtype=torch.int64, device=held.body_rule.device)
    for rule in (held.body_rule, held.head_rule):
        costs += torch.bincount(rule, minlength=rules.R)
    bounds = balanced_ranges(costs.cpu().numpy(), ranks.size)
    start, stop = bounds[ranks.rank], bounds[ranks.rank + 1]
    local = rows_between(rules, start, stop)
    raw = {name: getattr(model, name).detach()[start:stop].clone() for name in OF_RULES}
    raw |= {name: getattr(model, name).detach().clone() for name in (*OF_ATOMS, *OF_ALL)}
    if atoms and isinstance(local, SparseRules):
        divided = divide_atoms(local, first=start, total=rules.R, ranks=ranks)
        raw["offset"] = raw["offset"][divided.own_atoms].clone()
        return with_rules(model, divided, raw, None)
    sharded = ShardedRules(local, first=start, total=rules.R, ranks=ranks)
    return with_rules(model, sharded, raw, model.program)


def gather(model: LatentGamma) -> LatentGamma:
    """Return the whole of a sharded model, in every process: what `shard` was given.

    Every process of the mesh calls it. The model that was given is not changed. A model that was
    sharded with `atoms` comes back without its program.

    Raises:
        ModelError: the model is not sharded.
        DistributedError: a process has stopped or does not answer.
    """
    require_definite_model(model, "gather")
    rules = model.rules
    if not isinstance(rules, DividedRules):
        raise ModelError("this model is not sharded")
    divided = (*OF_RULES, *OF_ATOMS) if rules.atoms_divided else OF_RULES
    raw = {
        name: (
            rules.ranks.concatenate(getattr(model, name))
            if name in divided
            else getattr(model, name).detach().clone()
        )
        for name in (*OF_RULES, *OF_ATOMS, *OF_ALL)
    }
    return with_rules(model, rules.gathered(), raw, model.program)


def _checksum(model: LatentGamma) -> int:
    """Return a number that differs for other parameters or literals."""
    total = 0
    for place, tensor in enumerate((*model.parameters(), *model.rules.buffers())):
        data = tensor.detach().contiguous()
        bits = data.view(torch.int64 if data.element_size() == 8 else torch.int32)
        total = 31 * total + int(mixed_bits(bits.to(torch.int64) + place).sum()) + len(bits.shape)
    return total % (1 << 62)


def with_rules(
    model: LatentGamma, rules: AbstractRules, raw: dict[str, Tensor], program: Program | None
) -> LatentGamma:
    """Return a model with the options of another, these rules and these raw parameters."""
    made = model_of_raw(rules, raw, gate_kind=model.gate_kind, kernel=model.kernel, program=program)
    for name in raw:
        getattr(made, name).requires_grad_(getattr(model, name).requires_grad)
    # The logits by the last part of their names: one has `rules.local.`, the other `rules.`.
    wanted = {
        name.rpartition(".")[2]: parameter.requires_grad
        for name, parameter in model.rules.named_parameters()
    }
    for name, parameter in rules.named_parameters():
        parameter.requires_grad_(wanted[name.rpartition(".")[2]])
    made.to(dtype=model.dtype).train(model.training)
    made.gradient = model.gradient
    return made
