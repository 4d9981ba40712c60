"""The min/max closure of soft facts, hard or smooth, with gradients."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Literal, TypeAlias, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from latentgamma.logic.closure import closure_of_mask
from latentgamma.program.facts import Mask
from latentgamma.program.graph import rule_order
from latentgamma.program.program import Program

# ---- A program compiled into a circuit of minima and maxima, between given inputs and outputs
# An atom is the maximum of its own input and of its rules; a rule is the minimum of its body.
# Everything that the inputs cannot change is worked out here, once: atoms that are certainly true
# leave the bodies, rules that can never fire disappear, and so does what no output depends on.

Integers: TypeAlias = npt.NDArray[np.int32]

#: What an output is that does not depend on the inputs.
FALSE, TRUE = -1, -2
#: The kinds of stages: minima, maxima, or one set of nodes that depend on each other.
MINIMA, MAXIMA, CYCLE = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Circuit:
    """Nodes in an order in which each depends on earlier ones only, except inside a cycle.

    Node n < `inputs` is the n-th input. Every other node is the minimum or the maximum of its
    children `child[child_ptr[n]:child_ptr[n + 1]]` and, if `own[n]` ≥ 0, of that input. The
    nodes of stage s are `stage_ptr[s]` to `stage_ptr[s + 1]`; in a cycle its minima come first,
    up to `middle[s]`.
    """

    inputs: int
    child_ptr: Integers  # (N + 1,)
    child: Integers  # (E,)
    own: Integers  # (N,) the input that a maximum includes, or −1
    stage_ptr: Integers  # (S + 1,)
    stage_kind: Integers  # (S,)
    middle: Integers  # (S,)
    outputs: Integers  # (O,) a node, or FALSE, or TRUE

    @property
    def nodes(self) -> int:
        """The number of nodes, inputs included."""
        return len(self.child_ptr) - 1

    @property
    def has_cycles(self) -> bool:
        """Whether some nodes depend on each other."""
        return bool((self.stage_kind == CYCLE).any())

    @property
    def used(self) -> Mask:
        """Whether an output or another node depends on each input. (inputs,)."""
        used = np.zeros(self.nodes, np.bool_)
        for nodes in (self.child, self.own, self.outputs):
            used[nodes[nodes >= 0]] = True
        return used[: self.inputs]


def compile_circuit(
    program: Program,
    inputs: npt.ArrayLike,
    outputs: npt.ArrayLike,
    *,
    true: npt.ArrayLike = (),
) -> Circuit:
    """Return the circuit from the atoms `inputs` to the atoms `outputs`, both given as indices.

    Args:
        program: the rules.
        inputs: the atoms that have an input, each once.
        outputs: the atoms to read.
        true: atoms that are certainly true. All other atoms without an input are false unless
            a rule derives them.

    Returns:
        The circuit.

    >>> from latentgamma import parse
    >>> program = parse("c :- a, b. d :- c. d :- e.")
    >>> circuit = compile_circuit(program, [2, 1], [3])  # e has no input, so its rule is gone
    >>> circuit.nodes, circuit.child.tolist()
    (5, [1, 0, 2, 3])
    """
    fed, read = np.asarray(inputs, np.int64), np.asarray(outputs, np.int64)
    rules = _open_rules(program, fed, read, np.asarray(true, np.int64))
    leaf = np.full(program.M, -1, np.int32)
    leaf[fed] = np.arange(len(fed))
    graph = _numbered(rules, leaf, len(fed))
    result = np.where(rules.certain, TRUE, graph.node)[read]
    return Circuit(
        len(fed),
        graph.child_ptr,
        graph.child,
        graph.own,
        graph.stage_ptr,
        graph.stage_kind,
        graph.middle,
        result.astype(np.int32),
    )


# ---- Negation


@dataclass(frozen=True, eq=False)
class StratumCircuit:
    """The circuit of one stratum, and the columns that it reads.

    Columns are the inputs of the whole program, and then the outputs of one circuit after another.
    """

    circuit: Circuit
    column: npt.NDArray[np.int64]  # (inputs,)
    negated: Mask  # (inputs,) whether the complement of the column is read


@dataclass(frozen=True, eq=False)
class StrataCircuit:
    """The circuits of the strata of a program, the lowest first."""

    parts: tuple[StratumCircuit, ...]
    outputs: Integers  # (O,) a column, or FALSE, or TRUE
    used: Mask  # (inputs,) whether an output depends on each input


def compile_strata(
    program: Program,
    inputs: npt.ArrayLike,
    outputs: npt.ArrayLike,
    *,
    true: npt.ArrayLike = (),
) -> StrataCircuit:
    """Return the circuits of a program with negation; the arguments are those of `compile_circuit`.

    >>> from latentgamma import parse
    >>> program = parse("fly :- bird, not penguin. bird :- penguin.")
    >>> [(part.column.tolist(), part.negated.tolist())
    ...  for part in compile_strata(program, [1, 2], [0]).parts]
    [([0, 1], [False, False]), ([2, 1], [False, True])]
    """
    fed, read = np.asarray(inputs, np.int64), np.asarray(outputs, np.int64)
    certain = np.zeros(program.M, np.bool_)
    certain[np.asarray(true, np.int64)] = True
    possible = certain.copy()
    possible[fed] = True
    # Upwards: what is true, and what is false, whatever the inputs are.
    given = []
    for stratum in program.strata:
        atom, negated = stratum.atom, stratum.negated
        surely = np.where(negated, ~possible[atom], certain[atom])
        maybe = np.where(negated, ~certain[atom], possible[atom])
        given.append((surely, maybe & ~surely))
        for state, known in ((certain, surely), (possible, maybe)):
            state[atom[~negated]] = closure_of_mask(stratum.program, known).state[~negated]
    # Downwards: what the outputs depend on.
    needed = np.zeros(program.M, np.bool_)
    needed[read] = True
    needed &= possible & ~certain
    compiled = []
    for stratum, (surely, is_open) in reversed(list(zip(program.strata, given, strict=True))):
        derived = stratum.derived[needed[stratum.atom[stratum.derived]]]
        places = np.flatnonzero(is_open)
        facts = np.flatnonzero(surely)
        circuit = compile_circuit(stratum.program, places, derived, true=facts)
        if not circuit.used.all():
            places = places[circuit.used]
            circuit = compile_circuit(stratum.program, places, derived, true=facts)
        if len(derived):
            needed[stratum.atom[places]] = True
            compiled.append((stratum, circuit, places, derived))
    column = np.full(program.M, FALSE, np.int64)
    column[fed] = np.arange(len(fed))
    width, parts = len(fed), []
    for stratum, circuit, places, derived in reversed(compiled):
        parts.append(StratumCircuit(circuit, column[stratum.atom[places]], stratum.negated[places]))
        column[stratum.atom[derived]] = np.arange(width, width + len(derived))
        width += len(derived)
    result = np.where(certain, TRUE, column)[read]
    used = np.zeros(max(width, 1), np.bool_)
    for columns in (result[result >= 0], *(part.column for part in parts)):
        used[columns] = True
    return StrataCircuit(tuple(parts), result.astype(np.int32), used[: len(fed)])


# ---- The rules that matter


@dataclass(frozen=True, eq=False)
class _OpenRules:
    """Rules of one head that the inputs can make fire and that some output depends on."""

    certain: Mask  # (M,) the atoms that are true whatever the inputs are
    program: Program


def _open_rules(
    program: Program,
    fed: npt.NDArray[np.int64],
    read: npt.NDArray[np.int64],
    true: npt.NDArray[np.int64],
) -> _OpenRules:
    M = program.M
    stated = np.zeros(M, np.bool_)
    stated[true] = True
    certain = closure_of_mask(program, stated).state
    given = certain.copy()
    given[fed] = True
    possible = closure_of_mask(program, given).state
    row = np.repeat(np.arange(program.R), program.body_sizes)
    blocked = np.bincount(row[~possible[program.body_indices]], minlength=program.R) > 0
    rule, head = np.repeat(np.arange(program.R), program.head_sizes), program.head_indices
    # A rule that needs its own head adds nothing.
    circular = np.isin(rule * M + head, row * M + program.body_indices)
    keep = ~blocked[rule] & ~certain[head] & ~circular
    rule, head = rule[keep], head[keep]
    ptr, body = _rows(program, rule, ~certain)
    # Backwards, a head makes its bodies needed: once more a closure.
    backwards = Program.from_arrays(np.arange(len(head) + 1), head, body, ptr, atoms=program.atoms)
    asked = np.zeros(M, np.bool_)
    asked[read] = True
    needed = closure_of_mask(backwards, asked).state[head]
    ptr, body = _rows(program, rule[needed], ~certain)
    return _OpenRules(certain, Program.from_arrays(ptr, body, head[needed], atoms=program.atoms))


def _rows(
    program: Program, rules: npt.NDArray[np.int64], keep: Mask
) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
    """Return the bodies of these rules with these atoms left in them, as compressed rows."""
    sizes = program.body_sizes[rules].astype(np.int64)
    ends = np.concatenate(([0], np.cumsum(sizes)))
    within = np.arange(ends[-1]) - np.repeat(ends[:-1], sizes)
    body = program.body_indices[np.repeat(program.body_indptr[rules], sizes) + within]
    row, kept = np.repeat(np.arange(len(rules)), sizes), keep[body]
    counts = np.bincount(row[kept], minlength=len(rules))
    return np.concatenate(([0], np.cumsum(counts))), body[kept]


# ---- Nodes and stages


@dataclass(frozen=True, eq=False)
class _Numbered:
    child_ptr: Integers
    child: Integers
    own: Integers
    stage_ptr: Integers
    stage_kind: Integers
    middle: Integers
    node: Integers  # (M,) the node of each atom; FALSE where nothing feeds it


def _numbered(rules: _OpenRules, leaf: Integers, inputs: int) -> _Numbered:
    """Return nodes for the minima and maxima, numbered stage by stage."""
    program = rules.program
    order = rule_order(program)
    body_ptr, body = program.body_indptr.tolist(), program.body_indices.tolist()
    head = program.head_indices.tolist()
    cyclic, edges = order.cyclic.tolist(), order.block_ptr.tolist()
    in_order = order.rules.tolist()

    # A body of several atoms is a minimum; the same body in several rules is one node.
    minimum: dict[tuple[int, bytes], int] = {}
    bodies: list[list[int]] = []  # of each minimum
    sources: dict[int, dict[int, None]] = {}  # of each maximum: ~atom, or a minimum
    level_of_atom, level_of_minimum = [0] * program.M, []
    group_of_minimum: list[int] = []
    group_of_atom: dict[int, int] = {}
    for block, (start, stop) in enumerate(pairwise(edges)):
        members = in_order[start:stop]
        if cyclic[block]:
            group_of_atom.update(dict.fromkeys((head[j] for j in members), block))
            base = max(
                level_of_atom[b] for j in members for b in body[body_ptr[j] : body_ptr[j + 1]]
            )
        for j in members:
            premises = body[body_ptr[j] : body_ptr[j + 1]]
            level = base + 1 if cyclic[block] else 1 + max(level_of_atom[b] for b in premises)
            source = ~premises[0]
            if len(premises) > 1:
                key = block if cyclic[block] else -1, bytes(np.array(premises, np.int32))
                source = minimum.setdefault(key, len(bodies))
                if source == len(bodies):
                    bodies.append(premises)
                    level_of_minimum.append(level)
                    group_of_minimum.append(key[0])
                level += not cyclic[block]
            sources.setdefault(head[j], {})[source] = None
            level_of_atom[head[j]] = max(level, level_of_atom[head[j]])
        if cyclic[block]:
            for j in members:
                level_of_atom[head[j]] = base + 1

    # (level, kind, cycle, maximum?, number): sorted, these are the nodes of each stage in turn.
    nodes = [
        (level_of_minimum[n], CYCLE if group >= 0 else MINIMA, group, 0, n)
        for n, group in enumerate(group_of_minimum)
    ]
    for rank, atom in enumerate(sources):
        group = group_of_atom.get(atom, -1)
        kind = CYCLE if group >= 0 else MAXIMA
        nodes.append((level_of_atom[atom], kind, group, 1, rank))
    nodes.sort()
    atoms = list(sources)
    node = leaf.copy()
    node_of_minimum = [0] * len(bodies)
    for n, (*_, is_maximum, number) in enumerate(nodes, start=inputs):
        if is_maximum:
            node[atoms[number]] = n
        else:
            node_of_minimum[number] = n

    places = node.tolist()
    child: list[int] = []
    child_ptr = [0] * (inputs + 1)
    own = [-1] * inputs
    stage_ptr, stage_kind, middle = [inputs], [], []
    for n, (level, kind, group, is_maximum, number) in enumerate(nodes, start=inputs):
        if n == inputs or (level, kind, group) != nodes[n - 1 - inputs][:3]:
            stage_ptr += [n] if n > inputs else []
            stage_kind.append(kind)
            middle.append(n)
        if is_maximum:
            atom = atoms[number]
            child += [
                node_of_minimum[source] if source >= 0 else places[~source]
                for source in sources[atom]
            ]
            own.append(int(leaf[atom]))
        else:
            child += [places[b] for b in bodies[number]]
            own.append(-1)
            middle[-1] = n + 1
        child_ptr.append(len(child))
    if nodes:
        stage_ptr.append(inputs + len(nodes))
    return _Numbered(
        _integers(child_ptr),
        _integers(child),
        _integers(own),
        _integers(stage_ptr),
        _integers(stage_kind),
        _integers(middle),
        node,
    )


def _integers(values: list[int]) -> Integers:
    return np.asarray(values, np.int32)


# ---- The min/max closure in plain torch: any device, any dtype, every transform of torch
# What the kernels compute is defined here.
#
# Hard (temperature 0): an atom is the greatest of its own input and of its rules, a rule the
# least of its body; the least fixed point of that. Its gradient goes to the inputs that decide
# the value. Where several do, it goes along the shortest proofs from atoms that no rule derives,
# in equal shares, and within a rule to all atoms that have its value, in equal shares; to the own
# input of a derivable atom only where there is no such proof. Precisely: the rank of an input is 0
# if no rule derives its atom, and `LAST` otherwise; the rank of a rule is the greatest among those
# of its body atoms that have its value; and an atom takes the greatest value, then the least rank,
# of its own input and of its rules, whose ranks count one more.
#
# Smooth (temperature T > 0), on log-odds: a rule is −T log Σ exp(−x/T), an atom T log Σ exp(x/T).
# On a cycle, atoms would support themselves without end. So the steps are counted there: as many
# as the hard closure of the same example takes.

#: The value of an atom on a cycle that no step has reached yet.
NEVER = -1e30
#: The rank of an input whose atom rules derive as well: after every other proof.
LAST = 1 << 23


def reference(circuit: Circuit, inputs: Tensor, temperature: float) -> Tensor:
    """Return the values of all nodes. (B, inputs) -> (B, nodes).

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
    """Return whether Python may look at the values: not while they are traced or transformed."""
    if torch.compiler.is_compiling() or tensor.device.type == "meta":
        return False
    return bool(torch._C._functorch.maybe_get_level(tensor) == -1)


def _same(one: Tensor, other: Tensor) -> bool:
    return _is_readable(one) and _is_readable(other) and torch.equal(one, other)


def _reduced(values: Tensor, nodes: _Nodes, start: float, how: str) -> Tensor:
    """Return the least or greatest of the children's values. (B, E) -> (B, count)."""
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
        """Return these values, with a gradient that goes to the tied children in equal shares."""
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
        """Return after how many steps the hard closure rests, from the same values. (B, 1)."""
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


# ---- The min/max closure as a module of torch, through whichever kernel runs here

#: Compiled code where there is some, or plain torch.
KernelChoice: TypeAlias = Literal["auto", "reference"]

#: The arrays of a circuit in the order in which kernels take them.
STRUCTURE = ("child_ptr", "child", "own", "stage_ptr", "stage_kind", "middle", "outputs")


@final
class MinMax(nn.Module):
    """The closure that a circuit computes, from a batch of inputs to a batch of outputs.

    >>> from latentgamma import parse
    >>> from latentgamma.engine.minmax import compile_circuit
    >>> closed = MinMax(compile_circuit(parse("c :- a, b. c :- d."), [1, 2, 3], [0]))
    >>> closed(torch.tensor([[0.9, 0.6, 0.2]]), 0.0)
    tensor([[0.6000]])
    """

    outputs: Tensor

    def __init__(self, circuit: Circuit, *, kernel: KernelChoice = "auto") -> None:
        super().__init__()
        self.circuit = circuit
        self.kernel = kernel
        self._cycles = int((circuit.stage_kind == CYCLE).sum())
        for name in STRUCTURE:
            values = torch.from_numpy(getattr(circuit, name).copy())
            self.register_buffer(name, values, persistent=False)
        self._has_constants = bool((circuit.outputs < 0).any())

    def forward(
        self,
        inputs: Tensor,
        temperature: Tensor | float,
        *,
        hard: bool | None = None,
        low: float = -torch.inf,
        high: float = torch.inf,
        plain: bool = False,
    ) -> Tensor:
        """Return the outputs (B, O) of a batch of inputs (B, I).

        Args:
            inputs: log-odds; values on any scale if hard.
            temperature: of the smooth minima and maxima; 0 for hard ones.
            hard: whether the temperature is 0, where it is a tensor that must not be read.
            low: the value of an output that is false whatever the inputs are.
            high: the value of an output that is true whatever the inputs are.
            plain: whether to do without compiled code this time.

        Returns:
            The outputs on the scale of the inputs.
        """
        if hard is None:
            hard = float(temperature) == 0
        # A compiler takes the kernel as one opaque operation; it could not follow plain torch.
        plain = (plain or self.kernel == "reference") and not torch.compiler.is_compiling()
        wide = inputs if inputs.dtype in (torch.float32, torch.float64) else inputs.float()
        if plain or not _has_kernel(inputs, self._cycles):
            values = reference(self.circuit, wide, 0.0 if hard else float(temperature))
            out = _pick(values, self.outputs)
        else:
            structure = [getattr(self, name) for name in STRUCTURE]
            T = torch.as_tensor(temperature, dtype=torch.float64)
            keep = torch.is_grad_enabled() and inputs.requires_grad
            out = minmax(wide, structure, T, hard, keep, self._cycles)[0]
        out = out.to(inputs.dtype)
        return _with_constants(out, self.outputs, low, high) if self._has_constants else out

    def extra_repr(self) -> str:
        """Return the line that `print(module)` shows."""
        c = self.circuit
        return f"inputs={c.inputs}, outputs={len(c.outputs)}, nodes={c.nodes}, edges={len(c.child)}"


@final
class StrataMinMax(nn.Module):
    """The closures of the strata of a program with negation, one after another.

    `not a` is the complement of the value that the strata below give a: −x of log-odds x, and
    1 − p of a value p. What is above one half has a complement below it. What is at one half or
    below, and so counts as false, has a complement above it: where −x is 0, the least normal number;
    where 1 − p is rounded to one half, the next number. Smooth closures are on log-odds.

    >>> from latentgamma import parse
    >>> program = parse("fly :- bird, not penguin.")
    >>> closed = StrataMinMax(compile_strata(program, [1, 2], [0]))
    >>> closed(torch.tensor([[3.0, -2.0], [3.0, 2.0]]), 0.0, hard=True, low=-40.0, high=40.0)
    tensor([[ 2.],
            [-2.]])
    """

    outputs: Tensor

    def __init__(self, strata: StrataCircuit, *, kernel: KernelChoice = "auto") -> None:
        super().__init__()
        self.parts = nn.ModuleList(MinMax(part.circuit, kernel=kernel) for part in strata.parts)
        for s, part in enumerate(strata.parts):
            self.register_buffer(f"column_{s}", torch.from_numpy(part.column), persistent=False)
            self.register_buffer(f"negated_{s}", torch.from_numpy(part.negated), persistent=False)
        self.register_buffer("outputs", torch.from_numpy(strata.outputs.copy()), persistent=False)
        self._has_constants = bool((strata.outputs < 0).any())

    def forward(
        self,
        inputs: Tensor,
        temperature: Tensor | float,
        *,
        hard: bool,
        low: float,
        high: float,
    ) -> Tensor:
        """Return the outputs (B, O) of inputs (B, I); the arguments are those of `MinMax`.

        `low` and `high` say whether these are log-odds or values between 0 and 1.
        """
        values = inputs
        for s, part in enumerate(self.parts):
            given = values.index_select(1, getattr(self, f"column_{s}"))
            other = _complement_of_value(given) if low == 0 else _complement_of_log_odds(given)
            given = torch.where(getattr(self, f"negated_{s}"), other, given)
            values = torch.cat([values, part(given, temperature, hard=hard)], 1)
        out = _pick(values, self.outputs)
        return _with_constants(out, self.outputs, low, high) if self._has_constants else out


def _complement_of_log_odds(odds: Tensor) -> Tensor:
    return torch.where(odds == 0, torch.finfo(odds.dtype).tiny - odds, -odds)


def _complement_of_value(values: Tensor) -> Tensor:
    # The number above one half: 1 − p is rounded to one half where p is the number below it.
    step = torch.finfo(values.dtype).eps / 2
    other = 1 - values
    return torch.where((values <= 0.5) & (other <= 0.5), other + step, other)


def _with_constants(out: Tensor, outputs: Tensor, low: float, high: float) -> Tensor:
    """Return the outputs with their values where these do not depend on the inputs."""
    constant = torch.where(outputs == TRUE, high, low).to(out.dtype)
    return torch.where(outputs < 0, constant, out)


def _has_kernel(inputs: Tensor, cycles: int) -> bool:
    """Return whether compiled code can run: not under torch.func or in forward mode."""
    if cycles and inputs.device.type != "cpu":
        return False
    if torch.compiler.is_compiling():
        return inputs.device.type in ("cpu", "cuda")
    if _launch(inputs.device.type) is None:
        return False
    if torch._C._functorch.maybe_get_level(inputs) > -1:
        return False
    return torch.autograd.forward_ad.unpack_dual(inputs).tangent is None  # type: ignore[no-untyped-call]


def _pick(values: Tensor, outputs: Tensor) -> Tensor:
    """Return the values of the outputs; of a constant one, any. (B, N) -> (B, O)."""
    if not values.shape[1]:
        return values.new_zeros(values.shape[0], len(outputs))
    return values.index_select(1, outputs.clamp(min=0).long())


@cache
def _launch(device: str) -> Any:
    """Return the module that runs the closure on this kind of device, or None."""
    if device == "cpu":
        from latentgamma.engine import minmax_cpu

        return minmax_cpu
    if device == "cuda" and importlib.util.find_spec("triton") is not None:
        from latentgamma.engine import minmax_cuda

        return minmax_cuda
    return None


# ---- The operation


@torch.library.custom_op("latentgamma::minmax", mutates_args=())
def minmax(
    inputs: Tensor,
    structure: Sequence[Tensor],
    temperature: Tensor,
    hard: bool,
    keep: bool,
    cycles: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the outputs, and what the backward pass needs: the nodes, and their ranks or steps."""
    T = 0.0 if hard else float(temperature)
    out: tuple[Tensor, Tensor, Tensor] = _launch(inputs.device.type).close_batch(
        inputs, structure, T, keep=keep
    )
    return out


@minmax.register_fake
def _(
    inputs: Tensor,
    structure: Sequence[Tensor],
    temperature: Tensor,
    hard: bool,
    keep: bool,
    cycles: int,
) -> tuple[Tensor, Tensor, Tensor]:
    batch, nodes = inputs.shape[0], structure[0].shape[0] - 1
    tiles, tile = _launch(inputs.device.type).tiles(batch)
    tiles = tiles if keep else 0
    return (
        inputs.new_empty(batch, structure[-1].shape[0]),
        inputs.new_empty(tiles, nodes, tile),
        inputs.new_empty(tiles, nodes if hard else cycles, tile),
    )


@torch.library.custom_op("latentgamma::minmax_backward", mutates_args=())
def minmax_backward(
    grad: Tensor,
    structure: Sequence[Tensor],
    temperature: Tensor,
    hard: bool,
    kept: Tensor,
    extra: Tensor,
    inputs: int,
) -> Tensor:
    """Return the gradient of the inputs."""
    T = 0.0 if hard else float(temperature)
    out: Tensor = _launch(grad.device.type).close_batch_backward(
        grad, structure, T, kept, extra, inputs
    )
    return out


@minmax_backward.register_fake
def _(
    grad: Tensor,
    structure: Sequence[Tensor],
    temperature: Tensor,
    hard: bool,
    kept: Tensor,
    extra: Tensor,
    inputs: int,
) -> Tensor:
    return grad.new_empty(grad.shape[0], inputs)


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, structure, temperature, ctx.hard, _, _ = inputs
    ctx.save_for_backward(x, temperature, output[1], output[2], *structure)


def _backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    x, temperature, kept, extra, *structure = ctx.saved_tensors
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        # create_graph=True: this gradient is to be differentiated, which plain torch can do.
        T = 0.0 if ctx.hard else float(temperature)
        with torch.enable_grad():
            out = _pick(reference(_circuit(structure, x.shape[1]), x, T), structure[-1])
            (slope,) = torch.autograd.grad(out, x, grad, create_graph=True, allow_unused=True)
        return slope, [None] * len(structure), None, None, None, None  # type: ignore[return-value]
    slope = minmax_backward(
        grad.contiguous(), structure, temperature, ctx.hard, kept, extra, x.shape[1]
    )
    return slope, [None] * len(structure), None, None, None, None  # type: ignore[return-value]


minmax.register_autograd(_backward, setup_context=_keep_for_backward)


def _circuit(structure: Sequence[Tensor], inputs: int) -> Circuit:
    return Circuit(inputs, *(tensor.cpu().numpy() for tensor in structure))
