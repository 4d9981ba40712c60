"""A classifier in the style of scikit-learn; scikit-learn itself is not needed."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from latentgamma.errors import ArgumentError, DataError
from latentgamma.learning.bodies import covered, packed_words
from latentgamma.learning.data import (
    ValueTable,
    check_values,
    is_frame,
    number_rows,
    read_frame,
)
from latentgamma.learning.fit import fit
from latentgamma.learning.options import Method, Noise
from latentgamma.learning.result import FitResult
from latentgamma.program.facts import Mask
from latentgamma.program.program import Rule

#: The name of a feature that is false.
_NOT = "not "
#: The smallest fraction of wrong labels that is assumed where rows contradict each other.
_LEAST_NOISE = 0.01


class RuleClassifier:
    """A classifier that learns rules from true and false features.

    It works in a `Pipeline` and in `cross_val_score` of scikit-learn. With two classes rules are
    learned for the second one, and a row that no rule applies to gets the first. With more, rules
    are learned for each class: a row gets the class of the rule with the highest confidence that
    applies to it, or else the most frequent class. A matrix y of 0 and 1 has one column for each
    of several outputs.

    Args:
        negation: whether rules may use that a feature is false, as the atom `not a`.
        method: "auto", "symbolic" or "gradient", as in `fit`.
        noise: the fraction of wrong labels; "auto" is 0 unless rows with equal features have
            different labels; then the fraction of labels that the majority of such rows refutes.
        max_body: the largest body; by default 8.
        seed: the seed of everything random.

    Attributes:
        rules_: the learned rules.
        classes_: the classes.
        result_: what `fit` returned, with the evidence for each rule.
        n_features_in_: the number of features.
        feature_names_in_: the names of the features.

    >>> classifier = RuleClassifier().fit([[1, 1], [1, 0], [0, 1], [0, 0]], [1, 0, 0, 0])
    >>> print(*classifier.rules_)
    y :- x0, x1.
    >>> classifier.predict([[1, 1], [0, 1]]).tolist()
    [1, 0]
    """

    def __init__(
        self,
        *,
        negation: bool = True,
        method: Method = "auto",
        noise: Noise = "auto",
        max_body: int | None = None,
        seed: int = 0,
    ) -> None:
        self.negation = negation
        self.method = method
        self.noise = noise
        self.max_body = max_body
        self.seed = seed

    # ---- Learning

    def fit(self, X: Any, y: Any) -> RuleClassifier:
        """Learn rules, and return this object.

        Args:
            X: features, (n, m): an array, a data frame, or a sparse matrix of 0 and 1.
            y: the class of each row, (n,), or 0 and 1 for several outputs, (n, k).

        Returns:
            The same object, with `rules_`, `classes_` and `result_`.

        Raises:
            DataError: the features are not from 0 to 1, a class is missing, or the shapes do
                not fit.
        """
        states, names = _features(X)
        self.n_features_in_, self.feature_names_in_ = len(names), np.array(names, object)
        labels, heads = self._outputs(y, names)
        if len(labels) != len(states):
            raise DataError(f"X has {len(states)} rows, but y has {len(labels)}")
        self._heads = heads
        literals, atoms = self._literals(states)
        noise = _estimated_noise(states, labels) if self.noise == "auto" else self.noise
        before = np.hstack([literals, np.zeros_like(labels)])
        self.result_: FitResult = fit(
            before,
            np.hstack([literals, labels]),
            atoms=[*atoms, *heads],
            heads=heads,
            bodies=atoms,
            method=self.method,
            noise=noise,
            max_body=self.max_body,
            seed=self.seed,
            holdout=0.0,
        )
        self.rules_: tuple[Rule, ...] = tuple(self.result_.program.rules)
        return self

    def _outputs(self, y: Any, names: Sequence[str]) -> tuple[Mask, list[str]]:
        """Return the labels to learn, one column each, and their names."""
        if is_frame(y):
            observed, columns = _features(y, "y")
            self.classes_: npt.NDArray[Any] = np.array([0, 1])
            self._default, self._several = 0, True
            return observed, _different(columns, names)
        values = np.asarray(y)
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim == 1:
            _check_classes(values if values.dtype.kind in "biu" else np.asarray(y, object))
        self._several = values.ndim == 2
        if self._several:
            self.classes_, self._default = np.array([0, 1]), 0
            labels, _ = _features(values, "y")
            return labels, _different([f"y{i}" for i in range(labels.shape[1])], names)
        if values.ndim != 1 or not len(values):
            raise DataError(f"y must have shape (n,) or (n, k), but has {values.shape}")
        self.classes_, index, counts = np.unique(values, return_inverse=True, return_counts=True)
        name = str(getattr(y, "name", None) or "y")
        if len(self.classes_) == 2:
            self._default = 0
            return (index == 1)[:, None], _different([name], names)
        self._default = int(counts.argmax())
        labels = index[:, None] == np.arange(len(self.classes_))
        return labels, _different([f"{name} = {one}" for one in self.classes_.tolist()], names)

    def _literals(self, states: Mask) -> tuple[Mask, list[str]]:
        names = [str(name) for name in self.feature_names_in_]
        if not self.negation:
            return states, names
        return np.hstack([states, ~states]), [*names, *(_NOT + name for name in names)]

    # ---- Prediction

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the class of each row.

        Args:
            X: features, as in `fit`.

        Returns:
            Classes, (n,), or 0 and 1 for several outputs, (n, k).

        Raises:
            ArgumentError: `fit` was not called before.
            DataError: the features are other ones than in `fit`.
        """
        if not hasattr(self, "rules_"):
            raise ArgumentError("this RuleClassifier has no rules yet: call fit first")
        states, names = _features(X)
        if states.shape[1] != self.n_features_in_:
            raise DataError(f"expected {self.n_features_in_} features, but found {states.shape[1]}")
        if is_frame(X) and names != self.feature_names_in_.tolist():
            raise DataError("the features must have the names and the order that they had in fit")
        literals, atoms = self._literals(states)
        place = {name: i for i, name in enumerate(atoms)}
        score = np.zeros((len(states), len(self._heads)))  # the confidence of the best rule
        for one in self.result_.evidence:
            rows = covered(literals, [place[name] for name in one.rule.body])
            column = score[:, self._heads.index(one.rule.heads[0])]
            column[rows] = np.maximum(column[rows], max(one.confidence, 1e-9))
        if self._several:
            return (score > 0).astype(np.int64)
        if len(self.classes_) == 2:
            return self.classes_[(score[:, 0] > 0).astype(np.int64)]
        best = np.where(score.any(1), score.argmax(1), self._default)
        return self.classes_[best]

    def score(self, X: Any, y: Any) -> float:
        """Return the fraction of rows that are predicted right.

        Args:
            X: features, as in `fit`.
            y: the true classes, as in `fit`.

        Returns:
            A number from 0 to 1; with several outputs a row counts if all of them are right.

        Raises:
            ArgumentError: `fit` was not called before.
            DataError: the features are other ones than in `fit`.
        """
        right = self.predict(X) == (_features(y, "y")[0] if is_frame(y) else np.asarray(y))
        return float(right.all(1).mean() if right.ndim == 2 else right.mean())

    # ---- For scikit-learn

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
            input_tags=tags.InputTags(sparse=True),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "rules_")

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"RuleClassifier({given})"


def _parameters() -> list[str]:
    signature = inspect.signature(RuleClassifier.__init__)
    return [name for name in signature.parameters if name != "self"]


def _features(X: Any, what: str = "X") -> tuple[Mask, list[str]]:
    """Return features as true and false, and their names."""
    if is_frame(X):
        table = read_frame(X, what)
    else:
        table = ValueTable(
            number_rows(what, X.toarray() if hasattr(X, "toarray") else X), None, what
        )
    values = table.values
    if values.ndim != 2 or not values.size:
        raise DataError(
            f"{what} must have one row per example, shape (n, m), but has {values.shape}"
        )
    names = table.names or [f"x{i}" for i in range(values.shape[1])]
    check_values(table, names, missing=False)
    return values > 0.5, names


def _check_classes(y: npt.NDArray[Any]) -> None:
    """Raise if a label is missing: NaN, None, or what pandas has for them."""
    for row, label in enumerate(y.ravel().tolist()):
        try:
            missing = label is None or bool(label != label)  # noqa: PLR0124 - NaN
        except TypeError:  # pandas.NA is neither true nor false
            missing = True
        if missing:
            raise DataError(f"y, row {row + 1}: the class is missing ({label}); drop such rows")


def _different(heads: Sequence[str], features: Sequence[str]) -> list[str]:
    """Return names for the outputs that no feature has."""
    taken = {*features, *(_NOT + name for name in features)}
    return [name + "'" if name in taken else name for name in heads]


def _estimated_noise(states: Mask, labels: Mask) -> float:
    """Return the fraction of labels that the majority of rows with equal features refutes."""
    _, group = np.unique(packed_words(states), axis=0, return_inverse=True)
    size = np.bincount(group.ravel())
    true = np.stack([np.bincount(group.ravel(), column) for column in labels.T], axis=1)
    wrong = np.minimum(true, size[:, None] - true)[size > 1]
    if not wrong.any():
        return 0.0
    return float(
        np.clip(wrong.sum() / (size[size > 1].sum() * labels.shape[1]), _LEAST_NOISE, 0.45)
    )
