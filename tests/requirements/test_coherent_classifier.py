"""The classifier of scikit-learn, and average precision."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier

import latentgamma as lg
from latentgamma.errors import ArgumentError, DataError

REQUIREMENTS = lg.Requirements.from_text("pet :- cat.\npet :- dog.\n:- cat, dog.\nwild ; pet.")


def data(seed: int = 0) -> tuple[np.ndarray, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, 4))
    logits = X @ rng.normal(size=(4, 4)) * 2
    answer = REQUIREMENTS.layer(["cat", "dog", "pet", "wild"]).decide(torch.from_numpy(logits))
    noisy = X + rng.normal(size=X.shape)
    return noisy, pd.DataFrame(answer.numpy().astype(int), columns=["cat", "dog", "pet", "wild"])


@pytest.mark.parametrize(
    "base",
    [
        MultiOutputClassifier(LogisticRegression()),
        OneVsRestClassifier(LogisticRegression()),
        MultiOutputClassifier(RandomForestClassifier(10, max_depth=3, random_state=0)),
    ],
)
def test_predictions_satisfy_the_requirements(base: object) -> None:
    X, Y = data()
    classifier = lg.CoherentClassifier(base, REQUIREMENTS).fit(X[:200], Y[:200])
    assert len(classifier.violations_) == 0
    predicted = classifier.predict(X[200:])
    assert len(REQUIREMENTS.check(predicted, Y.columns)) == 0
    assert np.array_equal(classifier.decision_function(X[200:]) > 0, predicted)
    assert classifier.predict_proba(X[200:]).shape == predicted.shape
    plain = clone(base).fit(X[:200], Y[:200]).predict(X[200:])
    assert len(REQUIREMENTS.check(plain, Y.columns)) > 0
    wrong = (predicted != Y[200:]).to_numpy().mean()
    assert wrong <= (plain != Y[200:]).to_numpy().mean()


def test_it_works_in_searches_of_scikit_learn() -> None:
    X, Y = data()
    classifier = lg.CoherentClassifier(OneVsRestClassifier(LogisticRegression()), REQUIREMENTS)
    assert clone(classifier).requirements == REQUIREMENTS
    assert cross_val_score(classifier, X, Y, cv=3).min() > 0.3
    search = GridSearchCV(classifier, {"base__estimator__C": [0.01, 1.0]}, cv=2).fit(X, Y)
    assert search.best_params_["base__estimator__C"] in (0.01, 1.0)


def test_mistakes() -> None:
    X, Y = data()
    base = MultiOutputClassifier(LogisticRegression())
    with pytest.raises(ArgumentError, match="call fit first"):
        lg.CoherentClassifier(base, REQUIREMENTS).predict(X)
    with pytest.raises(ArgumentError, match="must be Requirements, not list"):
        lg.CoherentClassifier(base, []).fit(X, Y)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="3 columns, but there are 4 labels"):
        lg.CoherentClassifier(base, REQUIREMENTS).fit(X, Y.to_numpy()[:, :3])
    with pytest.raises(ArgumentError, match="no parameter 'depth'"):
        lg.CoherentClassifier(base, REQUIREMENTS).set_params(depth=3)


@pytest.mark.parametrize("seed", range(10))
def test_average_precision_is_that_of_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    y = rng.random((30, 7)) < 0.3
    scores = np.round(rng.random((30, 7)), seed % 3 + 1)  # with ties
    y[0] = True
    for average in ("micro", "macro"):
        expected = average_precision_score(y, scores, average=average)
        assert lg.average_precision(y, scores, average=average) == pytest.approx(expected)
    kept = average_precision_score(
        y[:, [0, 2, 3, 5, 6]], scores[:, [0, 2, 3, 5, 6]], average="micro"
    )
    assert lg.average_precision(torch.tensor(y), torch.tensor(scores), leave_out=[1, 4]) == (
        pytest.approx(kept)
    )
    with pytest.raises(DataError, match="one shape"):
        lg.average_precision(y, scores[:, 1:])
    with pytest.raises(DataError, match="no label is true"):
        lg.average_precision(y & False, scores)


def test_charts_show_what_they_are_given() -> None:
    pytest.importorskip("matplotlib")
    hierarchy = lg.Requirements.from_edges([("cat", "pet"), ("dog", "pet"), ("pet", "animal")])
    layer = hierarchy.layer().train()
    figure = lg.plot.changes(layer, torch.tensor([-1.0, 2.0, -3.0, -2.0]), most=3)
    names = [label.get_text().strip() for label in figure.axes[0].get_yticklabels()]
    assert names == ["animal", "pet", "cat"]
    assert layer.training
    found = REQUIREMENTS.check([[1, 1, 1, 0], [0, 0, 0, 0], [1, 1, 0, 0]])
    bars = lg.plot.violations(found).axes[0].patches
    assert [bar.get_width() for bar in bars] == sorted(
        found.per_requirement[found.per_requirement > 0]
    )[::-1]
