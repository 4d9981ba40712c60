"""Circuits: what is computed from what between given inputs and outputs, for any semiring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma.logic.closure import closure_of_mask
from latentgamma.program.facts import Mask
from latentgamma.program.graph import Csr, rule_order
from latentgamma.program.program import Program, atoms_of_literals

Integers: TypeAlias = npt.NDArray[np.int32]

#: Instead of a node: what is false or true whatever the inputs are, or not computed.
FALSE, TRUE, UNKNOWN = -1, -2, -3
#: The kinds of nodes: the sum of its terms, their sum if they are independent, the negation of one.
SUM, INDEPENDENT, NOT = 0, 1, 2
#: The kinds of stages: products (one term each), sums (of terms of one part), a set of nodes that
#: depend on each other, negations, or nodes of any kind.
PRODUCTS, SUMS, CYCLE, NEGATIONS, MIXED = 0, 1, 2, 3, 4


@dataclass(frozen=True, eq=False)
class Circuit:
    """Nodes in an order in which each depends on earlier ones only, except inside a cycle.

    Node n < `inputs` is the n-th input. Every other node is the sum of its terms and, if `own[n]`
    ≥ 0, of that input. A term is the product of its parts, which are nodes. What sums and products
    are, says a semiring: maxima and minima, for one. The nodes of stage s are `stage_ptr[s]` to
    `stage_ptr[s + 1]`; in a cycle its products come first, up to `middle[s]`.
    """

    inputs: int
    term_ptr: Integers  # (N + 1,) the terms of node n are term_ptr[n] to term_ptr[n + 1]
    parts: Csr  # of each term
    kind: Integers  # (N,)
    own: Integers  # (N,) the input that a node of the kind SUM includes, or −1
    stage_ptr: Integers  # (S + 1,)
    stage_kind: Integers  # (S,)
    middle: Integers  # (S,)
    outputs: Integers  # (O,) a node, or FALSE, or TRUE

    @property
    def nodes(self) -> int:
        """The number of nodes, inputs included."""
        return len(self.kind)

    @cached_property
    def cycles(self) -> int:
        """The number of sets of nodes that depend on each other."""
        return int((self.stage_kind == CYCLE).sum())

    @cached_property
    def arrays(self) -> tuple[Integers, ...]:
        """The arrays in the order in which kernels take them; the first two are the children."""
        return (
            self.parts.indptr[self.term_ptr],
            self.parts.indices,
            self.own,
            self.stage_ptr,
            self.stage_kind,
            self.middle,
            self.term_ptr,
            self.parts.indptr,
            self.kind,
            self.outputs,
        )

    @cached_property
    def schedule(self) -> tuple[Any, list[int]]:
        """The arrays in one, and the sizes, as kernels of a GPU take them for minima and maxima."""
        from latentgamma.engine.schedule import packed, schedule

        arrays, sizes = schedule(self)
        return packed(arrays), sizes

    @cached_property
    def has_empty_products(self) -> bool:
        """Whether some rule has an empty body, which is true."""
        return bool((self.parts.sizes == 0).any())

    @property
    def used(self) -> Mask:
        """Whether an output or another node depends on each input. (inputs,)."""
        used = np.zeros(self.nodes, np.bool_)
        for nodes in (self.parts.indices, self.own, self.outputs):
            used[nodes[nodes >= 0]] = True
        return used[: self.inputs]


def circuit_of_terms(
    inputs: int, nodes: Sequence[tuple[int, list[list[int]]]], outputs: Sequence[int]
) -> tuple[Circuit, Integers]:
    """Return the circuit of nodes without cycles, sorted into levels, and where each node is now.

    `nodes` has the kind and the terms of every node but the inputs, which come first; parts come
    before what is made of them. An output is a node, or FALSE, or TRUE.
    """
    level = [0] * inputs
    for _, terms in nodes:
        level.append(1 + max((level[part] for term in terms for part in term), default=0))
    order = np.argsort(level, kind="stable")
    place = np.empty(len(level), np.int32)
    place[order] = np.arange(len(level))
    sorted_nodes = [nodes[n - inputs] for n in order[inputs:].tolist()]
    terms = [term for _, some in sorted_nodes for term in some]
    counts = np.bincount(level, minlength=1)
    counts[0] = inputs
    circuit = Circuit(
        inputs,
        _ends([0] * inputs + [len(some) for _, some in sorted_nodes]),
        Csr.from_lists([place[part] for part in term] for term in terms),
        _integers([SUM] * inputs + [kind for kind, _ in sorted_nodes]),
        _integers([-1] * len(level)),
        _integers(np.cumsum(counts)),
        _integers([MIXED] * (len(counts) - 1)),
        _integers(np.cumsum(counts)[:-1]),
        _integers([place[node] if node >= 0 else node for node in outputs]),
    )
    return circuit, place


# ---- What the inputs can change: one simplification for all semirings


@dataclass(frozen=True, eq=False)
class OpenRules:
    """Rules of one head that the inputs can make fire, and that some output depends on.

    A literal is i for an atom and `~i` for its negation, as in `Program`; those that always hold
    are gone. With negation there may be more atoms that are always true or always false.
    """

    certain: Mask  # (M,) the atoms that are true whatever the inputs are
    head: npt.NDArray[np.integer]
    body: Csr


def open_rules(
    program: Program, inputs: npt.ArrayLike, outputs: npt.ArrayLike, true: npt.ArrayLike = (),
    *, absorptive: bool = True,
) -> OpenRules:  # fmt: skip
    """Return the rules that the outputs depend on, simplified.

    Inputs may be true or false, the atoms `true` are, and all others are false unless a rule
    derives them. Unless sums are `absorptive`, rules with an empty body stay, the atoms `true`
    have one each, and `certain` has no atom.
    """
    M = program.M
    certain, asked = np.zeros((2, M), np.bool_)
    certain[np.asarray(true, np.int64)] = True
    asked[np.asarray(outputs, np.int64)] = True
    possible = certain.copy()
    possible[np.asarray(inputs, np.int64)] = True
    for stratum in program.strata:
        atom, negated = stratum.atom, stratum.negated
        surely = np.where(negated, ~possible[atom], certain[atom])
        maybe = np.where(negated, ~certain[atom], possible[atom])
        for state, known in ((certain, surely), (possible, maybe)):
            state[atom[~negated]] = closure_of_mask(stratum.program, known).state[~negated]
    bodies = Csr(program.body_indptr, program.body_literals)
    negative, atoms = bodies.indices < 0, atoms_of_literals(bodies.indices)
    holds = np.where(negative, ~possible[atoms], certain[atoms])
    fails = np.where(negative, certain[atoms], ~possible[atoms])
    blocked = np.bincount(bodies.owner[fails], minlength=program.R) > 0
    rule, head = np.repeat(np.arange(program.R), program.head_sizes), program.head_indices
    # A rule that needs its own head adds nothing.
    circular = np.isin(rule * M + head, (bodies.owner * M + atoms)[~negative])
    keep = ~blocked[rule]
    if absorptive:
        keep &= ~certain[head] & ~circular
        head, body = head[keep], bodies.keep(~holds).take(rule[keep])
    else:
        given = np.asarray(true, np.int64)
        facts = Csr(np.zeros(len(given) + 1, np.int64), np.zeros(0, np.int64))
        head = np.append(given, head[keep])
        body = Csr.joined([facts, bodies.keep(~(holds & negative)).take(rule[keep])])
        certain = np.zeros(M, np.bool_)
    # Backwards, a head makes its bodies needed: once more a closure.
    goals, literals = head[body.sizes > 0], atoms_of_literals(body.indices)
    backwards = Program.from_arrays(
        np.arange(len(goals) + 1), goals, literals, np.unique(body.indptr), atoms=M
    )
    needed = np.flatnonzero(closure_of_mask(backwards, asked).state[head])
    return OpenRules(certain, head[needed], body.take(needed))


# ---- A program as a circuit: an atom is the sum of its own input and of its rules, a rule the
# product of its body


def compile_circuit(
    program: Program,
    inputs: npt.ArrayLike,
    outputs: npt.ArrayLike,
    *,
    true: npt.ArrayLike = (),
    absorptive: bool = True,
) -> Circuit:
    """Return the circuit from the atoms `inputs` to the atoms `outputs`, both given as indices.

    The atoms `true` are certainly true. All others without an input are false unless a rule derives
    them. `absorptive` says that the sum of true and anything is true, and so a sum of equal terms
    is that term. Otherwise every rule counts: equal bodies, facts of the program, `true`.

    >>> from latentgamma import parse
    >>> program = parse("c :- a, b. d :- c. d :- e.")
    >>> circuit = compile_circuit(program, [2, 1], [3])  # e has no input, so its rule is gone
    >>> circuit.nodes, circuit.parts.indices.tolist()
    (5, [1, 0, 2, 3])
    """
    fed, read = np.asarray(inputs, np.int64), np.asarray(outputs, np.int64)
    rules = open_rules(program, fed, read, true, absorptive=absorptive)
    # The negation of an atom becomes an atom of its own, after all others.
    M, literals = program.M, rules.body.indices
    negated = np.unique(atoms_of_literals(literals[literals < 0]))
    place = np.zeros(M, np.int64)
    place[negated] = M + np.arange(len(negated))
    definite = Program.from_arrays(
        np.append(rules.body.indptr, len(literals) + 1 + np.arange(len(negated))),
        np.append(np.where(literals < 0, place[atoms_of_literals(literals)], literals), negated),
        np.append(rules.head, place[negated]),
        atoms=M + len(negated),
    )
    leaf = np.full(definite.M, FALSE, np.int32)
    leaf[fed] = np.arange(len(fed))
    constant = np.where(rules.certain, TRUE, 0)[read]
    return _numbered(definite, M, leaf, len(fed), constant, read, absorptive)


def _numbered(
    program: Program, M: int, leaf: Integers, inputs: int, constant: npt.NDArray[np.int64],
    read: npt.NDArray[np.int64], absorptive: bool,
) -> Circuit:  # fmt: skip
    """Return nodes for the rules and atoms, numbered stage by stage; atoms from M on are negations."""
    order = rule_order(program)
    body = Csr(program.body_indptr, program.body_indices).to_lists()
    head = program.head_indices.tolist()
    cyclic, in_order = order.cyclic.tolist(), order.rules.tolist()

    # A body of several atoms, or of none, is a product; the same body in several rules is one node.
    product: dict[tuple[int, tuple[int, ...]], int] = {}
    products: list[tuple[int, int, list[int]]] = []  # level, cycle or −1, body
    # Of each sum: ~atom, or a product, and how often it counts.
    sources: dict[int, dict[int, int]] = {}
    level_of_atom = [0] * program.M
    group_of_atom: dict[int, int] = {}
    for block, (start, stop) in enumerate(pairwise(order.block_ptr.tolist())):
        members = in_order[start:stop]
        if cyclic[block]:
            group_of_atom.update(dict.fromkeys((head[j] for j in members), block))
            base = max(level_of_atom[b] for j in members for b in body[j])
        for j in members:
            premises = body[j]
            below = base if cyclic[block] else max([level_of_atom[b] for b in premises], default=0)
            level = below + 1
            source = ~premises[0] if len(premises) == 1 else 0
            if len(premises) != 1:
                group = block if cyclic[block] else -1
                source = product.setdefault((group, tuple(premises)), len(products))
                if source == len(products):
                    products.append((level, group, premises))
                level += not cyclic[block]
            some = sources.setdefault(head[j], {})
            some[source] = 1 if absorptive else some.get(source, 0) + 1
            level_of_atom[head[j]] = max(level, level_of_atom[head[j]])
        if cyclic[block]:
            for j in members:
                level_of_atom[head[j]] = base + 1

    # (level, kind of stage, cycle, sum?, number): sorted, these are the nodes of each stage in turn.
    nodes = [
        (level, CYCLE if group >= 0 else PRODUCTS, group, 0, n)
        for n, (level, group, _) in enumerate(products)
    ]
    for rank, atom in enumerate(sources):
        group = group_of_atom.get(atom, -1)
        kind = NEGATIONS if atom >= M else CYCLE if group >= 0 else SUMS
        nodes.append((level_of_atom[atom], kind, group, 1, rank))
    nodes.sort()
    atoms = list(sources)
    node = leaf.copy()
    node_of_product = [0] * len(products)
    for n, (*_, is_sum, number) in enumerate(nodes, start=inputs):
        if is_sum:
            node[atoms[number]] = n
        else:
            node_of_product[number] = n

    places = node.tolist()
    terms: list[list[int]] = []
    counts, own = [0] * inputs, [-1] * inputs
    stage_ptr, stage_kind, middle = [inputs], [], []
    for n, (level, kind, group, is_sum, number) in enumerate(nodes, start=inputs):
        if n == inputs or (level, kind, group) != nodes[n - 1 - inputs][:3]:
            stage_ptr += [n] if n > inputs else []
            stage_kind.append(kind)
            middle.append(n)
        if is_sum:
            atom = atoms[number]
            some = sources[atom]
            for s, times in some.items():
                terms += [[node_of_product[s] if s >= 0 else places[~s]]] * times
            counts.append(sum(some.values()))
            own.append(int(leaf[atom]))
        else:
            terms.append([places[b] for b in products[number][2]])
            counts.append(1)
            own.append(-1)
            middle[-1] = n + 1
    if nodes:
        stage_ptr.append(inputs + len(nodes))
    kinds = [SUM] * inputs + [NOT if kind == NEGATIONS else SUM for _, kind, *_ in nodes]
    return Circuit(
        inputs,
        _ends(counts),
        Csr.from_lists(terms),
        _integers(kinds),
        _integers(own),
        _integers(stage_ptr),
        _integers(stage_kind),
        _integers(middle),
        np.where(constant < 0, constant, node[read]).astype(np.int32),
    )


def _ends(sizes: Sequence[int]) -> Integers:
    return np.cumsum([0, *sizes]).astype(np.int32)


def _integers(values: npt.ArrayLike) -> Integers:
    return np.asarray(values, np.int32)
