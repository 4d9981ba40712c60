"""Chains in the rules: long sums, counts and automata, computed as a tree instead of step by step.

A running sum is a chain: each layer of atoms (its states) reads one more variable, and each state
and value lead to one state of the next layer, so at most one state of a layer is true in any world.
The probabilities of the last layer are a product of one matrix for each layer, and a product can be
computed as a balanced tree. What the tree multiplies depends on the maps from state to state:

- shifts (`sum(3,S+D) :- sum(2,S), digit(2,D)`): polynomials, by FFT;
- other maps between few states, such as sums modulo m: dense matrices;
- shifts modulo m between more states: discrete Fourier transforms of length m, of the values of each
  variable, multiplied number by number.

An FFT has an absolute error, which hides small probabilities. So the distributions of the variables
are tilted, p(v) exp(θ v) / Z, with the θ that makes the sum that is asked for the mean: it is likely
then, and log P(s) = Σ log Z - θ s + log P_θ(s) keeps its digits (Esscher's exponential tilting).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from latentgamma.engine.exactness import Variables
from latentgamma.engine.tensors import kept_with_owner
from latentgamma.program.graph import rules_deriving
from latentgamma.program.program import Program, atoms_of_literals

#: Below this number of rules a pass from rule to rule is quicker, on a CPU up to the second number:
#: from there on it takes minutes to build.
FEWEST_RULES = 10_000
MOST_RULES_ON_CPU = 300_000
#: The most states of matrices.
MOST_STATES = 32
#: The most outputs of a sum: each has a tilt of its own.
MOST_SUMS = 4
# A tilted probability below this may be rounding.
_LEAST_TILTED = 1e-9
# And an untilted one below this may have fewer than nine digits.
_LEAST_UNTILTED = 1e-6
_MOST_EXPONENT = 600.0
# What is left out, or lost by underflow, may be this share of a number.
_LEAST_SHARE = 1e-12
_LEAST_NORMAL = torch.finfo(torch.float64).tiny
# Newton steps for θ, each inside an interval that becomes smaller. Near the likeliest sum 1 or 2 are
# enough; 16 came within two standard deviations of any sum for scores of up to ±600.
_MOST_STEPS, _STEPS_ON_DEVICE = 40, 16
# Polynomials that are multiplied at once.
_FOLD = 8
_LOG_ZERO = -1e30
# In place of zeros; its products with gradients from 1e-15 on do not underflow.
_NEARLY_ZERO = 1e-290
_LAST_NUMBER = re.compile(r"-?\d{1,9}(?=\D*$)")

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ChainLayer:
    """One layer: the variable it reads, and to which state each state and value lead."""

    variable: int
    before: int  # the number of states that it starts from
    values: int
    states: int  # that it leads to
    entries: npt.NDArray[np.int32]  # (3, rules) state, value, next state; sorted

    @property
    def complete(self) -> bool:
        """Whether every state and value have a next state."""
        return bool(self.entries.shape[1] == self.before * self.values)


@dataclass(frozen=True, eq=False)
class Chain:
    """A chain, and what its tree multiplies.

    Args:
        layers: The layers; their entries are kept for matrices alone.
        columns: The places of the values of each variable among the input atoms; those from the
            number of inputs on are complements.
        outputs: The state of the last layer that each output is.
        rules: The number of rules.
        shifts: By how much each value shifts the state, for each layer of a sum; none for matrices.
        labels: The number that each state of the last layer of the sum stands for, or its remainder.
        modulus: What the numbers of a sum are taken modulo, or 0.
        readout: A layer after the sum that reads one more variable, such as a label.
    """

    layers: tuple[ChainLayer, ...]
    columns: tuple[tuple[int, ...], ...]
    outputs: Integers
    rules: int
    shifts: tuple[Integers, ...] = ()
    labels: Integers | None = None
    modulus: int = 0
    readout: ChainLayer | None = None

    def __str__(self) -> str:
        what = f"matrices of up to {max(layer.states for layer in self.layers)} states"
        if self.shifts:
            what = "sums by FFT, tilted to each output"
        if self.modulus:
            what = f"sums modulo {self.modulus} by FFT"
        on_cpu = self.prefers_pass(torch.device("cpu"))
        rest = "; on a CPU by one sum-product pass" if on_cpu else ""
        layers = f"{len(self.layers)} layers ({self.rules} rules)"
        return f"a chain of {layers} run as a tree: {what}{rest}"

    def prefers_pass(self, device: torch.device) -> bool:
        """Return whether a compiled pass is quicker on this device."""
        return device.type == "cpu" and self.rules <= MOST_RULES_ON_CPU

    @property
    def nodes(self) -> int:
        """The number of states of all layers."""
        return sum(layer.states for layer in self._all_layers)

    @property
    def edges(self) -> int:
        """The number of atoms in the bodies of the rules."""
        return 2 * self.rules - self.layers[0].values

    @property
    def variables(self) -> list[int]:
        """The variables that the chain reads."""
        return [layer.variable for layer in self._all_layers]

    @property
    def _all_layers(self) -> tuple[ChainLayer, ...]:
        return self.layers if self.readout is None else (*self.layers, self.readout)

    @property
    def _width(self) -> int:
        return max(layer.values for layer in self.layers)

    @property
    def _column_table(self) -> Integers:
        """The columns of each layer, (N, V), filled up with the last one, which is impossible."""
        rows = self.columns[: len(self.layers)]
        return np.array([[*row, *[-1] * (self._width - len(row))] for row in rows])

    @property
    def _shift_table(self) -> Integers:
        """What each value of each layer adds, (N, V)."""
        return np.stack([np.pad(part, (0, self._width - len(part))) for part in self.shifts])

    def logs(self, p: Tensor) -> Tensor:
        """Return the logarithms of probabilities in float64, zeros included.

        Zeros keep their gradient, except in sums: what an FFT rounds away is not small there.
        """
        if self.shifts:
            return p.clamp(min=torch.finfo(p.dtype).tiny).log()
        return torch.where(p > 0, p, p + _NEARLY_ZERO).log()

    def log_probabilities(self, logs: Tensor, log_complements: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-probability of each output (B, O), and which of them may be rounding.

        Both are made of the log-probabilities (B, inputs) of the input atoms and of their
        negations.
        """
        if not len(logs):  # which an FFT refuses
            none = logs.sum(1, keepdim=True).expand(-1, len(self.outputs))
            return none, torch.zeros_like(none, dtype=torch.bool)
        source = torch.cat((logs, log_complements), 1).clamp(min=_LOG_ZERO)
        source = torch.nn.functional.pad(source, (0, 1), value=_LOG_ZERO)
        columns = _on_device(self, "_column_table", logs.device)
        places = columns.flatten() % source.shape[1]  # -1 is the last column
        values = source.index_select(1, places)  # the gradient of [:, places] would sort
        values = values.view(-1, *columns.shape)  # (B, N, V)
        if self.modulus:
            return self._remainders(values, self._log_weights(source))
        if self.shifts:
            return self._sums(values, self._log_weights(source))
        return self._dense(values)

    def _log_weights(self, source: Tensor) -> Tensor:
        """Return the log-probability of each output given each last state, (B, O, states)."""
        states, device = self.layers[-1].states, source.device
        if self.readout is None:
            place = _on_device(self, "outputs", device)
            chosen = place[:, None] == torch.arange(states, device=device)
            return torch.where(chosen, 0.0, _LOG_ZERO).double().expand(len(source), -1, -1)
        entries = _on_device(self, "_readout_entries", device)  # (2, entries)
        logs = source.index_select(1, entries[1])
        # Relative to the largest of each state: probabilities themselves may underflow.
        most = source.new_full((len(source), len(self.outputs) * states), _LOG_ZERO)
        most = most.scatter_reduce(1, entries[0].expand(len(source), -1), logs.detach(), "amax")
        part = (logs - most.index_select(1, entries[0])).exp()
        weights = torch.zeros_like(most).index_add(1, entries[0], part)
        weights = weights.clamp(min=1.0).log() + most  # no rule leads here where it is 0
        return weights.view(len(weights), len(self.outputs), states)

    @property
    def _readout_entries(self) -> Integers:
        """The places of states in a flat (O, states) array, and the columns they read."""
        assert self.readout is not None
        state, value, target = self.readout.entries.astype(np.int64)
        columns = np.asarray(self.columns[-1])
        found = []
        for o, output in enumerate(self.outputs.tolist()):
            of = target == output
            found.append(np.stack((o * self.readout.before + state[of], columns[value[of]])))
        return np.concatenate(found, 1)

    # ---- Sums: products of polynomials, tilted

    def _sums(self, logs: Tensor, log_weights: Tensor) -> tuple[Tensor, Tensor]:
        shift = _on_device(self, "_shift_table", logs.device)  # (N, V), from 0
        sums = _on_device(self, "labels", logs.device)
        label = sums.double()
        width = int(max(part.max() for part in self.shifts)) + 1
        place = torch.arange(len(shift), device=shift.device)[:, None] * width + shift
        in_place = all(np.array_equal(part, np.arange(width)) for part in self.shifts)
        found, doubtful = [], []
        for weight in log_weights.unbind(1):  # (B, sums)
            known_weight = weight.detach()
            best = self._target(logs.detach(), shift, label, known_weight)  # (B, 1)
            target = label[best[:, 0]]
            most = known_weight.gather(1, best).clamp(min=0.5 * _LOG_ZERO)
            theta = _tilt(logs.detach(), shift.double(), target)  # (B,)
            tilted = logs + theta[:, None, None] * shift
            log_z = tilted.logsumexp(2, keepdim=True)
            pmf = (tilted - log_z).exp()
            if not in_place:
                flat = logs.new_zeros(len(logs), len(shift) * width)
                pmf = flat.index_add(1, place.flatten(), pmf.flatten(1))
            pmf = _product(pmf.view(len(logs), len(shift), width))  # (B, degree + 1)
            # Relative to the target; large where nothing can be read.
            exponent = weight - most - theta[:, None] * (label - target[:, None])
            reached = pmf.index_select(1, sums)
            scale = log_z.sum((1, 2)) - theta * target + most[:, 0]
            # Since P(s) is at most 1, a sum adds its weight at most: less than the target has alone.
            alone = reached.detach().gather(1, best)
            least = torch.where(alone > _LEAST_TILTED, _LEAST_SHARE * alone, 0.0).log()
            negligible = known_weight < least + scale.detach()[:, None]
            exponent = torch.where((exponent > 0) & negligible, -torch.inf, exponent)
            back = exponent.clamp(max=_MOST_EXPONENT).exp()
            total = (reached * back).sum(1)
            noise = _LEAST_TILTED * back.detach().sum(1)
            left_out = torch.where(exponent > _MOST_EXPONENT, known_weight, -torch.inf).amax(1)
            left_out = left_out - scale.detach()
            known = total.detach()
            doubtful.append(~(known > noise) | (left_out > (_LEAST_TILTED * known).log()))
            total = torch.where(doubtful[-1], noise.clamp(min=1e-300), total)
            found.append(total.log() + scale)
        return torch.stack(found, 1), torch.stack(doubtful, 1)

    def _target(self, logs: Tensor, shift: Tensor, label: Tensor, log_weight: Tensor) -> Tensor:
        """Return the place of the likeliest sum with its weight, as if sums were normal, (B, 1)."""
        p = logs.softmax(2)
        mean = (p * shift).sum(2)
        variance = ((p * shift**2).sum(2) - mean**2).sum(1, keepdim=True) + 0.05
        log_p = -((label - mean.sum(1, keepdim=True)) ** 2) / (2 * variance)
        # A sum of almost certain values is not normal, but is at least as likely as its values are.
        log_p = log_p.maximum(_possible(logs).amin(2).sum(1, keepdim=True))
        return (log_weight + log_p).argmax(1, keepdim=True)

    # ---- Sums modulo m: products of discrete Fourier transforms of length m

    def _remainders(self, logs: Tensor, log_weights: Tensor) -> tuple[Tensor, Tensor]:
        shift = _on_device(self, "_shift_table", logs.device)  # (N, V)
        turn = torch.arange(self.modulus, device=shift.device).double()
        roots = torch.polar(torch.ones_like(turn), turn * (-2 * torch.pi / self.modulus))
        frequency = torch.arange(self.modulus // 2 + 1, device=shift.device)
        wave = roots[shift[:, :, None] * frequency % self.modulus]
        parts = torch.einsum("bnv,nvk->bnk", logs.exp().to(wave.dtype), wave)
        while parts.shape[1] > 1:
            even = parts.shape[1] // 2 * 2
            parts = torch.cat((parts[:, 0:even:2] * parts[:, 1:even:2], parts[:, even:]), 1)
        p = torch.fft.irfft(parts[:, 0], self.modulus)
        p = p.index_select(1, _on_device(self, "labels", p.device))  # (B, states)
        most = log_weights.detach().amax(2, keepdim=True).clamp(min=0.5 * _LOG_ZERO)
        weights = (log_weights - most).exp()
        found = torch.einsum("bs,bos->bo", p, weights)
        doubtful = ~(found.detach() > _LEAST_UNTILTED * weights.detach().sum(2))
        return found.clamp(min=torch.finfo(found.dtype).eps).log() + most[:, :, 0], doubtful

    # ---- Matrices: positive numbers, scaled

    def _dense(self, logs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-probability of each output, (B, O), and which of them may be rounding."""
        N, size = len(self.layers), max(layer.states for layer in self.layers)
        entries = _on_device(self, "_matrix_entries", logs.device)  # (2, rules)
        parts = logs.new_zeros(len(logs), N * size * size)
        parts = parts.index_add(1, entries[0], logs.flatten(1)[:, entries[1]].exp())
        product, scale, lost = _scaled_product(parts.view(len(logs), N, size, size))
        found = product[:, 0].index_select(1, _on_device(self, "outputs", logs.device))
        known = found.detach()
        doubtful = ~(known > (lost / _LEAST_SHARE).clamp(min=1e-200))
        return found.clamp(min=1e-300).log() + scale, doubtful

    @property
    def _matrix_entries(self) -> Integers:
        """The places of rules in the flat matrices (N, size, size), and in (N, V)."""
        size, width = max(layer.states for layer in self.layers), self._width
        found = []
        for n, layer in enumerate(self.layers):
            state, value, target = layer.entries.astype(np.int64)
            found.append(np.stack(((n * size + state) * size + target, n * width + value)))
        return np.concatenate(found, 1)


def _scaled_product(parts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the product of matrices along the second axis, and the logarithm of its scale factor.

    The third part, (B, 1), bounds what the product has lost by underflow in each of its numbers.
    """
    scale, lost = parts.new_zeros(len(parts), 1), parts.new_zeros(parts.shape[:2])
    while True:
        most = parts.detach().amax((2, 3)).clamp(min=1e-300)  # (B, N)
        parts, scale = parts / most[:, :, None, None], scale + most.log().sum(1, keepdim=True)
        lost = (lost + _LEAST_NORMAL) / most
        if parts.shape[1] == 1:
            return parts[:, 0], scale, lost
        even = parts.shape[1] // 2 * 2
        pairs = parts[:, 0:even:2] @ parts[:, 1:even:2]
        parts = torch.cat((pairs, parts[:, even:]), 1)
        first, second = lost[:, 0:even:2], lost[:, 1:even:2]  # of numbers of at most 1
        of_pairs = parts.shape[2] * (first + second + first * second)
        lost = torch.cat((of_pairs, lost[:, even:]), 1)


def _product(parts: Tensor) -> Tensor:
    """Return the product of polynomials along the second axis, (B, N, width) -> (B, degree + 1)."""
    while parts.shape[1] > 1:
        fold = min(_FOLD, 1 << (parts.shape[1] - 1).bit_length())
        one = parts.new_zeros(1, 1, parts.shape[2])
        one[..., 0] = 1.0
        missing = -parts.shape[1] % fold
        parts = torch.cat((parts, one.expand(len(parts), missing, -1)), 1) if missing else parts
        width = fold * (parts.shape[2] - 1) + 1
        length = 1 << (width - 1).bit_length()
        some = torch.fft.rfft(parts, length)
        while fold > 1:
            some = some[:, 0::2] * some[:, 1::2]
            fold //= 2
        parts = torch.fft.irfft(some, length)[..., :width]
    return parts[:, 0]


def _possible(logs: Tensor) -> Tensor:
    """Return log-probabilities with 0 in place of impossible values."""
    return torch.where(logs > 0.5 * _LOG_ZERO, logs, 0.0)


def _tilt(logs: Tensor, shift: Tensor, target: Tensor) -> Tensor:
    """Return the θ at which each mean of a sum is close to its target, (B,).

    `logs` (B, N, V) are log-probabilities of the values, `shift` (N, V) what each value adds.
    """
    spread = _possible(logs).amin((1, 2)).abs()
    high = (2.0 * spread + 40.0).clamp(max=1e4)
    low, theta = -high, torch.zeros_like(target)
    powers = torch.stack((shift, shift**2), 2)
    # On a device one would wait for the answer whether it is close enough.
    on_device = logs.is_cuda
    for _ in range(_STEPS_ON_DEVICE if on_device else _MOST_STEPS):
        p = torch.addcmul(logs, theta[:, None, None], shift).softmax(2)
        mean, square = torch.einsum("bnv,nvk->kbn", p, powers)
        variance = torch.addcmul(square, mean, mean, value=-1).sum(1).clamp(min=1e-30)
        missing = target - mean.sum(1)
        if not on_device:
            close = missing.abs() <= variance.sqrt() + 1e-3
            if bool(close.all()):
                break
        above = missing > 0
        low, high = torch.where(above, theta, low), torch.where(above, high, theta)
        newton = torch.addcdiv(theta, missing, variance)
        inside = newton.clamp(low, high) == newton
        newton = torch.where(inside, newton, torch.lerp(low, high, 0.5))
        # No example is tilted further because of others: a larger tilt loses digits elsewhere.
        theta = newton if on_device else torch.where(close, theta, newton)
    return theta


@kept_with_owner
def _on_device(chain: Chain, what: str, device: torch.device) -> Tensor:
    """Return an array of the chain as a tensor on a device."""
    return torch.from_numpy(np.ascontiguousarray(getattr(chain, what), np.int64)).to(device)


# ---- Finding a chain in the rules


def find_chain(
    program: Program, variables: Variables, outputs: Sequence[int], true: Sequence[int] = ()
) -> Chain | None:
    """Return the chain that the outputs are the end of, or None."""
    if program.R < FEWEST_RULES or not outputs:
        return None
    layers = _layers(program, variables, outputs, true)
    if layers is None:
        return None
    found, last, atoms = layers
    rules = sum(layer.entries.shape[1] for layer in found)
    facts = len(variables.facts)
    starts = np.cumsum([facts, *(len(group) for group in variables.groups)]).tolist()
    columns = tuple(
        (layer.variable, starts[-1] + layer.variable)
        if layer.variable < facts
        else tuple(range(*starts[layer.variable - facts :][:2]))
        for layer in found
    )
    for readout in (None, found[-1]) if len(found) > 2 else (None,):
        body = found if readout is None else found[:-1]
        shifts, modulus = None, 0
        if all(layer.complete for layer in body):
            if len(last) <= MOST_SUMS:
                shifts = _shifts(body) or _named_shifts(body, atoms, program)
            if shifts is None and (most := max(layer.states for layer in found)) > MOST_STATES:
                shifts, modulus = _named_shifts(body, atoms, program, most), most
        if shifts is not None:
            bare = tuple(replace(layer, entries=np.zeros((3, 0), np.int32)) for layer in body)
            return Chain(bare, columns, last, rules, *shifts, modulus, readout)
    if max(layer.states for layer in found) <= MOST_STATES:
        return Chain(tuple(found), columns, last, rules)
    return None


def _layers(
    program: Program, variables: Variables, outputs: Sequence[int], true: Sequence[int]
) -> tuple[list[ChainLayer], Integers, list[Integers]] | None:
    """Return the layers of a chain, the states that are the outputs, and the atoms of each layer."""
    M, R = program.M, program.R
    literals = program.body_literals
    sizes = np.diff(program.body_indptr)
    head = program.head_indices
    if len(head) != R:
        return None
    facts = len(variables.facts)
    owner, place = np.full(M, -1, np.int32), np.zeros(M, np.int32)
    owner[list(variables.facts)] = np.arange(facts)
    for v, group in enumerate(variables.groups, facts):
        owner[list(group)] = v
        place[list(group)] = np.arange(len(group))
    certain = np.zeros(M, np.bool_)
    certain[list(true)] = True
    certain[head[sizes == 0]] = True
    row = np.repeat(np.arange(R, dtype=np.int32), sizes)
    atom = atoms_of_literals(literals)
    fed = owner[atom] >= 0
    is_state = ~fed & ~certain[atom]
    # Negation is for independent facts alone: not true is their second value.
    wrong = (literals < 0) & (~fed | (owner[atom] >= facts))
    # A rule of a chain reads one value, and has one state or, in the first layer, none.
    fine = np.bincount(row[fed], minlength=R) == 1
    fine &= np.bincount(row[is_state], minlength=R) <= 1
    fine[row[wrong]] = False
    state, variable, value = (np.full(R, -1, np.int32) for _ in range(3))
    state[row[is_state]] = atom[is_state]
    variable[row[fed]] = owner[atom[fed]]
    value[row[fed]] = np.where(literals[fed] < 0, 1, place[atom[fed]])
    del row, atom, fed, is_state, wrong
    # From the outputs back: the order in which variables are read, and the rules that matter.
    deriving = rules_deriving(program)
    relevant = np.zeros(R, np.bool_)
    order: list[int] = []
    after = np.unique(np.asarray(outputs, np.int64))
    while len(after):
        derived_by = deriving.take(after)
        if certain[after].any() or (owner[after] >= 0).any() or not derived_by.sizes.all():
            return None
        rules = derived_by.indices
        v = int(variable[rules[0]])
        after = np.unique(state[rules]).astype(np.int64)
        mixed = after[0] < 0 and len(after) > 1
        if mixed or v in order or not fine[rules].all() or (variable[rules] != v).any():
            return None
        after = after[after >= 0]
        relevant[rules] = True
        order.append(v)
    order.reverse()
    if np.isin(owner[head], order).any():  # a value that rules derive too is not only chosen
        return None
    owned = certain | (owner >= 0)
    for some in (fine & ~owned[head], relevant):  # with all states of each layer, if possible
        found = _collect(order, variables, state[some], variable[some], value[some], head[some])
        if found is not None:
            layers, local, atoms = found
            return layers, local[list(outputs)], atoms
    return None


def _collect(
    order: Sequence[int],
    variables: Variables,
    state: npt.NDArray[np.int32],
    variable: npt.NDArray[np.int32],
    value: npt.NDArray[np.int32],
    head: npt.NDArray[np.int32],
) -> tuple[list[ChainLayer], Integers, list[Integers]] | None:
    """Return the layers of rules that read the variables in this order, and the place of each atom.

    The third part has the atoms of the states of each layer.

    None where a state and a value lead to two states.
    """
    depth = np.full(len(variables.sizes), -1, np.int32)
    depth[list(order)] = np.arange(len(order))
    layer_of = depth[variable]
    by_layer = np.argsort(layer_of, kind="stable")
    ptr = np.searchsorted(layer_of[by_layer], np.arange(len(order) + 1))
    local = np.full(int(max(head.max(), state.max())) + 2, -1, np.int64)
    found: list[ChainLayer] = []
    atoms: list[Integers] = []
    states = 1
    for n, v in enumerate(order):
        rules = by_layer[ptr[n] : ptr[n + 1]]
        start = local[state[rules]] if n else np.where(state[rules] < 0, 0, -1)
        rules, start = rules[start >= 0], start[start >= 0]
        values = variables.sizes[v]
        reached = np.unique(head[rules])
        local[reached] = np.arange(len(reached))
        target = local[head[rules]]
        key, kept = np.unique(start * values + value[rules], return_inverse=True)
        next_state = np.empty(len(key), np.int64)
        next_state[kept] = target
        if (next_state[kept] != target).any():
            return None
        entries = np.stack((*np.divmod(key, values), next_state)).astype(np.int32)
        found.append(ChainLayer(v, states, values, len(reached), entries))
        atoms.append(reached.astype(np.int64))
        states = len(reached)
    return found, local, atoms


def _shifts(layers: Sequence[ChainLayer]) -> tuple[tuple[Integers, ...], Integers] | None:
    """Return what each value adds, from 0 on, and the numbers of the last states.

    The first states that differ are called 0 and 1, for each choice of the second; then every map
    has to be a shift.
    """
    first = next((n for n, layer in enumerate(layers) if layer.states > 1), None)
    if first is None or first + 1 >= len(layers):
        return None
    for unit in range(1, layers[first].states):
        number = np.full(layers[first].states, np.nan)
        number[[0, unit]] = 0, 1
        offsets: list[Floats] = [np.zeros(layer.values) for layer in layers[:first]]
        for layer in layers[first + 1 :]:
            found = _shift(layer, number)
            if found is None:
                break
            before, offset, number = found
            if len(offsets) == first:
                offsets.append(before[layers[first].entries[2]])
            offsets.append(offset)
        else:
            return _from_zero(offsets, number)
    return None


def _from_zero(offsets: Sequence[Floats], number: Floats) -> tuple[tuple[Integers, ...], Integers]:
    """Return what each value adds, from 0 on, and the last states in the same numbers."""
    least = [offset.min() for offset in offsets]
    moved = [offset - low for offset, low in zip(offsets, least, strict=True)]
    return tuple(x.astype(np.int64) for x in moved), (number - sum(least)).astype(np.int64)


def _named_shifts(
    layers: Sequence[ChainLayer], atoms: Sequence[Integers], program: Program, modulus: int = 0
) -> tuple[tuple[Integers, ...], Integers] | None:
    """Return the same with the last number in the name of each state as its number.

    Where the sums of the first layers are all different, as of coins or of the digits of long
    numbers, nothing else says what their numbers are. Every map has to be a shift, modulo
    `modulus` if it is not 0.
    """
    number, offsets = np.zeros(1), []
    for layer, states in zip(layers, atoms, strict=False):
        names = [_LAST_NUMBER.search(program.atoms[atom]) for atom in states.tolist()]
        if not all(names):
            return None
        after = np.array([float(name[0]) for name in names if name])
        state, value, target = layer.entries
        if modulus and (after.min() < 0 or after.max() >= modulus):
            return None
        offset = np.empty(layer.values)
        offset[value] = after[target] - number[state]
        missed = number[state] + offset[value] - after[target]
        if (missed % modulus if modulus else missed).any():
            return None
        if len(np.unique(after)) < layer.states:
            return None
        offsets.append(offset)
        number = after
    if modulus:
        shifts = (offset.astype(np.int64) % modulus for offset in offsets)
        return tuple(shifts), number.astype(np.int64)
    moved, labels = _from_zero(offsets, number)
    unit = max(int(np.gcd.reduce(np.concatenate(moved))), 1)
    moved, labels = tuple(part // unit for part in moved), labels // unit
    # An FFT has a place for every sum, also for those that no state has.
    rules = sum(layer.entries.shape[1] for layer in layers)
    return (moved, labels) if sum(int(part.max()) for part in moved) <= rules else None


def _shift(layer: ChainLayer, number: Floats) -> tuple[Floats, Floats, Floats] | None:
    """Return the numbers of the states before a layer, what each value adds, and those after it.

    `number` has the numbers before it, NaN where they are not known. None if not every map is a
    shift, or the numbers do not follow.
    """
    state, value, target = layer.entries
    number, after = number.copy(), np.full(layer.states, np.nan)
    offset = np.full(layer.values, np.nan)
    offset[0] = 0

    def learn(part: Floats, place: Integers, found: Floats) -> None:
        known = ~np.isnan(found)
        part[place[known]] = found[known]

    unknown = -1
    while unknown != (left := sum(int(np.isnan(part).sum()) for part in (number, offset, after))):
        unknown = left
        learn(after, target, number[state] + offset[value])
        learn(offset, value, after[target] - number[state])
        learn(number, state, after[target] - offset[value])
    is_shift = not left and np.array_equal(number[state] + offset[value], after[target])
    return (number, offset, after) if is_shift and len(np.unique(after)) == layer.states else None
