"""Chain rules of knowledge graphs, and compositions of relations."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from latentgamma._arguments import real_number, whole_number
from latentgamma._text import quantity
from latentgamma.datalog.tables import constant
from latentgamma.errors import DataError
from latentgamma.relational.budget import Budget
from latentgamma.relational.clauses import TooManyRows, body_bindings
from latentgamma.relational.problem import Ints, Relation

# ---- Composition tables: which relation follows from a chain of two, learned from longer chains too
# An entry of the table is a rule `grandfather(X,Z) :- mother(X,Y), father(Y,Z).` Chains of two
# relations show an entry at once. A longer chain shows which entry would give its answer where one
# entry of the table is missing: the entry that most of these chains agree on is added first.

#: Entries that may follow from longer chains.
_MOST_INFERRED = 10_000
#: Entries of the table as a grid of at most this many columns.
_WIDEST = 24


@dataclass(frozen=True)
class CompositionTable:
    """The learned table.

    Attributes:
        entries: the relation that follows from each pair of relations.
        support: the number of chains that show each entry.
        contradictions: the number of chains that show another relation for an entry.
        unexplained: the chains, with their relation, that the table does not derive.
    """

    entries: Mapping[tuple[str, str], str]
    support: Mapping[tuple[str, str], int]
    contradictions: Mapping[tuple[str, str], int]
    unexplained: tuple[tuple[tuple[str, ...], str], ...]

    @property
    def text(self) -> str:
        """The table as a Datalog program."""
        return "\n".join(
            f"{result}(X,Z) :- {one}(X,Y), {other}(Y,Z)."
            for (one, other), result in sorted(self.entries.items())
        )

    def predict(self, chain: Sequence[str]) -> frozenset[str]:
        """Return the relations between the ends of a chain that follow from the table.

        >>> learned = learn_composition([(("father", "father"), "grandfather")])
        >>> sorted(learned.predict(["father", "father"])), sorted(learned.predict(["father", "son"]))
        (['grandfather'], [])
        """
        return frozenset(_spans(chain, self.entries)[0, len(chain)])

    def grid(self) -> str:
        """Return the table as text: a row for the first relation, a column for the second."""
        rows = sorted({one for one, _ in self.entries})
        columns = sorted({other for _, other in self.entries})[:_WIDEST]
        cells = [["", *columns]]
        cells += [[row, *(self.entries.get((row, c), "·") for c in columns)] for row in rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in cells
        )

    def __str__(self) -> str:
        return f"a composition table with {quantity(len(self.entries), 'entry', 'entries')}"


def learn_composition(chains: Iterable[tuple[Sequence[str], str]]) -> CompositionTable:
    """Return the composition table that chains of relations show.

    >>> learned = learn_composition([
    ...     (("father", "father"), "grandfather"),
    ...     (("father", "father", "wife"), "grandmother"),
    ... ])
    >>> print(learned.text)
    grandfather(X,Z) :- father(X,Y), father(Y,Z).
    grandmother(X,Z) :- grandfather(X,Y), wife(Y,Z).

    Args:
        chains: each a sequence of at least two relations, and the relation between its ends.

    Raises:
        DataError: a chain is not of this form.
    """
    examples = [_example(chain) for chain in chains]
    if not examples:
        raise DataError("there are no chains to learn from")
    votes = _votes([example for example in examples if len(example[0]) == 2])
    entries = {pair: _winner(counter) for pair, counter in votes.items()}
    left = [example for example in examples if len(example[0]) > 2]
    names = sorted({name for chain, answer in examples for name in (*chain, answer)})
    refused: set[tuple[tuple[str, str], str]] = set()
    for _ in range(_MOST_INFERRED):
        left = [(c, answer) for c, answer in left if not _spans(c, entries)[0, len(c)]]
        ranked = sorted(
            ((-count, pair, name) for pair, counter in _inferred_votes(left, entries, names).items()
             if _is_clear(counter) for name, count in counter.most_common(1))
        )  # fmt: skip
        # An entry that would give a chain a second answer is no entry.
        fitting = (
            (pair, name, -negative)
            for negative, pair, name in ranked
            if (pair, name) not in refused
            and _keeps_answers({**entries, pair: name}, examples, refused, (pair, name))
        )
        chosen = next(fitting, None)
        if chosen is None:
            break
        pair, name, count = chosen
        entries[pair] = name
        votes[pair] = Counter({name: count})
    unexplained = tuple(
        (chain, answer)
        for chain, answer in examples
        if _spans(chain, entries)[0, len(chain)] != {answer}
    )
    support = {pair: votes[pair][relation] for pair, relation in entries.items()}
    against = {pair: sum(votes[pair].values()) - support[pair] for pair in entries}
    return CompositionTable(entries, support, {p: n for p, n in against.items() if n}, unexplained)


def _example(example: object) -> tuple[tuple[str, ...], str]:
    if not isinstance(example, Sequence) or isinstance(example, str) or len(example) != 2:
        raise DataError(f"a chain is a pair (relations, relation), not {example!r}")
    chain, answer = example
    if isinstance(chain, str) or not isinstance(chain, Sequence) or len(chain) < 2:
        raise DataError(f"a chain has at least two relations, not {chain!r}")
    if not isinstance(answer, str) or not all(isinstance(one, str) for one in chain):
        raise DataError(f"relations are texts, but a chain is {example!r}")
    return tuple(chain), answer


def _spans(
    chain: Sequence[str], entries: Mapping[tuple[str, str], str]
) -> dict[tuple[int, int], set[str]]:
    """Return the relations that follow for each part of a chain, by start and end."""
    n = len(chain)
    found: dict[tuple[int, int], set[str]] = {(i, i + 1): {chain[i]} for i in range(n)}
    for length in range(2, n + 1):
        for start in range(n - length + 1):
            end = start + length
            found[start, end] = {
                entries[one, other]
                for middle in range(start + 1, end)
                for one in found[start, middle]
                for other in found[middle, end]
                if (one, other) in entries
            }
    return found


def _votes(
    examples: Iterable[tuple[tuple[str, ...], str]],
) -> dict[tuple[str, str], Counter[str]]:
    """Return the relations that chains of two show."""
    votes: dict[tuple[str, str], Counter[str]] = {}
    for chain, answer in examples:
        votes.setdefault((chain[0], chain[1]), Counter())[answer] += 1
    return votes


def _inferred_votes(
    examples: Iterable[tuple[tuple[str, ...], str]],
    entries: Mapping[tuple[str, str], str],
    names: Sequence[str],
) -> dict[tuple[str, str], Counter[str]]:
    """Return the relations for missing pairs with which chains would have their answer."""
    votes: dict[tuple[str, str], Counter[str]] = {}
    for chain, answer in examples:
        spans = _spans(chain, entries)
        n = len(chain)
        fitting: set[tuple[tuple[str, str], str]] = set()
        for start, middle, end in itertools.combinations(range(n + 1), 3):
            if spans[start, end]:
                continue
            whole = (start, end) == (0, n)
            results = [
                name
                for name in ([answer] if whole else names)
                if whole or answer in _ends((*chain[:start], name, *chain[end:]), entries)
            ]
            for one, other in itertools.product(spans[start, middle], spans[middle, end]):
                fitting |= {((one, other), name) for name in results}
        for pair, name in fitting:
            votes.setdefault(pair, Counter())[name] += 1
    return votes


def _keeps_answers(
    entries: Mapping[tuple[str, str], str],
    examples: Iterable[tuple[tuple[str, ...], str]],
    refused: set[tuple[tuple[str, str], str]],
    entry: tuple[tuple[str, str], str],
) -> bool:
    """Return whether no chain gets a wrong answer; an entry with which one does is refused."""
    if all(_ends(chain, entries) <= {answer} for chain, answer in examples if len(chain) > 2):
        return True
    refused.add(entry)
    return False


def _ends(chain: Sequence[str], entries: Mapping[tuple[str, str], str]) -> set[str]:
    return _spans(chain, entries)[0, len(chain)]


def _is_clear(counter: Counter[str]) -> bool:
    """Return whether one relation is shown more often than every other."""
    (_, most), *others = counter.most_common(2)
    return not others or others[0][1] < most


def _winner(counter: Counter[str]) -> str:
    return max(sorted(counter), key=lambda relation: counter[relation])


# ---- Chain rules of a knowledge graph, with their support and confidence, and the links they predict
# The bodies are one triple or two in a row, each in either direction: `h(X,Y) :- r(Y,X).` and
# `h(X,Y) :- r(X,Z), s(Y,Z).` Every body is joined once, and counted for all heads together.

#: The confidence is support / (instances + this), so that rare bodies count less.
_PSEUDO_INSTANCES = 5.0
#: Cells (relations x entities x entities) of the table of scores, and the pairs of entities that one body may have.
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
        min_confidence: the smallest fraction of true ones among the pairs that a rule derives.

    Raises:
        DataError: these are no triples.
        ArgumentError: a limit has a value that it cannot have.
    """
    whole_number("max_length", max_length, 1, 2)
    real_number("min_support", min_support, "a number from 1 on", lambda x: x >= 1)
    real_number("min_confidence", min_confidence, "a fraction from 0 to 1", lambda x: 0 <= x <= 1)
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
