"""Decision lists of minimal description length.

A list is read from the top: a row belongs to the first rule whose literals all hold in it, or to
the rest. Its description is the rules, and then the labels of each group by the code of Krichevsky
and Trofimov. A rule is worth having if it saves more bits of labels than it takes itself, so
neither a noise level nor a number of rules is needed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latentgamma.learning.literals import (
    Body,
    Floats,
    Literals,
    Rows,
    body_bits,
    flat_top,
    grouped,
    integer_bits,
    label_bits,
    split_gains,
    total_label_bits,
)
from latentgamma.program.compilation import Cells, compile_loop
from latentgamma.program.facts import Mask

#: Rules that are carried from one length to the next: by what they save, and by how much likelier
#: the labels inside are than at the base rate, above it and below it. The last two keep the first
#: literals of rules for rare classes.
_BEAM = (12, 6, 4)
#: Rows that a rule covers at least.
LEAST_COVER = 5.0
#: Rounds in which every rule is reconsidered.
_ROUNDS = 5
_MOST_RULES = 64
#: Literals that are tried in a rule whose rows are of two kinds.
_LONGER = 2
#: Bits of the labels that a threshold may cost by being short to write.
READABLE = 1.0
#: Rounds in which every threshold is moved.
_MOVES = 12
#: Rows on which pairs of literals are screened at least.
_FEWEST_SAMPLED = 2_000
#: Bits that say whether a rule raises the rate of positives over that of all rows, or lowers it.
#: People read rules for a class more easily than rules against it.
_RAISES, _LOWERS = math.log2(4 / 3), 2.0


@dataclass(frozen=True)
class Found:
    """A rule that was scored.

    Attributes:
        body: its literals.
        saved: the bits it saves beyond its own.
        positives: the positive rows that it covers.
        negatives: the negative rows that it covers.
    """

    body: Body
    saved: float
    positives: float
    negatives: float


def learn_either(literals: Literals, weights: Floats, max_body: int) -> tuple[list[Body], bool]:
    """Return the rules with the shortest description, and whether they were learned for the negatives.

    Args:
        literals: the table.
        weights: the weight of each row as a positive and as a negative. (n, 2)
        max_body: the most literals of a rule.
    """
    found = []
    for swapped in (False, True):
        search = ListSearch(literals, weights, max_body, swapped)
        rules = search.learn()
        found.append((search.total(rules) + (_LOWERS if swapped else _RAISES), rules, swapped))
    return min(found, key=lambda one: one[0])[1:]


class ListSearch:
    """The search for the decision list of a table that has the shortest description.

    Args:
        literals: the table.
        weights: the weight of each row as a positive and as a negative. (n, 2)
        max_body: the most literals of a rule.
        swapped: whether to learn rules for the negatives.
    """

    def __init__(
        self, literals: Literals, weights: Floats, max_body: int, swapped: bool = False
    ) -> None:
        weights = np.ascontiguousarray(weights[:, ::-1]) if swapped else weights
        self.literals, self.weights, self.max_body = literals, weights, max_body
        self.only_raise = False
        self._covered: dict[Body, Mask] = {}
        self._best: dict[tuple[frozenset[Body], bool], Found | None] = {}
        total = weights.sum(0)
        self.base = float(total[0] / max(total.sum(), 1e-300))

    # ---- The objective

    def covered(self, body: Body) -> Mask:
        """Return the rows in which a body holds. (n,)."""
        if body not in self._covered:
            self._covered[body] = self.literals.covered(body)
        return self._covered[body]

    def bits(self, body: Body) -> float:
        """Return the description length of a rule."""
        return body_bits(list(map(self.literals.cost, body)))

    def groups(self, rules: Sequence[Body]) -> Floats:
        """Return positives and negatives of each rule, and of the rest. (rules + 1, 2)."""
        open_rows, counts = np.ones(self.literals.n, np.bool_), []
        for body in rules:
            mine = self.covered(body) & open_rows
            counts.append(self.weights[mine].sum(0))
            open_rows &= ~mine
        counts.append(self.weights[open_rows].sum(0))
        return np.array(counts)

    def total(self, rules: Sequence[Body]) -> float:
        """Return the description length of the labels and the list."""
        groups = self.groups(rules).tolist()
        labels = sum(label_bits(a, b) for a, b in groups)
        sides = sum(_RAISES if a >= self.base * (a + b) else _LOWERS for a, b in groups[:-1])
        return labels + sides + sum(map(self.bits, rules)) + integer_bits(1)

    # ---- One rule

    def best_rule(self, open_rows: Mask) -> Found | None:
        """Return the rule that saves most among these rows, whether or not it saves anything."""
        rows = np.flatnonzero(open_rows)
        total = self.weights[rows].sum(0)
        beam: list[tuple[Body, Rows]] = [((), rows)]
        best: Found | None = None
        for size in range(1, self.max_body + 1):
            candidates = _Candidates(self, tuple(total.tolist()))
            sample = self.literals.rows_for_pairs
            if size == 2 and len(rows) <= sample:
                candidates.add_pairs(rows)
            else:
                candidates.add_longer(beam)
            if size == 2 and len(rows) > sample >= _FEWEST_SAMPLED:
                candidates.add_promising_pairs(rows, rows[:: -(-len(rows) // sample)])
            chosen = candidates.choose()
            if not chosen:
                break
            if best is None or chosen[0].saved > best.saved:
                best = chosen[0]
            beam = [(one.body, self._rows_of(one.body, beam, rows)) for one in chosen]
        return best

    def _rows_of(self, body: Body, beam: Sequence[tuple[Body, Rows]], rows: Rows) -> Rows:
        """Return the rows of a body, from those of a shorter one where there is one."""
        inside, missing = rows, body
        for shorter, theirs in beam:
            if shorter and set(shorter) <= set(body):
                inside, missing = theirs, tuple(j for j in body if j not in shorter)
                break
        lits = self.literals
        for j in missing:
            inside = inside[lits.inside[j][lits.codes[inside, lits.column[j]]]]
        return inside

    # ---- The list

    def learn(self) -> list[Body]:
        """Return the rules of the list, in order."""
        rules = self._learn()
        if any(a < self.base * (a + b) for a, b in self.groups(rules)[:-1].tolist()):
            # Rules for the class alone may do as well, and are easier to read.
            self.only_raise = True
            others = self._learn()
            self.only_raise = False
            rules = min(rules, others, key=self.total)
        return self._move_thresholds(self._merge(rules))

    def _learn(self) -> list[Body]:
        rules: list[Body] = []
        self._append(rules)
        best = self.total(rules)
        for _ in range(_ROUNDS if rules else 0):
            before = best
            for changed in self._changes(rules):
                length = self.total(changed)
                if length < best - 1e-9:
                    rules[:], best = changed, length
            self._append(rules)
            best = self.total(rules)
            if best >= before - 1e-9:  # now two changes at once, which take longer to try
                grown = min(self._grown(rules), key=self.total, default=rules)
                if self.total(grown) >= best - 1e-9:
                    break
                rules, best = grown, self.total(grown)
        return rules

    def _open(self, rules: Sequence[Body]) -> Mask:
        """Return the rows that no rule covers. (n,)."""
        open_rows = np.ones(self.literals.n, np.bool_)
        for body in rules:
            open_rows &= ~self.covered(body)
        return open_rows

    def _append(self, rules: list[Body]) -> None:
        while len(rules) < _MOST_RULES:
            found = self._next(rules)
            if found is None or found.saved <= 0:
                break
            rules.append(found.body)

    def _next(self, rules: Sequence[Body]) -> Found | None:
        """Return the best rule for the rows that no rule covers."""
        key = frozenset(rules), self.only_raise
        if key not in self._best:
            self._best[key] = self.best_rule(self._open(rules))
        return self._best[key]

    def _changes(self, rules: list[Body]) -> Iterator[list[Body]]:
        """Yield lists with one change; the rules may be replaced while this runs."""
        i = 0
        while i < len(rules):
            yield [*rules[:i], *rules[i + 1 :]]
            i += 1
        for i in range(len(rules)):
            if i >= len(rules):
                return
            found = self._next(rules[:i])
            if found is not None and found.body != rules[i]:
                yield [*rules[:i], found.body, *rules[i + 1 :]]
                yield [*rules[:i], found.body, *rules[i:]]
        for i in range(len(rules)):
            for j in rules[i]:
                shorter = tuple(x for x in rules[i] if x != j)
                if shorter:
                    yield [*rules[:i], shorter, *rules[i + 1 :]]
        for i in range(len(rules) - 1):
            yield [*rules[:i], rules[i + 1], rules[i], *rules[i + 2 :]]
        for i in range(len(rules)):
            for k, literal in enumerate(rules[i]):
                for changed in self._category_sets(rules, i, literal):
                    yield [*rules[:i], changed, *rules[i + 1 :]]
                moved = list(rules)
                if i < len(rules) and k < len(rules[i]) and self._move(moved, i, k, 0.0):
                    yield moved

    def _grown(self, rules: Sequence[Body]) -> Iterator[list[Body]]:
        """Yield lists with one more literal in a rule, and the rules that are then appended."""
        for i in range(len(rules)):
            for longer in self._longer(rules, i):
                grown = [*rules[:i], longer, *rules[i + 1 :]]
                self._append(grown)
                yield grown

    def _longer(self, rules: Sequence[Body], i: int) -> Iterator[Body]:
        """Yield a rule with one more literal, where its rows are of two kinds.

        One rule can stand for several that share a literal. No single literal that is added makes
        the list shorter then, but it does with the rules that are appended after it.
        """
        lits = self.literals
        if len(rules[i]) >= self.max_body:
            return
        rows = np.flatnonzero(self._open(rules[:i]) & self.covered(rules[i]))
        a, b = self.weights[rows].sum(0).tolist()
        counts = lits.sums([rows], self.weights)[0]
        cover = counts.sum(1)
        gains = split_gains(counts, (a, b)) - lits.bits
        gains[(cover < LEAST_COVER) | (cover > a + b - LEAST_COVER)] = -np.inf
        raises = a >= self.base * (a + b)
        with np.errstate(divide="ignore", invalid="ignore"):
            gains[(counts[:, 0] / cover > a / max(a + b, 1e-300)) != raises] = -np.inf
        for j in np.argsort(-gains, kind="stable")[:_LONGER].tolist():
            if gains[j] > 0:
                yield tuple(sorted({*rules[i], j}))

    def _category_sets(self, rules: Sequence[Body], i: int, literal: int) -> Iterator[Body]:
        """Yield a rule with a set of categories in place of a literal."""
        lits = self.literals
        if lits.finer is None or literal not in rules[i]:
            return
        others = tuple(j for j in rules[i] if j != literal)
        open_rows = self._open(rules[:i])
        weights = self.weights * open_rows[:, None]
        for new, rows, bits in lits.finer.sets(literal, open_rows & self.covered(others), weights):
            number = lits.add(new, rows, bits)
            if number not in others:
                yield tuple(sorted((*others, number)))

    # ---- Thresholds

    def _move_thresholds(self, rules: list[Body]) -> list[Body]:
        """Return the rules with each threshold at its best value, given all others.

        The bits of the labels are compared at every value of the column. Then each threshold is
        written as short as one bit of the labels allows.
        """
        if self.literals.finer is None:
            return rules
        self._move_until_settled(rules, range(len(rules)))
        for i in range(len(rules)):
            for k in range(len(rules[i])):
                self._move(rules, i, k, READABLE)
        return [tuple(sorted(body)) for body in rules]

    def _merge(self, rules: list[Body]) -> list[Body]:
        """Return the rules with one in place of two that have thresholds of the same columns.

        Two rules can each hold in a part of one rule, from where no single threshold leads to it.
        The one that holds in both parts, with its thresholds moved, is taken if that is shorter.
        """
        names = self.literals.names
        for i, j in itertools.combinations(range(len(rules)), 2):
            sides: dict[tuple[str, str], list[tuple[Any, int]]] = {}
            for literal in (*rules[i], *rules[j]) if len(rules[i]) == len(rules[j]) else ():
                condition = names[literal].condition if names else None
                if condition is not None and condition.op in ("<", ">="):
                    sides.setdefault((condition.column, condition.op), []).append(
                        (condition.value, literal)
                    )
            if len(sides) != len(rules[i]) or any(len(both) != 2 for both in sides.values()):
                continue
            widest = (max(both) if op == "<" else min(both) for (_, op), both in sides.items())
            merged = [*rules[:i], tuple(literal for _, literal in widest), *rules[i + 1 :]]
            del merged[j]
            self._move_until_settled(merged, [i])
            if self.total(merged) < self.total(rules):
                return self._merge(merged)
        return rules

    def _move_until_settled(self, rules: list[Body], which: Sequence[int]) -> None:
        """Move each threshold of some rules to its best value until none moves."""
        places = [(i, k) for i in which for k in range(len(rules[i]))]
        for _ in range(_MOVES):
            if not sum(self._move(rules, i, k, 0.0) for i, k in places):
                break

    def _move(self, rules: list[Body], i: int, k: int, tolerance: float) -> bool:
        """Move threshold k of rule i to where the labels take the fewest bits, if there is one.

        Args:
            rules: the rules, changed in place.
            i: the rule.
            k: the place of the literal in its body.
            tolerance: the bits that it may cost to be short; 0 to look for the best only.

        Returns:
            Whether the bits of the labels have fallen.
        """
        lits, literal = self.literals, rules[i][k]
        if lits.finer is None or (ordered := lits.finer.order(literal)) is None:
            return False
        values, known, upper = ordered
        others = (*rules[i][:k], *rules[i][k + 1 :])
        rows = np.flatnonzero(self._open(rules[:i]) & self.covered(others) & known)
        group = np.full(lits.n, len(rules), np.int64)  # of each row, if this rule leaves it out
        for j in reversed([*range(i), *range(i + 1, len(rules))]):
            group[self.covered(rules[j])] = j
        different, places = np.unique(values[rows], return_inverse=True)
        if len(different) < 2:
            return False
        count = len(rules) + 1
        cells = grouped(places * count + group[rows], self.weights[rows], len(different) * count)
        below = np.cumsum(cells.reshape(-1, count, 2), axis=0)
        inside = below[:-1] if upper else below[-1] - below[:-1]  # (thresholds, groups, 2)
        counts = grouped(group, self.weights, count) - inside
        counts[:, i] = inside.sum(1)
        bits = total_label_bits(counts)
        bits[counts[:, i].sum(1) < LEAST_COVER - 1e-9] = np.inf
        best = int(bits.argmin())
        held = lits.holds(literal)[rows]
        now = int(places[held == upper].max(initial=-1)) if held.any() else -1
        gained = not 0 <= now < len(bits) or bits[best] < bits[now] - 1e-9
        if not gained and not tolerance:
            return False
        first, last = flat_top(-bits, tolerance)
        new, held = lits.finer.move(literal, different[first], different[last + 1])
        number = lits.add(new, held, max(lits.cost(literal), lits.finer.threshold_bits))
        if number in others:
            return False
        rules[i] = (*rules[i][:k], number, *rules[i][k + 1 :])
        return gained


class _Candidates:
    """Rules of one length, and the best of them."""

    def __init__(self, search: ListSearch, total: tuple[float, ...]) -> None:
        self.search, self.total = search, (total[0], total[1])
        self.parents: list[Body] = []
        # Counts (candidates, 2), the number of the parent, the literal that is added, and bits.
        self.parts: list[tuple[Floats, Rows, Rows, Floats]] = []

    def add_longer(self, beam: Sequence[tuple[Body, Rows]]) -> None:
        """Add every body of the beam with one more literal."""
        lits = self.search.literals
        sums = lits.sums([rows for _, rows in beam], self.search.weights)
        for (body, rows), counts in zip(beam, sums, strict=True):
            inside = self.search.weights[rows].sum()
            cover = counts.sum(1)
            # A literal that removes no row says nothing.
            kept = np.flatnonzero((cover >= LEAST_COVER) & (cover < inside - 1e-9))
            self._add(body, counts[kept], kept)

    def _add(self, body: Body, counts: Floats, literal: Rows) -> None:
        lits = self.search.literals
        bits = body_bits([*map(lits.cost, body), 0.0]) + lits.bits[literal]
        self.parts.append((counts, np.full(len(literal), len(self.parents)), literal, bits))
        self.parents.append(body)

    def add_pairs(self, rows: Rows) -> None:
        """Add all pairs of literals of different columns."""
        lits = self.search.literals
        first, second, sums = lits.pairs(rows, self.search.weights, LEAST_COVER)
        bits = body_bits([0.0, 0.0]) + lits.bits[first] + lits.bits[second]
        self.parts.append((sums, first, second, bits))
        self.parents += [(j,) for j in range(lits.m)]

    def add_promising_pairs(self, rows: Rows, sample: Rows) -> None:
        """Add the pairs that are best on a sample of the rows."""
        weights = self.search.weights
        there = _Candidates(self.search, tuple(weights[sample].sum(0).tolist()))
        there.add_pairs(sample)
        for one in there.choose():
            inside = self.search._rows_of(one.body, (), rows)
            self._add(one.body[:1], weights[inside].sum(0)[None], np.array(one.body[1:]))

    def choose(self) -> list[Found]:
        """Return the rules to carry on, the one that saves most first."""
        counts, parent, literal, bits = map(np.concatenate, zip(*self.parts, strict=True))
        if not len(counts):
            return []
        gains = split_gains(counts, self.total) - bits
        places = np.zeros((len(_BEAM), 8 * max(_BEAM)), np.int64)
        scores = np.full(places.shape, -np.inf)
        compile_loop(_best_candidates)(
            counts, gains, self.total[0] / max(sum(self.total), 1e-300), self.search.base,
            _RAISES, np.inf if self.search.only_raise else _LOWERS, places, scores,
        )  # fmt: skip
        chosen: dict[Body, Found] = {}
        for score, place, many in zip(scores, places.tolist(), _BEAM, strict=True):
            seen: set[tuple[float, float]] = set()
            for i in place[: min(8 * many, int((score > -np.inf).sum()))]:
                a, b = counts[i].tolist()
                if (a, b) in seen or len(seen) == many:
                    continue
                seen.add((a, b))
                body = tuple(sorted({*self.parents[parent[i]], int(literal[i])}))
                chosen.setdefault(body, Found(body, float(gains[i]), a, b))
        return sorted(chosen.values(), key=lambda one: -one.saved)


def _best_candidates(
    counts: Cells, gains: Cells, rate: float, base: float, raises: float, lowers: float,
    places: Cells, scores: Cells,
) -> None:  # fmt: skip
    """Fill in the best by what they save, and by likelihood above and below the rate; best first.

    The bits that say whether a rule raises or lowers the base rate are taken from the gains.
    """
    last = places.shape[1] - 1
    for i in range(len(gains)):
        a, b = counts[i, 0], counts[i, 1]
        gains[i] -= raises if a >= base * (a + b) else lowers
        lift = 0.0
        if a > 0:
            lift += a * math.log(a / (a + b) / rate)
        if b > 0:
            lift += b * math.log(b / (a + b) / (1 - rate))
        kind = 1 if a > rate * (a + b) else 2
        for s in (0, kind):
            value = gains[i] if s == 0 else lift
            if value > scores[s, last]:
                at = last
                while at > 0 and value > scores[s, at - 1]:
                    scores[s, at], places[s, at] = scores[s, at - 1], places[s, at - 1]
                    at -= 1
                scores[s, at], places[s, at] = value, i
