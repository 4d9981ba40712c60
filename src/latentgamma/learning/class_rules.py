"""What was learned for one class: rules or points with their numbers, as text, program and code."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from latentgamma.learning.columns import Column, covered, holds
from latentgamma.learning.forms import Form, Validated
from latentgamma.learning.literals import Floats, Literal, threshold_gains
from latentgamma.learning.points import sigmoid
from latentgamma.program.conditions import value_text
from latentgamma.program.facts import Mask
from latentgamma.program.names import quote, quote_argument, time_text
from latentgamma.program.program import Rule

#: Standard deviations of a normal distribution that leave out five percent.
_NINETY_FIVE = 1.959964


#: What the interval of a threshold leaves out.
_OUTSIDE = 0.05
#: Sums of points in a line of text.
_SUMS_OF_A_LINE = 8
#: What is divided by is 1 − p and this, so that it is not 0.
ABOVE_ZERO = 1e-9
#: The standard deviation of the prior of the exponent, and how often its interval is halved.
_EXPONENT_SPREAD, _HALVINGS = 0.25, 12


def compared(values: npt.ArrayLike) -> Floats:
    """Return probabilities or their multiples as they are compared: those equal but for rounding are equal."""
    return np.asarray(values, np.float64).round(12)


def auxiliary_atoms(head: str) -> tuple[str, str]:
    """Return how the names of the other atoms begin that the rules of a class derive."""
    return f"exception({quote_argument(head)},", f"at_least({quote_argument(head)},"


def log_shares(p: Floats, exponent: float, costs: npt.ArrayLike = 1.0) -> Floats:
    """Return ln(c p / (1 − p)^t) for each class: what its probability times c is proportional to, as a logarithm.

    >>> np.exp(log_shares(np.array([0.5, 0.9]), 1.0)).round(6).tolist()
    [1.0, 9.0]

    Args:
        p: the probability of each class against all others. (…, classes)
        exponent: t. With 0 the classes keep their proportions; with 1 they are independent events
            of which exactly one has happened.
        costs: c of each class, or of all.
    """
    with np.errstate(divide="ignore"):  # a class may cost nothing
        return np.log(p) - exponent * np.log(1 + ABOVE_ZERO - p) + np.log(costs)


def shared(p: Floats, exponent: float) -> Floats:
    """Return the probability of each class, given that of each against all others. (n, classes)."""
    shares = np.exp(log_shares(p, exponent))
    return np.asarray(shares / shares.sum(1, keepdims=True))


def fit_exponent(p: Floats, labels: Mask, weights: Floats) -> float:
    """Return the exponent of `shared`, from 0 to 1, by which labels are likeliest.

    It has a normal prior around 0, so that few rows change little.

    Args:
        p: the probability of each class against all others. (n, classes)
        labels: the class of each row. (n, classes)
        weights: the weight of each row. (n,)
    """
    features = -np.log(1 + ABOVE_ZERO - p)
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        slope = weights @ ((labels - shared(p, middle)) * features).sum(1)
        low, high = (middle, high) if slope > middle / _EXPONENT_SPREAD**2 else (low, middle)
    return round((low + high) / 2, 3)


def exceeds(probability: npt.ArrayLike, threshold: float) -> Mask:
    """Return where a probability decides for a class."""
    return np.asarray(compared(probability) > compared(threshold))


class Threshold(NamedTuple):
    """Where a threshold can be: above `low`, and not above `high`.

    With 95% confidence this holds for all thresholds of a class at once. It is where the labels are at
    most log₂(2k / 0.05) bits less likely than at the best value, where k is the number of
    thresholds and all else stays as it is. The likelihood ratio of any other threshold to the true one is a
    martingale as rows are added, so it exceeds 2k / 0.05 with probability 0.05 / 2k at most on each
    side (Ville 1939).

    >>> from latentgamma import RuleClassifier
    >>> ages = {"age": list(range(40))}
    >>> classifier = RuleClassifier().fit(ages, [age < 18 for age in range(40)])
    >>> classifier.class_rules_[0].statistics[0].thresholds[0]
    Threshold(condition='age < 18', low=17.0, high=19.0)

    Attributes:
        condition: the condition, as text.
        low: the lower end; None if there is none.
        high: the upper end; None if there is none.
    """

    condition: str
    low: Any
    high: Any


class RuleStatistics(NamedTuple):
    """What the training rows say about one rule; a rule of a list counts the rows that reach it.

    >>> from latentgamma import RuleClassifier
    >>> ages = {"age": list(range(40))}
    >>> classifier = RuleClassifier().fit(ages, [age < 18 for age in range(40)])
    >>> classifier.class_rules_[0].statistics[0].precision
    1.0

    Attributes:
        rule: the number of the rule, from 1 on; 0 for the rows that no rule covers.
        body: its literals, as text.
        support: the rows that it covers, by weight.
        precision: the fraction of those that are of the class.
        recall: the fraction of the class that it covers.
        lift: the precision, divided by the rate of the class.
        interval: from where to where the precision is with 95% confidence (Wilson).
        probability: what the rule predicts; for one of several terms of a points score, None.
        points: the points of a term of a points score; None for a rule.
        thresholds: where the thresholds of its conditions can be.
    """

    rule: int
    body: str
    support: float
    precision: float
    recall: float
    lift: float
    interval: tuple[float, float]
    probability: float | None
    points: int | None
    thresholds: tuple[Threshold, ...] = ()


@dataclass(frozen=True)
class ClassRules:
    """The rules of one class.

    >>> from latentgamma import RuleClassifier
    >>> ages = {"age": list(range(40))}
    >>> classifier = RuleClassifier().fit(ages, [age < 18 for age in range(40)])
    >>> [str(literal) for body in classifier.class_rules_[0].bodies for literal in body]
    ['age < 18']

    Attributes:
        head: the atom that they derive.
        form: the form, with its numbers.
        bodies: the literals of each rule, or of each term of a score.
        threshold: the class is decided where its probability is above this.
        statistics: what the training rows say about each rule.
        rows: the number of training rows, by weight.
        validated: the cross-validation of the forms; empty if there was no choice.
        nearest: if nothing was found, which rule comes nearest; else None.
        alternatives: for a literal, others that hold in the same training rows.
    """

    head: str
    form: Form
    bodies: tuple[tuple[Literal, ...], ...]
    threshold: float
    statistics: tuple[RuleStatistics, ...]
    rows: float
    validated: tuple[Validated, ...] = ()
    nearest: str | None = None
    alternatives: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def probability(self, columns: Mapping[str, Column], n: int) -> Floats:
        """Return the probability of the class for each row of a table. (n,)."""
        return self.form.probability([covered(body, columns, n) for body in self.bodies], n)

    # ---- As a program

    def rules(
        self, head: str = "", threshold: float | None = None, against: Iterable[str] = ()
    ) -> Iterator[Rule]:
        """Yield rules that derive an atom exactly where the class is likely enough.

        Args:
            head: the atom; by default that of the class.
            threshold: the atom is derived where the probability is above this; by default that of
                the class.
            against: atoms in which case it is not derived.
        """
        head, threshold = head or self.head, self.threshold if threshold is None else threshold
        derive = self._rules_of_list if self.form.score is None else self._rules_of_points
        yield from derive(head, threshold, tuple(against))

    def levels(self) -> list[float]:
        """Return the different probabilities that the class can have, the lowest first."""
        if (score := self.form.score) is None:
            return sorted({*(self.form.rates or (self.form.base,))})
        return sorted(set(sigmoid(score.log_odds(np.array(score.totals()))).tolist()))

    def _rules_of_list(self, head: str, threshold: float, never: Sequence[str]) -> Iterator[Rule]:
        """Yield for each rule that decides for the class the rule, unless one against it came before."""
        decided = exceeds(self.form.rates or (self.form.base,), threshold).tolist()
        against = list(never)
        for i, body in enumerate(self.bodies):
            if decided[i]:
                yield _rule(head, body, against)
            elif any(decided[i + 1 :]):
                if len(body) == 1 and not body[0].negated:
                    against.append(body[0].name)
                else:
                    against.append(self._auxiliary(i))
                    yield _rule(against[-1], body)
        if decided[-1]:
            yield Rule((head,), frozenset(), frozenset(against))

    def _rules_of_points(self, head: str, threshold: float, never: Sequence[str]) -> Iterator[Rule]:
        """Yield the smallest sets of terms whose points suffice, whatever the others are."""
        score = self.form.score
        assert score is not None
        totals = score.totals()
        decided = exceeds(sigmoid(score.log_odds(np.array(totals))), threshold)
        # The last sum that is not enough. Terms with negative points count where they do not hold.
        needed = totals[int((~decided).sum()) - 1] - totals[0] if not decided.all() else -1
        terms = sorted(enumerate(score.points), key=lambda one: -abs(one[1]))
        chosen = list(_smallest_sets([abs(points) for _, points in terms], needed))
        used = {terms[k][0] for one in chosen for k in one}
        all_literals = [literal for i in used for literal in self.bodies[i]]
        auxiliary = {}
        for i in sorted(used):
            body = self.bodies[i]
            if score.points[i] < 0 and (len(body) > 1 or body[0].negated):
                auxiliary[i] = self._auxiliary(i)
                yield _rule(auxiliary[i], body)
        found: dict[frozenset[Literal], None] = {}
        for one in chosen:
            body_atoms: list[Literal] = []
            for i in (terms[k][0] for k in one):
                if score.points[i] > 0:
                    body_atoms += self.bodies[i]
                else:
                    body_atoms.append(Literal(auxiliary.get(i, self.bodies[i][0].name), True))
            if not _contradictory(body_atoms):
                found[_without_implied(body_atoms)] = None
        implied = len({_side(j) for j in all_literals}) < len(all_literals)
        for literals in found:
            others = (other for other in found if other != literals)
            if not (implied and any(_implies(literals, other) for other in others)):
                yield _rule(head, tuple(literals), never)

    def _auxiliary(self, i: int) -> str:
        return f"{auxiliary_atoms(self.head)[0]}{i + 1})"

    # ---- As text

    def lines(self) -> list[str]:
        """Return the rules or the points as text."""
        if self.form.score is not None and len(self.bodies) > 1:
            return self._points_lines()
        rates, lines = self.form.rates, []
        for body, rate in zip(self.bodies, rates, strict=False):
            if rate >= self.form.base and exceeds(rate, self.threshold):
                lines.append(f"{quote(self.head)} :- {_text(body)}.  % p = {rate:.2f}")
            else:
                often = "less" if rate < self.form.base else "more"
                lines.append(f"% {quote(self.head)} {often} often if {_text(body)}: p = {rate:.2f}")
        if not self.bodies:
            return [f"% {quote(self.head)}: no rules, p = {self.form.base:.2f}"]
        return [*lines, f"% otherwise p = {rates[-1]:.2f}"]

    def _points_lines(self) -> list[str]:
        score = self.form.score
        assert score is not None
        head = quote(self.head)
        terms = [f"% {points:+d} {'point' if abs(points) == 1 else 'points'}: {_text(body)}"
                 for points, body in zip(score.points, self.bodies, strict=True)]  # fmt: skip
        totals = score.totals()
        rates = sigmoid(score.log_odds(np.array(totals)))
        sums = [f"{total}: p = {rate:.2f}" for total, rate in zip(totals, rates, strict=True)]
        table = [f"% sum {'; '.join(sums[i : i + _SUMS_OF_A_LINE])}"
                 for i in range(0, len(sums), _SUMS_OF_A_LINE)]  # fmt: skip
        enough = totals[int((~exceeds(rates, self.threshold)).sum()) :]
        decided = f"{enough[0]} or more: {head}" if enough else f"not {head}, whatever the sum is"
        if enough == totals:
            decided = f"{head}, whatever the sum is"
        return [f"% {head}: points", *terms, *table, f"% {decided}"]

    def explain(
        self, columns: Mapping[str, Column], values: Mapping[str, Any], p: float
    ) -> list[str]:
        """Return why the class has the probability p in the one row of these columns.

        The lines show `values`, in which a truth value can be missing.
        """
        lines = [f"{quote(self.head)}: p = {p:.2f} (base rate {self.form.base:.2f})"]
        if self.form.score is not None:
            total = 0
            for body, points in zip(self.bodies, self.form.score.points, strict=True):
                applies = bool(covered(body, columns, 1)[0])
                total += points * applies
                lines.append(f"  {points if applies else 0:+d}: {_with_values(body, values)}")
            return [*lines, f"  sum {total}"]
        for i, body in enumerate(self.bodies, 1):
            if covered(body, columns, 1)[0]:
                return [*lines, f"  rule {i} applies: {_with_values(body, values)}"]
            failed = [literal for literal in body if not _holds(literal, columns)]
            lines.append(f"  rule {i} does not apply: {_with_values(failed[:1], values)}")
        return [*lines, "  no rule applies"] if self.bodies else [*lines, "  there are no rules"]

    # ---- As code

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        score = self.form.score
        document: dict[str, Any] = {
            "head": self.head,
            "form": self.form.name,
            "base_rate": self.form.base,
            "threshold": self.threshold,
            "rules": [
                {
                    "conditions": [_literal_dict(literal) for literal in body],
                    **{k: v for k, v in one._asdict().items() if v is not None and k != "body"},
                }
                for body, one in zip(self.bodies, self.statistics, strict=False)
            ],
        }
        if score is not None:
            document["log_odds"] = {"base": score.base, "per_point": score.unit}
        else:
            document["otherwise"] = (self.form.rates or (self.form.base,))[-1]
        if self.validated:
            document["cross_validation"] = [one._asdict() for one in self.validated]
        return document

    def to_sql(self) -> str:
        """Return the probability of the class as an expression in SQL."""
        bodies = [" AND ".join(map(_sql, body)) for body in self.bodies]
        if (score := self.form.score) is not None:
            terms = [f"CASE WHEN {body} THEN {points} ELSE 0 END"
                     for body, points in zip(bodies, score.points, strict=True)]  # fmt: skip
            total = " + ".join(terms) or "0"
            return f"1 / (1 + EXP(-({score.base!r} + {score.unit!r} * ({total}))))"
        if not bodies:
            return repr(self.form.base)
        cases = [f"WHEN {body} THEN {rate!r}"
                 for body, rate in zip(bodies, self.form.rates, strict=False)]  # fmt: skip
        return f"CASE {' '.join(cases)} ELSE {self.form.rates[-1]!r} END"

    def to_python(self, name: str) -> str:
        """Return the source of a Python function from a row, a dictionary, to the probability."""
        quoted = self.head.replace("\\", "\\\\").replace('"', '\\"')
        lines = [
            f"def {name}(row):",
            f'    """Return the probability of {quoted}."""',
        ]
        bodies = [" and ".join(map(_python, body)) for body in self.bodies]
        if (score := self.form.score) is not None:
            lines.append("    points = 0")
            for body, points in zip(bodies, score.points, strict=True):
                lines += [f"    if {body}:", f"        points += {points}"]
            lines.append(
                f"    return 1 / (1 + math.exp(-({score.base!r} + {score.unit!r} * points)))"
            )
            return "\n".join(lines)
        for body, rate in zip(bodies, self.form.rates, strict=False):
            lines += [f"    if {body}:", f"        return {rate!r}"]
        lines.append(f"    return {(self.form.rates or (self.form.base,))[-1]!r}")
        return "\n".join(lines)


#: What the functions of `to_python` use.
PYTHON_HEADER = """\
import datetime
import math
import re

TIME = re.compile(r"\\d{4}-\\d\\d-\\d\\d[ T]\\d\\d(:\\d\\d(:\\d\\d(\\.\\d+)?)?)?(Z|[+-]\\d\\d(:?\\d\\d)?)?")


def known(row, column):
    value = row.get(column)
    return value is not None and value == value


def true(row, column):
    value = str(row[column]).strip().lower() if known(row, column) else ""
    return value == "true" or (value not in ("false", "") and float(value) > 0.5)


def text(row, column):
    value = row[column]
    if type(value).__name__ in ("bool", "bool_"):
        return str(value).lower()
    if isinstance(value, str) and TIME.fullmatch(value):
        try:
            value = datetime.datetime.fromisoformat(value)
        except ValueError:
            return value
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            value = value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
        return value.isoformat("T", "seconds").removesuffix("T00:00:00")
    return str(value)
"""


def statistics(
    form: Form, bodies: Sequence[Sequence[Literal]], columns: Mapping[str, Column], weights: Floats
) -> tuple[RuleStatistics, ...]:
    """Return what rows say about each rule.

    Args:
        form: the form, with its numbers.
        bodies: the literals of each rule, or of each term of a score.
        columns: the columns of the table.
        weights: the weight of each row as a positive and as a negative. (n, 2)
    """
    n, total = len(weights), weights.sum(0)
    covers = [covered(body, columns, n) for body in bodies]
    count = sum(_has_threshold(literal) for body in bodies for literal in body)
    bits = math.log2(2 * max(count, 1) / _OUTSIDE)
    open_rows, found = np.ones(n, np.bool_), []
    for i, (body, rows) in enumerate(zip(bodies, covers, strict=True)):
        inside, outside = form.with_and_without(i, covers, n)
        gains = weights[:, 0] * np.log2(inside / outside)
        gains += weights[:, 1] * np.log2((1 - inside) / (1 - outside))
        thresholds = []
        for k, literal in enumerate(body):
            if _has_threshold(literal):
                others = open_rows & covered([*body[:k], *body[k + 1 :]], columns, n)
                thresholds.append(_interval(literal, columns, others, gains, bits))
        counts = weights[rows & open_rows].sum(0)
        if form.score is None:
            open_rows = open_rows & ~rows
        points = None if form.score is None else form.score.points[i]
        rate = form.rates[i] if form.rates else None
        one = _statistics(i + 1, _text(body), counts, total, rate, points)
        found.append(one._replace(thresholds=tuple(thresholds)))
    if form.score is None and bodies:
        rest = weights[open_rows].sum(0)
        found.append(_statistics(0, "otherwise", rest, total, form.rates[-1], None))
    return tuple(found)


def _has_threshold(literal: Literal) -> bool:
    return literal.condition is not None and literal.condition.op in ("<", ">=")


def _interval(
    literal: Literal, columns: Mapping[str, Column], rows: Any, gains: Floats, bits: float
) -> Threshold:
    """Return where a threshold can be, given what each row gains by being inside the rule."""
    condition, column = literal.condition, columns[literal.column]
    assert condition is not None
    rows = np.flatnonzero(rows & ~column.missing)
    values, inside = threshold_gains(column.ordered[rows], gains[rows], condition.op == "<")
    usable = np.flatnonzero(inside >= inside.max() - bits)
    # The value that is used was chosen with the others, and its numbers estimated with it.
    used = int(np.searchsorted(values, condition.value, side="left"))  # type: ignore[call-overload]
    first, last = min(int(usable[0]), used), max(int(usable[-1]), used)
    ends = [None, *values.tolist(), None]
    return Threshold(str(literal), ends[first], ends[last + 1])


def _statistics(
    rule: int, body: str, counts: Floats, total: Floats, rate: float | None, points: int | None
) -> RuleStatistics:
    a, n = float(counts[0]), float(counts.sum())
    base = float(total[0] / total.sum())
    precision = a / n if n else base
    middle = (a + _NINETY_FIVE**2 / 2) / (n + _NINETY_FIVE**2)
    half = (_NINETY_FIVE / (n + _NINETY_FIVE**2)) * math.sqrt(
        max(0.0, n * precision * (1 - precision)) + _NINETY_FIVE**2 / 4
    )
    interval = max(0.0, middle - half), min(1.0, middle + half)
    return RuleStatistics(
        rule, body, n, precision, a / max(float(total[0]), 1e-300), precision / max(base, 1e-300),
        interval, rate, points,
    )  # fmt: skip


def rules_of_likeliest(
    classes: Sequence[ClassRules], costs: Sequence[float], exponent: float
) -> list[Rule]:
    """Return rules that derive the class with the greatest probability, times its cost, and no other.

    A class can have some probabilities only. For each of them it is derived if it has at least that
    one and no other class has a greater one, or, before it in the order, the same.

    Args:
        classes: the rules of each class.
        costs: what each probability is multiplied by.
        exponent: that of `shared`.
    """
    levels = [one.levels() for one in classes]
    values = [compared(log_shares(np.array(level), exponent, cost)).tolist()
              for level, cost in zip(levels, costs, strict=True)]  # fmt: skip
    # For each class: from which of its probabilities on it is derived, unless others have which.
    plans: list[dict[tuple[tuple[int, int], ...], int]] = [{} for _ in classes]
    for k, plan in enumerate(plans):
        for i, value in enumerate(values[k]):
            greater = tuple((j, sum(v < value or (v == value and j > k) for v in other))
                            for j, other in enumerate(values) if j != k)  # fmt: skip
            if all(place > 0 for _, place in greater):  # else another class is always greater
                reached = tuple((j, place) for j, place in greater if place < len(values[j]))
                plan.setdefault(reached, i)
    # A class that is derived whatever the others are stands for its probability itself.
    names = {(k, plan[()]): classes[k].head for k, plan in enumerate(plans) if list(plan) == [()]}
    found: dict[Rule, None] = {}

    def derive(k: int, i: int, head: str, against: Iterable[str]) -> None:
        """Add rules for a head where class k has its probability i or a greater one."""
        rules: Iterable[Rule] = [Rule((head,), frozenset(), frozenset(against))]
        if i > 0:
            rules = classes[k].rules(head, (levels[k][i - 1] + levels[k][i]) / 2, against)
        found.update(dict.fromkeys(rules))

    for k, plan in enumerate(plans):
        for reached, i in plan.items():
            against = []
            for j, place in reached:
                if (j, place) not in names:
                    names[j, place] = f"{auxiliary_atoms(classes[j].head)[1]}{place})"
                    derive(j, place, names[j, place], ())
                against.append(names[j, place])
            derive(k, i, classes[k].head, against)
    derived = {rule.head for rule in found}
    never = {name for name in names.values() if name not in derived}
    return list(dict.fromkeys(replace(rule, negated=rule.negated - never) for rule in found))


# ---- Pieces


def _rule(head: str, body: Sequence[Literal], against: Sequence[str] = ()) -> Rule:
    positive = frozenset(literal.name for literal in body if not literal.negated)
    negated = {literal.name for literal in body if literal.negated}
    return Rule((head,), positive, frozenset({*negated, *against}))


def _contradictory(body: Sequence[Literal]) -> bool:
    """Return whether no value of some column meets two of these conditions."""
    conditions = [literal.condition for literal in body if literal.condition is not None]
    for one, other in itertools.permutations(conditions, 2):
        if one.column == other.column and (
            (one.op == other.op == "=" and one.value != other.value)
            or (one.op == "<" and other.op == ">=" and one.value <= other.value)  # type: ignore[operator]
        ):
            return True
    return False


def _side(literal: Literal) -> object:
    """Return the column and the side of a threshold; of other literals, themselves."""
    if literal.negated or not _has_threshold(literal):
        return literal
    return literal.column, literal.condition.op  # type: ignore[union-attr]


def _implies(body: Iterable[Literal], other: Iterable[Literal]) -> bool:
    """Return whether a body holds only where another does, by thresholds of the same columns."""
    return all(any(_at_least(one, literal) for one in body) for literal in other)


def _at_least(one: Literal, other: Literal) -> bool:
    """Return whether a literal holds only where another does."""
    if one == other or one.condition is None or other.condition is None:
        return one == other
    value, wider = one.condition.value, other.condition.value
    below = one.condition.op == "<"
    return _side(one) == _side(other) != other and bool(
        value <= wider if below else value >= wider  # type: ignore[operator]
    )


def _without_implied(body: Sequence[Literal]) -> frozenset[Literal]:
    """Return the literals of a body that no other one of it implies."""
    literals = set(body)
    return frozenset(
        one for one in literals
        if not any(_at_least(other, one) for other in literals if other != one)
    )  # fmt: skip


def _smallest_sets(points: Sequence[int], needed: float) -> Iterator[tuple[int, ...]]:
    """Yield the sets of indices whose points exceed what is needed, and no part of which do.

    The points are positive, the largest first.
    """

    def extend(start: int, chosen: tuple[int, ...], total: int) -> Iterator[tuple[int, ...]]:
        if total > needed:
            yield chosen
            return
        for k in range(start, len(points)):
            if total + sum(points[k:]) > needed:
                yield from extend(k + 1, (*chosen, k), total + points[k])

    # The last point added is the smallest of the set, so no smaller set suffices.
    yield from extend(0, (), 0)


def _text(body: Sequence[Literal]) -> str:
    """Return a body as text, with both ends of a column in one condition: 18 <= age < 65."""
    ends: dict[object, Literal] = {_side(literal): literal for literal in body}
    parts = []
    for literal in body:
        side = _side(literal)
        column, op = side if isinstance(side, tuple) and side != literal else ("", "")
        low, high = ends.get((column, ">=")), ends.get((column, "<"))
        if low is None or high is None:
            parts.append(str(literal))
        elif op == ">=":
            parts.append(f"{str(low).rpartition(' >= ')[2]} <= {high}")
    return ", ".join(parts)


def _holds(literal: Literal, columns: Mapping[str, Column]) -> bool:
    return bool(holds(literal, columns[literal.column])[0])


def _with_values(body: Sequence[Literal], values: Mapping[str, Any]) -> str:
    return ", ".join(f"{one} ({value_text(one.column, values[one.column])})" for one in body)


def _literal_dict(literal: Literal) -> dict[str, Any]:
    found: dict[str, Any] = {"atom": literal.name, "negated": literal.negated}
    if literal.condition is None:
        return {**found, "column": literal.name}
    value = literal.condition.value
    listed = list(value) if isinstance(value, tuple) else value
    return {
        **found,
        "column": literal.condition.column,
        "op": literal.condition.op,
        "value": listed,
    }


def _sql(literal: Literal) -> str:
    condition = literal.condition
    column = '"' + literal.column.replace('"', '""') + '"'
    if condition is None:
        column = f"LOWER(CAST({column} AS VARCHAR))"
        text = (f"CASE {column} WHEN 'true' THEN 1 WHEN 'false' THEN 0 WHEN '' THEN 0 "
                f"ELSE CAST({column} AS DOUBLE PRECISION) END > 0.5")  # fmt: skip
        return f"CASE WHEN {text} THEN 0 ELSE 1 END = 1" if literal.negated else text
    if condition.op == "is missing":
        return f"{column} IS {'NOT ' if literal.negated else ''}NULL"
    value: Any = condition.value
    if condition.is_text and condition.op in ("<", ">="):  # a date, or a text of one
        column = f"CAST({column} AS VARCHAR)"
        if "T" in str(condition.value):
            column = f"REPLACE({column}, ' ', 'T')"
            value = re.sub("(:00)+$", "", str(condition.value))
    if condition.op == "=" and condition.value in ("true", "false"):  # a truth value, or its text
        number = int(condition.value == "true")
        text = f"LOWER(CAST({column} AS VARCHAR)) IN ({_sql_value(condition.value)}, '{number}')"
    elif condition.op == "in" or (condition.is_time and condition.op in ("=", "!=")):
        texts = value if isinstance(value, tuple) else (value,)
        values = ", ".join(_sql_value(form) for one in texts for form in _written(one))
        text = f"{column} {'NOT ' if condition.op == '!=' else ''}IN ({values})"
    else:
        op = "<>" if condition.op == "!=" else condition.op
        text = f"{column} {op} {_sql_value(value)}"
    return f"CASE WHEN {text} THEN 0 ELSE 1 END = 1" if literal.negated else text


def _written(value: Any) -> list[Any]:
    """Return a constant, and how else a text can write it if it is a time."""
    time = isinstance(value, str) and re.fullmatch(r"(\d{4}-\d\d-\d\d)(?:T([\d:]{8}))?", value)
    if not time:
        return [value]
    hours = time[2] or "00:00:00"
    forms = [f"{time[1]}{mark}{hours[:end]}" for mark in "T " for end in (8, 5)]
    return list(dict.fromkeys([value, *(one for one in forms if time_text(one) == value)]))


def _sql_value(value: Any) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


def _python(literal: Literal) -> str:
    condition = literal.condition
    column = literal.column
    known, value = f"known(row, {column!r})", f"row[{column!r}]"
    if condition is not None and condition.is_text:
        value = f"text(row, {column!r})"
    if condition is None:
        text = f"true(row, {column!r})"
    elif condition.op == "is missing":
        return known if literal.negated else f"not {known}"
    elif condition.op == "in":
        values = ", ".join(map(repr, condition.value))  # type: ignore[arg-type]
        text = f"{known} and {value} in {{{values}}}"  # a set itself prints in any order
    else:
        op = "==" if condition.op == "=" else condition.op
        text = f"{known} and {value} {op} {condition.value!r}"
    return f"not ({text})" if literal.negated else text
