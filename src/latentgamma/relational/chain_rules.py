"""Chain rules of a knowledge graph, with their support and confidence, and the links they predict.

The bodies are one triple or two in a row, each in either direction: `h(X,Y) :- r(Y,X).` and
`h(X,Y) :- r(X,Z), s(Y,Z).` Every body is joined once, and counted for all heads together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from latentgamma._errors import ArgumentError, DataError
from latentgamma._learning.wording import quantity
from latentgamma.datalog.tables import constant
from latentgamma.relational.budget import Budget
from latentgamma.relational.instances import TooManyRows, body_bindings
from latentgamma.relational.relations import Ints, Relation

#: The confidence is support / (instances + this), so that rare bodies count less.
_PSEUDO_INSTANCES = 5.0
#: Cells (relations x entities x entities) of the table of scores.
_MOST_CELLS = 400_000_000
_MOST_PAIRS = 20_000_000

Triple = tuple[str, str, str]
#: A relation by number, and whether it is read backwards.
Step = tuple[int, bool]


@dataclass(frozen=True)
class ChainRule:
    """A chain rule.

    Attributes:
        text: the rule.
        head: the relation that it derives.
        body: each relation, and whether it is read backwards.
        support: the triples of the graph that it derives.
        instances: the pairs that it derives.
        confidence: support / instances.
    """

    text: str
    head: str
    body: tuple[tuple[str, bool], ...]
    support: int
    instances: int
    confidence: float


class ChainRules:
    """The chain rules of a graph; see `mine_chains`."""

    def __init__(
        self,
        entities: Sequence[str],
        relations: Sequence[str],
        triples: Ints,
        min_support: int,
        min_confidence: float,
        max_length: int,
    ) -> None:
        self.entities, self.relations = tuple(entities), tuple(relations)
        self._triples = triples
        self._names = [constant(name) for name in relations]
        self._limits = (min_support, min_confidence)
        n = len(entities)
        self._tables = [
            Relation(name, np.unique(triples[triples[:, 1] == r][:, [0, 2]], axis=0), n, (0, 0))
            for r, name in enumerate(relations)
        ]
        order = np.argsort(triples[:, 0] * n + triples[:, 2], kind="stable")
        self._codes = (triples[:, 0] * n + triples[:, 2])[order]
        self._heads = triples[order, 1]
        self.rules = self._mine(max_length)

    def __repr__(self) -> str:
        return f"{quantity(len(self.rules), 'chain rule')} of {quantity(len(self.relations), 'relation')}"

    def _bodies(self, max_length: int) -> Iterator[tuple[tuple[Step, ...], Ints]]:
        """Return each body with the codes of the pairs that it joins."""
        n = len(self.entities)
        steps = [(r, back) for r in range(len(self.relations)) for back in (False, True)]
        for r, back in steps:
            rows = self._tables[r].rows
            yield ((r, back),), np.unique(rows[:, int(back)] * n + rows[:, int(not back)])
        if max_length < 2:
            return
        budget = Budget(math.inf)
        for (r, r_back), (s, s_back) in ((one, other) for one in steps for other in steps):
            body = (
                (r, (2, 0) if r_back else (0, 2)),
                (s, (1, 2) if s_back else (2, 1)),
            )
            try:
                columns, truth = body_bindings(body, (0, 1), self._tables, budget, _MOST_PAIRS)
            except TooManyRows:
                continue
            if len(truth):
                first, last = columns
                yield ((r, r_back), (s, s_back)), first * n + last

    def _counts(self, codes: Ints) -> Ints:
        """Return the number of triples of each relation between these pairs."""
        start = np.searchsorted(self._codes, codes, "left")
        stop = np.searchsorted(self._codes, codes, "right")
        sizes = stop - start
        at = np.repeat(start - np.cumsum(sizes) + sizes, sizes) + np.arange(int(sizes.sum()))
        return np.bincount(self._heads[at], minlength=len(self.relations))

    def _mine(self, max_length: int) -> tuple[ChainRule, ...]:
        least, confident = self._limits
        found = []
        self._kept: list[tuple[Ints, Ints, npt.NDArray[np.float64]]] = []
        for body, codes in self._bodies(max_length):
            counts = self._counts(codes)
            heads = np.flatnonzero((counts >= least) & (counts >= confident * len(codes)))
            if len(body) == 1 and not body[0][1]:
                heads = heads[heads != body[0][0]]  # not the relation itself
            if not len(heads):
                continue
            self._kept.append((codes, heads, counts[heads] / (len(codes) + _PSEUDO_INSTANCES)))
            found += [self._rule(body, int(h), int(counts[h]), len(codes)) for h in heads]
        found.sort(key=lambda rule: (-rule.confidence, -rule.support, rule.text))
        return tuple(found)

    def _rule(self, body: tuple[Step, ...], head: int, support: int, size: int) -> ChainRule:
        names = self._names
        variables = ["X", *"ZUVW"[: len(body) - 1], "Y"]
        literals = []
        for place, (r, back) in enumerate(body):
            one, other = variables[place], variables[place + 1]
            literals.append(f"{names[r]}({other},{one})" if back else f"{names[r]}({one},{other})")
        return ChainRule(
            f"{names[head]}(X,Y) :- {', '.join(literals)}.",
            self.relations[head],
            tuple((self.relations[r], back) for r, back in body),
            support,
            size,
            support / size,
        )

    def scores(self, power: float = 4.0) -> npt.NDArray[np.float32]:
        """Return a score of every possible link, shape (relations, entities, entities).

        Args:
            power: the score adds the confidences of the rules that derive a link, each to this
                power; the larger it is, the more the most confident rule decides.

        Raises:
            DataError: the table would be too large.
        """
        n, count = len(self.entities), len(self.relations)
        if n * n * count > _MOST_CELLS:
            raise DataError(f"a table of {count} x {n} x {n} scores is too large")
        table = np.zeros((count, n * n), np.float32)
        for codes, heads, confidence in self._kept:
            for head, weight in zip(heads.tolist(), (confidence**power).tolist(), strict=True):
                table[head, codes] += weight
        return table.reshape(count, n, n)

    def mean_reciprocal_rank(
        self,
        triples: Iterable[Triple],
        known: Iterable[Triple] = (),
        *,
        power: float = 4.0,
    ) -> float:
        """Return the filtered mean reciprocal rank of triples, for heads and tails.

        Links of the graph and of `known`, other than the one that is asked for, are left out of
        the ranking. Links with the same score share the mean of their ranks.

        Args:
            triples: what to predict.
            known: true triples beside those of the graph, such as those of the other splits.
            power: see `scores`.
        """
        asked = self._numbers(triples)
        if not len(asked):
            raise DataError("there are no triples to predict")
        table = self.scores(power)
        true = np.zeros(table.shape, bool)
        for part in (self._triples, asked, self._numbers(known)):
            true[part[:, 1], part[:, 0], part[:, 2]] = True
        total = 0.0
        for h, r, t in asked.tolist():
            for scores, others, at in (
                (table[r, h], true[r, h], t),
                (table[r, :, t], true[r, :, t], h),
            ):
                rivals = ~others
                better = int((scores[rivals] > scores[at]).sum())
                equal = int((scores[rivals] == scores[at]).sum())
                total += 1.0 / (1.0 + better + equal / 2)
        return total / (2 * len(asked))

    def _numbers(self, triples: Iterable[Triple]) -> Ints:
        entity = {name: i for i, name in enumerate(self.entities)}
        relation = {name: i for i, name in enumerate(self.relations)}
        try:
            rows = [(entity[h], relation[r], entity[t]) for h, r, t in triples]
        except KeyError as missing:
            raise DataError(f"the graph has no entity or relation {missing.args[0]!r}") from None
        return np.array(rows, np.int64).reshape(-1, 3)


def mine_chains(
    triples: Iterable[Triple],
    *,
    max_length: int = 2,
    min_support: int = 2,
    min_confidence: float = 0.01,
) -> ChainRules:
    """Return the chain rules of a knowledge graph.

    >>> family = [("ann", "parent", "bob"), ("bob", "parent", "cid"), ("ann", "grandparent", "cid")]
    >>> found = mine_chains(family, min_support=1, min_confidence=0.5)
    >>> print(found.rules[0].text, found.rules[0].support)
    grandparent(X,Y) :- parent(X,Z), parent(Z,Y). 1

    Args:
        triples: the graph, as (head, relation, tail).
        max_length: the largest number of body literals, 1 or 2.
        min_support: the fewest triples that a rule derives.
        min_confidence: the smallest share of true ones among the pairs that a rule derives.

    Raises:
        DataError: these are no triples.
        ArgumentError: a limit has a value that it cannot have.
    """
    if max_length not in {1, 2}:
        raise ArgumentError(f"max_length is 1 or 2, not {max_length!r}")
    if not min_support >= 1 or not 0 <= min_confidence <= 1:
        raise ArgumentError("min_support is at least 1, and min_confidence from 0 to 1")
    rows = [tuple(triple) for triple in triples]
    if not rows or any(len(row) != 3 for row in rows):
        raise DataError("a graph is a list of triples (head, relation, tail), and not empty")
    entities = sorted({name for h, _, t in rows for name in (h, t)})
    relations = sorted({r for _, r, _ in rows})
    entity = {name: i for i, name in enumerate(entities)}
    relation = {name: i for i, name in enumerate(relations)}
    numbers = np.array([(entity[h], relation[r], entity[t]) for h, r, t in rows], np.int64)
    return ChainRules(
        entities, relations, np.unique(numbers, axis=0), min_support, min_confidence, max_length
    )
