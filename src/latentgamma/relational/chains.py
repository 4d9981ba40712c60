"""Compositions of relations: which relation follows from a chain of them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from latentgamma._text import quantity
from latentgamma.errors import DataError

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
