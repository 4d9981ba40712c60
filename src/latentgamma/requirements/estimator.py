"""A classifier for several labels whose predictions satisfy requirements, for scikit-learn."""

from __future__ import annotations

import copy
import importlib
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from latentgamma._text import quantity
from latentgamma.errors import ArgumentError, DataError
from latentgamma.requirements.requirements import Method, Requirements, label_matrix

if TYPE_CHECKING:
    from torch import Tensor

    from latentgamma.requirements.layer import RequirementsLayer

_PARAMETERS = ("base", "requirements", "method")


class CoherentClassifier:
    """A classifier of several labels whose predictions cannot break requirements.

    The base classifier is fitted as it is, and its probabilities go through
    `requirements.layer`. It works in `cross_val_score` and `GridSearchCV` of scikit-learn.

    Args:
        base: a classifier of scikit-learn for several labels, with `predict_proba` or
            `decision_function`.
        requirements: the requirements; the columns of y are its labels, unless y is a data frame.
        method: as in `Requirements.layer`.

    Attributes:
        base_: the fitted base classifier.
        layer_: the layer of the requirements.
        labels_: the names of the labels.
        violations_: the violations in the labels it was fitted on.

    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.multioutput import MultiOutputClassifier
    >>> from latentgamma import Requirements
    >>> X, Y = [[0.0], [1.0], [2.0], [3.0]], [[0, 0], [0, 1], [1, 1], [1, 1]]
    >>> hierarchy = Requirements.from_edges([("cat", "animal")], labels=["cat", "animal"])
    >>> classifier = CoherentClassifier(MultiOutputClassifier(LogisticRegression()), hierarchy)
    >>> classifier.fit(X, Y).predict([[-1.0], [3.0]]).tolist()
    [[0, 0], [1, 1]]
    """

    def __init__(self, base: Any, requirements: Requirements, *, method: Method = "auto") -> None:
        self.base = base
        self.requirements = requirements
        self.method = method

    def fit(self, X: Any, y: Any) -> CoherentClassifier:
        """Fit the base classifier, compile the requirements, and return this object.

        Args:
            X: the features, as the base classifier takes them.
            y: 0 and 1, (n, labels): an array, or a data frame with the labels as columns.

        Raises:
            DataError: if y is not a matrix of 0 and 1 with a column for each label.
        """
        if not isinstance(self.requirements, Requirements):
            raise ArgumentError(
                f"requirements must be Requirements, not {type(self.requirements).__name__}"
            )
        rows, self.labels_ = label_matrix(y, None, "y", self.requirements.labels)
        self.layer_: RequirementsLayer = self.requirements.layer(self.labels_, self.method).eval()
        self.violations_ = self.requirements.check(rows, self.labels_)
        self.base_ = importlib.import_module("sklearn.base").clone(self.base)
        self.base_.fit(X, rows.astype(np.int64))
        self.classes_ = [np.array([0, 1]) for _ in self.labels_]
        return self

    def predict(self, X: Any) -> npt.NDArray[np.int64]:
        """Return 0 and 1, (n, labels), that satisfy every requirement."""
        logits = self._logits(X)
        found: npt.NDArray[np.int64] = self.layer_.decide(logits).numpy().astype(np.int64)
        return found

    def decision_function(self, X: Any) -> npt.NDArray[np.float64]:
        """Return coherent log-odds, (n, labels); those above 0 are what `predict` returns."""
        logits = self._logits(X)
        found: npt.NDArray[np.float64] = self.layer_(logits).detach().numpy()
        return found

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Return coherent scores between 0 and 1, (n, labels)."""
        return 1 / (1 + np.exp(-np.clip(self.decision_function(X), -700, 700)))

    def score(self, X: Any, y: Any) -> float:
        """Return the fraction of rows of which every label is predicted right."""
        rows, _ = label_matrix(y, None, "y", self.labels_)
        return float((self.predict(X) == rows).all(1).mean())

    def _logits(self, X: Any) -> Tensor:
        """Return the log-odds of the base classifier, (n, labels)."""
        import torch

        if not hasattr(self, "base_"):
            raise ArgumentError("this CoherentClassifier is not fitted yet: call fit first")
        if hasattr(self.base_, "decision_function"):
            values = np.asarray(self.base_.decision_function(X), np.float64)
        else:
            given = self.base_.predict_proba(X)
            # One array of (n, classes) for each label, or one array of (n, labels).
            if isinstance(given, list):
                known = getattr(self.base_, "classes_", None)
                if known is None:
                    known = [one.classes_ for one in self.base_.estimators_]
                columns = [
                    part[:, list(classes).index(1)] if 1 in classes else np.zeros(len(part))
                    for part, classes in zip(given, known, strict=True)
                ]
                p = np.stack(columns, 1)
            else:
                p = np.asarray(given, np.float64)
            p = np.clip(p, 1e-12, 1 - 1e-12)
            values = np.log(p) - np.log1p(-p)
        if values.ndim != 2 or values.shape[1] != len(self.labels_):
            raise DataError(
                f"the base classifier gave an array of shape {values.shape}, and not one column "
                f"for each of {quantity(len(self.labels_), 'label')}"
            )
        return torch.from_numpy(values)

    # ---- For scikit-learn

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments of the constructor, and those of the base as `base__name`."""
        found = {name: getattr(self, name) for name in _PARAMETERS}
        if deep and hasattr(self.base, "get_params"):
            found |= {f"base__{name}": value for name, value in self.base.get_params().items()}
        return found

    def set_params(self, **params: Any) -> CoherentClassifier:
        """Set arguments of the constructor, or of the base as `base__name`; return this object."""
        for name, value in params.items():
            if name.startswith("base__"):
                self.base = copy.copy(self.base).set_params(**{name.removeprefix("base__"): value})
            elif name in _PARAMETERS:
                setattr(self, name, value)
            else:
                known = ", ".join(_PARAMETERS)
                raise ArgumentError(f"CoherentClassifier has no parameter {name!r}; it has {known}")
        return self

    def __sklearn_tags__(self) -> Any:
        tags = importlib.import_module("sklearn.utils")
        return tags.Tags(
            estimator_type="classifier",
            target_tags=tags.TargetTags(required=True, multi_output=True, single_output=False),
            classifier_tags=tags.ClassifierTags(multi_class=False, multi_label=True),
            input_tags=tags.InputTags(sparse=True),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "base_")

    def __repr__(self) -> str:
        return f"CoherentClassifier({self.base!r}, {self.requirements!r}, method={self.method!r})"
