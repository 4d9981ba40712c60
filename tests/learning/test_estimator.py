"""The classifier: rules from features, in the company of scikit-learn, pandas and polars."""

import numpy as np
import pytest

import latentgamma as lg


def features(count, width, seed=0):
    return np.random.default_rng(seed).random((count, width)) < 0.5


X = features(300, 6)
XOR = X[:, 0] ^ X[:, 1]


def test_rules_with_negation_are_learned_and_predict():
    classifier = lg.RuleClassifier().fit(X, XOR)
    assert {str(rule) for rule in classifier.rules_} == {"y :- x1, not x0.", "y :- x0, not x1."}
    assert classifier.result_ is not None
    assert classifier.result_.certificate.holds
    fresh = features(64, 6, seed=1)
    assert (classifier.predict(fresh) == fresh[:, 0] ^ fresh[:, 1]).all()
    assert classifier.score(fresh, fresh[:, 0] ^ fresh[:, 1]) == 1.0
    assert classifier.score(fresh, ~(fresh[:, 0] ^ fresh[:, 1])) == 0.0
    plain = lg.RuleClassifier().fit(X, X[:, 2] & X[:, 3])
    assert [str(rule) for rule in plain.rules_] == ["y :- x2, x3."]


def test_classes_keep_their_names_and_types():
    words = np.where(X[:, 0], "yes", "no")
    classifier = lg.RuleClassifier().fit(X, words)
    assert classifier.classes_.tolist() == ["no", "yes"]
    assert (classifier.predict(X) == words).all()
    three = X[:, 0].astype(int) + (X[:, 0] & X[:, 1])
    classifier = lg.RuleClassifier().fit(X, three)
    assert (classifier.predict(X) == three).all()
    assert {rule.heads[0] for rule in classifier.rules_} >= {"y(0)", "y(1)", "y(2)"}


def test_rows_without_a_rule_get_the_most_frequent_class():
    # Nothing tells the classes apart, so there is no rule for any of them.
    same = np.zeros((10, 2), bool)
    classifier = lg.RuleClassifier(noise=0.4).fit(same, [0, 1, 1, 1, 1, 1, 2, 2, 0, 2])
    assert (classifier.predict(same) == 1).all()


def test_the_most_probable_class_is_predicted():
    rng = np.random.default_rng(0)
    features = rng.random((2000, 2)) < 0.5
    # With x0 the class is 2; with x1 it is 1, but seldom where both hold.
    y = np.where(features[:, 1], 1, 0)
    y[features[:, 0] & (rng.random(2000) < 0.98)] = 2
    for options in ({}, {"noise": 0.25}):
        classifier = lg.RuleClassifier(**options).fit(features, y)
        assert classifier.predict([[1, 1], [0, 1], [1, 0]]).tolist() == [2, 1, 2]
        p = classifier.predict_proba(features)
        assert np.allclose(p.sum(1), 1)
        assert (classifier.classes_[p.argmax(1)] == classifier.predict(features)).all()


def test_several_outputs_are_predicted_together():
    y = np.stack([X[:, 0] & X[:, 1], ~X[:, 2]], axis=1).astype(int)
    classifier = lg.RuleClassifier().fit(X, y)
    assert (classifier.predict(X) == y).all()
    assert classifier.score(X, y) == 1.0


@pytest.mark.quick_first
@pytest.mark.parametrize("noise", [0.0, 0.05, 0.1, 0.2])
def test_no_noise_level_has_to_be_known(noise):
    found = 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        many = rng.random((500, 20)) < 0.5
        y = (many[:, 0] & many[:, 1]) ^ (rng.random(500) < noise)
        rules = lg.RuleClassifier().fit(many, y).rules_
        found += [str(rule) for rule in rules] == ["y :- x0, x1."]
    assert found == 5


def test_a_known_noise_level_searches_as_fit_does():
    many = features(1000, 6)
    wrong = np.random.default_rng(1).random(1000) < 0.1
    y = (many[:, 0] & many[:, 1]) ^ wrong
    classifier = lg.RuleClassifier(noise=0.1).fit(many, y)
    assert classifier.result_.noise == 0.1
    assert [str(rule) for rule in classifier.rules_] == ["y :- x0, x1."]
    with pytest.raises(lg.errors.ArgumentError, match="'x0' holds numbers; leave noise out"):
        lg.RuleClassifier(noise=0.1).fit(many + 0.5, y)


def test_parameters_are_those_of_the_constructor():
    classifier = lg.RuleClassifier(max_body=3)
    assert classifier.get_params() == {
        "form": "auto", "max_body": 3, "max_terms": 5, "class_weight": None,
        "noise": None, "seed": 0,
    }  # fmt: skip
    assert classifier.set_params(max_body=2).max_body == 2
    assert "max_body=2" in repr(classifier)
    with pytest.raises(
        lg.errors.ArgumentError, match="max_terms must be a whole number from 1 to 16"
    ):
        lg.RuleClassifier(max_terms=17).fit([[0], [1]], [0, 1])
    with pytest.raises(lg.errors.ArgumentError, match="no parameter 'depth'; it has form"):
        classifier.set_params(depth=3)


@pytest.mark.parametrize(
    ("X_", "y", "message"),
    [
        ([[1, 2], [0, float("inf")]], [0, 1], "X, column 'x1', row 2: infinity"),
        ([[1, 0], [0, 0]], [1], "X has 2 rows, but y has 1"),
        ([1, 0], [1, 0], "shape"),
        (
            [["a"], [2]],
            [0, 1],
            "X, column 'x0', row 2: 2 is of type int, and all other values are texts",
        ),
        ([[1]], [], "y must have shape"),
        ([[1], [0]], [1, 1], "y has only one class, 1"),
        ([[1], [0]], [0.5, 1], "Unknown label type"),
        ({"a": [1, 2], "b": [1]}, [1, 0], "different lengths"),
    ],
)
def test_bad_features_are_refused(X_, y, message):
    with pytest.raises(lg.errors.DataError, match=message):
        lg.RuleClassifier().fit(X_, y)


@pytest.mark.parametrize("classes", [[0, 1], [0.0, 1.0, 2.0], ["no", "yes"], [False, True]])
def test_a_missing_class_is_refused_wherever_it_stands(classes):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    for row in range(6):
        y = rng.choice(classes, 6).tolist()
        for missing in (float("nan"), np.float32("nan"), None, pandas.NA, pandas.NaT):
            labels = [*y[:row], missing, *y[row + 1 :]]
            given = [
                labels,
                np.array(labels, object),
                np.array(labels, object)[:, None],
                pandas.Series(labels, dtype=object),
            ]
            if isinstance(missing, float) and not isinstance(classes[0], str):
                given += [np.array(labels, float), pandas.Series(labels)]
            for one in given:
                with pytest.raises(
                    lg.errors.DataError, match=f"y, row {row + 1}: the class is missing"
                ):
                    lg.RuleClassifier().fit(rng.integers(0, 2, (6, 3)), one)


def test_prediction_needs_the_same_features():
    with pytest.raises(lg.errors.ArgumentError, match="call fit first"):
        lg.RuleClassifier().predict(X)
    with pytest.raises(
        lg.errors.DataError, match="X has 5 features, but RuleClassifier is expecting 6"
    ):
        lg.RuleClassifier().fit(X, XOR).predict(X[:, :5])


@pytest.mark.slow
def test_it_works_in_pipelines_and_cross_validation():
    pytest.importorskip("sklearn")
    from sklearn.base import clone, is_classifier
    from sklearn.model_selection import GridSearchCV, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import KBinsDiscretizer

    assert is_classifier(lg.RuleClassifier())
    assert clone(lg.RuleClassifier(max_body=3)).max_body == 3
    assert cross_val_score(lg.RuleClassifier(), X, XOR, cv=3).tolist() == [1.0, 1.0, 1.0]
    numbers = np.random.default_rng(0).random((300, 2))
    above = (numbers[:, 0] > 0.5) & (numbers[:, 1] > 0.5)
    bins = KBinsDiscretizer(2, strategy="uniform", quantile_method="averaged_inverted_cdf")
    pipeline = make_pipeline(bins, lg.RuleClassifier())
    assert pipeline.fit(numbers, above).score(numbers, above) > 0.97
    search = GridSearchCV(lg.RuleClassifier(), {"max_body": [1, 2]}, cv=3).fit(X, XOR)
    assert search.best_params_ == {"max_body": 2}


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_bring_the_names_of_features(library):
    frames = pytest.importorskip(library)
    columns = {name: X[:, i] for i, name in enumerate("abcdef")}
    frame = frames.DataFrame(columns)
    classifier = lg.RuleClassifier().fit(frame, frames.Series("wet", XOR) if library == "polars"
                                         else frames.Series(XOR, name="wet"))  # fmt: skip
    assert {str(rule) for rule in classifier.rules_} == {"wet :- b, not a.", "wet :- a, not b."}
    assert classifier.feature_names_in_.tolist() == list("abcdef")
    assert (classifier.predict(frame) == XOR).all()
    with pytest.raises(
        lg.errors.DataError, match="the features must have the same names and order"
    ):
        classifier.predict(frame[list("bacdef")])
