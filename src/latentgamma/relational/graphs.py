"""Rules of a knowledge graph, and the missing links that they predict.

A path rule has a body of steps from X to Y, each in either direction: `h(X,Y) :- r(X,Z), s(Y,Z).` The
entities between X and Y are distinct, and differ from X and Y, so that no rule derives a triple from
itself. A rule with constants is about one entity: `h(X,c) :- r(X,d).`, `h(X,c) :- r(X,Z), s(Z,d).` or
`h(X,c) :- r(X,Z).`, and the same with the constant as the first argument of the head.

Bodies are found on paths between the ends of triples, and each is counted for all heads at once. Work
is counted in edges of the graph that are visited: a run that ends before its time limit gives the same
rules on every machine.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from latentgamma._arguments import one_of, real_number, whole_number, wrong
from latentgamma._text import quantity
from latentgamma.datalog.grounding import ground
from latentgamma.datalog.tables import constant
from latentgamma.errors import ArgumentError, DataError
from latentgamma.program.program import Program
from latentgamma.relational.budget import Budget
from latentgamma.relational.problem import decode

Triple = tuple[str, str, str]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Aggregation = Literal["non_redundant", "noisy_or", "maximum"]

#: The confidence that ranks links is support / (instances + this), so that rare bodies count less.
PSEUDO_INSTANCES = 5.0
#: Edges visited for one body, for one triple while bodies are looked for, and for one rule of a query.
_EDGES_OF_A_BODY, _EDGES_OF_A_TRIPLE, _EDGES_OF_A_WALK = 1_000_000, 20_000, 200_000
#: Edges visited while bodies for one relation are looked for: a loop cannot be interrupted.
_EDGES_OF_A_RELATION = 50_000_000
#: Entities that show the bodies of a head with a constant, and edges visited for each of them.
_SHOWN, _EDGES_OF_A_MEMBER = 16, 4_000
#: Edges that take as long as the rest of the work for one body.
_EDGES_OF_A_CALL = 500
#: Rows of paths between triples that are kept at once.
_ROWS = 2_000_000
#: Pairs (rule, candidate) of one query.
_MOST_PAIRS = 4_000_000
#: Rules that are compared with one another for overlap.
_MOST_COMPARED = 3_000
#: Path rules that are kept for each relation, and rules with constants for each head with its constant.
_MOST_PATHS, _MOST_CONSTANTS = 2_000, 50
#: How much two rules may overlap before they count as one piece of evidence; chosen by validation.
_THRESHOLDS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.1)
#: The threshold without validation.
_THRESHOLD = 0.1
_VARIABLES = "ZUVW"


@dataclass(frozen=True)
class ChainRule:
    """A rule of a knowledge graph.

    Attributes:
        text: the rule; relations are written as predicates of Datalog.
        head: the relation that it derives.
        body: each relation, and whether it is read backwards, from the head's variable on.
        support: the triples of the graph that it derives.
        instances: the pairs that it derives.
        confidence: support / instances.
        pca_confidence: the same, where only pairs whose variable X has some triple of the head's
            relation count as instances (the partial completeness assumption). If the constant comes
            first in the head, the variable Y has to.
        constant: the constant in the head, or None.
        constant_first: whether the constant is the head's first argument.
        end: the constant at the end of the body, or None.
        estimated: whether the numbers are estimated from a sample of the entities.
    """

    text: str
    head: str
    body: tuple[tuple[str, bool], ...]
    support: int
    instances: int
    confidence: float
    pca_confidence: float
    constant: str | None = None
    constant_first: bool = False
    end: str | None = None
    estimated: bool = False


@dataclass(frozen=True)
class LinkPrediction:
    """A missing link that rules predict.

    Attributes:
        triple: the link.
        score: the probability that the aggregation gives it.
        rules: the rules that predict it, the most confident first.
    """

    triple: Triple
    score: float
    rules: tuple[ChainRule, ...]


@dataclass(frozen=True)
class LinkRanking:
    """The ranks of triples among all links that are not known to be true.

    Attributes:
        triples: what was asked for.
        ranks: shape (triples, 2): the rank of the tail among all tails, and of the head among all
            heads. Links with the same score share the mean of their ranks.
        complete: whether every rule was applied in full; very long lists of predictions are cut short.
        left_out: triples with an entity or a relation that the graph does not have; they have no rank.
    """

    triples: tuple[Triple, ...]
    ranks: Floats
    complete: bool
    left_out: tuple[Triple, ...]

    @property
    def mrr(self) -> float:
        """The mean reciprocal rank, over heads and tails."""
        return float((1 / self.ranks).mean())

    def hits(self, k: int) -> float:
        """Return the fraction of ranks that are at most k."""
        return float((self.ranks <= k).mean())

    def __repr__(self) -> str:
        values = ", ".join(f"hits@{k} {self.hits(k):.3f}" for k in (1, 3, 10))
        return f"{quantity(len(self.triples), 'triple')}: MRR {self.mrr:.3f}, {values}"


class _Rules(NamedTuple):
    """Rules as arrays. A path rule has steps; a rule with constants one or two, and a head group."""

    relation: Ints
    steps: Ints  # (rules, most steps), -1 beyond the body
    group: Ints  # the head group of a rule with constants, otherwise -1
    end: Ints  # the entity at the end of the body, or -1
    counts: Ints  # (rules, 3): support, instances, those of them that count for PCA
    estimated: npt.NDArray[np.bool_]

    @property
    def support(self) -> Ints:
        return self.counts[..., 0]

    @property
    def instances(self) -> Ints:
        return self.counts[..., 1]

    @property
    def weight(self) -> Floats:
        """The confidences that rank links."""
        return self.support / (self.instances + PSEUDO_INSTANCES)

    def take(self, rows: Any) -> _Rules:
        return _Rules(*(column[rows] for column in self))


class _Graph:
    """The edges of a graph by entity and step, and scratch memory for the loops."""

    def __init__(self, entities: int, relations: int, triples: Ints, seed: int) -> None:
        self.entities, self.relations, self.steps = entities, relations, 2 * relations
        self.triples = triples
        heads, names, tails = triples.T
        source = np.concatenate((heads, tails))
        step = np.concatenate((2 * names, 2 * names + 1))
        target = np.concatenate((tails, heads))
        order = np.lexsort((target, step, source))
        source, step, target = source[order], step[order], target[order]
        codes = source * self.steps + step
        starts = np.flatnonzero(np.concatenate(([True], codes[1:] != codes[:-1])))
        self.group_owner, self.group_step = source[starts], step[starts]
        group_ptr = np.append(starts, len(codes))
        self.group_sizes = np.diff(group_ptr)
        reverse = np.searchsorted(codes[starts], target * self.steps + (step ^ 1))
        self.links = self.loops.Links(
            self.steps,
            np.searchsorted(self.group_owner, np.arange(entities + 1)),
            self.group_owner,
            self.group_step.astype(np.int32),
            group_ptr,
            target.astype(np.int32),
            reverse.astype(np.int32),
            marks=np.zeros((2, entities), np.int64),
            found=np.empty(entities, np.int64),
            counts=np.zeros(self.groups, np.int64),
        )
        # An edge from an entity to itself alone does not make it a member of a body.
        self._loop_only = (self.group_sizes == 1) & (target[starts] == self.group_owner)
        # Samples are the first entities in one random order, so that they are the same for all bodies.
        place = np.random.default_rng(seed).permutation(entities)
        self._by_step = np.lexsort((place[self.group_owner], self.group_step))
        ends = np.searchsorted(self.group_step[self._by_step], np.arange(self.steps + 1))
        self._step_ptr = ends
        self._token = 1

    @property
    def loops(self) -> Any:
        """The compiled loops; numba is imported when they are first needed."""
        from latentgamma.relational import graph_loops

        return graph_loops

    @property
    def groups(self) -> int:
        """The number of groups."""
        return len(self.group_owner)

    @cached_property
    def pairs(self) -> npt.NDArray[np.int32]:
        """The memory for the pairs (rule, candidate) of a query."""
        return np.empty((2, _MOST_PAIRS), np.int32)

    def tokens(self, count: int) -> int:
        """Return the first of `count` unused marks."""
        self._token += count
        return self._token - count

    def groups_of(self, step: int) -> Ints:
        """Return the groups of a step, in a random order of their entities."""
        return self._by_step[self._step_ptr[step] : self._step_ptr[step + 1]]

    def sources(self, step: int) -> Ints:
        """Return the entities that have a step, in a random order."""
        return self.group_owner[self.groups_of(step)]

    def targets(self, group: int) -> Ints:
        """Return the entities that a group leads to."""
        ptr = self.links.group_ptr
        found: Ints = self.links.targets[ptr[group] : ptr[group + 1]].astype(np.int64)
        return found

    def neighbours(self, entity: int, step: int) -> Ints:
        """Return the entities that a step leads to from this one."""
        group = self.loops.find_group(self.links, entity, step)
        return self.targets(group) if group >= 0 else np.empty(0, np.int64)

    def members(self, steps: Sequence[int], end: int) -> Ints:
        """Return the entities that satisfy the body of a rule with constants, sorted."""
        if end < 0:
            groups = self.groups_of(steps[0])
            return np.sort(self.group_owner[groups[~self._loop_only[groups]]])
        if len(steps) == 1:
            return np.setdiff1d(self.neighbours(end, steps[0] ^ 1), end)
        group = self.loops.find_group(self.links, end, steps[-1] ^ 1)
        found, _, _ = self.gather(group, steps[0])
        return np.sort(found)

    def gather(self, group: int, step: int) -> tuple[Ints, int, int]:
        """Return the entities from which a step leads to a member of the group.

        Also the number of entities in between, and the edges visited.
        """
        count, between, work = self.loops.gather(self.links, group, step ^ 1, self.tokens(1))
        return self.links.found[:count].copy(), between, work


@dataclass(eq=False)
class _Miner:
    """The search for rules; `run` returns what was found when the work or the time is used up."""

    graph: _Graph
    budget: Budget
    max_length: int
    constants: bool
    least: int  # the support
    confident: float  # the smallest confidence
    max_rules: int
    seed: int
    progress: Callable[[str, int, int], None] | None

    def __post_init__(self) -> None:
        graph = self.graph
        self.notes: list[str] = []
        self.signatures: dict[tuple[int, ...], npt.NDArray[np.uint32]] = {}
        self._found: list[_Rules] = []
        self._size = 0
        own = graph.triples[graph.triples[:, 0] == graph.triples[:, 2], 1]
        self._loops = np.bincount(own, minlength=graph.relations)
        self._listed = np.empty((4, graph.groups), np.int64)

    def run(self) -> _Rules:
        """Return the rules, by relation, the most confident first."""
        for step in range(self.graph.steps):
            if self.budget.stops():
                break
            self._count_path((step,))
        if self.constants:
            self._find_constants(self.budget.part(rows=0.2 * self.budget.rows_left))
        if self.max_length >= 2:
            self._find_paths(2, self.budget.part(rows=0.3 * self.budget.rows_left))
        if self.constants and self.max_length >= 2:
            self._find_long_constants(self.budget.part(rows=0.3 * self.budget.rows_left))
        for length in range(3, self.max_length + 1):
            fraction = 1 / (self.max_length + 1 - length)
            self._find_paths(length, self.budget.part(rows=fraction * self.budget.rows_left))
        if self.budget.timed_out:
            self.notes.append(
                "the time limit ended the search; a larger time_limit finds more rules"
            )
        return self._best()

    def _report(self, phase: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(phase, done, total)

    # -- paths

    def _count_path(self, body: tuple[int, ...]) -> None:
        """Count the predictions of a body, and keep the rules that are good enough."""
        graph = self.graph
        support, partial = np.zeros((2, graph.relations), np.int64)
        signature = np.full(graph.loops.BINS, 0xFFFFFFFF, np.uint32)
        sources = graph.sources(body[0])
        pairs, done, work, cut = graph.loops.count_path(
            graph.links, np.array(body, np.int64), sources, graph.tokens(len(sources) + 1),
            _EDGES_OF_A_BODY, support, partial, signature,
        )  # fmt: skip
        self.budget.count(work + _EDGES_OF_A_CALL)
        instances = np.full(graph.relations, pairs)
        if len(body) == 1:
            relation, back = divmod(body[0], 2)
            if back:  # from an entity to itself: the head's own triple
                for column in (support, partial, instances):
                    column[relation] -= self._loops[relation]
            else:
                support[relation] = 0
        heads = np.flatnonzero(
            (support * (len(sources) / max(done, 1)) >= self.least)
            & (support >= self.confident * instances)
        )
        if not len(heads):
            return
        scale = len(sources) / done
        counts = np.stack((support[heads], instances[heads], partial[heads]), 1)
        counts = np.rint(counts * scale).astype(np.int64)
        self.signatures[body] = signature
        estimated = np.full(len(heads), done < len(sources) or cut)
        self._keep(heads, body, np.full(len(heads), -1), -1, counts, estimated)

    def _find_paths(self, length: int, budget: Budget) -> None:
        """Find bodies between the ends of triples, and count the most frequent ones of each head."""
        bodies, whole = self._bodies(length, budget.part(rows=0.4 * budget.rows_left))
        phase = f"rules of {length} literals"
        for done, body in enumerate(bodies):
            if budget.stops():
                self.notes.append(
                    f"of {quantity(len(bodies), 'body', 'bodies')} of {length} literals,"
                    f" {done} were counted"
                )
                return
            self._count_path(body)
            self._report(phase, done + 1, len(bodies))
        if not whole:
            self.notes.append(
                f"bodies of {length} literals were looked for on a sample of the paths"
            )

    def _bodies(self, length: int, budget: Budget) -> tuple[list[tuple[int, ...]], bool]:
        graph = self.graph
        codes, owners = np.empty(_ROWS, np.int64), np.empty(_ROWS, np.int64)
        each = min(_EDGES_OF_A_TRIPLE, _ROWS)
        # The place in its relation's list, the relation, the code.
        found: list[tuple[int, int, int]] = []
        everything = True
        for relation in range(graph.relations):
            if budget.stops():
                everything = False
                break
            triples = graph.triples[graph.triples[:, 1] == relation]
            triples = np.random.default_rng([self.seed, relation]).permutation(triples)
            heads, _, tails = np.ascontiguousarray(triples.T)
            most = (
                int(min(budget.rows_left / (graph.relations - relation), _EDGES_OF_A_RELATION)) + 1
            )
            done, rows, work, whole = graph.loops.find_paths(
                graph.links, length, heads, tails, self.seed, each, most,
                graph.tokens(len(triples) + 1), codes, owners,
            )  # fmt: skip
            self.budget.count(work + rows + _EDGES_OF_A_CALL)
            whole = whole and done == len(triples)
            everything &= whole
            distinct, place = np.unique(codes[:rows], return_inverse=True)
            pairs = np.unique(place * (len(triples) + 1) + owners[:rows])
            hits = np.bincount(pairs // (len(triples) + 1), minlength=len(distinct))
            enough = np.flatnonzero(hits >= (self.least if whole else min(2, self.least)))
            enough = enough[np.argsort(-hits[enough], kind="stable")]
            found += [(rank, relation, int(distinct[i])) for rank, i in enumerate(enough)]
            self._report(f"paths of {length} literals", relation + 1, graph.relations)
        found.sort()
        ordered = dict.fromkeys(code for _, _, code in found)
        bodies = decode(np.array([*ordered], np.int64), graph.steps, length)
        return [*map(tuple, bodies.tolist())], everything

    # -- constants

    def _find_constants(self, budget: Budget) -> None:
        """Count the rules with a constant in the head, and a body of one literal."""
        graph = self.graph
        for step in range(graph.steps):
            general = self._general(step)
            for group in graph.groups_of(step ^ 1):
                if graph.group_sizes[group] < self.least:
                    continue
                if budget.stops():
                    self.notes.append("some rules with constants were not counted")
                    return
                targets = graph.targets(group)
                owner = int(graph.group_owner[group])
                self._list_heads(targets[targets != owner], (step,), owner, general, group)
            self._report("rules with constants", step + 1, graph.steps)

    def _general(self, step: int, *, keep: bool = True) -> Floats:
        """Return the confidence of `h(X,c) :- r(X,Z).` for each head group, and keep these rules."""
        general = np.zeros(self.graph.groups)
        members = self.graph.members((step,), -1)
        self._list_heads(members, (step,), -1, general, first=True, keep=keep)
        return general

    def _find_long_constants(self, budget: Budget) -> None:
        """Count the rules with a body of two literals, the second of which ends in a constant."""
        graph = self.graph
        shown = self._long_bodies(budget.part(rows=0.4 * budget.rows_left))
        every = range(graph.steps * graph.groups)
        general: dict[int, Floats] = {}
        for done, code in enumerate(
            itertools.chain(shown, (code for code in every if code not in shown))
        ):
            if budget.stops():
                self.notes.append("some longer rules with constants were not counted")
                return
            step, group = divmod(code, graph.groups)
            if step not in general:
                general[step] = self._general(step, keep=False)  # they were kept before
            members, between, work = graph.gather(group, step)
            self.budget.count(work + _EDGES_OF_A_CALL)
            # Through one entity alone, a shorter rule about it is the same.
            if len(members) >= self.least and between > 1:
                second = int(graph.group_step[group]) ^ 1
                owner = int(graph.group_owner[group])
                self._list_heads(members, (step, second), owner, general[step])
            self._report("longer rules with constants", done + 1, len(every))

    def _long_bodies(self, budget: Budget) -> dict[int, None]:
        """Return bodies that end in a constant, as step times groups plus group, the best of each head first.

        Bodies are found on paths from some of the entities that a head with a constant is true for. The
        best have many of these entities among few.
        """
        graph = self.graph
        codes, owners = np.empty((2, _SHOWN * _EDGES_OF_A_MEMBER), np.int64)
        values = np.empty(len(codes))
        found: list[tuple[int, int]] = []
        groups = np.flatnonzero(graph.group_sizes >= max(2, self.least))
        # The largest group of each step, then the next one: every relation gets its share of the work.
        groups = groups[np.lexsort((-graph.group_sizes[groups], graph.group_step[groups]))]
        steps = graph.group_step[groups]
        place = np.arange(len(groups)) - np.searchsorted(steps, steps)
        for head in groups[np.argsort(place, kind="stable")].tolist():
            if budget.stops():
                break
            members = np.random.default_rng([self.seed, head]).permutation(graph.targets(head))
            members = members[:_SHOWN]
            rows, work = graph.loops.find_ends(
                graph.links, members, head, _EDGES_OF_A_MEMBER, codes, owners
            )
            self.budget.count(work + _EDGES_OF_A_CALL)
            pairs = np.unique(codes[:rows] * _SHOWN + owners[:rows])
            distinct, hits = np.unique(pairs // _SHOWN, return_counts=True)
            distinct, hits = distinct[hits >= 2], hits[hits >= 2]
            scale = graph.entities / len(members)
            work = graph.loops.gains(graph.links, distinct, hits, scale, values)
            self.budget.count(work)
            best = np.argsort(-values[: len(distinct)], kind="stable")[:_MOST_CONSTANTS]
            found += enumerate(distinct[best].tolist())
        found.sort(key=lambda entry: entry[0])
        return dict.fromkeys(code for _, code in found)

    def _list_heads(
        self,
        members: Ints,
        steps: tuple[int, ...],
        end: int,
        general: Floats,
        group: int = -1,
        *,
        first: bool = False,
        keep: bool = True,
    ) -> None:
        """Keep the rules with constants of a body, by its members, that are better than more general ones.

        `group` is the body, if it is one literal about a constant.
        """
        graph = self.graph
        rows, work = graph.loops.list_heads(
            graph.links, members, steps[0] if group < 0 else -1, group, graph.tokens(1), self.least,
            self.confident, PSEUDO_INSTANCES, general, first, self._listed,
        )  # fmt: skip
        self.budget.count(work + _EDGES_OF_A_CALL)
        if rows and keep:
            heads, *counts = self._listed[:, :rows].copy()
            exact = np.zeros(rows, bool)
            relation = graph.group_step[heads] // 2
            self._keep(relation, steps, heads, end, np.stack(counts, 1), exact)

    # -- what was found

    def _keep(
        self,
        relation: Ints,
        steps: tuple[int, ...],
        group: Ints,
        end: int,
        counts: Ints,
        estimated: npt.NDArray[np.bool_],
    ) -> None:
        """Keep the rules of a body."""
        body = np.full((len(relation), self.max_length), -1)
        body[:, : len(steps)] = steps
        ends = np.full(len(relation), end)
        rules = _Rules(relation, body, group, ends, counts, estimated)
        self._found.append(rules)
        self._size += len(rules.relation)
        if self._size > 4 * self.max_rules:
            best = self._best()
            self._found, self._size = [best], len(best.relation)

    def _best(self) -> _Rules:
        """Return the rules to keep, by relation, the most confident first."""
        if not self._found:
            empty = np.empty(0, np.int64)
            self._keep(empty, (), empty, -1, np.empty((0, 3), np.int64), np.empty(0, bool))
        rules = _Rules(*map(np.concatenate, zip(*self._found, strict=True)))
        length = (rules.steps >= 0).sum(1)
        order = np.lexsort(
            (*rules.steps.T[::-1], rules.end, rules.group, length, rules.group >= 0, -rules.support,
             -rules.weight,
             rules.relation)
        )  # fmt: skip
        rules = rules.take(order)
        # The place of each rule among those of its relation, or of its head with a constant.
        head = np.where(rules.group < 0, rules.relation, self.graph.relations + rules.group)
        order = np.argsort(head, kind="stable")
        place = np.empty(len(head), np.int64)
        place[order] = np.arange(len(head)) - np.searchsorted(head[order], head[order])
        keep = place < np.where(rules.group < 0, _MOST_PATHS, _MOST_CONSTANTS)
        weight = np.where(keep, rules.weight, -1.0)
        if np.count_nonzero(keep) > self.max_rules:
            keep &= weight >= np.sort(weight)[-self.max_rules]
        return rules.take(keep)


class _Hits(NamedTuple):
    """What the rules of a relation predict for a query: rule j `candidates[ptr[j]:ptr[j + 1]]`."""

    ptr: Ints
    candidates: Ints
    complete: bool

    def keep(self, kept: npt.NDArray[np.bool_]) -> _Hits:
        """Return what some of the rules predict."""
        sizes = np.diff(self.ptr)
        ends = np.cumsum(np.where(kept, sizes, 0))
        return self._replace(
            ptr=np.concatenate(([0], ends)), candidates=self.candidates[np.repeat(kept, sizes)]
        )


class _RelationRules:
    """The rules of one relation, ready to answer queries, and their clusters."""

    def __init__(
        self, graph: _Graph, rules: _Rules, first: int, signatures: Mapping[tuple[int, ...], Any]
    ) -> None:
        self.graph, self.rules, self.first = graph, rules, first
        self.weight = rules.weight
        self.lengths = (rules.steps >= 0).sum(1)
        self._paths = np.flatnonzero(rules.group < 0)
        steps = rules.steps[self._paths]
        self._lengths = self.lengths[self._paths]
        self._bodies = [_bodies_of(steps, self._lengths, back) for back in (False, True)]
        bodies = [tuple(row[:n].tolist()) for row, n in zip(steps, self._lengths, strict=True)]
        self._signatures = [signatures[body] for body in bodies]
        # Rules with constants, by the direction in which they have their variable.
        self._by_member: list[tuple[Ints, Ints]] = []
        self._by_head: list[dict[int, list[int]]] = []
        constants = np.flatnonzero(rules.group >= 0)
        self._heads = graph.group_owner[rules.group]  # the head's constant, where there is one
        variable_last = graph.group_step[rules.group] % 2 == 0
        self._members: dict[int, Ints] = {}
        for last in (False, True):
            chosen = constants[variable_last[constants] == last]
            parts = [self.members(int(j)) for j in chosen]
            entities = np.concatenate(parts) if parts else np.empty(0, np.int64)
            owners = np.repeat(chosen, [len(part) for part in parts])
            order = np.argsort(entities, kind="stable")
            self._by_member.append((entities[order], owners[order]))
            by_head: dict[int, list[int]] = {}
            for j in chosen.tolist():
                by_head.setdefault(int(self._heads[j]), []).append(j)
            self._by_head.append(by_head)
        self._labels: dict[float, tuple[Ints, Ints]] = {}

    def members(self, rule: int) -> Ints:
        """Return the entities that satisfy the body of a rule with constants, without its head's."""
        if rule not in self._members:
            steps = self.rules.steps[rule]
            steps = steps[steps >= 0].tolist()
            members = self.graph.members(steps, int(self.rules.end[rule]))
            self._members[rule] = members[members != self._heads[rule]]
        return self._members[rule]

    def hits(self, entity: int, *, back: bool) -> _Hits:
        """Return what the rules predict for the tail of an entity, or, backwards, for its head."""
        graph = self.graph
        rules, candidates = graph.pairs
        size, complete = graph.loops.walk_rules(
            graph.links, self._bodies[back], self._lengths, entity,
            graph.tokens(len(self._paths) + 1), _EDGES_OF_A_WALK, graph.pairs,
        )  # fmt: skip
        parts = [(self._paths[rules[:size]], candidates[:size].astype(np.int64))]
        # The entity is the rule's variable, and the candidate its constant.
        members, owners = self._by_member[back]
        low, high = np.searchsorted(members, [entity, entity + 1])
        parts.append((owners[low:high], self._heads[owners[low:high]]))
        # The entity is the rule's constant, and the candidates are what satisfies the body.
        for j in self._by_head[not back].get(entity, ()):
            found = self.members(j)
            parts.append((np.full(len(found), j), found))
        owner = np.concatenate([part for part, _ in parts])
        candidate = np.concatenate([part for _, part in parts])
        order = np.argsort(owner, kind="stable")
        ptr = np.searchsorted(owner[order], np.arange(len(self.weight) + 1))
        return _Hits(ptr, candidate[order], bool(complete))

    @cached_property
    def _blocks(self) -> list[tuple[Ints, npt.NDArray[np.float32]]]:
        """Groups of rules that can overlap, each with the overlap of any two of them."""
        loops = self.graph.loops
        groups = [(self._paths, self._signatures)]
        constants = np.flatnonzero(self.rules.group >= 0)
        order = constants[np.argsort(self.rules.group[constants], kind="stable")]
        heads = self.rules.group[order]
        for part in np.split(order, np.flatnonzero(np.diff(heads)) + 1):
            signatures = []
            for j in part.tolist() if len(part) > 1 else ():
                signatures.append(np.full(loops.BINS, 0xFFFFFFFF, np.uint32))
                loops.sign(self.members(j), signatures[-1])
            groups.append((part, signatures))
        found = []
        for part, signatures in groups:
            size = min(len(part), _MOST_COMPARED)
            if size > 1:
                shared = np.eye(size, dtype=np.float32)
                loops.overlaps(np.array(signatures[:size]), shared)
                found.append((part[:size], shared))
        return found

    def clusters(self, threshold: float) -> tuple[Ints, Ints]:
        """Return the rules in the order of their clusters, and the cluster of each rule."""
        if threshold not in self._labels:
            labels = np.arange(len(self.weight))
            if threshold <= 0:
                labels[:] = 0
            elif threshold <= 1:
                for part, shared in self._blocks:
                    labels[part] = part[components(shared >= threshold)]
            self._labels[threshold] = np.argsort(labels, kind="stable"), labels
        return self._labels[threshold]

    def scores(self, hits: _Hits, threshold: float) -> Floats:
        """Return log(1 - probability) of each entity: noisy-or over clusters of rules."""
        order, labels = self.clusters(threshold)
        scores = np.zeros(self.graph.entities)
        self.graph.loops.combine(order, hits.ptr, hits.candidates, labels, self.weight, scores)
        return scores


def components(near: npt.NDArray[np.bool_]) -> Ints:
    """Return for each row the first one that it is linked with by rows near one another."""
    labels = np.full(len(near), -1)
    for start in range(len(near)):
        front = np.array([start] if labels[start] < 0 else [], np.int64)
        while len(front):
            labels[front] = start
            front = np.flatnonzero(near[front].any(0) & (labels < 0))
    return labels


def _bodies_of(steps: Ints, lengths: Ints, back: bool) -> Ints:
    """Return bodies, from their last step to the first if they are read backwards."""
    if not back:
        return steps
    turned = np.full_like(steps, -1)
    for row, (body, length) in enumerate(zip(steps, lengths, strict=True)):
        turned[row, :length] = body[:length][::-1] ^ 1
    return turned


class ChainRules:
    """The rules of a knowledge graph; see `mine_chains`.

    Attributes:
        entities: the names of the entities, sorted.
        relations: the names of the relations, sorted.
        notes: what the search left out or estimated.
        timed_out: whether the time limit ended the search.
        threshold: the overlap (Jaccard index of the predictions) from which on two rules count as one
            piece of evidence.
        longest: the number of literals of the longest bodies that `rank` and `predict` use.
    """

    def __init__(
        self,
        entities: Sequence[str],
        relations: Sequence[str],
        graph: _Graph,
        miner: _Miner,
        notes: Sequence[str],
    ) -> None:
        self.entities, self.relations = tuple(entities), tuple(relations)
        self.threshold, self.longest = _THRESHOLD, miner.max_length
        self._graph, self._rules, self._signatures = graph, miner.run(), miner.signatures
        self.notes = (*notes, *miner.notes)
        self.timed_out = miner.budget.timed_out
        self._names = _predicates(relations)
        self._entity = {name: i for i, name in enumerate(entities)}
        self._relation = {name: i for i, name in enumerate(relations)}
        self._prepared: dict[int, _RelationRules] = {}

    def __len__(self) -> int:
        return len(self._rules.relation)

    def __repr__(self) -> str:
        return f"{quantity(len(self), 'rule')} of {quantity(len(self.relations), 'relation')}"

    @cached_property
    def rules(self) -> tuple[ChainRule, ...]:
        """The rules, the most confident first: by support / (instances + 5)."""
        weight = self._rules.weight
        found = [(-weight[i], self._rule(i)) for i in range(len(self))]
        found.sort(
            key=lambda one: (one[0], -one[1].support, one[1].constant is not None, one[1].text)
        )
        return tuple(rule for _, rule in found)

    @property
    def text(self) -> str:
        """The rules as Datalog, one a line, with the inequalities between variables."""
        return "\n".join(self._texts(0.0))

    def _texts(self, least: float) -> list[str]:
        rules = self._rules
        chosen = np.flatnonzero(rules.support >= least * rules.instances)
        order = chosen[np.argsort(-rules.weight[chosen], kind="stable")]
        return [self._text(i, distinct=True) for i in order.tolist()]

    def as_program(self, *, min_confidence: float = 0.9) -> Program:
        """Return the triples, as facts, and the instances of confident rules as a ground program.

        >>> import latentgamma as lg
        >>> family = [("ann", "parent", "bob"), ("bob", "parent", "cid"), ("ann", "grandparent", "cid")]
        >>> found = mine_chains([*family, ("cid", "parent", "dan")], min_support=1, constants=False)
        >>> program = found.as_program(min_confidence=0.5)
        >>> "grandparent(bob,dan)" in lg.closure(program, []).atoms
        True

        Args:
            min_confidence: of the rules that are used. They are applied until nothing new follows.

        Raises:
            ProgramError: the program is too large, or clingo is not installed.
        """
        real_number("min_confidence", min_confidence, "a fraction from 0 to 1", _is_fraction)
        facts: dict[str, list[tuple[str, str]]] = {f"{name}/2": [] for name in self._names}
        triples: list[tuple[str, list[str]]] = []
        for h, r, t in self._graph.triples.tolist():
            pair = self.entities[h], self.entities[t]
            facts[f"{self._names[r]}/2"].append(pair)
            triples.append((f"{self._names[r]}({','.join(map(constant, pair))})", []))
        rules = ground("\n".join(self._texts(min_confidence)), open=list(facts), facts=facts).rules
        return Program.from_rules([*triples, *rules])

    # -- one rule

    def _rule(self, i: int) -> ChainRule:
        row = self._rules.take(i)
        graph = self._graph
        with_constant = row.group >= 0
        support, instances = int(row.support), int(row.instances)
        return ChainRule(
            self._text(i),
            self.relations[row.relation],
            tuple((self.relations[s // 2], bool(s % 2)) for s in row.steps.tolist() if s >= 0),
            support,
            instances,
            support / instances,
            support / max(int(row.counts[2]), 1),
            self.entities[graph.group_owner[row.group]] if with_constant else None,
            bool(with_constant and graph.group_step[row.group] % 2 == 0),
            self.entities[row.end] if row.end >= 0 else None,
            bool(row.estimated),
        )

    def _text(self, i: int, *, distinct: bool = False) -> str:
        """Return a rule as text, with its inequalities if they are asked for."""
        row = self._rules.take(i)
        steps = [step for step in row.steps.tolist() if step >= 0]
        if row.group < 0:
            middle = _VARIABLES[: len(steps) - 1]
            nodes = ["X", *middle, "Y"]
            ends = ("X", "Y")
            unequal = [(z, end) for z in middle for end in ends]
            unequal += itertools.combinations(middle, 2)
            if steps == [2 * row.relation + 1]:
                unequal = [ends]
        else:
            last = self._graph.group_step[row.group] % 2 == 0
            variable = "Y" if last else "X"
            head = constant(self.entities[self._graph.group_owner[row.group]])
            ends = (head, variable) if last else (variable, head)
            nodes = [variable, *_VARIABLES[: len(steps)]]
            if row.end >= 0:
                nodes[-1] = constant(self.entities[row.end])
            unequal = [(variable, head), *itertools.combinations(nodes, 2)]
            unequal = list(dict.fromkeys(unequal))
        literals = [
            f"{self._names[step // 2]}({b},{a})"
            if step % 2
            else f"{self._names[step // 2]}({a},{b})"
            for step, (a, b) in zip(steps, itertools.pairwise(nodes), strict=True)
        ]
        literals += [f"{a} != {b}" for a, b in unequal] if distinct else []
        return f"{self._names[row.relation]}({','.join(ends)}) :- {', '.join(literals)}."

    # -- predictions

    def predict(
        self,
        head: str | None,
        relation: str,
        tail: str | None = None,
        *,
        top: int = 10,
        aggregation: Aggregation = "non_redundant",
    ) -> tuple[LinkPrediction, ...]:
        """Return the most likely missing links, the best first.

        >>> family = [("ann", "parent", "bob"), ("bob", "parent", "cid"), ("ann", "grandparent", "cid")]
        >>> found = mine_chains([*family, ("cid", "parent", "dan")], min_support=1, constants=False)
        >>> found.predict("bob", "grandparent", None)[0].triple
        ('bob', 'grandparent', 'dan')

        Args:
            head: the first entity, or None to ask for it.
            relation: the relation.
            tail: the second entity, or None to ask for it. One of both is None.
            top: the largest number of links. Links of the graph are left out.
            aggregation: see `rank`.
        """
        if (head is None) == (tail is None):
            raise ArgumentError("predict asks for one entity: head or tail is None, and not both")
        whole_number("top", top, 1)
        known = head if tail is None else tail
        entity, r = self._number("entity", known), self._number("relation", relation)
        back = head is None
        prepared = self._prepare(r)
        threshold = self._threshold(aggregation)
        hits = prepared.hits(entity, back=back).keep(prepared.lengths <= self.longest)
        rules: dict[int, list[int]] = {}
        for j in range(len(hits.ptr) - 1):
            for candidate in hits.candidates[hits.ptr[j] : hits.ptr[j + 1]].tolist():
                rules.setdefault(candidate, []).append(j)
        for linked in self._graph.neighbours(entity, 2 * r + back).tolist():
            rules.pop(linked, None)
        weight = prepared.weight
        if threshold > 0:
            scores = -np.expm1(prepared.scores(hits, threshold))
            order = sorted(rules, key=lambda c: (-scores[c], self.entities[c]))
        else:
            order = sorted(rules, key=lambda c: ([-weight[j] for j in rules[c]] + [1.0], c))
            scores = {c: weight[listed[0]] for c, listed in rules.items()}  # type: ignore[assignment]
        return tuple(
            LinkPrediction(
                self._triple(entity, r, c, back=back),
                float(scores[c]),
                tuple(self._rule(prepared.first + j) for j in rules[c]),
            )
            for c in order[:top]
        )

    def explain(
        self, head: str, relation: str, tail: str, *, top: int = 5, groundings: int = 3
    ) -> tuple[tuple[ChainRule, tuple[tuple[Triple, ...], ...]], ...]:
        """Return the rules that derive a link, the most confident first, with triples that they use.

        >>> family = [("ann", "parent", "bob"), ("bob", "parent", "cid"), ("ann", "grandparent", "cid")]
        >>> rule, bodies = mine_chains(family, min_support=1).explain("ann", "grandparent", "cid")[0]
        >>> print(rule.text, bodies[0])
        grandparent(X,Y) :- parent(X,Z), parent(Z,Y). (('ann', 'parent', 'bob'), ('bob', 'parent', 'cid'))

        Args:
            head: the first entity.
            relation: the relation.
            tail: the second entity.
            top: the largest number of rules.
            groundings: the largest number of bodies that are shown for a rule.
        """
        whole_number("top", top, 1)
        whole_number("groundings", groundings, 1)
        x, y = self._number("entity", head), self._number("entity", tail)
        prepared = self._prepare(self._number("relation", relation))
        hits = prepared.hits(x, back=False)
        owners = np.searchsorted(hits.ptr, np.flatnonzero(hits.candidates == y), "right") - 1
        shown = []
        for i in (prepared.first + owners[:top]).tolist():
            found = itertools.islice(self._groundings(i, x, y), groundings)
            shown.append((self._rule(i), tuple(found)))
        return tuple(shown)

    def _groundings(self, i: int, x: int, y: int) -> Iterator[tuple[Triple, ...]]:
        """Yield the bodies with which a rule derives a link."""
        row, graph = self._rules.take(i), self._graph
        steps = [step for step in row.steps.tolist() if step >= 0]
        start, last = x, y
        if row.group >= 0:
            start = y if graph.group_step[row.group] % 2 == 0 else x
            last = int(row.end)
        path = [start]

        def walk(depth: int) -> Iterator[tuple[Triple, ...]]:
            if depth == len(steps):
                yield tuple(
                    self._triple(a, step // 2, b, back=bool(step % 2))
                    for step, (a, b) in zip(steps, itertools.pairwise(path), strict=True)
                )
                return
            for node in graph.neighbours(path[-1], steps[depth]).tolist():
                ends = depth == len(steps) - 1
                if ends and last not in (-1, node):
                    continue
                if node in path[1:] or (node == start and not (ends and row.group < 0)):
                    continue
                if not ends and node == last:
                    continue
                path.append(node)
                yield from walk(depth + 1)
                path.pop()

        yield from walk(0)

    # -- ranking

    def rank(
        self,
        triples: Iterable[Sequence[str]],
        known: Iterable[Sequence[str]] = (),
        *,
        aggregation: Aggregation = "non_redundant",
    ) -> LinkRanking:
        """Return the filtered ranks of triples, for tails and heads.

        Links of the graph, of `triples` and of `known`, other than the one that is asked for, are left
        out of the ranking. Links with the same score share the mean of their ranks.

        Args:
            triples: what to predict.
            known: true triples beside those of the graph, such as those of the other splits.
            aggregation: how the confidences of the rules that predict a link are combined.
                "maximum": the most confident rule decides, then the next one (as AnyBURL does).
                "noisy_or": the probability that not all of them are wrong, if they were independent.
                "non_redundant": rules that predict much the same links count once, with the most
                confident of them, and noisy-or combines the clusters (as SAFRAN does); `threshold` says
                what overlap makes two rules one.

        Raises:
            DataError: there are no triples whose entities and relations the graph has.
        """
        given = _read_triples(triples)
        asked = self._numbers(given)
        if not len(asked):
            raise DataError("there are no triples to rank, of entities and relations in the graph")
        ranks = np.empty((len(asked), 2))
        complete = True
        choices = [(self.longest, self._threshold(aggregation))]
        for rows, back, found, whole in self._ranks(asked, self._numbers(known), choices):
            ranks[rows, int(back)] = found[0]
            complete &= whole
        named = tuple(triple for triple in given if self._has(triple))
        left_out = tuple(triple for triple in given if not self._has(triple))
        return LinkRanking(named, ranks, complete, left_out)

    def tune(self, validation: Iterable[Sequence[str]]) -> None:
        """Choose `threshold` and `longest` by the mean reciprocal rank of validation triples.

        So longer bodies are used where they pay.

        Args:
            validation: true triples that are not in the graph, and not those of a test.
        """
        asked = self._numbers(validation)
        if not len(asked):
            return
        longest = int((self._rules.steps >= 0).sum(1).max(initial=1))
        choices = list(itertools.product(range(1, longest + 1), _THRESHOLDS))
        total = np.zeros(len(choices))
        for _, _, found, _ in self._ranks(asked, self._numbers(()), choices):
            total += (1 / found).sum(1)
        self.longest, self.threshold = choices[int(np.argmax(total))]

    def _ranks(
        self, asked: Ints, known: Ints, choices: Sequence[tuple[int, float]]
    ) -> Iterator[tuple[Ints, bool, Floats, bool]]:
        """Yield rows of `asked`, the direction, their ranks for each choice, if all rules were applied.

        A choice is the longest body that counts, and a threshold.
        """
        others = np.concatenate((known, asked))
        for r in np.unique(asked[:, 1]).tolist():
            prepared = self._prepare(r)
            rows = np.flatnonzero(asked[:, 1] == r)
            true = others[others[:, 1] == r]
            for back in (False, True):
                given, wanted = (2, 0) if back else (0, 2)
                for entity in np.unique(asked[rows, given]).tolist():
                    part = rows[asked[rows, given] == entity]
                    rival = np.ones(len(self.entities), np.uint8)
                    rival[self._graph.neighbours(entity, 2 * r + back)] = 0
                    rival[true[true[:, given] == entity][:, wanted]] = 0
                    hits = prepared.hits(entity, back=back)
                    parts = {n: hits.keep(prepared.lengths <= n) for n in {n for n, _ in choices}}
                    targets = asked[part, wanted]
                    found = np.array(
                        [_ranks_of(prepared, parts[n], targets, rival, t) for n, t in choices]
                    )
                    yield part, back, found, hits.complete

    def _prepare(self, relation: int) -> _RelationRules:
        """Return the rules of a relation, ready to answer queries; a few are kept."""
        if relation not in self._prepared:
            if len(self._prepared) >= 8:
                self._prepared.pop(next(iter(self._prepared)))
            low, high = np.searchsorted(self._rules.relation, [relation, relation + 1])
            self._prepared[relation] = _RelationRules(
                self._graph, self._rules.take(slice(low, high)), int(low), self._signatures
            )
        return self._prepared[relation]

    def _threshold(self, aggregation: Aggregation) -> float:
        one_of("aggregation", aggregation, ("non_redundant", "noisy_or", "maximum"))
        return {"maximum": 0.0, "noisy_or": 2.0}.get(aggregation, self.threshold)

    def _triple(self, one: int, relation: int, other: int, *, back: bool) -> Triple:
        head, tail = (other, one) if back else (one, other)
        return self.entities[head], self.relations[relation], self.entities[tail]

    def _number(self, kind: str, name: Any) -> int:
        table = self._entity if kind == "entity" else self._relation
        text = str(name) if isinstance(name, int) else name
        if text not in table:
            raise DataError(f"the graph has no {kind} {name!r}")
        return table[text]

    def _has(self, triple: Triple) -> bool:
        return (
            triple[0] in self._entity and triple[1] in self._relation and triple[2] in self._entity
        )

    def _numbers(self, triples: Iterable[Sequence[str]]) -> Ints:
        """Return the numbers of the triples whose names the graph has."""
        numbers = [
            (self._entity[h], self._relation[r], self._entity[t])
            for h, r, t in filter(self._has, _read_triples(triples))
        ]
        return np.array(numbers, np.int64).reshape(-1, 3)


def _ranks_of(
    prepared: _RelationRules,
    hits: _Hits,
    targets: Ints,
    rival: npt.NDArray[np.uint8],
    threshold: float,
) -> list[float]:
    """Return the rank of each target among its rivals; ties share the mean of their ranks."""
    if threshold > 0:
        scores = prepared.scores(hits, threshold)
        others = scores[rival > 0]
        return [
            float(1 + (others < scores[t]).sum() + (others == scores[t]).sum() / 2) for t in targets
        ]
    # The confidences of the rules that predict each candidate, falling, one candidate after another.
    order = np.argsort(hits.candidates, kind="stable")
    candidates = hits.candidates[order]
    weight = np.repeat(prepared.weight, np.diff(hits.ptr))[order]
    sizes = np.bincount(candidates, minlength=len(rival))
    ends = np.cumsum(sizes)
    place = np.arange(len(weight)) - (ends - sizes)[candidates]
    ranks = []
    for t in targets.tolist():
        own = np.append(weight[ends[t] - sizes[t] : ends[t]], 0.0)
        # The first confidence that differs decides, or else that one of them has no further one.
        outcome = np.where(sizes < sizes[t], -1.0, 0.0)
        difference = weight - own[np.minimum(place, sizes[t])]
        first = np.flatnonzero(difference)
        where, at = np.unique(candidates[first], return_index=True)
        outcome[where] = difference[first[at]]
        others = outcome[rival > 0]
        ranks.append(float(1 + (others > 0).sum() + (others == 0).sum() / 2))
    return ranks


def _is_fraction(value: float) -> bool:
    return 0 <= value <= 1


def _predicates(relations: Iterable[str]) -> list[str]:
    """Return the relations as names of predicates, all different.

    >>> _predicates(["isa", "/film/film/genre", "Has part"])
    ['isa', 'film_film_genre', 'has_part']
    """
    found: dict[str, None] = {}
    for relation in relations:
        name = re.sub(r"\W+", "_", relation, flags=re.ASCII).strip("_").lower()
        if not name or not name[0].isalpha() or name == "not":
            name = f"r_{name}".rstrip("_")
        number = 2
        unique = name
        while unique in found:
            unique, number = f"{name}_{number}", number + 1
        found[unique] = None
    return list(found)


def _read_triples(triples: Any) -> list[Triple]:
    """Return triples as names; whole numbers are written as text."""
    form = "a graph is a list of triples (head, relation, tail)"
    if hasattr(triples, "itertuples"):  # a frame of pandas
        triples = triples.itertuples(index=False)
    if isinstance(triples, (str, bytes)) or not isinstance(triples, Iterable):
        raise DataError(f"{form}, not {type(triples).__name__}")
    rows: list[Any] = []
    for row in triples:
        if isinstance(row, (str, bytes)) or not hasattr(row, "__len__") or len(row) != 3:
            raise DataError(f"{form}, but entry {len(rows) + 1} is {row!r}")
        names = tuple(str(name) if isinstance(name, (int, np.integer)) else name for name in row)
        if not all(isinstance(name, str) for name in names):
            raise DataError(
                f"{form} of texts or whole numbers, but entry {len(rows) + 1} is {row!r}"
            )
        rows.append(names)
    return rows


def mine_chains(
    triples: Iterable[Sequence[str]],
    *,
    max_length: int = 3,
    constants: bool = True,
    min_support: int = 2,
    min_confidence: float = 0.01,
    max_rules: int = 200_000,
    validation: Iterable[Sequence[str]] = (),
    work_limit: int = 1_000_000_000,
    time_limit: float = 120.0,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> ChainRules:
    """Return the rules of a knowledge graph, with their support and confidence.

    >>> family = [("ann", "parent", "bob"), ("bob", "parent", "cid"), ("ann", "grandparent", "cid")]
    >>> found = mine_chains(family, min_support=1, min_confidence=0.5)
    >>> print(found.rules[0].text, found.rules[0].support)
    grandparent(X,Y) :- parent(X,Z), parent(Z,Y). 1

    Args:
        triples: the graph, as (head, relation, tail).
        max_length: the largest number of body literals, at most 5. Bodies with a constant have at
            most two.
        constants: whether rules may have constants.
        min_support: the fewest triples that a rule derives.
        min_confidence: the smallest fraction of true ones among the pairs that a rule derives.
        max_rules: the most confident rules are kept.
        validation: true triples outside the graph that choose `threshold` and `longest`; see `tune`.
        work_limit: the edges of the graph that may be visited. The rules are the same for the same seed
            and work limit, unless the time limit ends the search first.
        time_limit: in seconds, for the search; the rules so far are then returned, and `timed_out` is
            True.
        seed: the seed of everything random: the samples of triples, paths and entities.
        progress: called with the name of a phase, what is done and the total, for example an
            `lg.learning.ProgressBar()`.

    Raises:
        DataError: these are not triples.
        ArgumentError: a limit has a value that it cannot have.
    """
    whole_number("max_length", max_length, 1, 5)
    if not isinstance(constants, bool):
        raise wrong("constants", "True or False", constants)
    whole_number("min_support", min_support, 1)
    real_number("min_confidence", min_confidence, "a fraction from 0 to 1", _is_fraction)
    whole_number("max_rules", max_rules, 1)
    whole_number("work_limit", work_limit, 1)
    whole_number("seed", seed)
    real_number("time_limit", time_limit, "a number of seconds above 0", lambda x: x > 0)
    budget = Budget(time_limit, work_limit=work_limit)
    rows = _read_triples(triples)
    if not rows:
        raise DataError("the graph has no triples; pass at least one (head, relation, tail)")
    entities = sorted({name for h, _, t in rows for name in (h, t)})
    relations = sorted({r for _, r, _ in rows})
    entity = {name: i for i, name in enumerate(entities)}
    relation = {name: i for i, name in enumerate(relations)}
    numbers = np.array([(entity[h], relation[r], entity[t]) for h, r, t in rows], np.int64)
    distinct = np.unique(numbers, axis=0)
    notes = []
    if len(distinct) < len(rows):
        notes.append(f"{quantity(len(rows) - len(distinct), 'duplicate triple')} left out")
    longest = max_length
    while (2 * len(relations)) ** longest >= 2**62:
        longest -= 1
    if longest < max_length:
        notes.append(f"with {len(relations)} relations, bodies have at most {longest} literals")
    graph = _Graph(len(entities), len(relations), distinct, seed)
    limits = (longest, constants, min_support, min_confidence, max_rules, seed)
    miner = _Miner(graph, budget, *limits, progress)
    found = ChainRules(entities, relations, graph, miner, notes)
    found.tune(validation)
    return found
