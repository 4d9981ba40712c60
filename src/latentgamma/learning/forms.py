"""The forms that learned rules take, and the choice between them.

There are three: nothing but the base rate, a decision list, and points scores of one term, two terms and
so on. Five-fold cross-validation estimates the log-loss of each. The one with the shortest description is
taken: the bits of the labels at that loss, and half of the bits of its rules or terms.
Rules that are right on every row are taken without a comparison if there is a single one, or if all
columns have two values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal as OneOf
from typing import NamedTuple, TypeAlias

import numpy as np

from latentgamma.learning.bodies import distinct
from latentgamma.learning.lists import Found, ListSearch, learn_either
from latentgamma.learning.literals import Body, Floats, Literals, body_bits, grouped
from latentgamma.learning.points import PointsSearch, Score, sigmoid
from latentgamma.program.facts import Mask

Name: TypeAlias = OneOf["nothing", "rules", "points"]

_FOLDS = 5
#: With fewer rows, cross-validation is repeated with other folds.
_FEW_ROWS, _REPEATS = 1000, 3
#: What a bit of a form counts beside a bit of the held-out labels.
_FORM_PRICE = 0.5
#: Rows that cross-validation uses at most, and rows of points scores.
_MOST_ROWS = 10_000
_MOST_POINTS_ROWS = 200_000
#: Rows, by weight, from which on folds get equal shares of equal rows.
_MOST_UNITS = 10**9
#: Probabilities are kept this far from 0 and 1.
_LEAST = 1e-6


@dataclass(frozen=True)
class Form:
    """What was learned for one class: bodies, and the probability of the class given them.

    Attributes:
        name: which form it is.
        bodies: the rules of a list in order, or the terms of a score.
        base: the rate of the class.
        counts: for a list, the positives and negatives of each rule, and of the rest.
        score: for a points score, the points of the terms.
    """

    name: Name
    bodies: tuple[Body, ...]
    base: float
    counts: tuple[tuple[float, float], ...] = ()
    score: Score | None = None

    @property
    def literals(self) -> int:
        """The number of literals."""
        return sum(map(len, self.bodies))

    @property
    def rates(self) -> tuple[float, ...]:
        """For a list, the probability of the class for each rule, and for the rest.

        One row at the base rate is added to each group. A score of one term is a list of one rule.
        """
        if self.score is not None and len(self.bodies) == 1:
            return tuple(sigmoid(self.score.log_odds(np.array([*self.score.points, 0]))).tolist())
        return tuple((a + self.base) / (a + b + 1) for a, b in self.counts)

    def probability(self, covered: Sequence[Mask], n: int) -> Floats:
        """Return the probability of the class for rows. (n,).

        Args:
            covered: for each body, the rows in which it holds.
            n: the number of rows.
        """
        if self.score is not None:
            points = np.zeros(n)
            for rows, one in zip(covered, self.score.points, strict=True):
                points[rows] += one
            return sigmoid(self.score.log_odds(points))
        if not self.counts:
            return np.full(n, self.base)
        rates = self.rates
        found = np.full(n, rates[-1])
        for rows, rate in zip(reversed(covered), reversed(rates[:-1]), strict=True):
            found[rows] = rate
        return found

    def with_and_without(self, i: int, covered: Sequence[Mask], n: int) -> tuple[Floats, Floats]:
        """Return the probability of the class if a body holds, and if it does not. (n,) each.

        Args:
            i: the body.
            covered: for each body, the rows in which it holds.
            n: the number of rows.
        """
        hold, fail = list(covered), list(covered)
        hold[i], fail[i] = np.ones(n, np.bool_), np.zeros(n, np.bool_)
        return self.probability(hold, n), self.probability(fail, n)


class Validated(NamedTuple):
    """How a form did in cross-validation.

    Attributes:
        name: the form.
        loss: the mean log-loss on held-out rows, in nats.
        literals: the mean number of literals.
    """

    name: Name
    loss: float
    literals: float


class Learned(NamedTuple):
    """A form, why it was chosen, and the rule that was nearest to paying for itself.

    Attributes:
        form: the form.
        validated: the cross-validation of all forms; empty where nothing had to be chosen.
        nearest: if nothing was found, the rule that saves most, and what it saves.
    """

    form: Form
    validated: tuple[Validated, ...] = ()
    nearest: Found | None = None


#: Called with what is done, the number of steps done, and the number of all steps.
Progress: TypeAlias = Callable[[str, int, int], None]


def learn_form(
    literals: Literals, weights: Floats, *, max_body: int, max_terms: int, forms: Sequence[Name],
    seed: int, progress: Progress,
) -> Learned:  # fmt: skip
    """Return what is learned for one class.

    Args:
        literals: the table.
        weights: the weight of each row as a positive and as a negative. (n, 2)
        max_body: the most literals of a rule.
        max_terms: the most terms of a points score.
        forms: the forms to choose from.
        seed: the seed of the folds.
        progress: called between the steps.
    """
    steps = _FOLDS + 2
    progress("rules", 0, steps)
    search = ListSearch(literals, weights, max_body)
    nothing = Form("nothing", (), search.base)
    listed, swapped = nothing, False
    if "rules" in forms:
        rules, swapped = learn_either(literals, weights, max_body)
        listed = make_list(search, rules) if rules else nothing
    two_valued = literals.inside.shape[1] <= 2
    pure = bool(listed.bodies) and all(0 in group for group in listed.counts)
    summary: tuple[Validated, ...] = ()
    # Rules that are never wrong need no comparison; with numbers, several may be fitted to the rows.
    if "points" in forms and not (pure and (two_valued or len(listed.bodies) == 1)):
        progress("cross-validation", 1, steps)
        validated = _cross_validate(literals, weights, max_body, max_terms, forms, seed, swapped,
                                    lambda fold: progress("cross-validation", fold + 1, steps))  # fmt: skip
        ranked = sorted(validated, key=lambda one: one.description(float(weights.sum())))
        chosen, shown = ranked[0], next(one for one in ranked if one.name == "points")
        summary = tuple(Validated(one.name, one.loss, one.literals)
                        for one in validated if one.name != "points" or one is shown)  # fmt: skip
        progress(chosen.name, steps - 1, steps)
        if chosen.name == "points":
            return Learned(make_score(literals, weights, most=chosen.terms), summary)
        listed = listed if chosen.name == "rules" else nothing
    if listed.bodies:
        return Learned(listed, summary)
    return Learned(nothing, summary, search.best_rule(np.ones(literals.n, np.bool_)))


def make_list(search: ListSearch, rules: Sequence[Body]) -> Form:
    """Return a list with the counts of its groups."""
    counts = tuple((float(a), float(b)) for a, b in search.groups(rules).tolist())
    return Form("rules", tuple(rules), search.base, counts)


def make_score(
    literals: Literals, weights: Floats, terms: Sequence[Body] | None = None, most: int = 0
) -> Form:
    """Return a points score, of these terms or of the first `most` that are found."""
    search = PointsSearch(literals, weights)
    if terms is None:
        rows, found = np.flatnonzero(weights.sum(1) > 0), search
        if len(rows) > _MOST_POINTS_ROWS:  # terms from a part of the rows, points from all
            rows = np.random.default_rng(0).choice(rows, _MOST_POINTS_ROWS, replace=False)
            part = np.zeros_like(weights)
            part[rows] = weights[rows]
            found = PointsSearch(literals, part)
        path = found.path(most)
        terms = found.finish(path[-1]) if path else []
    score = search.score(terms)
    total = weights.sum(0)
    base = float(total[0] / max(total.sum(), 1e-300))
    if score is None:
        return Form("nothing", (), base)
    return Form("points", score.terms, base, score=score)


# ---- Cross-validation


@dataclass
class _Held:
    """What a form lost on held-out rows."""

    name: Name
    terms: int = 0  # of a points score
    nats: float = 0.0
    rows: float = 0.0
    sizes: list[int] = field(default_factory=list)
    bits: list[float] = field(default_factory=list)  # of the rules or terms

    def add(self, p: Floats, weights: Floats, bodies: Sequence[Body], literals: Literals) -> None:
        """Add a fold."""
        p = np.clip(p, _LEAST, 1 - _LEAST)
        self.nats -= float((np.log(np.stack([p, 1 - p], axis=1)) * weights).sum())
        self.rows += float(weights.sum())
        self.sizes.append(sum(map(len, bodies)))
        self.bits.append(sum(body_bits([*map(literals.cost, body)]) for body in bodies))

    @property
    def loss(self) -> float:
        return self.nats / self.rows

    @property
    def literals(self) -> float:
        return float(np.mean(self.sizes))

    def description(self, rows: float) -> float:
        """Return the bits of the labels of this many rows, and of the form at its price."""
        return rows * self.loss / math.log(2.0) + _FORM_PRICE * float(np.mean(self.bits))


def _cross_validate(
    literals: Literals, weights: Floats, max_body: int, max_terms: int, forms: Sequence[Name],
    seed: int, swapped: bool, progress: Callable[[int], None],
) -> list[_Held]:  # fmt: skip
    """Return what each form loses on held-out rows: nothing, rules, and scores of each size."""
    nothing, listed = _Held("nothing"), _Held("rules")
    scores = [_Held("points", k) for k in range(1, max_terms + 1)]
    repeats = _REPEATS if weights.sum() < _FEW_ROWS else 1
    for repeat in range(repeats):
        part, totals, folds = _folds(literals, weights, seed + repeat)
        for fold, test in enumerate(folds):
            progress((repeat * _FOLDS + fold) // repeats)
            train = totals - test
            search = ListSearch(part, train, max_body)
            nothing.add(np.full(part.n, search.base), test, (), part)
            if "rules" in forms:
                form = make_list(search, ListSearch(part, train, max_body, swapped).learn())
                covered = [part.covered(body) for body in form.bodies]
                listed.add(form.probability(covered, part.n), test, form.bodies, part)
            points = PointsSearch(part, train)
            path = points.path(max_terms) or [[]]
            found = [points.probability(terms) for terms in path]
            for one in scores:
                at = min(one.terms, len(path)) - 1
                one.add(found[at], test, path[at], part)
    return [nothing, *([listed] if "rules" in forms else []), *scores]


def _folds(literals: Literals, weights: Floats, seed: int) -> tuple[Literals, Floats, list[Floats]]:
    """Return different rows, their weights, and how much of these each fold holds out.

    Rows that are equal count together. Their weight is dealt to the folds in units at random, so that
    a row of weight 3 is treated as three rows, and held-out rows say nothing about the others.
    """
    rng = np.random.default_rng(seed)
    rows = np.flatnonzero(weights.sum(1) > 0)
    if len(rows) > _MOST_ROWS:
        rows = np.sort(rng.choice(rows, _MOST_ROWS, replace=False))
    first, _, which = distinct(literals.codes[rows])
    totals = grouped(which, weights[rows], len(first))
    folds = [np.zeros_like(totals) for _ in range(_FOLDS)]
    for side in (0, 1):
        units = np.floor(totals[:, side])
        if units.sum() >= _MOST_UNITS:  # so many that chance divides them evenly, too
            for fold in folds:
                fold[:, side] = units // _FOLDS
            units %= _FOLDS
        left = units.astype(np.int64)
        for k, fold in enumerate(folds):
            share = -(-int(left.sum()) // (_FOLDS - k))
            dealt = rng.multivariate_hypergeometric(left, share, method="marginals")
            fold[:, side] += dealt
            left -= dealt
        rest = totals[:, side] - np.floor(totals[:, side])
        order = rng.permutation(np.flatnonzero(rest))
        for k, fold in enumerate(folds):
            fold[order[k::_FOLDS], side] += rest[order[k::_FOLDS]]
    return literals.part(rows[first]), totals, folds
