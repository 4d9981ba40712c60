"""Compositions of relations: which relation follows from a chain of them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._text import aligned, quantity
from latentgamma.errors import DataError
from latentgamma.program.names import quote_functor

# ---- Composition tables: which relation follows from a chain of two, learned from longer chains too
# An entry of the table is a rule `grandfather(X,Z) :- mother(X,Y), father(Y,Z).` Chains of two
# relations show an entry at once. A longer chain shows which entry would give its answer where one
# entry of the table is missing: the entry that most of these chains agree on is added first.

Example: TypeAlias = "tuple[tuple[str, ...], str]"
Floats: TypeAlias = "npt.NDArray[np.float64]"

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
        examples: the chains that it was learned from.
    """

    entries: Mapping[tuple[str, str], str]
    support: Mapping[tuple[str, str], int]
    contradictions: Mapping[tuple[str, str], int]
    unexplained: tuple[Example, ...]
    examples: tuple[Example, ...] = field(repr=False)

    @property
    def text(self) -> str:
        """The table as a Datalog program."""
        quoted = (
            map(quote_functor, (result, one, other))
            for (one, other), result in sorted(self.entries.items())
        )
        return "\n".join(f"{r}(X,Z) :- {one}(X,Y), {other}(Y,Z)." for r, one, other in quoted)

    def predict(self, chain: Sequence[str]) -> frozenset[str]:
        """Return the relations between the ends of a chain that follow from the table.

        >>> learned = learn_composition([(("father", "father"), "grandfather")])
        >>> sorted(learned.predict(["father", "father"])), sorted(learned.predict(["father", "son"]))
        (['grandfather'], [])
        """
        return frozenset(_ends(chain, self.entries))

    def predict_proba(self, chain: Sequence[str]) -> dict[str, float]:
        """Return the probability of each relation between the ends of a chain, the most likely first.

        Chains may leave their answer open: a son's grandmother is one's mother or one's mother-in-law. Every
        pair of relations has a distribution of results, fitted to all chains by expectation maximization, and
        a chain mixes the orders in which it can be composed. Its smoothing and temperature are those with
        the least log-loss on a held-out fifth of the chains. Fitted when first asked for.

        >>> learned = learn_composition([
        ...     *[(("son", "grandmother"), "mother")] * 20,
        ...     *[(("son", "grandmother"), "mother_in_law")] * 10,
        ...     *[(("mother", "mother"), "grandmother")] * 20,
        ... ])
        >>> [(name, round(p, 1)) for name, p in learned.predict_proba(["son", "grandmother"]).items()][:2]
        [('mother', 0.7), ('mother_in_law', 0.3)]

        Raises:
            DataError: no chain that the table was learned from has one of the relations.
        """
        (chain, _) = _example((chain, ""))
        unknown = sorted(set(chain) - set(self._distribution.names))
        if unknown:
            raise DataError(f"no chain that was learned from has the relation {unknown[0]!r}")
        return self._distribution.answers(chain)

    @cached_property
    def _distribution(self) -> _Distribution:
        return _Distribution.fit(self.examples)

    def grid(self) -> str:
        """Return the table as text: a row for the first relation, a column for the second."""
        rows = sorted({one for one, _ in self.entries})
        columns = sorted({other for _, other in self.entries})[:_WIDEST]
        cells = [["", *columns]]
        cells += [[row, *(self.entries.get((row, c), "·") for c in columns)] for row in rows]
        return "\n".join(aligned(cells))

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
    votes: dict[tuple[str, str], Counter[str]] = {}
    for chain, answer in examples:
        if len(chain) == 2:
            votes.setdefault((chain[0], chain[1]), Counter())[answer] += 1
    entries = {pair: max(sorted(shown), key=shown.__getitem__) for pair, shown in votes.items()}
    left = longer = [example for example in examples if len(example[0]) > 2]
    names = sorted({name for chain, answer in examples for name in (*chain, answer)})
    refused: set[tuple[tuple[str, str], str]] = set()
    for _ in range(_MOST_INFERRED):
        left = [(c, answer) for c, answer in left if not _ends(c, entries)]
        ranked = sorted(
            ((-count, pair, name) for pair, counter in _inferred_votes(left, entries, names).items()
             if _is_clear(counter) for name, count in counter.most_common(1))
        )  # fmt: skip
        for negative, pair, name in ranked:
            if (pair, name) in refused:
                continue
            more = {**entries, pair: name}
            if all(_ends(chain, more) <= {answer} for chain, answer in longer):
                entries, votes[pair] = more, Counter({name: -negative})
                break
            refused.add((pair, name))  # a chain would have a second answer
        else:
            break
    unexplained = tuple(
        (chain, answer) for chain, answer in examples if _ends(chain, entries) != {answer}
    )
    support = {pair: votes[pair][relation] for pair, relation in entries.items()}
    against = {pair: sum(votes[pair].values()) - support[pair] for pair in entries}
    against = {pair: number for pair, number in against.items() if number}
    return CompositionTable(entries, support, against, unexplained, tuple(examples))


def _example(example: object) -> Example:
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
    for start, end in _parts(n):
        found[start, end] = {
            entries[one, other]
            for middle in range(start + 1, end)
            for one in found[start, middle]
            for other in found[middle, end]
            if (one, other) in entries
        }
    return found


def _parts(length: int) -> list[tuple[int, int]]:
    """Return the parts of a chain that have at least two relations, the shortest first."""
    return [(i, i + n) for n in range(2, length + 1) for i in range(length - n + 1)]


def _inferred_votes(
    examples: Iterable[Example], entries: Mapping[tuple[str, str], str], names: Sequence[str]
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


def _ends(chain: Sequence[str], entries: Mapping[tuple[str, str], str]) -> set[str]:
    return _spans(chain, entries)[0, len(chain)]


def _is_clear(counter: Counter[str]) -> bool:
    """Return whether one relation is shown more often than every other."""
    (_, most), *others = counter.most_common(2)
    return not others or others[0][1] < most


# ---- Distributions of answers: where the relations of a chain do not decide its answer
# T[a,b,c] is the probability that c follows from a and b. The distribution of a part of a chain is the mean
# over its splits in two of the sum over a and b of left[a] * right[b] * T[a,b,:]. Expectation maximization
# fits T: the expected number of uses of T[a,b,c] is T[a,b,c] times the derivative of the log-likelihood.

#: Relations of which distributions are fitted: the work grows with their third power.
_MOST_RELATIONS = 64
#: Rounds of expectation maximization, and values that the held-out chains choose from.
_ROUNDS = 8
_SMOOTHING = (0.03, 0.3)
_TEMPERATURES = tuple(np.linspace(0.6, 2.0, 15).tolist())
#: Few held-out chains leave the temperature near 1: its logarithm has this standard deviation before.
_SPREAD = 0.3
#: The fewest chains of which a fifth is held out, and the share of answers that no chain suggests.
_LEAST_HELD_OUT, _FLOOR = 50, 1e-3


@dataclass(frozen=True)
class _Distribution:
    """The fitted distributions; `table` is T, `prior` the distribution of all answers."""

    names: tuple[str, ...]
    table: Floats
    prior: Floats
    temperature: float

    @classmethod
    def fit(cls, examples: Sequence[Example]) -> _Distribution:
        names = tuple(sorted({name for chain, answer in examples for name in (*chain, answer)}))
        if len(names) > _MOST_RELATIONS:
            raise DataError(
                f"probabilities are fitted for at most {_MOST_RELATIONS} relations, not {len(names)}"
            )
        number = {name: i for i, name in enumerate(names)}
        coded = [([number[name] for name in chain], number[answer]) for chain, answer in examples]
        counts = np.bincount([answer for _, answer in coded], minlength=len(names))
        prior = counts / counts.sum()
        smoothing, temperature = _SMOOTHING[0], 1.0
        if len(coded) >= _LEAST_HELD_OUT:
            held = np.zeros(len(coded), bool)
            held[np.random.default_rng(0).permutation(len(coded))[: len(coded) // 5]] = True
            seen = [one for one, out in zip(coded, held, strict=True) if not out]
            tests = _by_length([one for one, out in zip(coded, held, strict=True) if out])
            losses = {}
            for alpha in _SMOOTHING:
                table = _expectation_maximization(_by_length(seen), prior, alpha)
                raw = [(_inside(c, table)[0, c.shape[1]], answers) for c, answers in tests]
                for t in _TEMPERATURES:
                    chances = [_sharpened(part, prior, t)[range(len(a)), a] for part, a in raw]
                    loss = -float(np.log(np.concatenate(chances)).sum())
                    losses[alpha, t] = loss + (np.log(t) / _SPREAD) ** 2 / 2
            smoothing, temperature = min(losses, key=lambda pair: losses[pair])
        table = _expectation_maximization(_by_length(coded), prior, smoothing)
        return cls(names, table, prior, temperature)

    def answers(self, chain: Sequence[str]) -> dict[str, float]:
        """Return the probability of each answer, the most likely first."""
        codes = np.array([[self.names.index(name) for name in chain]])
        whole = _inside(codes, self.table)[0, len(chain)]
        (found,) = _sharpened(whole, self.prior, self.temperature)
        return {self.names[i]: float(found[i]) for i in np.argsort(-found, kind="stable")}


def _by_length(
    examples: Iterable[tuple[list[int], int]],
) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Return chains and answers as arrays, one pair for each length."""
    found: dict[int, tuple[list[list[int]], list[int]]] = {}
    for chain, answer in examples:
        chains, answers = found.setdefault(len(chain), ([], []))
        chains.append(chain)
        answers.append(answer)
    return [(np.array(chains), np.array(answers)) for chains, answers in found.values()]


def _sharpened(found: Floats, prior: Floats, temperature: float) -> Floats:
    """Return distributions at a temperature, with a small share of the prior."""
    powers = found ** (1 / temperature)
    mixed: Floats = (1 - _FLOOR) * powers / powers.sum(1, keepdims=True) + _FLOOR * prior
    return mixed


def _inside(chains: npt.NDArray[np.int64], table: Floats) -> dict[tuple[int, int], Floats]:
    """Return the distribution of each part of chains of one length, by start and end."""
    size, length = len(table), chains.shape[1]
    spans = {(i, i + 1): np.eye(size)[chains[:, i]] for i in range(length)}
    flat = table.reshape(-1, size)
    for start, end in _parts(length):
        pairs = sum(_pairs(spans, start, middle, end) for middle in range(start + 1, end))
        spans[start, end] = pairs @ flat / (end - start - 1)
    return spans


def _pairs(spans: Mapping[tuple[int, int], Floats], start: int, middle: int, end: int) -> Floats:
    """Return the probability of each two relations on both sides of a split, shape (chains, pairs)."""
    left, right = spans[start, middle], spans[middle, end]
    return (left[:, :, None] * right[:, None, :]).reshape(len(left), -1)


def _expectation_maximization(
    examples: Iterable[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]],
    prior: Floats,
    smoothing: float,
) -> Floats:
    """Return the fitted table; every row has `smoothing` answers drawn from the prior added."""
    parts = list(examples)
    size = len(prior)
    seen = np.zeros((size, size, size))
    for chains, answers in parts:
        if chains.shape[1] == 2:
            np.add.at(seen, (chains[:, 0], chains[:, 1], answers), 1)
    longer = [part for part in parts if part[0].shape[1] > 2]
    table = seen + smoothing * prior
    table /= table.sum(2, keepdims=True)
    for _ in range(_ROUNDS if longer else 0):
        counts = sum((table * _slope(*part, table) for part in longer), seen)
        table = counts + smoothing * prior
        table /= table.sum(2, keepdims=True)
    return table


def _slope(chains: npt.NDArray[np.int64], answers: npt.NDArray[np.int64], table: Floats) -> Floats:
    """Return the derivative of the log-likelihood of answers by the table."""
    size, (count, length) = len(table), chains.shape
    spans = _inside(chains, table)
    slopes = {span: np.zeros((count, size)) for span in spans}
    rows = np.arange(count)
    slopes[0, length][rows, answers] = 1 / np.maximum(spans[0, length][rows, answers], 1e-300)
    flat = table.reshape(-1, size)
    result = np.zeros_like(flat)
    for start, end in reversed(_parts(length)):
        slope = slopes[start, end] / (end - start - 1)
        inner = (slope @ flat.T).reshape(count, size, size)
        pairs = np.zeros((count, size * size))
        for middle in range(start + 1, end):
            pairs += _pairs(spans, start, middle, end)
            slopes[start, middle] += (inner @ spans[middle, end][:, :, None])[:, :, 0]
            slopes[middle, end] += (spans[start, middle][:, None, :] @ inner)[:, 0, :]
        result += pairs.T @ slope
    return result.reshape(table.shape)
