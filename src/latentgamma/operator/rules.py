"""The five stages of a step, and the rules of a model in dense and sparse form."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from latentgamma.certificate.constants import DENSE_UP_TO, PROVED_GATES, Gate
from latentgamma.errors import ModelError
from latentgamma.program.program import Program, require_definite

# ---- The interface of the rules: the two matrices of the operator, body and head weights
# Every stage but two is elementwise. Those two, `match` and `route`, are what a form of the rules
# implements (`DenseRules`, `SparseRules`, and `latentgamma.distributed.ShardedRules`, which holds a
# part of the rules in each process); the rest of the library does not know which it runs on.
#
# Body sums are computed from *what is missing*: bs_j = Σ_i u_ji − Σ_i u_ji (1 − s_i). Near the point
# where a rule fires, the second sum is small and keeps its digits, so a body of ten thousand
# atoms is decided as sharply as a body of two, in float32 too.


class Literals(NamedTuple):
    """The (rule, atom) pairs of bodies and heads: where the weights of a rule stand out."""

    body_rule: Tensor  # (literals,)
    body_atom: Tensor  # (literals,)
    head_rule: Tensor  # (head literals,)
    head_atom: Tensor  # (head literals,)


def program_of(
    literals: Literals, R: int, atoms: int | Sequence[str]
) -> tuple[Program, npt.NDArray[np.int64]]:
    """Return the program with these literals, and the rules it has: those with a head."""
    # By way of lists: inside a transform of torch.func a tensor has no array.
    body_rule, body_atom, head_rule, head_atom = (np.array(x.tolist(), np.int64) for x in literals)
    active = np.unique(head_rule)
    place = np.full(R, -1)
    place[active] = np.arange(len(active))
    kept = place[body_rule] >= 0

    def rows(rule: npt.NDArray[Any], atom: npt.NDArray[Any]) -> tuple[Any, Any]:
        ends = np.cumsum(np.bincount(rule, minlength=len(active)))
        return np.concatenate(([0], ends)), atom[np.argsort(rule, kind="stable")]

    bodies = rows(place[body_rule[kept]], body_atom[kept])
    head_ptr, heads = rows(place[head_rule], head_atom)
    return Program.from_arrays(*bodies, heads, head_ptr, atoms=atoms), active


class StepParameters(NamedTuple):
    """Everything a step needs, read once from the parameters and used for many steps.

    In the dense form `body` is σ(η) and `head` is softmax(ψ), both (R, M), and the two `_off`
    fields are empty. In the sparse form `body` and `head` hold one number per literal, its
    weight over the background, and `body_off`, `head_off` the background weight of each rule.
    """

    body: Tensor  # (R, M) or (literals,)
    body_off: Tensor  # (0,) or (R,)
    body_total: Tensor  # (R,) float64: Σ_i u_ji
    head: Tensor  # (R, M) or (head literals,)
    head_off: Tensor  # (0,) or (R,)
    threshold: Tensor  # b (R,)
    sharpness: Tensor  # τ (R,)
    amplitude: Tensor  # τ_nor ρ (R,)
    offset: Tensor  # θ (M,)
    gate: Tensor  # β ()


#: The two kinds of weights.
Part: TypeAlias = Literal["body", "head"]
#: The first five fields of `StepParameters`, which are those of the rules.
Weights: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


class AbstractRules(nn.Module, ABC):
    """R rules over M atoms: what match and route need."""

    M: int
    R: int
    #: Whether other processes have further rules of the same model.
    sharded = False
    #: The atoms of the model whose values a state in this process has.
    own_atoms = slice(None)
    #: Whether the rules are so few that plain torch is quickest with full matrices.
    small = False

    @property
    def total(self) -> int:
        """The number of rules of the model, those in other processes included."""
        return self.R

    @property
    def total_atoms(self) -> int:
        """The number of atoms of the model, those in other processes included."""
        return self.M

    @abstractmethod
    def read(self) -> Weights:
        """Return the weights of the current logits, differentiable in them."""

    @abstractmethod
    def match(self, state: Tensor, parameters: StepParameters) -> Tensor:
        """Compute stage 1, bs_j − b_j: how far each body sum lies above its threshold. (…, R)."""

    @abstractmethod
    def route(self, firing: Tensor, parameters: StepParameters) -> Tensor:
        """Compute stages 2 and 4, Σ_j v_ji · firing_j: what each atom receives. (…, M)."""

    def matrices(self, parameters: StepParameters) -> tuple[Tensor, Tensor]:
        """Return the weights of bodies and of heads as full matrices, both (R, M)."""
        return parameters.body, parameters.head

    @abstractmethod
    def literals(self) -> Literals:
        """Return the pairs of rule and atom in bodies and in heads."""

    @abstractmethod
    def weight_at(
        self, part: Part, parameters: StepParameters, rule: Tensor, atom: Tensor
    ) -> Tensor:
        """Return u_ji (body) or v_ji (head) at pairs of rule and atom, in float64. (pairs,)."""

    @abstractmethod
    def to_dense(self) -> DenseRules:
        """Return the same rules as full matrices with new parameters, or dense rules themselves."""

    # ---- What differs where each process has a part

    def shared(self, gain: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
        """Return τ_nor and β, which all rules and atoms share, as a step of these rules uses them."""
        return gain, gate

    def whole(self, parameters: StepParameters) -> tuple[AbstractRules, StepParameters]:
        """Return all rules and their parameters, where these are a part of them."""
        return self, parameters

    def all_literals(self) -> Literals:
        """Return the literals of all rules of the model."""
        return self.literals()

    def in_any_process(self, condition: bool) -> bool:
        """Return whether the condition is true in any process that has a part of the rules."""
        return condition


def margin_at_one(parameters: StepParameters, dtype: torch.dtype) -> Tensor:
    """Return Σ_i u_ji − b_j, the margin of a rule where every atom is true. (R,)."""
    return (parameters.body_total - parameters.threshold.double()).to(dtype)


def take(values: Tensor, index: Tensor) -> Tensor:
    """Return the last dimension's entries at these indices, with gradients in a fixed order."""
    # Each device has one of two ways to index whose gradient does not depend on thread timing.
    return values[..., index] if values.is_cuda else values.index_select(-1, index)


def add_at(start: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """Return `start` plus values summed by index along the last dimension, in a fixed order."""
    # On a GPU index_add uses atomic additions in any order.
    return add_sorted(start, index, values) if start.is_cuda else start.index_add(-1, index, values)


def add_sorted(start: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """Return what `add_at` does, by index_put, which sorts."""
    sums = start.movedim(-1, 0).index_put((index,), values.movedim(-1, 0), accumulate=True)
    return sums.movedim(0, -1)


# ---- The five stages of the operator as five short functions
# The legend, in the paper's letters: η body logits, ψ head logits, b threshold, τ sharpness,
# ρ confidence, τ_nor gain, θ offset, β gate, s state, a activation, φ evidence.

# Below this, exp(−1/x²) and all its derivatives underflow; as a floor it keeps 1/x² finite.
_UNDERFLOWS = 1e-3


def match(rules: AbstractRules, parameters: StepParameters, state: Tensor) -> Tensor:
    """Compute stage 1, a_j = σ(τ_j (bs_j − b_j)): how far each body is satisfied. (…, R)."""
    margin = rules.match(state, parameters)
    return torch.sigmoid(parameters.sharpness.to(state.dtype) * margin)


def fire(parameters: StepParameters, activation: Tensor) -> Tensor:
    """Compute stage 3, τ_nor ρ_j a_j: what each rule gives to its heads. (…, R)."""
    return parameters.amplitude.to(activation.dtype) * activation


def route(rules: AbstractRules, parameters: StepParameters, firing: Tensor) -> Tensor:
    """Compute stages 2 and 4, φ_i = Σ_j v_ji τ_nor ρ_j a_j − θ_i: the evidence. (…, M)."""
    return rules.route(firing, parameters) - parameters.offset.to(firing.dtype)


def gate(kind: Gate, sharpness: Tensor, evidence: Tensor) -> Tensor:
    """Compute stage 4, g_i Γ_i: the part of the way to one that each atom goes. (…, M)."""
    scaled = sharpness.to(evidence.dtype) * evidence
    opening = bump(scaled) if is_bump(kind) else torch.sigmoid(scaled)
    return opening * torch.sigmoid(evidence)


def is_bump(kind: Gate) -> bool:
    """Return whether the gate is the bump, for code that computes or bounds these two kinds alone.

    Raises:
        ModelError: the gate is of another kind, which the caller would take for a sigmoid.
    """
    if kind not in PROVED_GATES:
        raise ModelError(
            f"this is not implemented for the gate {kind!r}, only for {' and '.join(PROVED_GATES)}; a "
            f"model with that gate runs for a given number of steps, without a certificate"
        )
    return kind == "bump"


def bump(x: Tensor) -> Tensor:
    """Return exp(−1/x²) where x > 0 and exactly 0 elsewhere, smooth everywhere.

    >>> bump(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([0.0000, 0.0000, 0.3679])
    """
    inverse = 1 / torch.clamp(x, min=_UNDERFLOWS)
    return torch.where(x > _UNDERFLOWS, torch.exp(-inverse * inverse), torch.zeros_like(x))


def update(state: Tensor, share: Tensor) -> Tensor:
    """Compute stage 5, s_i + (1 − s_i) g_i Γ_i: the next state. (…, M)."""
    return state + (1 - state) * share


# ---- Rules as full matrices: one body logit and one head logit for every pair of rule and atom


@final
class DenseRules(AbstractRules):
    """Every logit its own parameter: R × M of each kind.

    >>> rules = DenseRules(torch.tensor([[-9.0, 9.0]]), torch.tensor([[9.0, 0.0]]))  # bird :- penguin.
    >>> rules.literals().body_atom, rules.literals().head_atom
    (tensor([1]), tensor([0]))

    Args:
        body_logits: η, shape (R, M); above 0 where the atom is in the body of the rule.
        head_logits: ψ, shape (R, M); largest at the heads of the rule.

    Raises:
        ModelError: the two shapes differ, or are not those of matrices.
    """

    def __init__(self, body_logits: Tensor, head_logits: Tensor) -> None:
        super().__init__()
        if body_logits.shape != head_logits.shape or body_logits.dim() != 2:
            raise ModelError(
                f"body and head logits must have one shape (R, M), not "
                f"{tuple(body_logits.shape)} and {tuple(head_logits.shape)}"
            )
        self.R, self.M = body_logits.shape
        self.small = self.R * self.M <= DENSE_UP_TO
        self.body_logits = nn.Parameter(body_logits)
        self.head_logits = nn.Parameter(head_logits)

    def read(self) -> Weights:
        body = torch.sigmoid(self.body_logits)
        head = torch.softmax(self.head_logits, dim=-1)
        none = body.new_empty(0)
        return body, none, body.sum(-1, dtype=torch.float64), head, none

    def match(self, state: Tensor, parameters: StepParameters) -> Tensor:
        missing = _product(1 - state, parameters.body.T.to(state.dtype))  # (…, R)
        return margin_at_one(parameters, state.dtype) - missing

    def route(self, firing: Tensor, parameters: StepParameters) -> Tensor:
        return _product(firing, parameters.head.to(firing.dtype))  # (…, M)

    def literals(self) -> Literals:
        with torch.no_grad():
            head = torch.softmax(self.head_logits, dim=-1)
            body_rule, body_atom = torch.nonzero(self.body_logits > 0, as_tuple=True)
            # Heads share a rule's mass evenly, so each holds at least half of the largest share.
            strong = head > 0.5 * head.amax(-1, keepdim=True) if self.M else head > 0
            head_rule, head_atom = torch.nonzero(strong, as_tuple=True)
        return Literals(body_rule, body_atom, head_rule, head_atom)

    def weight_at(
        self, part: Part, parameters: StepParameters, rule: Tensor, atom: Tensor
    ) -> Tensor:
        weights: Tensor = getattr(parameters, part)
        return weights[rule, atom].double()

    def to_dense(self) -> DenseRules:
        return self


def _product(left: Tensor, right: Tensor) -> Tensor:
    return exact_product(left.device.type)(left, right)


def exact_product(kind: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the matrix product in the precision of its dtype, whatever the code around it has set.

    Autocast and TF32 keep 8 or 11 bits of each factor, and no certificate allows for that.
    """
    product: Callable[[Tensor, Tensor], Tensor] = torch.matmul
    if not torch.compiler.is_compiling() and _has_reduced_precision(kind):
        product = _product_in_float64
    if not torch.is_autocast_enabled(kind):
        return product

    def without_autocast(left: Tensor, right: Tensor) -> Tensor:
        with torch.autocast(kind, enabled=False):
            return product(left, right)

    return without_autocast


def _product_in_float64(left: Tensor, right: Tensor) -> Tensor:
    return (left.double() @ right.double()).to(left.dtype)


def _has_reduced_precision(kind: str) -> bool:
    """Return whether float32 products on this kind of device are set to use fewer bits."""
    backend = torch.backends.cuda if kind == "cuda" else torch.backends.mkldnn
    return backend.matmul.fp32_precision not in ("none", "ieee")


# ---- Rules with one logit per literal and one background logit per rule, equal to the dense form


@final
class SparseRules(AbstractRules):
    """One logit per literal and one background logit per rule, exactly as the dense form.

    Off its support a rule's logits are one constant, so σ(η) and softmax(ψ) are a background
    plus a correction on the support, and a step costs as much as the program has literals.

    >>> import latentgamma as lg
    >>> model = lg.oracle(lg.parse("bird :- penguin. animal :- bird."), form="sparse")
    >>> model.rules.body_logits.shape, model.rules.to_dense().body_logits.shape
    (torch.Size([2]), torch.Size([2, 3]))

    Args:
        literals: the pairs of rule and atom in bodies and in heads.
        M: the number of atoms.
        body_logits: η of each body literal, shape (literals,).
        body_background: η of all other atoms of a rule, shape (R,).
        head_logits: ψ of each head literal, shape (head literals,).
        head_background: ψ of all other atoms of a rule, shape (R,).
    """

    body_rule: Tensor
    body_atom: Tensor
    head_rule: Tensor
    head_atom: Tensor
    head_rest: Tensor

    def __init__(
        self,
        literals: Literals,
        *,
        M: int,
        body_logits: Tensor,
        body_background: Tensor,
        head_logits: Tensor,
        head_background: Tensor,
    ) -> None:
        super().__init__()
        self.M, self.R = M, len(body_background)
        self.small = self.R * M <= DENSE_UP_TO
        for name, indices in literals._asdict().items():
            self.register_buffer(name, indices)
        head_counts = torch.bincount(literals.head_rule, minlength=self.R)
        # How many atoms of each rule's softmax lie in the background.
        self.register_buffer("head_rest", M - head_counts, persistent=False)
        self.body_logits = nn.Parameter(body_logits)  # (literals,)
        self.body_background = nn.Parameter(body_background)  # (R,)
        self.head_logits = nn.Parameter(head_logits)  # (head literals,)
        self.head_background = nn.Parameter(head_background)  # (R,)
        self.register_load_state_dict_pre_hook(_refuse_other_literals)  # type: ignore[no-untyped-call]

    @staticmethod
    def literals_of(program: Program) -> Literals:
        """Return the literals of a definite program as index tensors."""
        require_definite(program, "SparseRules.literals_of")
        rules = np.arange(program.R)
        return Literals(
            torch.from_numpy(np.repeat(rules, program.body_sizes)),
            torch.from_numpy(program.body_indices.astype(np.int64)),
            torch.from_numpy(np.repeat(rules, program.head_sizes)),
            torch.from_numpy(program.head_indices.astype(np.int64)),
        )

    def read(self) -> Weights:
        return self.weights_of(*self.logits())

    def logits(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the logits in the order in which `weights_of` takes them."""
        return self.body_logits, self.body_background, self.head_logits, self.head_background

    def weights_of(
        self,
        body_logits: Tensor,
        body_background: Tensor,
        head_logits: Tensor,
        head_background: Tensor,
    ) -> Weights:
        """Return the weights, in float64, that these rules would have with other logits."""
        # In float64: 1 − σ(η) of a decided literal has few digits left in float32, and the
        # gradient of its logit is a multiple of it.
        off = torch.sigmoid(body_background.double())  # (R,)
        body = torch.sigmoid(body_logits.double()) - take(off, self.body_rule)  # (literals,)
        total = add_at(self.M * off, self.body_rule, body)
        head, head_off = self._softmax(head_logits.double(), head_background.double())
        return body, off, total, head, head_off

    def _softmax(self, logits: Tensor, background: Tensor) -> tuple[Tensor, Tensor]:
        """Return softmax(ψ) on the support, over the background, and the background itself."""
        rows, full = self.head_rule, self.head_rest == 0
        with torch.no_grad():  # any shift gives the same softmax; the largest logit is safe
            top = background.masked_fill(full, -torch.inf)
            top = top.scatter_reduce(0, rows, logits, "amax")
        on = _exp(logits - take(top, rows))  # (head literals,)
        # A rule that routes to every atom has no background, and its logit no effect.
        off = _exp((background - top).masked_fill(full, -torch.inf))  # (R,)
        norm = add_at(self.head_rest * off, rows, on)
        off = off / norm
        return on / take(norm, rows) - take(off, rows), off

    def match(self, state: Tensor, parameters: StepParameters) -> Tensor:
        missing = 1 - state
        total = missing.sum(-1, keepdim=True, dtype=torch.float64)  # (…, 1)
        return self.margins(missing, total, parameters)

    def margins(self, missing: Tensor, total: Tensor, parameters: StepParameters) -> Tensor:
        """Compute stage 1 from what is missing, 1 − s of `body_atom`, and its sum over all atoms."""
        margin = margin_at_one(parameters, missing.dtype)
        background = (total * parameters.body_off.double()).to(missing.dtype)  # (…, R)
        lacking = take(missing, self.body_atom) * parameters.body.to(missing.dtype)  # (…, literals)
        # All terms of the sum are of one sign, so its error stays relative to itself.
        return margin - add_at(background, self.body_rule, lacking)

    def route(self, firing: Tensor, parameters: StepParameters) -> Tensor:
        sums, total = self.head_sums(firing, parameters, self.M)
        return total.to(firing.dtype) + sums

    def head_sums(
        self, firing: Tensor, parameters: StepParameters, size: int
    ) -> tuple[Tensor, Tensor]:
        """Return what `size` atoms receive over the background, and the background in float64."""
        background = firing * parameters.head_off.to(firing.dtype)  # (…, R)
        total = background.sum(-1, keepdim=True, dtype=torch.float64)  # (…, 1)
        sent = take(firing, self.head_rule) * parameters.head.to(firing.dtype)  # (…, heads)
        return add_at(firing.new_zeros(*firing.shape[:-1], size), self.head_atom, sent), total

    def matrices(self, parameters: StepParameters) -> tuple[Tensor, Tensor]:
        def matrix(on: Tensor, off: Tensor, rule: Tensor, atom: Tensor) -> Tensor:
            # Not on an expanded tensor: of one rule, Inductor would add to all its atoms.
            every = torch.zeros(self.R * self.M, dtype=off.dtype, device=off.device)
            found = add_at(every, rule * self.M + atom, on).view(self.R, self.M)
            return found + off[:, None]

        return (
            matrix(parameters.body, parameters.body_off, self.body_rule, self.body_atom),
            matrix(parameters.head, parameters.head_off, self.head_rule, self.head_atom),
        )

    def literals(self) -> Literals:
        return Literals(self.body_rule, self.body_atom, self.head_rule, self.head_atom)

    def weight_at(
        self, part: Part, parameters: StepParameters, rule: Tensor, atom: Tensor
    ) -> Tensor:
        on, off = (getattr(parameters, name).double() for name in (part, f"{part}_off"))
        background: Tensor = off[rule]
        own = self.get_buffer(f"{part}_rule") * self.M + self.get_buffer(f"{part}_atom")
        if not len(own):
            return background
        keys, order = torch.sort(own)
        wanted = rule * self.M + atom
        place = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
        return torch.where(keys[place] == wanted, on[order[place]], 0.0) + background

    def to_dense(self) -> DenseRules:
        with torch.no_grad():
            body = self.body_background[:, None].repeat(1, self.M)
            body[self.body_rule, self.body_atom] = self.body_logits
            head = self.head_background[:, None].repeat(1, self.M)
            head[self.head_rule, self.head_atom] = self.head_logits
        return DenseRules(body, head)


def _refuse_other_literals(
    rules: nn.Module, state_dict: Mapping[str, Any], prefix: str, *others: Any
) -> None:
    """Report a state dict whose literals are not these rules' own: its values belong to others."""
    errors: list[str] = others[-1]
    for name in Literals._fields:
        own, given = rules.get_buffer(name), state_dict.get(prefix + name)
        if given is None or own.is_meta or given.is_meta or own.shape != given.shape:
            continue  # what is missing or mis-shaped is reported by torch itself
        if not torch.equal(own, given.to(own.device)):
            errors.append(f"{prefix}{name} differs: these values belong to another program")


def _exp(values: Tensor) -> Tensor:
    """Return e to the power of these, in float64.

    `torch.exp` starts a pool of threads for any number of values, which then competes with the
    kernel's threads and does not survive a fork.
    """
    return torch.exp2(values * math.log2(math.e))
