"""A program compiled into a circuit of minima and maxima, between given inputs and outputs.

An atom is the maximum of its own input and of its rules; a rule is the minimum of its body.
Everything that the inputs cannot change is worked out here, once: atoms that are certainly true
leave the bodies, rules that can never fire disappear, and so does what no output depends on.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._logic.closure import closure_of_mask
from latentgamma._program.dependency_graph import rule_order
from latentgamma._program.facts import Mask
from latentgamma._program.program import Program

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


def compile_circuit(
    program: Program,
    inputs: npt.ArrayLike,
    outputs: npt.ArrayLike,
    *,
    true: npt.ArrayLike = (),
) -> Circuit:
    """The circuit from the atoms `inputs` to the atoms `outputs`, both given as indices.

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


# -------------------------------------------------------------------- the rules that matter


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
    """The bodies of these rules with these atoms left in them, as compressed rows."""
    sizes = program.body_sizes[rules].astype(np.int64)
    ends = np.concatenate(([0], np.cumsum(sizes)))
    within = np.arange(ends[-1]) - np.repeat(ends[:-1], sizes)
    body = program.body_indices[np.repeat(program.body_indptr[rules], sizes) + within]
    row, kept = np.repeat(np.arange(len(rules)), sizes), keep[body]
    counts = np.bincount(row[kept], minlength=len(rules))
    return np.concatenate(([0], np.cumsum(counts))), body[kept]


# -------------------------------------------------------------------- nodes and stages


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
    """Nodes for the minima and maxima, numbered stage by stage."""
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
