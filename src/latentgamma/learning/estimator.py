"""A classifier in the style of scikit-learn; scikit-learn itself is not needed."""

from __future__ import annotations

import importlib.util
import inspect
import json
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from typing import Literal as OneOf

import numpy as np
import numpy.typing as npt

from latentgamma._arguments import one_of, real_number, whole_number, wrong
from latentgamma._display import Display, Displayed
from latentgamma._text import aligned, listing, quantity
from latentgamma.errors import ArgumentError, DataError, MissingPackageError, unknown_atoms
from latentgamma.learning.class_rules import (
    ABOVE_ZERO,
    PYTHON_HEADER,
    ClassRules,
    RuleStatistics,
    auxiliary_atoms,
    compared,
    exceeds,
    fit_exponent,
    log_shares,
    rules_of_likeliest,
    shared,
    statistics,
)
from latentgamma.learning.columns import (
    Column,
    TableLiterals,
    covered,
    holds,
    literals_of,
    read_columns,
    read_file,
    same_columns,
)
from latentgamma.learning.data import is_frame, is_open_file, is_path
from latentgamma.learning.fit import fit
from latentgamma.learning.forms import Form, Learned, Progress, learn_form, make_list, make_score
from latentgamma.learning.lists import ListSearch
from latentgamma.learning.literals import Floats, Literal
from latentgamma.learning.result import FitResult
from latentgamma.program.conditions import Condition, column_array, is_missing
from latentgamma.program.facts import Mask
from latentgamma.program.names import is_computed, quote, quote_argument
from latentgamma.program.program import Program, Rule
from latentgamma.program.rule_text import read_rules

if TYPE_CHECKING:
    from latentgamma.learning.network import RuleNetwork

ClassWeight: TypeAlias = Mapping[Any, float] | OneOf["balanced"] | None

#: Classes, in small letters, of which the second is what rules are about.
_TRUTH = (["0", "1"], ["no", "yes"], ["n", "y"], ["false", "true"])
#: Both ends of a column in one condition, as in the texts of rules: 18 <= age < 65.
_RANGE = re.compile(r"([^\s,<>=]+)\s*<=\s*('(?:[^'\\]|\\.)*'|[^\s,<>='{}]+)\s*<(?!=)")
#: The most terms that a score may have: its regression counts rows by which of them hold.
_MOST_TERMS = 16
#: Cells up to which the exact search is tried on columns that are true or false.
_MOST_EXACT = 20_000
#: Atoms up to which the exact search is tried although no list is always right.
_MOST_COMPLETE = 12


class RuleClassifier(Displayed):
    """A classifier that learns a few readable rules from a table.

    Columns may hold numbers, categories, dates, truth values, and missing values. Rules are kept if
    they save more bits of the labels than they take, so no noise level is needed; see the page
    "Rules from tables". A decision list or a points score is learned, whichever predicts better,
    or nothing. With more than two classes each has its own; a row gets the class with the highest
    probability. A matrix y of 0 and 1 has one column for each of several outputs.

    Args:
        form: "rules", "points", or "auto" to choose by cross-validation.
        max_body: the most conditions of a rule.
        max_terms: the most terms of a points score; more can predict better.
        class_weight: what a wrong decision costs for each class; "balanced" is one over its rate.
            This changes the decisions of `predict` and of `program_`, not the probabilities.
        noise: the fraction of wrong labels, if it is known, for columns that are true or false:
            rules are then searched for as by `fit`, where each row counts once. "auto" is as None.
        seed: the seed of everything random.

    Attributes:
        program_: the rules that decide, as a program over conditions.
        rules_: the rules of that program; a class that is never predicted has none, and the program
            says `y :- y.`, which derives nothing.
        class_rules_: for each class or output, its rules with probabilities.
        classes_: the classes.
        notes_: what is remarkable about the table or the rules.
        result_: what `fit` returned where the exact search was used, with its proof; else None.
        n_features_in_: the number of columns.
        feature_names_in_: the names of the columns, if the table has any.

    >>> classifier = RuleClassifier().fit([[1, 1], [1, 0], [0, 1], [0, 0]] * 8, [1, 0, 0, 0] * 8)
    >>> print(*classifier.rules_)
    y :- x0, x1.
    >>> classifier.predict([[1, 1], [0, 1]]).tolist()
    [1, 0]
    """

    def __init__(
        self,
        *,
        form: OneOf["auto", "rules", "points"] = "auto",
        max_body: int = 5,
        max_terms: int = 5,
        class_weight: ClassWeight = None,
        noise: float | OneOf["auto"] | None = None,
        seed: int = 0,
    ) -> None:
        self.form = form
        self.max_body = max_body
        self.max_terms = max_terms
        self.class_weight = class_weight
        self.noise = noise
        self.seed = seed

    # ---- Learning

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, progress: Progress | None = None
    ) -> RuleClassifier:
        """Learn rules, and return this object.

        Args:
            X: a data frame, columns by name in a dictionary, or a matrix, (n, m).
            y: the class of each row, (n,), or 0 and 1 for several outputs, (n, k).
            sample_weight: how often each row counts, (n,); by default once.
            progress: called with the stage, and the number of steps done and of all steps, for
                example a `ProgressBar()`.

        Returns:
            The same object, fitted.

        Raises:
            DataError: the table or the labels cannot be learned from; the message says why.
            ArgumentError: an option has a value that it cannot have.
        """
        columns = read_columns(X)
        if is_frame(X) or isinstance(X, Mapping):
            self.feature_names_in_ = np.array([column.name for column in columns], object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        label = _label_name(y)
        if label in {
            column.name for column in columns
        }:  # as that of `frame["age"] >= 18` in pandas
            label = "y"
        return self._fit(columns, y, label, sample_weight, progress)

    def _fit(
        self, columns: Sequence[Column], y: Any, label: str, sample_weight: Any,
        progress: Progress | None, what: str = "y",
    ) -> RuleClassifier:  # fmt: skip
        self._check_options()
        self.n_features_in_, n = len(columns), len(columns[0].values)
        if y is None:
            raise DataError("requires y to be passed, but the target y is None")
        if progress is not None and not callable(progress):
            raise wrong("progress", "a function, such as a ProgressBar()", progress)
        weights = _weights(sample_weight, n)
        heads, self.classes_, labels, self._several = _outputs(y, label, n, weights, what)
        if not (weights > 0).all():  # rows without weight are as if they were not there
            kept = weights > 0
            columns = [replace(one, values=one.values[kept]) for one in columns]
            labels, weights = labels[kept], weights[kept]
        heads = _different(heads, columns)
        table = literals_of(columns, weights)
        self.notes_ = [*table.notes]
        self._columns = [replace(one, values=one.values[:0]) for one in columns]
        self.result_: FitResult | None = None
        if self._noise is not None:
            if (weights != 1).any():
                raise ArgumentError("noise counts each row once; leave out noise or sample_weight")
            learned = self._search_exactly(table, heads, labels, weights, self._noise)
        else:
            learned = self._learn(table, heads, labels, weights, progress or (lambda *_: None))
        self._finish(table, heads, labels, weights, learned)
        return self

    def _check_options(self) -> None:
        one_of("form", self.form, ("auto", "rules", "points"))
        whole_number("max_body", self.max_body, 1)
        whole_number("max_terms", self.max_terms, 1, _MOST_TERMS)
        whole_number("seed", self.seed)
        if self._noise is not None:
            real_number("noise", self.noise, "a share from 0 to 0.5, 0.5 excluded, 'auto' or None",
                        lambda share: 0 <= share < 0.5)  # fmt: skip
            if self.form == "points":
                raise ArgumentError("noise finds rules, not points; leave out noise or form")
        if self.class_weight not in (None, "balanced") and not isinstance(
            self.class_weight, Mapping
        ):
            raise wrong("class_weight", "a dictionary, 'balanced' or None", self.class_weight)

    @property
    def _noise(self) -> float | None:
        """The fraction of wrong labels; None if it is not known."""
        return None if self.noise == "auto" else self.noise

    def _learn(
        self, table: TableLiterals, heads: Sequence[str], labels: Mask, weights: Floats,
        progress: Progress,
    ) -> list[Learned]:  # fmt: skip
        forms: Any = ("rules", "points") if self.form == "auto" else (self.form,)
        learned = []
        for k in range(len(heads)):
            task = f"{heads[k]}: " if len(heads) > 1 else ""

            def report(stage: str, done: int, total: int, k: int = k, task: str = task) -> None:
                progress(f"{task}{stage}", k * total + done, len(heads) * total)

            learned.append(
                learn_form(
                    table.literals, _sides(labels[:, k], weights), max_body=self.max_body,
                    max_terms=self.max_terms, forms=forms, seed=self.seed, progress=report,
                )
            )  # fmt: skip
        self._note_copies(table, heads, labels, learned)
        exact = self._exact_where_possible(table, heads, labels, weights, learned)
        return exact or learned

    def _note_copies(
        self, table: TableLiterals, heads: Sequence[str], labels: Mask, learned: Sequence[Learned]
    ) -> None:
        """Note columns of which one condition is the label, or its opposite, beyond chance."""
        literals = table.literals
        decided: dict[int, list[str]] = {}  # by a column
        for head, column, one in zip(heads, labels.T, learned, strict=True):
            if one.form.name == "nothing":
                continue
            found = literals.sums([np.arange(literals.n)], _sides(column, np.ones(literals.n)))[0]
            positives, n = float(column.sum()), literals.n
            same = (found == [positives, 0.0]).all(1) | (found == [0.0, n - positives]).all(1)
            for c in dict.fromkeys(literals.column[same].tolist()):
                decided.setdefault(c, []).append(quote(head))
        for c, those in decided.items():
            every = "every row" if len(those) == len(heads) else f"{listing(those)} in every row"
            name = table.columns[c].name
            self.notes_.append(f"column {name!r} alone decides {every}: is it a copy of the label?")

    def _exact_where_possible(
        self, table: TableLiterals, heads: Sequence[str], labels: Mask, weights: Floats,
        learned: Sequence[Learned],
    ) -> list[Learned] | None:  # fmt: skip
        """Return the smallest rules that are always right, if they describe the labels as well.

        This search is complete for columns that are true or false, and proves what it finds.
        """
        columns = table.columns
        if (
            self.form == "points"
            or any(column.kind != "boolean" for column in columns)
            or (weights != 1).any()
            or len(weights) * len(columns) > _MOST_EXACT
        ):
            return None
        always_right = all(
            one.form.name == "rules" and all(0 in counts for counts in one.form.counts)
            for one in learned
        )
        complete = len(columns) <= _MOST_COMPLETE and _consistent(table.literals.codes, labels)
        if not (always_right or complete):
            return None
        found = self._search_exactly(table, heads, labels, weights, 0.0)
        for k, (new, old) in enumerate(zip(found, learned, strict=True)):
            search = ListSearch(table.literals, _sides(labels[:, k], weights), self.max_body)
            if not new.form.bodies or search.total(new.form.bodies) > search.total(
                old.form.bodies if old.form.name == "rules" else []
            ):
                self.result_ = None
                return None
        return found

    def _search_exactly(
        self, table: TableLiterals, heads: Sequence[str], labels: Mask, weights: Floats,
        noise: float,
    ) -> list[Learned]:  # fmt: skip
        """Return the rules that `lg.fit` finds, which learns from atoms."""
        other = [column for column in table.columns if column.kind != "boolean"]
        if other:
            named = {"category": "categories", "missing": "no values"}
            held = named.get(other[0].kind, f"{other[0].kind}s")
            raise ArgumentError(
                f"noise is for columns that are true or false, and {other[0].name!r} holds {held}; "
                f"leave noise out"
            )
        literals = table.literals
        atoms = [str(literal) for literal in literals.names]
        states = np.array([literals.holds(j) for j in range(literals.m)], np.bool_)
        states = states.reshape(literals.m, literals.n).T
        self.result_ = fit(
            np.hstack([states, np.zeros_like(labels)]),
            np.hstack([states, labels]),
            atoms=[*atoms, *heads],
            heads=heads,
            bodies=atoms,
            noise=noise,
            max_body=max(self.max_body, 8) if noise == 0 and self._noise is None else self.max_body,
            seed=self.seed,
            holdout=0.0,
        )
        place = {name: j for j, name in enumerate(atoms)}
        found = []
        for k, head in enumerate(heads):
            mine = [one for one in self.result_.evidence if one.rule.heads[0] == head]
            mine.sort(key=lambda one: -one.confidence)
            bodies = [tuple(sorted(place[name] for name in one.rule.body)) for one in mine]
            search = ListSearch(literals, _sides(labels[:, k], weights), self.max_body)
            bodies = [body for body in bodies if body]
            form = make_list(search, bodies) if bodies else Form("nothing", (), search.base)
            found.append(Learned(form))
        return found

    def _finish(
        self, table: TableLiterals, heads: Sequence[str], labels: Mask, weights: Floats,
        learned: Sequence[Learned],
    ) -> None:  # fmt: skip
        """Keep what was learned, with its statistics, and the program."""
        self._costs = self._class_costs(labels, weights)
        rules = []
        for k, (head, one) in enumerate(zip(heads, learned, strict=True)):
            rules.append(
                _class_rules(head, one, table, _sides(labels[:, k], weights), self._threshold)
            )
            if one.form.name == "nothing":
                self.notes_.append(f"{quote(head)}: no rule pays for itself; {rules[-1].nearest}")
        self.class_rules_: tuple[ClassRules, ...] = tuple(rules)
        self._exponent = 0.0
        if self._normalises:
            columns = {column.name: column for column in table.columns}
            self._exponent = fit_exponent(self._probabilities(columns), labels, weights)
        self._make_program()
        predicted = {rule.head for rule in self.rules_}
        self.notes_ += [
            f"{quote(one.head)} is never predicted, since it is not likely enough anywhere; see "
            'predict_proba, or class_weight="balanced"'
            for one in rules
            if one.bodies and one.head not in predicted
        ]

    def _make_program(self) -> None:
        rules = self.class_rules_
        if self._normalises:
            program = rules_of_likeliest(rules, self._costs.tolist(), self._exponent)
        else:
            program = [rule for one in rules for rule in one.rules()]
        self.rules_: tuple[Rule, ...] = tuple(program)
        derived = {rule.head for rule in program}
        # A rule that derives nothing: the class can be asked for, and no request can state it.
        never = [
            Rule((one.head,), frozenset([one.head])) for one in rules if one.head not in derived
        ]
        self.program_ = Program.from_rules([*program, *never])

    def labels_of(self, y: Any, sample_weight: Any = None) -> tuple[Mask, Floats]:
        """Return which rows are positive for each of `class_rules_`, and the weights of the rows.

        Args:
            y: the class of each row.
            sample_weight: how often each row counts.

        Returns:
            Truth values, (n, k), and weights, (n,).

        Raises:
            DataError: y cannot be used, or has other classes than in `fit`.
        """
        n = len(y)
        weights = _weights(sample_weight, n)
        _, classes, labels, _ = _outputs(y, "y", n, weights)
        if classes.tolist() != self.classes_.tolist():
            raise DataError("y has other classes than in fit")
        return labels, weights

    def _class_costs(self, labels: Mask, weights: Floats) -> Floats:
        """Return what a wrong decision costs, for each class. (classes,)."""
        costs = np.ones(len(self.classes_))
        if self.class_weight is None or self._several:
            return costs
        rates = weights @ labels / weights.sum()
        if len(self.classes_) == 2:
            rates = np.array([1 - rates[0], rates[0]])
        if self.class_weight == "balanced":
            return np.asarray(1 / (len(rates) * np.maximum(rates, 1e-12)))
        assert isinstance(self.class_weight, Mapping)
        for name, cost in self.class_weight.items():
            at = np.flatnonzero(self.classes_ == name)
            if not len(at):
                known = listing([repr(one) for one in self.classes_.tolist()], 5)
                raise ArgumentError(f"class_weight names {name!r}, but the classes are {known}")
            costs[at[0]] = real_number(
                "class_weight", cost, "numbers from 0 on", lambda c: 0 <= c < math.inf
            )
        if not costs.any():
            raise wrong("class_weight", "above 0 for some class", self.class_weight)
        return costs

    @property
    def _threshold(self) -> float:
        """Above which probability an output is decided."""
        if self._several or len(self.classes_) > 2:
            return 0.5
        return float(np.clip(self._costs[0] / max(self._costs.sum(), 1e-300), 1e-9, 1 - 1e-9))

    # ---- Prediction

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Return the probability of each class, or of each of several outputs.

        Args:
            X: a table with the columns of `fit`.

        Returns:
            Probabilities, (n, classes); with several outputs, (n, k).

        Raises:
            ArgumentError: `fit` was not called before.
            DataError: the columns are other ones than in `fit`.
        """
        return self.normalised(self._probabilities(self._read(X)))

    def _probabilities(self, columns: Mapping[str, Column]) -> Floats:
        """Return what each of `class_rules_` says. (n, k)."""
        n = len(next(iter(columns.values())).values)
        return np.stack([one.probability(columns, n) for one in self.class_rules_], axis=1)

    def normalised(self, p: Floats) -> npt.NDArray[np.float64]:
        """Return the probability of each class, from what each of `class_rules_` says.

        Args:
            p: the probabilities of the rules of each class or output. (n, k)

        Returns:
            Probabilities, (n, classes); with several outputs, (n, k).
        """
        if self._normalises:
            return shared(p, self._exponent)
        return p if self._several else np.hstack([1 - p, p])

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the class of each row.

        Args:
            X: a table with the columns of `fit`.

        Returns:
            Classes, (n,), or 0 and 1 for several outputs, (n, k).

        Raises:
            ArgumentError: `fit` was not called before.
            DataError: the columns are other ones than in `fit`.
        """
        p = self._probabilities(self._read(X))
        if self._several:
            return (p > 0.5).astype(np.int64)
        if len(self.classes_) == 2:
            return np.asarray(self.classes_[exceeds(p[:, 0], self._threshold).astype(np.int64)])
        scores = compared(log_shares(p, self._exponent, self._costs))
        return np.asarray(self.classes_[scores.argmax(1)])

    def transform(self, X: Any) -> Any:
        """Return which rules apply to each row, as features for another model.

        Args:
            X: a table with the columns of `fit`.

        Returns:
            A column for each rule, or term of a points score, of each class, (n, rules): an
            array, or the frame that `set_output` asks for.

        Raises:
            ArgumentError: `fit` was not called before.
            DataError: the columns are other ones than in `fit`.
        """
        columns = self._read(X)
        n = len(next(iter(columns.values())).values)
        bodies = [body for one in self.class_rules_ for body in one.bodies]
        found = np.zeros((n, len(bodies)), np.bool_)
        for i, body in enumerate(bodies):
            found[:, i] = covered(body, columns, n)
        wanted = getattr(self, "_sklearn_output_config", {}).get("transform")
        if wanted is None and (sklearn := sys.modules.get("sklearn")) is not None:
            wanted = sklearn.get_config().get("transform_output")
        if wanted in (None, "default"):
            return found
        frames = importlib.import_module(wanted)
        frame = frames.DataFrame(dict(zip(self.get_feature_names_out(), found.T, strict=True)))
        if hasattr(X, "index") and wanted == "pandas":
            frame.index = X.index
        return frame

    def set_output(self, *, transform: str | None = None) -> RuleClassifier:
        """Set what `transform` returns, as for the transformers of scikit-learn.

        Args:
            transform: "default" for an array, "pandas" or "polars" for a frame, None to change nothing.

        Returns:
            The same object.

        Raises:
            ArgumentError: `transform` is something else.
        """
        if transform is not None:
            one_of("transform", transform, ("default", "pandas", "polars"))
            self._sklearn_output_config = {"transform": transform}
        return self

    def fit_transform(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Learn rules, and return which of them apply to each row.

        Args:
            X: as in `fit`.
            y: as in `fit`.
            sample_weight: as in `fit`.

        Returns:
            What `transform(X)` returns.

        Raises:
            DataError: as in `fit`.
            ArgumentError: as in `fit`.
        """
        return self.fit(X, y, sample_weight).transform(X)

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[Any]:
        """Return the names of the columns of `transform`: the rules.

        Args:
            input_features: without effect; scikit-learn passes it.

        Returns:
            The text of each rule, with its class where there are several.

        Raises:
            ArgumentError: `fit` was not called before.
        """
        del input_features
        self._fitted()
        several = len(self.class_rules_) > 1
        return np.array(
            [
                f"{f'{one.head}: ' if several else ''}{', '.join(map(str, body))}"
                for one in self.class_rules_
                for body in one.bodies
            ],
            object,
        )

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the fraction of rows that are predicted right.

        Args:
            X: a table with the columns of `fit`.
            y: the true classes, as in `fit`.
            sample_weight: how often each row counts.

        Returns:
            A number from 0 to 1; with several outputs a row counts if all of them are right.

        Raises:
            ArgumentError: `fit` was not called before.
            DataError: the columns are other ones than in `fit`.
        """
        predicted = self.predict(X)
        if predicted.ndim == 2:
            right = (predicted == _several_outputs(y, len(predicted))[1]).all(1)
        else:
            right = predicted == _classes(y, len(predicted))
        return float(np.average(right, weights=_weights(sample_weight, len(right))))

    def _read(self, X: Any) -> dict[str, Column]:
        self._fitted()
        return {column.name: column for column in same_columns(self._columns, X, "X")}

    # ---- What was learned

    def rule_table(self) -> list[RuleStatistics]:
        """Return support, precision, recall, lift and interval of each rule.

        Returns:
            One row for each rule; in a decision list the rows that no rule covers come last.

        Raises:
            ArgumentError: `fit` was not called before.
        """
        self._fitted()
        return [row for one in self.class_rules_ for row in one.statistics]

    def summary(self) -> str:
        """Return the rules, what the training rows say about them, and what was compared.

        Returns:
            Several lines of text.

        Raises:
            ArgumentError: `fit` was not called before.
        """
        self._fitted()
        shown = self._display()
        lines = aligned([shown.columns, *shown.rows], shown.right) if shown.rows else []
        return "\n".join([shown.title, *shown.code, *lines, *shown.notes])

    def _display(self) -> Display:
        if not hasattr(self, "class_rules_"):
            return Display(repr(self))
        several = len(self.class_rules_) > 1
        rows = []
        for one in self.class_rules_:
            for row in one.statistics:
                low, high = row.interval
                said = (
                    f"{row.probability:.2f}" if row.probability is not None else f"{row.points:+d}"
                )
                head = f"{one.head}: " if several else ""
                rows.append([
                    head + (str(row.rule) if row.rule else "–"), row.body, said, f"{row.support:,.10g}",
                    f"{row.precision:.2f}", f"{row.recall:.2f}", f"{row.lift:.2f}",
                    f"{low:.2f}–{high:.2f}",
                ])  # fmt: skip
        scored = {row.probability is None for one in self.class_rules_ for row in one.statistics}
        says = "points or p" if len(scored) > 1 else "points" if True in scored else "p"
        columns = ["rule", "if", says, "rows", "precision", "recall", "lift", "95%"]
        count = sum(len(one.bodies) for one in self.class_rules_)
        literals = sum(one.form.literals for one in self.class_rules_)
        title = (
            f"{quantity(count, 'term' if scored == {True} else 'rule')} with {quantity(literals, 'condition')} for "
            f"{listing([quote(one.head) for one in self.class_rules_])}"
        )
        code = [line for one in self.class_rules_ for line in one.lines()]
        return Display(title, code=code, columns=columns, rows=rows, right=2, notes=self._remarks())

    def _remarks(self) -> list[str]:
        remarks = []
        for one in self.class_rules_:
            if one.validated:
                losses = ", ".join(f"{v.name} {v.loss:.3f}" for v in one.validated)
                remarks.append(f"{quote(one.head)}: log-loss in cross-validation: {losses}")
            intervals = [f"{t.condition} ({_end(t.low)} to {_end(t.high)})"
                         for row in one.statistics for t in row.thresholds]  # fmt: skip
            if intervals:
                remarks.append(
                    f"{quote(one.head)}: thresholds, and where they all are with 95% "
                    f"confidence: {', '.join(intervals)}"
                )
            for literal, others in one.alternatives:
                remarks.append(f"{literal} holds in the same rows as {listing(list(others))}")
        return [*remarks, *self.notes_]

    def explain(self, row: Any) -> str:
        """Return why one row gets its probabilities.

        Args:
            row: a dictionary from columns to values, or a sequence of values.

        Returns:
            For each class its probability, and the rules that apply with the values they look at.

        Raises:
            ArgumentError: `fit` was not called before.
            DataError: a column has a value of another kind than in `fit`.
        """
        self._fitted()
        names = [column.name for column in self._columns]
        if is_frame(row) or getattr(row, "ndim", 1) != 1:
            raise DataError("explain takes one row, such as table.iloc[0], not a table")
        row = row.to_dict() if hasattr(row, "to_dict") else row
        if not isinstance(row, Mapping):
            if isinstance(row, str) or not isinstance(row, Iterable):
                raise DataError(
                    f"explain takes one row, a dictionary or a list of values, not {row!r}"
                )
            values = list(row)
            if len(values) != len(names):
                raise DataError(
                    f"the row has {len(values)} values, but fit saw {len(names)} columns"
                )
            row = dict(zip(names, values, strict=True))
        if unknown := [str(name) for name in row if name not in names]:
            raise DataError(f"the row has columns that fit did not see: {listing(unknown)}")
        given = same_columns(self._columns, {name: [row.get(name)] for name in names}, "row")
        columns = {column.name: column for column in given}
        shown = {name: None if is_missing(row.get(name)) else column.values[0]
                 for name, column in columns.items()}  # fmt: skip
        p = self._probabilities(columns)
        shares = (self.normalised(p) if self._normalises else p)[0].tolist()
        return "\n".join(line for one, share in zip(self.class_rules_, shares, strict=True)
                         for line in one.explain(columns, shown, share))  # fmt: skip

    def refit(
        self, X: Any, y: Any, sample_weight: Any = None, *, drop: Iterable[Any] = (),
        edit: Mapping[Any, str] | None = None,
    ) -> RuleClassifier:  # fmt: skip
        """Return a classifier without some of the rules, or with others, and estimated anew.

        Its `notes_` say how much the log-loss on these rows changes.

        Args:
            X: a table with the columns of `fit`.
            y: the class of each row.
            sample_weight: how often each row counts.
            drop: the numbers of the rules to drop, from 1 on, as in `summary()`; with several
                classes, pairs (head, number).
            edit: the new conditions of rules by their number, such as
                `{1: "income < 30000, late_payments >= 2"}`.

        Returns:
            A new classifier.

        Raises:
            ArgumentError: there is no such rule, or `fit` was not called before.
            DataError: the table cannot be used, or a condition is about a column that it does not
                have.
            ParseError: a text is not a list of conditions.
        """
        self._fitted()
        edit = {} if edit is None else edit
        dropped = _numbered(drop, self.class_rules_, "drop")
        numbers = _numbered(edit, self.class_rules_, "edit")
        if not isinstance(edit, Mapping):
            raise wrong("edit", "a dictionary from numbers of rules to conditions", edit)
        edited = dict(zip(numbers, edit.values(), strict=True))
        if both := [number for head, number in numbers if (head, number) in dropped]:
            raise ArgumentError(f"rule {both[0]} is in drop and in edit; leave out one of them")
        bodies = [
            [
                self._parsed(edited[one.head, i]) if (one.head, i) in edited else body
                for i, body in enumerate(one.bodies, 1)
                if (one.head, i) not in dropped
            ]
            for one in self.class_rules_
        ]
        return self.with_bodies(X, y, bodies, sample_weight)

    def with_bodies(
        self,
        X: Any,
        y: Any,
        bodies: Sequence[Sequence[Sequence[Literal]]],
        sample_weight: Any = None,
    ) -> RuleClassifier:
        """Return a classifier with these conditions in its rules, estimated anew.

        Args:
            X: a table with the columns of `fit`.
            y: the class of each row.
            bodies: for each of `class_rules_`, the literals of its rules.
            sample_weight: how often each row counts.

        Returns:
            A new classifier, whose `notes_` say how much the log-loss on these rows changes.

        Raises:
            ArgumentError: `fit` was not called before.
            DataError: the table cannot be used.
        """
        before = self.log_loss(X, y, sample_weight)
        new = RuleClassifier(**self.get_params())
        columns = self._read(X)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                setattr(new, name, getattr(self, name))
        labels, weights = self.labels_of(y, sample_weight)
        new.classes_, new._several = self.classes_, self._several
        new.notes_, new._columns, new.result_ = [], self._columns, None
        table = literals_of(list(columns.values()), weights)
        learned = []
        for k, (one, given) in enumerate(zip(self.class_rules_, bodies, strict=True)):
            numbers = [
                tuple(
                    sorted({table.literals.add(x, holds(x, columns[x.column]), 0.0) for x in body})
                )
                for body in given
            ]
            sides = _sides(labels[:, k], weights)
            form = make_list(ListSearch(table.literals, sides, 1), numbers)
            if not numbers:
                form = Form("nothing", (), form.base)
            elif one.form.score is not None:
                form = make_score(table.literals, sides, numbers)
            learned.append(Learned(form))
        new._finish(table, [one.head for one in self.class_rules_], labels, weights, learned)
        after = new.log_loss(X, y, sample_weight)
        new.notes_ = [f"log-loss {after:.4f} on these rows, instead of {before:.4f} before"]
        return new

    def _parsed(self, text: str) -> tuple[Literal, ...]:
        """Return the literals of a body that is given as text."""
        if not isinstance(text, str):
            raise wrong("edit", "conditions as text, such as 'age < 18, not late'", text)
        head, arrow, body = text.partition(":-") if ":-" in text else ("edited ", ":-", text)
        if not body.strip(" ."):
            raise DataError("edit: a rule needs a condition; drop= leaves a rule out")
        if re.search(rf"\bnot\s+{_RANGE.pattern}", body):
            raise DataError("edit: `not` takes one condition; write each end of a range as its own")
        body = _RANGE.sub(r"\2 >= \1, \2 <", body)
        rule, *others = read_rules(f"{head}{arrow} {body.strip().rstrip('.')}.", "edit").rules
        if others:
            raise DataError("edit: write the conditions of one rule, without counts")
        known = {column.name: column for column in self._columns}
        found = []
        for name, negated in [*((n, False) for n in rule.body), *((n, True) for n in rule.negated)]:
            condition = Condition.parse(name)
            column = known.get(name if condition is None else condition.column)
            if column is None:
                wanted = name if condition is None else condition.column
                raise DataError(
                    f"edit: fit saw no column {wanted!r}; it saw {listing(list(map(repr, known)), 10)}"
                )
            if condition is None and column.kind != "boolean":
                raise DataError(
                    f"edit: {name!r} is a {column.kind}; write what it is compared with"
                )
            if condition is not None and column.kind == "boolean" and not is_computed(column.name):
                atom = quote(column.name)
                raise DataError(f"edit: {atom} is true or false; write {atom} or not {atom}")
            texts = None if condition is None else condition.is_text
            wrong_kinds = ("number",) if texts else ("category", "date")
            if texts is not None and column.kind in wrong_kinds:
                other = "a text" if texts else "a number"
                raise DataError(f"edit: {name!r} compares a {column.kind} with {other}")
            found.append(Literal(name, negated, condition))
        return tuple(sorted(found))

    def network(self, X: Any) -> RuleNetwork:
        """Return the rules as a network with soft thresholds, to train further by gradient.

        Args:
            X: a table with the columns of `fit`; how far its numbers spread says how soft a
                threshold is.

        Returns:
            A module of PyTorch: see `RuleNetwork`.

        Raises:
            ArgumentError: `fit` was not called before, or found no rules.
            DataError: the columns are other ones than in `fit`.
            MissingPackageError: PyTorch is not installed.
        """
        self._fitted()
        if importlib.util.find_spec("torch") is None:
            raise MissingPackageError("a network of rules needs PyTorch", "torch")
        from latentgamma.learning.network import RuleNetwork

        return RuleNetwork(self, X)

    def log_loss(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the mean of −ln p over rows, where p is the probability of their class.

        Args:
            X: a table with the columns of `fit`.
            y: the true classes.
            sample_weight: how often each row counts.

        Returns:
            The log-loss, in nats; with several outputs, their sum.

        Raises:
            ArgumentError: `fit` was not called before.
            DataError: the table cannot be used, or y has a class that `fit` did not see.
        """
        p = np.clip(self.predict_proba(X), 1e-15, 1.0)
        weights = _weights(sample_weight, len(p))
        if self._several:
            true = _several_outputs(y, len(p))[1]
            losses = -np.log(np.where(true, p, np.clip(1 - p, 1e-15, 1.0))).sum(1)
        else:
            values = _classes(y, len(p))
            at = np.searchsorted(self.classes_, values).clip(0, len(self.classes_) - 1)
            if (self.classes_[at] != values).any():
                raise DataError("y has a class that fit did not see")
            losses = -np.log(p[np.arange(len(p)), at])
        return float(np.average(losses, weights=weights))

    # ---- As code

    def to_sql(self, table: str = "data") -> str:
        """Return a query that adds the probability of each class to a table.

        Args:
            table: the name of the table.

        Returns:
            A SELECT statement in standard SQL. With two classes it adds `p_` and the atom: the
            probability of the positive one. With more classes it adds a score of each class before
            their probabilities, which are p / (1 − p)^t of the scores p, divided by their sum. Where the table has a
            column of that name, one more underscore stands after `p` or `score`. Times with a zone
            are compared as the database shows them: let the zone of its session be UTC.

        Raises:
            ArgumentError: `fit` was not called before.
        """
        self._fitted()
        p = self._new_columns("p")
        scores = self._new_columns("score") if self._normalises else p
        columns = [f"{one.to_sql()} AS {name}"
                   for one, name in zip(self.class_rules_, scores, strict=True)]  # fmt: skip
        query = f"SELECT *,\n  {f',{chr(10)}  '.join(columns)}\nFROM {table}"
        if not self._normalises:
            return query
        odds = [f"{one} / POWER({1 + ABOVE_ZERO} - {one}, {self._exponent})" for one in scores]
        odds = odds if self._exponent else scores
        total = " + ".join(odds)
        shares = [f"{one} / ({total}) AS {name}" for one, name in zip(odds, p, strict=True)]
        return f"SELECT *,\n  {f',{chr(10)}  '.join(shares)}\nFROM (\n{query}\n) AS scored"

    def _new_columns(self, word: str) -> list[str]:
        """Return a name in SQL for each class that no column of the table has: `word_` and the atom."""
        taken = {column.name.casefold() for column in self._columns}
        names = [f"{word}_{one.head}" for one in self.class_rules_]
        if any(name.casefold() in taken for name in names):
            return self._new_columns(f"{word}_")
        return ['"' + name.replace('"', '""') + '"' for name in names]

    def to_python(self) -> str:
        """Return the source of a Python function from a row to the probability of each class.

        Returns:
            A module without dependencies: `probabilities` takes a row as a dictionary, and returns
            the probability of each class, or of each of several outputs, by its name. `p_0`, `p_1`
            and so on are what the rules of each class say; of more than two, p / (1 − p)^t is
            divided by the sum.

        Raises:
            ArgumentError: `fit` was not called before.
        """
        self._fitted()
        functions = [one.to_python(f"p_{i}") for i, one in enumerate(self.class_rules_)]
        calls = ", ".join(f"p_{i}(row)" for i in range(len(functions)))
        names = [one.head for one in self.class_rules_] if self._several else self.classes_.tolist()
        body = [f"    found = [{calls}]"]
        if self._normalises:
            if self._exponent:
                power = f"({1 + ABOVE_ZERO} - p) ** {self._exponent}"
                body.append(f"    found = [p / {power} for p in found]")
            body.append("    found = [p / sum(found) for p in found]")
        elif not self._several:
            body.append("    found = [1 - found[0], found[0]]")
        body.append(f"    return dict(zip({names!r}, found))")
        last = "\n".join(["def probabilities(row):", *body])
        return "\n\n\n".join([PYTHON_HEADER.rstrip(), *functions, last]).rstrip() + "\n"

    @property
    def _normalises(self) -> bool:
        """Whether the classes share a probability of one: there are more than two."""
        return not self._several and len(self.classes_) > 2

    def to_json(self) -> str:
        """Return the rules with their numbers as JSON.

        Returns:
            The text of one JSON document.

        Raises:
            ArgumentError: `fit` was not called before.
        """
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=2)

    def to_dict(self) -> dict[str, Any]:
        """Return the rules with their numbers as plain data.

        Returns:
            What `to_json` writes.

        Raises:
            ArgumentError: `fit` was not called before.
        """
        self._fitted()
        return {
            "classes": self.classes_.tolist(),
            **({"exponent": self._exponent} if self._normalises else {}),
            "columns": [{"name": one.name, "kind": one.kind} for one in self._columns],
            "outputs": [one.to_dict() for one in self.class_rules_],
            "program": str(self.program_),
            "notes": list(self.notes_),
        }

    # ---- For scikit-learn

    def _fitted(self) -> None:
        if not hasattr(self, "class_rules_"):
            raise _not_fitted("this RuleClassifier has no rules yet: call fit first")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments of the constructor.

        Args:
            deep: without effect; scikit-learn passes it.

        Returns:
            A dictionary from names to values.
        """
        del deep
        return {name: getattr(self, name) for name in _parameters()}

    def set_params(self, **params: Any) -> RuleClassifier:
        """Set arguments of the constructor, and return this object.

        Args:
            **params: the new values by name.

        Returns:
            The same object.

        Raises:
            ArgumentError: there is no such argument.
        """
        for name, value in params.items():
            if name not in _parameters():
                known = ", ".join(_parameters())
                raise ArgumentError(f"RuleClassifier has no parameter {name!r}; it has {known}")
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = importlib.import_module("sklearn.utils")
        return tags.Tags(
            estimator_type="classifier",
            target_tags=tags.TargetTags(required=True, multi_output=True),
            classifier_tags=tags.ClassifierTags(),
            transformer_tags=tags.TransformerTags(preserves_dtype=[]),
            input_tags=tags.InputTags(sparse=True, allow_nan=True, string=True, categorical=True),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "class_rules_")

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"RuleClassifier({given})"


def fit_table(
    source: Any,
    label: str,
    *,
    delimiter: str | None = None,
    ignore: tuple[str, ...] = (),
    progress: Progress | None = None,
    **options: Any,
) -> RuleClassifier:
    """Return a classifier for one column of a table.

    Args:
        source: the path of a .csv, .tsv or .parquet file, an open file, or a data frame.
        label: the name of the column with the classes.
        delimiter: what separates the cells of a text.
        ignore: columns that are left out.
        progress: as in `RuleClassifier.fit`.
        **options: those of `RuleClassifier`.

    Raises:
        DataError: there is no such column, or the table cannot be learned from.
        ArgumentError: an option has a value that it cannot have.
    """
    if is_path(source) or is_open_file(source):
        columns = read_file(source, delimiter=delimiter, ignore=ignore)
        name = Path(source).name if is_path(source) else "the table"
    else:
        columns, name = read_columns(source, "the table"), "the table"
    names = [column.name for column in columns]
    if label in ignore:
        raise DataError(f"label {label!r} is one of the ignored columns")
    if not isinstance(label, str) or label not in names:
        lacking = f"{name} does not have"
        error = unknown_atoms([str(label)], names, "label", kind="column", lacking=lacking)
        raise DataError(f"{error}; it has {listing(list(map(repr, names)), 10)}")
    features = [column for column in columns if column.name != label]
    if not features:
        raise DataError(f"{name} has no column beside {label!r}")
    given = columns[names.index(label)]
    missing = np.flatnonzero(given.missing)
    if len(missing):
        raise DataError(
            f"{name}, row {missing[0] + 1}, column {label!r}: the class is missing, as in "
            f"{quantity(len(missing), 'row')}; drop such rows"
        )
    y, what = given.values, f"{name}, column {label!r}"
    if (given.kind == "number" and (y == np.rint(y)).all()) or given.kind == "boolean":
        y = y.astype(np.int64)
    elif given.values.dtype.kind == "O":
        y = y.astype("U")
    classifier = RuleClassifier(**options)
    classifier.feature_names_in_ = np.array([column.name for column in features], object)
    return classifier._fit(features, y, label, None, progress, what)


def _end(value: Any) -> str:
    """Return one end of the interval of a threshold as text."""
    if isinstance(value, float):
        return f"{value + 0.0:.0f}" if value.is_integer() and abs(value) < 2**53 else f"{value:.6g}"
    return "…" if value is None else str(value)


def _parameters() -> list[str]:
    signature = inspect.signature(RuleClassifier.__init__)
    return [name for name in signature.parameters if name != "self"]


def _not_fitted(message: str) -> Exception:
    """Return the error; where scikit-learn is loaded, it is also scikit-learn's own."""
    exceptions = sys.modules.get("sklearn.exceptions")
    if exceptions is None:
        return ArgumentError(message)
    kind = type("NotFittedError", (ArgumentError, exceptions.NotFittedError), {})
    error: Exception = kind(message)
    return error


# ---- Labels and weights


def _label_name(y: Any) -> str:
    if is_frame(y):
        return str(next(iter(y.columns)))
    return str(getattr(y, "name", None) or "y")


def _outputs(
    y: Any, label: str, n: int, weights: Floats, what: str = "y"
) -> tuple[list[str], npt.NDArray[Any], Mask, bool]:
    """Return what to learn.

    Returns:
        The atoms, the classes, which rows are positive for each atom, (n, k), and whether these are
        several outputs.
    """
    shape = (n, len(y.columns)) if is_frame(y) else np.asarray(y).shape
    if len(shape) == 2 and shape[1] > 1:
        heads, labels = _several_outputs(y, n)
        return heads, np.array([0, 1]), labels, True
    values = _classes(y, n, what)
    classes = np.unique(values[weights > 0])
    names = classes.tolist()
    if len(names) < 2:
        raise DataError(f"{what} has only one class, {names[0]!r}; rules tell at least two apart")
    if len(names) > max(20, n // 2):
        remedy = "cut the numbers into a few"
        if isinstance(names[0], str):
            remedy = "is it a column of names or identifiers?"
        raise DataError(
            f"{what} has {len(names):,} different values in {n:,} rows: Unknown label type: "
            f"continuous. Rules are about classes; {remedy}"
        )
    if classes.dtype.kind == "f":  # whole numbers, as 1.0 in a frame that had missing labels
        names = list(map(int, names))
    heads = [f"{label}({quote_argument(str(one))})" for one in names]
    if len(names) > 2:
        return heads, classes, values[:, None] == classes, False
    named = [str(one).lower() for one in names] in _TRUTH
    return [label if named else heads[1]], classes, (values == classes[1])[:, None], False


def _several_outputs(y: Any, n: int) -> tuple[list[str], Mask]:
    """Return the names of several outputs, and which rows are true. (n, k)."""
    outputs = read_columns(y, "y")
    names = [one.name if is_frame(y) else f"y{i}" for i, one in enumerate(outputs)]
    for name, one in zip(names, outputs, strict=True):
        if one.kind != "boolean":
            raise DataError(f"y has several columns, and {name!r} is not 0 or 1 in each row")
    labels = np.stack([one.values for one in outputs], axis=1)
    _check_length(labels, n)
    return names, labels


def _classes(y: Any, n: int, what: str = "y") -> npt.NDArray[Any]:
    """Return the class of each row, (n,).

    Raises:
        DataError: a class is missing, or y is not one column of n rows.
    """
    if is_frame(y):
        y = y[next(iter(y.columns))]
    if hasattr(y, "toarray"):
        raise DataError("y must be an array, not a sparse matrix")
    y = column_array(y) if isinstance(y, np.ma.MaskedArray) else y
    values = np.asarray(y)
    if values.dtype.kind in "USf" and not hasattr(y, "dtype"):
        values = np.asarray(y, object)  # a list: None and NaN would become texts
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise DataError(f"y must have shape (n,) or (n, k), but has {values.shape}")
    if values.dtype.kind == "c":
        raise DataError("y: Complex data not supported")
    if values.dtype.kind not in "biuU":
        listed = np.asarray(y, object).ravel().tolist()
        for row, label in enumerate(listed):
            if is_missing(label):
                raise DataError(f"y, row {row + 1}: the class is missing ({label}); drop such rows")
            if isinstance(label, float) and abs(label) == float("inf"):
                raise DataError(f"y, row {row + 1}: infinity (inf) is not a class")
        if values.dtype.kind in "OT":
            if len({isinstance(one, str) for one in listed}) > 1:
                raise DataError("y mixes texts and numbers; use one of them")
            try:
                values = np.array(listed)
            except ValueError:
                raise DataError("y must have one class per row") from None
        if values.dtype.kind not in "biufU":
            kind = type(listed[0]).__name__ if values.dtype.kind == "O" else values.dtype
            raise DataError(
                f"{what} has classes of type {kind}; write them as texts, y.astype(str)"
            )
        if values.dtype.kind == "f" and (values != np.rint(values)).any():
            raise DataError(
                f"{what} has numbers that are not whole: Unknown label type: continuous. Rules are about "
                "classes; cut the numbers into a few"
            )
    _check_length(values, n)
    return values


def _check_length(labels: npt.NDArray[Any], n: int) -> None:
    if not len(labels):
        raise DataError(f"y must have shape (n,) or (n, k), but has {labels.shape}")
    if len(labels) != n:
        raise DataError(f"X has {n} rows, but y has {len(labels)}")


def _weights(sample_weight: Any, n: int) -> Floats:
    if sample_weight is None:
        return np.ones(n)
    try:
        weights = np.asarray(sample_weight, np.float64)
    except (TypeError, ValueError):
        raise DataError("sample_weight must be numbers, one for each row") from None
    if weights.ndim == 0:
        weights = np.full(n, float(weights))
    if weights.shape != (n,):
        raise DataError(f"sample_weight must have shape ({n},), but has {weights.shape}")
    if not ((weights >= 0).all() and weights.sum() < 2**53):
        raise DataError("sample_weight must be numbers from 0 on with a sum below 2^53")
    if not weights.any():
        raise DataError("sample_weight is zero in every row")
    return weights


def _sides(positive: Mask, weights: Floats) -> Floats:
    """Return the weight of each row as a positive and as a negative. (n, 2)."""
    return np.stack([weights * positive, weights * ~positive], axis=1)


def _different(heads: Sequence[str], columns: Sequence[Column]) -> list[str]:
    """Return names for the outputs that no column, condition or count has, nor their atoms."""
    taken = {column.name for column in columns}
    found: list[str] = []
    for head in heads:
        name = head
        while (
            is_computed(name)
            or name in {*taken, *found}
            or any(one.startswith(auxiliary_atoms(name)) for one in taken)
        ):
            name += "'"
        found.append(name)
    return found


def _consistent(codes: npt.NDArray[np.uint8], labels: Mask) -> bool:
    """Return whether rows with equal features have equal labels, and all features are seen."""
    words = np.packbits(codes.astype(np.bool_), axis=1)
    together = np.hstack([words, np.packbits(labels, axis=1)])
    different = len(np.unique(words, axis=0))
    return different == len(np.unique(together, axis=0)) and different == 1 << codes.shape[1]


# ---- From literals to rules with names


def _class_rules(
    head: str, learned: Learned, table: TableLiterals, weights: Floats, threshold: float
) -> ClassRules:
    form, literals = learned.form, table.literals
    bodies = tuple(tuple(literals.names[j] for j in body) for body in form.bodies)
    nearest = None
    if form.name == "nothing":
        nearest = "no condition tells enough rows apart"
        if (near := learned.nearest) is not None:
            text = ", ".join(str(literals.names[j]) for j in near.body)
            rows = near.positives + near.negatives
            lacking = f": {-near.saved:.1f} bits short"
            if near.saved > 0:
                lacking = "; it does not predict better on held-out rows"
            nearest = (
                f"the nearest is '{text}' with {near.positives:,.10g} of {rows:,.10g} rows, where the "
                f"base rate is {form.base:.2f}{lacking}"
            )
    named = {column.name: column for column in table.columns}
    used = {j for body in form.bodies for j in body}
    alternatives = tuple(
        (str(literals.names[j]), tuple(map(str, table.same[j])))
        for j in sorted(used & set(table.same))
    )
    return ClassRules(
        head, form, bodies, threshold, statistics(form, bodies, named, weights),
        float(weights.sum()), learned.validated, nearest, alternatives,
    )  # fmt: skip


def _numbered(
    given: Iterable[Any], rules: Sequence[ClassRules], what: str
) -> list[tuple[str, int]]:
    """Return the head and the number of each rule that is named."""
    found: list[tuple[str, int]] = []
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise wrong(what, "the numbers of rules in a list", given)
    for one in given:
        head, number = one if isinstance(one, tuple) else (rules[0].head, one)
        mine = [rule for rule in rules if rule.head == head]
        if not isinstance(one, tuple) and len(rules) > 1:
            raise ArgumentError(
                f"{what} takes pairs (head, number) where several classes have rules"
            )
        if not mine or number not in range(1, len(mine[0].bodies) + 1):
            raise ArgumentError(f"there is no rule {number!r} for {head!r} to {what}")
        found.append((head, int(number)))
    return found
