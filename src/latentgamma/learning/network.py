"""The rules of a classifier as a network: soft thresholds, a layer of rules, and log-odds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from latentgamma._arguments import real_number, whole_number
from latentgamma.errors import ArgumentError
from latentgamma.layer.annealing import Annealing
from latentgamma.layer.layer import Layer
from latentgamma.learning.columns import Column, between, holds
from latentgamma.learning.literals import Literal
from latentgamma.program.conditions import Condition
from latentgamma.program.program import Program, Rule

if TYPE_CHECKING:
    from latentgamma.learning.class_rules import ClassRules
    from latentgamma.learning.estimator import RuleClassifier

#: The log-odds of a condition that is true; of one that is not, the negative.
_SURE = 30.0
#: Rows of one step of the optimiser.
_BATCH = 4096
#: Steps between two looks at the rows that are held out.
_CHECKED = 10
#: Standard deviations of the normal prior around the rules: of thresholds, in spreads, and of
#: log-odds.
_PRIOR = 0.2, 1.0


@final
class RuleNetwork(nn.Module):
    """The rules of a `RuleClassifier` as a module: a table in, log-odds of each class out.

    The log-odds of `income < 31000` are `steepness · (31000 − income) / spread` while the module is
    in training mode, and those of a sure truth value in `eval()`. A `Layer` with the semantics
    "godel" makes the bodies of the rules from them. A decision list weighs the log-odds of its
    rules by how far each is the first that holds, and a points score adds them up. So in `eval()`
    the network is the rules. Its parameters are the thresholds and the log-odds.

    Args:
        classifier: a fitted classifier with rules.
        X: a table with the columns of `fit`, for the spread of its numbers.

    Attributes:
        layer: the layer of rules.
        steepness: the log-odds that a distance of one standard deviation from a threshold has.

    >>> import latentgamma as lg
    >>> ages = {"age": [float(age) for age in range(100)]}
    >>> classifier = lg.RuleClassifier().fit(ages, [age < 18 for age in range(100)])
    >>> network = classifier.network(ages).eval()
    >>> bool((network.predict_proba(ages) - classifier.predict_proba(ages)).max() < 1e-9)
    True
    """

    signs: Tensor
    origins: Tensor
    spreads: Tensor
    offsets: Tensor

    def __init__(self, classifier: RuleClassifier, X: Any) -> None:
        super().__init__()
        self.classifier = classifier
        parts = classifier.class_rules_
        literals = {x.name: x for one in parts for body in one.bodies for x in body}
        if not literals:
            raise ArgumentError("there are no rules to make a network of: fit found none")
        self.names = list(literals)  # of the atoms; thresholds move, and these stay
        self.conditions = [Literal(name, False, x.condition) for name, x in literals.items()]
        rules = [
            Rule(
                (f"body({k},{i})",),
                frozenset(x.name for x in body if not x.negated),
                frozenset(x.name for x in body if x.negated),
            )
            for k, one in enumerate(parts)
            for i, body in enumerate(one.bodies)
        ]
        heads = [rule.heads[0] for rule in rules]
        program = Program.from_rules(rules)
        self.layer = Layer(program, list(literals), heads, from_logits=True)
        self.steepness = 8.0
        columns = classifier._read(X)
        signs = [_sign(literal.condition) for literal in self.conditions]
        ordered = [*zip(self.conditions, signs, strict=True)]
        numbers = {
            "signs": signs,
            "origins": [_number(one.condition) if sign else 0.0 for one, sign in ordered],
            "spreads": [_spread(columns[one.column]) if sign else 1.0 for one, sign in ordered],
            "offsets": [0.0] * len(signs),
        }
        for name, values in numbers.items():
            self.register_buffer(name, torch.tensor(values, dtype=torch.float64))
        self.shifts = nn.Parameter(torch.zeros(len(signs), dtype=torch.float64))
        self._settle(columns)
        self.outputs = nn.ModuleList(
            _Points(one) if one.form.score else _List(one) for one in parts
        )

    # ---- As a module

    def encode(self, X: Any) -> Tensor:
        """Return the numbers that the network takes.

        Args:
            X: a table with the columns of `fit`.

        Returns:
            For a condition with a threshold how far the value is above that of the classifier, in
            spreads, and NaN where it is missing; for others 1 or 0. (n, conditions)

        Raises:
            DataError: the columns are other ones than in `fit`.
        """
        columns = self.classifier._read(X)
        found = []
        for i, literal in enumerate(self.conditions):
            column = columns[literal.column]
            if self.signs[i]:
                numbers = (_numbers(column) - self.origins[i].item()) / self.spreads[i].item()
            else:
                numbers = holds(literal, column).astype(np.float64)
            found.append(torch.from_numpy(np.ascontiguousarray(numbers)))
        return torch.stack(found, 1)

    def forward(self, encoded: Tensor) -> Tensor:
        """Return the log-odds of each class.

        Args:
            encoded: what `encode` returned. (n, conditions)

        Returns:
            Log-odds, one column for each of `class_rules_`. (n, k)
        """
        missing = torch.isnan(encoded)
        distance = self.signs * (encoded.nan_to_num() - self.shifts)
        if self.training:
            distance = distance - self.signs * self.offsets
            compared = (self.steepness * distance).clamp(-_SURE, _SURE)
        else:
            # At the threshold itself, >= holds and < does not.
            inside = torch.where(self.signs > 0, distance >= 0, distance > 0)
            compared = _SURE * (2.0 * inside - 1.0)
        fixed = _SURE * (2.0 * encoded.nan_to_num() - 1.0)
        odds = torch.where(self.signs != 0, compared, fixed)
        bodies = self.layer(torch.where(missing, -_SURE, odds), logits=True)
        counts = [len(one.bodies) for one in self.classifier.class_rules_]
        parts = zip(self.outputs, torch.split(bodies, counts, dim=1), strict=True)
        return torch.stack([output(part) for output, part in parts], 1)

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Return the probability of each class, as the classifier does.

        Args:
            X: a table with the columns of `fit`.

        Returns:
            Probabilities. (n, classes)

        Raises:
            DataError: the columns are other ones than in `fit`.
        """
        with torch.no_grad():
            p = torch.sigmoid(self(self.encode(X))).numpy()
        return self.classifier.normalised(p)

    # ---- Training, and back

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, steps: int = 300, lr: float = 0.02,
        steepness: tuple[float, float] = (8.0, 64.0), seed: int = 0,
    ) -> RuleNetwork:  # fmt: skip
        """Train thresholds and log-odds on the log-likelihood, and return this network in `eval()`.

        Both have a normal prior around what they are now, with the standard deviations 0.2 spreads
        and 1, so that few rows change little. One fifth of the rows is not trained on. The thresholds
        are those of the step that predicted these rows best, in `eval()`, and stay as they are now
        if that is not better by a standard error; the log-odds are the trained ones if these are
        better.

        Args:
            X: a table with the columns of the classifier.
            y: the class of each row.
            sample_weight: how often each row counts.
            steps: the steps of Adam.
            lr: its learning rate.
            steepness: of the thresholds at first and at last; it grows by the same factor each step.
            seed: the seed of the batches, which are drawn from more than 4,096 rows.

        Returns:
            The same network.

        Raises:
            ArgumentError: an option has a value that it cannot have.
            DataError: the table or the labels cannot be used.
        """
        whole_number("steps", steps, 1)
        real_number("lr", lr, "a number above 0", lambda x: x > 0)
        first, last = steepness
        real_number("steepness", min(first, last), "two numbers above 0", lambda x: x > 0)
        labels, weights = self.classifier.labels_of(y, sample_weight)
        encoded = self.encode(X)
        target, weight = (
            torch.from_numpy(labels.astype(np.float64)),
            torch.from_numpy(weights)[:, None],
        )
        generator = torch.Generator().manual_seed(whole_number("seed", seed))
        optimiser = torch.optim.Adam(self.parameters(), lr=lr)
        annealing = Annealing(self, steps, start=1.0, end=0.1)
        start = [parameter.detach().clone() for parameter in self.parameters()]
        spread = [_PRIOR[0 if one is self.shifts else 1] for one in self.parameters()]
        order = torch.randperm(len(encoded), generator=generator)
        held, trained = order[: len(order) // 5], order[len(order) // 5 :]

        def losses(parameters: Sequence[Tensor]) -> Tensor:
            """Return the loss of each held-out row, by the rules and not by their soft form."""
            now = [parameter.detach().clone() for parameter in self.parameters()]
            self._assign([parameters[0] + self.offsets, *parameters[1:]])
            with torch.no_grad():
                each = nn.functional.binary_cross_entropy_with_logits(
                    self.eval()(encoded[held]), target[held], reduction="none"
                )
            self._assign(now)
            self.train()
            return each.sum(1) * weight[held, 0]

        at_first, best, moved = losses(start), 0.0, start[0]
        self.train()
        for step in range(steps):
            self.steepness = first * (last / first) ** (step / max(1, steps - 1))
            rows = trained[torch.randperm(len(trained), generator=generator)[:_BATCH]]
            loss = nn.functional.binary_cross_entropy_with_logits(
                self(encoded[rows]), target[rows], weight[rows].expand(-1, target.shape[1])
            )
            prior = sum((((now - old) / sigma) ** 2).sum()
                        for now, old, sigma in zip(self.parameters(), start, spread, strict=True))  # fmt: skip
            optimiser.zero_grad()
            (loss + 0.5 * prior / weight.sum()).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            annealing.step()
            if len(held) > 1 and (step % _CHECKED == _CHECKED - 1 or step == steps - 1):
                shifts = self.shifts.detach().clone()
                fewer = at_first - losses([shifts, *start[1:]])  # by the thresholds alone
                sure = float(fewer.std()) * len(held) ** 0.5 if best == 0.0 else 0.0
                if float(fewer.sum()) > max(best, sure):
                    best, moved = float(fewer.sum()), shifts
        trained_odds = [moved, *(one.detach().clone() for one in list(self.parameters())[1:])]
        options = [[moved, *start[1:]], trained_odds]
        self._assign(min(options, key=lambda one: float(losses(one).sum())))
        self._settle(self.classifier._read(X))
        return self.eval()

    def extract(self, X: Any, y: Any, sample_weight: Any = None) -> RuleClassifier:
        """Return the rules with the thresholds of the network, and their numbers estimated anew.

        Args:
            X: a table with the columns of the classifier; thresholds are written as short as its
                values allow.
            y: the class of each row.
            sample_weight: how often each row counts.

        Returns:
            A new classifier, whose `notes_` say how much the log-loss on these rows changes.

        Raises:
            DataError: the table or the labels cannot be used.
        """
        moved = dict(zip(self.names, self.conditions, strict=True))
        bodies = [
            [tuple(moved[x.name]._replace(negated=x.negated) for x in body) for body in one.bodies]
            for one in self.classifier.class_rules_
        ]
        return self.classifier.with_bodies(X, y, bodies, sample_weight)

    def _assign(self, values: Sequence[Tensor]) -> None:
        """Set the parameters, the shifts of the thresholds first."""
        with torch.no_grad():
            for parameter, value in zip(self.parameters(), values, strict=True):
                parameter.copy_(value)

    def _settle(self, columns: Mapping[str, Column]) -> None:
        """Write each threshold that has moved as short as the values of a table allow.

        In training a threshold is in the middle between the two values that it separates.
        """
        for i, literal in enumerate(self.conditions):
            condition, column = literal.condition, columns[literal.column]
            if condition is None or not self.signs[i]:
                continue
            values = np.unique(column.ordered[~column.missing])
            numbers = _numbers(Column(column.name, column.kind, values))
            shift = float(self.shifts.detach()[i] + self.offsets[i])
            threshold = float(self.origins[i]) + shift * float(self.spreads[i])
            at = int((numbers < threshold).sum())
            new = condition
            # Where all rows are on one side, it stays as it was.
            if 0 < at < len(values) and not numbers[at - 1] < _number(condition) <= numbers[at]:
                cut = between(values[at - 1], values[at])
                new = Condition(condition.column, condition.op, cut)
            self.conditions[i] = Literal(new.name, False, new)
            origin, spread = self.origins[i].item(), self.spreads[i].item()
            cut_at = _number(new)
            at = int((numbers < cut_at).sum())
            middle = (numbers[at - 1] + numbers[at]) / 2 if 0 < at < len(values) else cut_at
            with torch.no_grad():
                self.shifts[i] = (cut_at - origin) / spread
                self.offsets[i] = (middle - cut_at) / spread

    def certified(self) -> Layer:
        """Return the layer of rules with a certificate.

        Returns:
            What `layer.certified()` returns: a layer that is proved to derive the bodies of the
            rules from any truth values of the conditions.

        >>> import latentgamma as lg
        >>> ages = {"age": [float(age) for age in range(100)]}
        >>> classifier = lg.RuleClassifier().fit(ages, [age < 18 for age in range(100)])
        >>> classifier.network(ages).certified().certificate.holds
        True
        """
        heads = [rule.heads[0] for rule in self.layer.program.rules]
        return Layer(self.layer.program, self.names, heads).certified()


class _List(nn.Module):
    """The log-odds of a decision list, from those of its bodies."""

    def __init__(self, one: ClassRules) -> None:
        super().__init__()
        rates = torch.tensor(one.form.rates or (one.form.base,), dtype=torch.float64)
        self.log_odds = nn.Parameter(torch.logit(rates, 1e-9))

    def forward(self, bodies: Tensor) -> Tensor:
        hold, fail = nn.functional.logsigmoid(bodies), nn.functional.logsigmoid(-bodies)
        none = bodies.new_zeros(len(bodies), 1)
        before = torch.cat([none, torch.cumsum(fail, 1)], 1)  # no body up to here holds
        first = before + torch.cat([hold, none], 1)
        true = torch.logsumexp(first + nn.functional.logsigmoid(self.log_odds), 1)
        false = torch.logsumexp(first + nn.functional.logsigmoid(-self.log_odds), 1)
        return true - false


class _Points(nn.Module):
    """The log-odds of a points score, from those of its terms."""

    def __init__(self, one: ClassRules) -> None:
        super().__init__()
        score = one.form.score
        assert score is not None
        self.base = nn.Parameter(torch.tensor(score.base, dtype=torch.float64))
        points = torch.tensor(score.points, dtype=torch.float64)
        self.weights = nn.Parameter(score.unit * points)

    def forward(self, bodies: Tensor) -> Tensor:
        return self.base + torch.sigmoid(bodies) @ self.weights


# ---- Columns as numbers


def _sign(condition: Condition | None) -> float:
    """Return 1 for a lower bound, -1 for an upper one, and 0 for what is not a threshold."""
    return {"<": -1.0, ">=": 1.0}.get("" if condition is None else condition.op, 0.0)


def _numbers(column: Column) -> npt.NDArray[np.float64]:
    """Return the values of a column as numbers, and NaN where there is none: days for dates."""
    if column.kind == "number":
        return column.values
    found = np.full(len(column.values), np.nan)
    known = column.values.astype("U") != "" if column.values.dtype.kind == "U" else ~column.missing
    found[known] = _days(column.values[known].tolist())
    return found


def _days(dates: Sequence[str]) -> npt.NDArray[np.float64]:
    return np.array(dates, "datetime64[s]").astype(np.float64) / 86_400


def _number(condition: Condition | None) -> float:
    assert condition is not None
    value = condition.value
    return float(_days([value])[0]) if isinstance(value, str) else float(value)  # type: ignore[arg-type]


def _spread(column: Column) -> float:
    numbers = _numbers(column)
    known = numbers[~np.isnan(numbers)]
    return float(known.std()) or 1.0 if len(known) else 1.0
