"""Rules from ordinary tables: code lengths, search, points, columns, and what users do with them."""

from __future__ import annotations

import contextlib
import datetime
import io
import itertools
import json
import math
import re
import sqlite3
from fractions import Fraction

import numpy as np
import pytest

import latentgamma as lg
from latentgamma.learning import class_rules, columns, estimator, forms, lists, literals, points


def sides(y, weights=1.0):
    return np.stack([y * weights, ~y * weights], axis=1).astype(float)


def table_of(X):
    return columns.literals_of(columns.read_columns(X), np.ones(len(X))).literals


def planted(seed, n=500, d=6, noise=0.1):
    rng = np.random.default_rng(seed)
    X = rng.random((n, d)) < 0.5
    return X, (X[:, 0] & ~X[:, 1]) ^ (rng.random(n) < noise)


# ---- The code


def test_the_label_code_is_the_product_of_its_predictions():
    # Krichevsky and Trofimov predict the next label with (count + ½) / (n + 1).
    for a, b in itertools.product(range(6), repeat=2):
        probability = Fraction(1)
        for i, label in enumerate([1] * a + [0] * b):
            seen = min(i, a) if label else i - a
            probability *= Fraction(2 * seen + 1, 2 * (i + 1))
        assert literals.label_bits(a, b) == pytest.approx(-math.log2(probability), abs=1e-9)


def test_the_lengths_are_those_of_a_prefix_code():
    # Kraft: rules over four literals of one column, and the numbers of literals, are not free.
    assert sum(2 ** -literals.integer_bits(k) for k in range(1, 5000)) < 1
    bits = [math.log2(4)] * 3
    total = sum(math.comb(4, k) * 2 ** -literals.body_bits(bits[:k]) for k in range(4))
    assert total < 1


@pytest.mark.parametrize("weights", [1.0, 0.5, "random"])
def test_the_bits_a_group_saves_are_those_of_the_code(weights):
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 40, (2000, 2)) * (
        rng.random((2000, 1)) if weights == "random" else weights
    )
    A, B = 50.0, 60.0
    found = literals.split_gains(counts, (A, B))
    for (a, b), gain in list(zip(counts.tolist(), found.tolist(), strict=True))[::97]:
        apart = literals.label_bits(a, b) + literals.label_bits(A - a, B - b)
        assert gain == pytest.approx(literals.label_bits(A, B) - apart, abs=1e-8)


def test_sums_over_literals_are_those_of_counting():
    rng = np.random.default_rng(0)
    X = {
        "a": rng.normal(size=200),
        "b": rng.choice(["x", "y", "z"], 200),
        "c": rng.random(200) < 0.3,
    }
    X["a"][:20] = np.nan
    found = columns.literals_of(columns.read_columns(X), np.ones(200)).literals
    weights = rng.random((200, 2))
    rows = np.flatnonzero(rng.random(200) < 0.7)
    sums = found.sums([rows, np.arange(200)], weights)
    inside = np.isin(np.arange(200), rows)
    for j in range(found.m):
        assert np.allclose(sums[0, j], weights[found.holds(j) & inside].sum(0))
        assert np.allclose(sums[1, j], weights[found.holds(j)].sum(0))
    first, second, both = found.pairs(rows, weights, 5.0)
    assert len(first)
    for i, j, pair in zip(first, second, both, strict=True):
        assert np.allclose(pair, weights[found.covered((i, j)) & inside].sum(0))


def test_the_first_rule_is_the_best_of_all_short_bodies():
    for seed in range(4):
        X, y = planted(seed, n=120, d=5, noise=0.15)
        search = lists.ListSearch(table_of(X), sides(y), 2)
        found = search.best_rule(np.ones(120, bool))
        bodies = [body for k in (1, 2) for body in itertools.combinations(range(10), k)]
        usable = [b for b in bodies if search.covered(b).sum() >= 5]
        best = min(search.total([body]) for body in usable)
        assert search.total([found.body]) == pytest.approx(best)
        assert search.total([]) - search.total([found.body]) == pytest.approx(found.saved)


def test_logistic_regression_is_at_its_minimum():
    rng = np.random.default_rng(0)
    features, counts = rng.random((30, 3)), rng.integers(0, 9, (30, 2)).astype(float)
    weights, nats = points.logistic(features, counts, price=2.0)
    z = weights[0] + features @ weights[1:]
    p = 1 / (1 + np.exp(-z))
    assert nats == pytest.approx(-(counts[:, 0] @ np.log(p) + counts[:, 1] @ np.log(1 - p)))
    slope = features.T @ (counts.sum(1) * p - counts[:, 0])
    slope += 2.0 * weights[1:] / np.hypot(weights[1:], 0.25)
    assert np.abs(slope).max() < 1e-3


# ---- Planted rules, and noise


def numeric_rules(seed, n=1500, wrong=0.05):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 8)).round(3)
    true = (X[:, 2] >= 0.37) & (X[:, 5] < 0.21) | (X[:, 1] < -0.9)
    return X, true, true ^ (rng.random(n) < wrong)


@pytest.mark.slow
def test_thresholds_without_wrong_labels_are_in_the_gap_of_the_sample():
    for seed in range(2):
        X, true, y = numeric_rules(seed, wrong=0.0)
        assert (lg.RuleClassifier().fit(X, y).predict(X) == true).all()


def test_each_threshold_is_where_the_labels_take_the_fewest_bits():
    X, _, y = numeric_rules(0)
    (found,) = lg.RuleClassifier(form="rules").fit(X, y).class_rules_
    conditions = [[literal.condition for literal in body] for body in found.bodies]

    def bits(bodies):
        left, total = np.ones(len(y), bool), 0.0
        for body in bodies:
            mine = left & np.all([one.mask(X[:, int(one.column[1:])]) for one in body], axis=0)
            total += literals.label_bits(y[mine].sum(), (~y[mine]).sum())
            left &= ~mine
        return total + literals.label_bits(y[left].sum(), (~y[left]).sum())

    for i, body in enumerate(conditions):
        for k, one in enumerate(body):
            others = np.unique(X[:, int(one.column[1:])])[1::7]
            changed = [
                [*body[:k], lg.logic.Condition(one.column, one.op, float(cut)), *body[k + 1 :]]
                for cut in others
            ]
            best = min(bits([*conditions[:i], new, *conditions[i + 1 :]]) for new in changed)
            # One bit of each of three thresholds may be spent on being short.
            assert bits(conditions) <= best + 3


@pytest.mark.slow
def test_intervals_of_thresholds_have_the_planted_ones():
    wanted = {"x2 >=": 0.37, "x5 <": 0.21, "x1 <": -0.9}
    for seed in range(4):
        X, _, y = numeric_rules(seed)
        classifier = lg.RuleClassifier(form="rules").fit(X, y)
        found = {}
        for row in classifier.rule_table():
            for one in row.thresholds:
                name, _, cut = one.condition.rpartition(" ")
                assert one.low < float(cut) <= one.high
                found[name] = one
        assert found.keys() == wanted.keys()
        assert all(found[name].low < cut <= found[name].high for name, cut in wanted.items())
        # They say something: few rows are inside.
        assert all(one.high - one.low < 0.4 for one in found.values())


@pytest.mark.slow
def test_a_rare_class_with_a_long_rule_is_found():
    rng = np.random.default_rng(1)
    X = rng.random((3000, 20)) < 0.47
    y = X[:, :4].all(1) ^ (rng.random(3000) < 0.02)
    classifier = lg.RuleClassifier().fit(X, y)
    assert [str(rule) for rule in classifier.rules_] == ["y :- x0, x1, x2, x3."]


@pytest.mark.slow
def test_pure_noise_gives_nothing_and_says_so():
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(200, 8)), rng.random(200) < 0.4
        classifier = lg.RuleClassifier().fit(X, y)
        assert not any(one.bodies for one in classifier.class_rules_)
        assert "no rule pays for itself; the nearest is" in classifier.notes_[0]
        assert np.allclose(classifier.predict_proba(X)[:, 1], y.mean())


def test_additive_data_get_points():
    rng = np.random.default_rng(0)
    X = rng.random((3000, 6)) < 0.5
    y = rng.random(3000) < 1 / (1 + np.exp(2 - 2.0 * X[:, 0] - 1.0 * X[:, 1] - 1.0 * X[:, 2]))
    classifier = lg.RuleClassifier().fit(X, y)
    form = classifier.class_rules_[0].form
    assert form.name == "points"
    by_name = {
        str(b[0]): p
        for b, p in zip(classifier.class_rules_[0].bodies, form.score.points, strict=True)
    }
    sign = {
        name.removeprefix("not "): (-p if name.startswith("not ") else p)
        for name, p in by_name.items()
    }
    assert sign == {"x0": 2, "x1": 1, "x2": 1}


@pytest.mark.parametrize("seed", [0, 5, 9])
def test_values_with_the_same_points_are_one_condition(seed):
    rng = np.random.default_rng(seed)
    city, late = rng.choice(list("abcdef"), 4000), rng.random(4000) < 0.5
    odds = -1.5 + 1.5 * np.isin(city, ["b", "d", "e"]) + 1.5 * late
    y = rng.random(4000) < 1 / (1 + np.exp(-odds))
    classifier = lg.RuleClassifier(form="points").fit({"city": city, "late": late}, y)
    (found,) = classifier.class_rules_
    bodies = [str(*body) for body in found.bodies]
    points = dict(zip(bodies, found.form.score.points, strict=True))
    assert points in ({"city in {b, d, e}": 1, "late": 1}, {"city in {a, c, f}": -1, "late": 1})
    rows = classifier.transform({"city": city, "late": late}) @ list(points.values())
    p = classifier.predict_proba({"city": city, "late": late})[:, 1]
    assert np.allclose(np.log(p / (1 - p)), found.form.score.log_odds(rows))


# ---- Columns


def test_every_kind_of_column_is_learned_from_and_printed():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    n = 1200
    frame = pandas.DataFrame({
        "income": rng.lognormal(10, 0.4, n).round(),
        "home": rng.choice(["own", "rent", "family"], n),
        "opened": pandas.Timestamp("2024-01-01") + pandas.to_timedelta(rng.integers(0, 900, n), "D"),
        "late": rng.random(n) < 0.4,
    })  # fmt: skip
    frame.loc[rng.random(n) < 0.2, "income"] = None
    wanted = {
        "y :- home = rent, late.": (frame.home == "rent") & frame.late,
        'y :- late, opened >= "2025".': (frame.opened >= "2025-01-01") & frame.late,
        "y :- income is missing, not late.": frame.income.isna() & ~frame.late,
    }
    for text, y in wanted.items():
        classifier = lg.RuleClassifier().fit(frame, y)
        assert [str(rule) for rule in classifier.rules_] == [text]
        assert (classifier.predict(frame) == y).all()
        assert lg.parse(text).atoms == classifier.program_.atoms
    named = lg.RuleClassifier().fit(frame, frame["late"])  # y has the name of a column
    assert [str(rule) for rule in named.rules_] == ["y :- late."]


def test_ordered_categories_and_bins_are_cut_in_order():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    x = rng.random(1500)
    names = ["none", "few", "some", "many", "all"]
    bins = pandas.cut(pandas.Series(x), 5, labels=names)
    y = (x >= 0.4) ^ (rng.random(1500) < 0.05)
    classifier = lg.RuleClassifier(form="rules").fit({"amount": bins}, y)
    (rule,) = classifier.rules_
    assert set(lg.logic.Condition.parse(*rule.body).value) == {"some", "many", "all"}
    # Intervals are texts, and zones of time do not matter.
    found = lg.RuleClassifier(form="rules").fit({"amount": pandas.cut(pandas.Series(x), 5)}, y)
    assert (
        found.predict({"amount": pandas.cut(pandas.Series(x), 5)}) == (bins.cat.codes >= 2)
    ).all()
    rows = [{"amount": one} for one in found._columns[0].order] + [
        {"amount": one} for one in pandas.cut(pandas.Series(x), 5).cat.categories
    ]
    decide = lg.Decider(found.program_, ["y"])
    expected = [False, False, True, True, True] * 2
    assert [decide(row).answers["y"] for row in rows] == expected
    assert ["rule 1 applies" in found.explain(row) for row in rows] == expected
    intervals = pandas.DataFrame(
        {"amount": pandas.arrays.IntervalArray([r["amount"] for r in rows[5:]])}
    )
    for table in (intervals, intervals.astype("category"), intervals.astype(object)):
        assert (
            decide.many(table).answers["y"].tolist()
            == found.predict(table).tolist()
            == expected[5:]
        )
    days = pandas.date_range("2024-01-01", periods=400, tz="Europe/Berlin")
    late = lg.RuleClassifier().fit({"day": days}, np.arange(400) >= 100)
    assert [str(rule) for rule in late.rules_] == ['y :- day >= "2024-04-09".']  # in UTC


def test_several_values_of_a_category_become_a_set():
    rng = np.random.default_rng(0)
    city = rng.choice(list("abcdefgh"), 2000)
    y = np.isin(city, list("bdg")) ^ (rng.random(2000) < 0.05)
    classifier = lg.RuleClassifier(form="rules").fit({"city": city}, y)
    assert [str(rule) for rule in classifier.rules_] == ["y :- city in {b, d, g}."]
    assert "in {'b', 'd', 'g'}" in classifier.to_python()  # in the same order in every process


def test_thresholds_are_short_and_split_the_sample():
    rng = np.random.default_rng(0)
    for _ in range(200):
        low, high = np.sort(rng.normal(size=2) * 10.0 ** rng.integers(-6, 9))
        cut = columns.between(low, high)
        assert low < cut <= high
        # No multiple of a larger power of ten is inside.
        digits = len(repr(cut).replace(".", "").replace("-", "").strip("0").partition("e")[0])
        assert digits <= len(repr(float(high)))


def test_numbers_as_texts_are_noticed():
    ages = [str(age) for age in range(18, 70)] * 4
    note = "column 'age' holds numbers as texts{}; convert it to numbers, with missing values, if "
    late = [int(age) < 30 for age in ages]
    assert note.format("") in lg.RuleClassifier().fit({"age": ages}, late).summary()
    lines = [f"{'n.a.' if i % 7 == 0 else age},{int(age) < 30:d}" for i, age in enumerate(ages)]
    found = lg.fit(io.StringIO("\n".join(["age,late", *lines])), label="late").summary()
    assert note.format(", beside texts such as 'n.a.'") in found
    codes = lg.RuleClassifier().fit({"age": [age[1] for age in ages]}, late)
    assert not any("numbers as texts" in note for note in codes.notes_)


def test_missing_values_meet_no_comparison():
    X = {"a": [None, 1.0, 2.0, 3.0] * 50}
    classifier = lg.RuleClassifier().fit(X, [0, 0, 1, 1] * 50)
    assert classifier.predict({"a": [None, 2.5]}).tolist() == [0, 1]


@pytest.mark.slow
def test_repeated_rows_count_as_their_weight():
    X, y = planted(3)
    rng = np.random.default_rng(0)
    weights = rng.integers(0, 4, len(y))
    once = lg.RuleClassifier().fit(X, y, weights)
    often = lg.RuleClassifier().fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    assert once.rules_ == often.rules_
    assert np.allclose(once.predict_proba(X), often.predict_proba(X))


def test_class_weights_move_decisions_and_not_probabilities():
    rng = np.random.default_rng(0)
    X = rng.random((2000, 3)) < 0.5
    y = X[:, 0] & (rng.random(2000) < 0.3)
    plain = lg.RuleClassifier().fit(X, y)
    balanced = lg.RuleClassifier(class_weight="balanced").fit(X, y)
    assert not plain.predict(X).any()
    assert (balanced.predict(X) == X[:, 0]).all()
    assert np.allclose(plain.predict_proba(X), balanced.predict_proba(X))
    assert [str(rule) for rule in balanced.rules_] == ["y :- x0."]
    with pytest.raises(lg.errors.ArgumentError, match="names 'a', but the classes are"):
        lg.RuleClassifier(class_weight={"a": 2}).fit(X, y)


# ---- What was learned: program, code, explanations


def mixed(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    X = {
        "age": np.where(rng.random(n) < 0.1, np.nan, rng.integers(18, 80, n)),
        "home": rng.choice(["own", "rent", "it's"], n),
        "late": rng.random(n) < 0.3,
    }
    z = -1.0 + 2.0 * (X["age"] < 40) + 1.0 * X["late"] - 1.5 * (X["home"] == "it's")
    return X, rng.random(n) < 1 / (1 + np.exp(-z))


@pytest.mark.parametrize("form", ["rules", "points"])
def test_program_python_and_sql_say_what_the_classifier_says(form):
    X, y = mixed()
    classifier = lg.RuleClassifier(form=form, class_weight={True: 1.7}).fit(X, y)
    assert classifier.class_rules_[0].bodies
    p = classifier.predict_proba(X)[:, 1]
    # The program decides as predict does.
    program = classifier.program_
    wanted = [lg.logic.Condition.parse(name) for name in program.atoms]
    facts = np.zeros((len(y), program.M), bool)
    for i, condition in enumerate(wanted):
        if condition is not None:
            facts[:, i] = condition.mask(X[condition.column])
        elif program.atoms[i] in X:
            facts[:, i] = X[program.atoms[i]]
    derived = lg.closures(program, facts)[:, program.index["y"]]
    assert (derived == classifier.predict(X)).all()
    decider = lg.Decider(program, ["y"])
    for i in range(0, 200, 7):
        request = {name: values[i].item() for name, values in X.items()}
        assert decider(request).answers["y"] == derived[i]
    # So do the function and the query.
    space: dict = {}
    exec(classifier.to_python(), space)
    rows = [{name: values[i].item() for name, values in X.items()} for i in range(200)]
    assert np.allclose([space["p_0"](row) for row in rows], p[:200])
    assert space["p_0"]({}) == pytest.approx(
        classifier.predict_proba({"age": [None], "home": [None], "late": [None]})[0, 1]
    )
    with contextlib.closing(sqlite3.connect(":memory:")) as base:
        base.create_function("EXP", 1, math.exp)
        base.execute("CREATE TABLE data (age REAL, home TEXT, late BOOLEAN)")
        cells = [(None if math.isnan(r["age"]) else r["age"], r["home"], r["late"]) for r in rows]
        base.executemany("INSERT INTO data VALUES (?, ?, ?)", cells)
        found = [row[-1] for row in base.execute(classifier.to_sql())]
    assert np.allclose(found, p[:200])
    document = json.loads(classifier.to_json())
    assert document["outputs"][0]["form"] == form
    assert len(document["outputs"][0]["rules"]) == len(classifier.class_rules_[0].bodies)


def test_the_smallest_sets_of_points_are_those_of_enumeration():
    from latentgamma.learning.class_rules import _smallest_sets

    rng = np.random.default_rng(0)
    for _ in range(50):
        values = sorted(rng.integers(1, 6, rng.integers(0, 7)).tolist(), reverse=True)
        needed = float(rng.integers(-2, 12)) + 0.5
        enough = [set(s) for k in range(len(values) + 1) for s in itertools.combinations(range(len(values)), k)
                  if sum(values[i] for i in s) > needed]  # fmt: skip
        minimal = [s for s in enough if not any(other < s for other in enough)]
        found = [set(s) for s in _smallest_sets(values, needed)]
        assert sorted(map(sorted, found)) == sorted(map(sorted, minimal))


def test_the_rule_table_counts_rows():
    X, y = planted(0)
    classifier = lg.RuleClassifier().fit(X, y)
    rule, rest = classifier.rule_table()
    rows = X[:, 0] & ~X[:, 1]
    assert (rule.support, rest.support) == (rows.sum(), (~rows).sum())
    assert rule.precision == pytest.approx(y[rows].mean())
    assert rule.recall == pytest.approx(y[rows].sum() / y.sum())
    assert rule.lift == pytest.approx(y[rows].mean() / y.mean())
    assert rule.interval[0] < rule.precision < rule.interval[1]
    text = classifier.summary()
    assert "y :- x0, not x1." in text
    assert "log-loss in cross-validation" in text


def test_rules_are_features_for_other_models():
    X, y = planted(0)
    classifier = lg.RuleClassifier()
    assert (classifier.fit_transform(X, y)[:, 0] == (X[:, 0] & ~X[:, 1])).all()
    assert classifier.get_feature_names_out().tolist() == ["x0, not x1"]


def test_a_row_is_explained_with_its_values():
    X, y = mixed()
    listed = lg.RuleClassifier(form="rules").fit({"age": np.arange(200.0)}, np.arange(200) >= 60)
    assert listed.explain({"age": 90}).splitlines()[1] == "  rule 1 applies: age >= 60 (age is 90)"
    assert "does not apply: age >= 60 (age is missing)" in listed.explain({})
    scored = lg.RuleClassifier(form="points").fit(X, y)
    assert "(late is true)" in scored.explain({"age": 30, "home": "own", "late": True})
    assert "(late is missing)" in scored.explain({"age": 30, "home": "own"})
    with pytest.raises(lg.errors.DataError, match="columns that fit did not see: agee"):
        listed.explain({"agee": 3})
    with pytest.raises(
        lg.errors.DataError, match="expected a number as in fit, but found a category"
    ):
        listed.explain({"age": "old"})


@pytest.mark.parametrize("form", ["rules", "points"])
def test_an_explanation_has_the_probabilities_of_predict_proba(form):
    rng = np.random.default_rng(3)
    X = {"a": rng.normal(size=600).round(2), "b": rng.choice(["u", "v"], 600)}
    noise = rng.random(600) < 0.2
    for y in (X["a"] > 0, np.digitize(X["a"], [-0.5, 0.5]) + (X["b"] == "u")):
        y = np.where(noise, rng.permutation(y), y)
        classifier = lg.RuleClassifier(form=form).fit(X, y)
        for i in range(20):
            text = classifier.explain({"a": X["a"][i], "b": X["b"][i]})
            said = [line.split()[3] for line in text.splitlines() if ": p = " in line]
            p = classifier.predict_proba({name: [X[name][i]] for name in X})[0]
            assert said == [f"{one:.2f}" for one in (p[1:] if len(p) == 2 else p)]


@pytest.mark.parametrize("form", ["rules", "points"])
def test_a_rule_can_be_dropped_and_the_cost_is_told(form):
    X, y = mixed()
    classifier = lg.RuleClassifier(form=form).fit(X, y)
    count = len(classifier.class_rules_[0].bodies)
    fewer = classifier.refit(X, y, drop=[1])
    assert len(fewer.class_rules_[0].bodies) == count - 1
    assert fewer.log_loss(X, y) > classifier.log_loss(X, y)
    assert "instead of" in fewer.notes_[0]
    same = classifier.refit(X, y)
    assert np.allclose(same.predict_proba(X), classifier.predict_proba(X))
    with pytest.raises(lg.errors.ArgumentError, match="there is no rule 99"):
        classifier.refit(X, y, drop=[99])


def test_a_rule_can_be_edited_and_the_cost_is_told():
    X, y = mixed()
    classifier = lg.RuleClassifier(form="rules").fit(X, y)
    edited = classifier.refit(X, y, edit={1: "age < 45, not late"})
    rows = (X["age"] < 45) & ~X["late"]
    first = edited.rule_table()[0]
    assert (first.body, first.support) == ("age < 45, not late", rows.sum())
    assert first.precision == pytest.approx(y[rows].mean())
    assert edited.log_loss(X, y) == pytest.approx(float(edited.notes_[0].split()[1]), abs=1e-4)
    same = classifier.refit(X, y, edit={1: f"y :- {classifier.rule_table()[0].body}."})
    assert np.allclose(same.predict_proba(X), classifier.predict_proba(X))
    for text, message in (
        ("aeg < 45", "edit: fit saw no column 'aeg'; it saw 'age', 'home', 'late'"),
        ("", "edit: a rule needs a condition"),
        ("not 18 <= age < 65", "edit: `not` takes one condition"),
        ("age", "'age' is a number; write what it is compared with"),
        ("age <", "a column is compared with a number"),
    ):
        with pytest.raises(lg.LatentGammaError, match=message):
            classifier.refit(X, y, edit={1: text})
    with pytest.raises(lg.errors.ArgumentError, match="there is no rule 9 for 'y' to edit"):
        classifier.refit(X, y, edit={9: "late"})


@pytest.mark.quick_first
@pytest.mark.parametrize("form", ["rules", "points"])
def test_rules_become_a_network_and_come_back(form):
    X, y = mixed()
    X["day"] = np.datetime64("2024-01-01") + np.arange(len(y)) % 700
    y = y | ((X["day"] >= np.datetime64("2025-06-01")) & X["late"])
    classifier = lg.RuleClassifier(form=form).fit(X, y)
    network = classifier.network(X).eval()
    # In eval it is the rules, also where values are missing and at the thresholds.
    assert np.allclose(network.predict_proba(X), classifier.predict_proba(X))
    certificate = network.certified().certificate
    assert certificate.holds
    by_age = next(row for row in classifier.rule_table() if row.body.startswith("age"))
    edit = re.sub(r"(age \S+) \d+", r"\1 50", by_age.body)
    worse = classifier.refit(X, y, edit={by_age.rule: edit})
    trained = worse.network(X).fit(X, y, steps=200)
    back = trained.extract(X, y)
    assert back.log_loss(X, y) < worse.log_loss(X, y) - 0.002
    # What is read back is what the network computes: only the numbers are estimated anew.
    if form == "rules":
        groups = {tuple(pair) for pair in np.round(
            [trained.predict_proba(X)[:, 1], back.predict_proba(X)[:, 1]], 9).T.tolist()}  # fmt: skip
        assert len(groups) == len({p for p, _ in groups}) == len(back.rule_table())
    with pytest.raises(lg.errors.ArgumentError, match="no rules to make a network of"):
        lg.RuleClassifier().fit(X, np.arange(len(y)) % 2).network(X)


def test_a_network_of_several_classes_is_the_classifier():
    X, _ = mixed(600)
    y = np.where(X["late"], "a", np.where(X["age"] < 40, "b", "c"))
    classifier = lg.RuleClassifier(form="rules").fit(X, y)
    network = classifier.network(X).eval()
    assert np.allclose(network.predict_proba(X), classifier.predict_proba(X))
    back = network.fit(X, y, steps=5).extract(X, y)
    assert (back.predict(X) == classifier.predict(X)).all()


def test_what_stands_for_the_label_or_for_another_column_is_said():
    X, y = planted(0, noise=0.0)
    copied = np.hstack([X, y[:, None], X[:, :1]])
    notes = lg.RuleClassifier().fit(copied, y).notes_
    assert any("column 'x6' alone decides every row" in note for note in notes)
    twice = lg.RuleClassifier().fit(np.hstack([X, X[:, :1]]), y)
    assert "x0 holds in the same rows as x6" in twice.summary()
    many = {"id": [f"n{i}" for i in range(len(y))], "a": X[:, 0]}
    assert lg.RuleClassifier().fit(many, y).notes_[0] == (
        "column 'id' has 500 categories; no rule uses it, since none is in 5 rows (is it an identifier?)"
    )
    with pytest.raises(lg.errors.DataError, match="column 2 has no name"):
        lg.RuleClassifier().fit({"a": X[:, 0], None: X[:, 1]}, y)
    age = np.arange(300) % 9 * 10
    grade = np.where(age < 35, "a", np.where(X[:300, 0], "b", "c"))
    notes = lg.RuleClassifier().fit({"age": age, "late": X[:300, 0]}, grade).notes_
    assert notes == [
        "column 'age' alone decides y(a) in every row: is it a copy of the label?"
    ]  # and not the label


# ---- Files


CSV = "income,home,default\n" + "".join(
    f"{20_000 + 500 * i},{'own' if i % 3 else 'rent'},{'yes' if i < 22 else 'no'}\n"
    for i in range(60)
)


def test_a_file_with_a_label_gives_rules(tmp_path):
    path = tmp_path / "loans.csv"
    path.write_text(CSV)
    classifier = lg.fit(path, label="default")
    assert [str(rule) for rule in classifier.rules_] == ["default :- income < 31000."]
    assert classifier.classes_.tolist() == ["no", "yes"]
    pandas = pytest.importorskip("pandas")
    assert lg.fit(pandas.read_csv(path), label="default").rules_ == classifier.rules_
    pandas.read_csv(path).to_parquet(tmp_path / "loans.parquet")
    assert lg.fit(tmp_path / "loans.parquet", label="default").rules_ == classifier.rules_
    with pytest.raises(lg.errors.ArgumentError, match="kind cannot be used with label"):
        lg.fit(path, label="default", kind="closures")
    with pytest.raises(lg.errors.ArgumentError, match="targets cannot be used with label"):
        lg.fit(path, np.zeros((3, 2)), label="default")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CSV.replace("20500", "much"), r"line 3, column 'income': 'much' is a text among numbers"),
        (CSV.replace("own,yes", "own,", 1), r"row 2, column 'default': the class is missing"),
        (CSV.replace("income,home", "home,home"), "two columns are called 'home'"),
        (CSV.replace("income,home", ",home"), "column 1 has no name"),
        (CSV.replace("yes", "no"), "loans.csv, column 'default' has only one class, 'no'"),
        (
            CSV.replace(",default", ",x"),
            r"label names a column loans.csv does not have: 'default'.*it has 'income'",
        ),
        ("default\nyes\nno\n", "has no column beside 'default'"),
        ("income,default\n", "has no rows"),
    ],
)
def test_a_bad_file_gets_one_clear_line(tmp_path, text, message):
    path = tmp_path / "loans.csv"
    path.write_text(text)
    with pytest.raises(lg.errors.DataError, match=message) as caught:
        lg.fit(path, label="default")
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_accepts_the_classifier():
    checks = pytest.importorskip("sklearn.utils.estimator_checks")
    results = checks.check_estimator(lg.RuleClassifier(), on_fail=None, on_skip=None)
    failed = [one["check_name"] for one in results if one["status"] not in ("passed", "skipped")]
    assert not failed


@pytest.mark.parametrize(
    "column", [[[1]] * 20, [10**400] * 20, 5, "text", np.array([b"x", b"y"] * 10)]
)
def test_columns_of_other_things_are_refused_in_one_line(column: object) -> None:
    with pytest.raises(lg.errors.DataError, match="column 'a'"):
        lg.RuleClassifier().fit({"a": column}, [0, 1] * 10)


def test_one_threshold_that_is_never_wrong_is_one_rule():
    for cut in (20, 50, 65):
        ages = np.arange(100)
        classifier = lg.RuleClassifier().fit({"age": ages}, ages >= cut)
        assert [str(rule) for rule in classifier.rules_] == [f"y :- age >= {cut}."]


def test_exports_read_truth_values_dates_and_times_as_databases_have_them():
    rng = np.random.default_rng(2)
    n = 300
    start = datetime.datetime(2025, 1, 1)
    times = [start + datetime.timedelta(minutes=int(m)) for m in rng.integers(0, 40 * 1440, n)]
    X = {
        "late": [None if r < 0.2 else bool(r < 0.6) for r in rng.random(n)],
        "opened": times,
    }
    late = np.array([one is True for one in X["late"]])
    after = np.array([time >= datetime.datetime(2025, 1, 20, 12, 30) for time in times])
    for y in (late, np.array([one is False for one in X["late"]]), after, late & after):
        classifier = lg.RuleClassifier().fit(X, y)
        p = classifier.predict_proba(X)[:, 1]
        assert ((p > 0.5) == y).all()
        space: dict = {}
        exec(classifier.to_python(), space)
        rows = [dict(zip(X, cells, strict=True)) for cells in zip(*X.values(), strict=True)]
        assert np.allclose([space["p_0"](row) for row in rows], p)
        with contextlib.closing(sqlite3.connect(":memory:")) as base:
            base.execute("CREATE TABLE data (late BOOLEAN, opened TIMESTAMP)")
            for separator in " T":
                cells = [(row["late"], row["opened"].isoformat(separator)) for row in rows]
                base.execute("DELETE FROM data")
                base.executemany("INSERT INTO data VALUES (?, ?)", cells)
                assert np.allclose([row[-1] for row in base.execute(classifier.to_sql())], p)


def test_the_exponent_of_several_classes_makes_the_labels_likeliest():
    rng = np.random.default_rng(5)
    p = rng.uniform(0.05, 0.95, (300, 3))
    scores = np.log(p) - 0.7 * np.log(1 - p) + rng.gumbel(size=p.shape)
    labels = np.eye(3, dtype=bool)[scores.argmax(1)]
    weights = rng.integers(1, 4, 300).astype(float)

    def description(t):
        shares = p / (1 - p) ** t
        return -weights @ np.log((shares / shares.sum(1, keepdims=True))[labels]) + 8 * t * t

    found = class_rules.fit_exponent(p, labels, weights)
    assert 0.4 < found < 0.9
    assert found == pytest.approx(min(np.linspace(0, 1, 1001), key=description), abs=0.002)
    repeated = np.repeat(np.arange(300), weights.astype(int))
    assert class_rules.fit_exponent(p[repeated], labels[repeated], np.ones(len(repeated))) == found
    # Probabilities of classes that sum to one and are right stay as they are.
    p = rng.dirichlet(np.ones(3), 3000)
    labels = np.eye(3, dtype=bool)[(np.log(p) + rng.gumbel(size=p.shape)).argmax(1)]
    assert class_rules.fit_exponent(p, labels, np.ones(3000)) < 0.1


def test_a_class_that_the_rules_of_all_agree_on_is_surer_than_its_share():
    x = np.arange(90)
    classifier = lg.RuleClassifier().fit({"x": x}, np.array(list("abc"))[x // 30])
    alone = np.stack([one.probability(classifier._read({"x": x}), 90)
                      for one in classifier.class_rules_], axis=1)  # fmt: skip
    shares = alone.max(1) / alone.sum(1)
    assert (classifier.predict_proba({"x": x}).max(1) > shares).all()


def test_exports_of_several_classes_sum_to_one():
    rng = np.random.default_rng(11)
    x, z = rng.normal(size=400), rng.normal(size=400)
    y = np.where(x > 0.5, "a", np.where(z > 0.3, "b", "c"))
    y = np.where(rng.random(400) < 0.15, rng.permutation(y), y)
    classifier = lg.RuleClassifier().fit({"x": x, "z": z}, y)
    assert classifier.to_dict()["exponent"] > 0
    expected = classifier.predict_proba({"x": x, "z": z})
    space: dict = {}
    exec(classifier.to_python(), space)
    rows = [{"x": a, "z": b} for a, b in zip(x, z, strict=True)]
    found = [space["probabilities"](row) for row in rows]
    assert list(found[0]) == ["a", "b", "c"]
    assert np.allclose([list(one.values()) for one in found], expected)
    with contextlib.closing(sqlite3.connect(":memory:")) as base:
        base.create_function("EXP", 1, math.exp)
        base.create_function("POWER", 2, math.pow)
        base.execute("CREATE TABLE data (x REAL, z REAL)")
        base.executemany("INSERT INTO data VALUES (?, ?)", zip(x, z, strict=True))
        assert np.allclose([row[-3:] for row in base.execute(classifier.to_sql())], expected)


@pytest.mark.parametrize("labels", [["yes", "no"], ["a", "b", "c"]])
def test_columns_of_a_query_have_names_that_the_table_does_not_have(labels):
    x = np.arange(300)
    y = np.array(labels)[x // (300 // len(labels))]
    X = {"x": x, **{f"{word}_{label}": x % 2 for word in ("p", "P", "score") for label in labels}}
    X["P_y"] = X["p_y"] = x % 2
    classifier = lg.RuleClassifier().fit(X, y)
    with contextlib.closing(sqlite3.connect(":memory:")) as base:
        base.create_function("EXP", 1, math.exp)
        base.create_function("POWER", 2, math.pow)
        names = [f'"{name}{"_2" * name.startswith("P")}"' for name in X]
        base.execute(f"CREATE TABLE data ({', '.join(f'{name} REAL' for name in names)})")
        cells = np.stack(list(X.values()), axis=1).tolist()
        base.executemany(f"INSERT INTO data VALUES ({', '.join('?' * len(X))})", cells)
        found = base.execute(classifier.to_sql())
        shown = [column[0].casefold() for column in found.description]
        rows = found.fetchall()
    assert len(set(shown)) == len(shown)
    p = classifier.predict_proba(X)[:, -1]
    assert np.allclose([row[-1] for row in rows], p)


def test_a_class_that_is_never_predicted_can_be_asked_for():
    rng = np.random.default_rng(2)
    x = rng.integers(0, 10, 1200)
    y = rng.random(1200) < np.where(x >= 7, 0.3, 0.03)
    pd = pytest.importorskip("pandas")
    classifier = lg.RuleClassifier().fit(pd.DataFrame({"x": x}), pd.Series(y, name="fraud"))
    assert any("'fraud' is never predicted" in note or "fraud is never predicted" in note
               for note in classifier.notes_)  # fmt: skip
    table = {"x": [1, 8]}
    assert not lg.Decider(classifier.program_, "fraud").many(table).answers["fraud"].any()
    gaps = pd.DataFrame({"b": pd.array([True, False, None, True] * 100, dtype="boolean")})
    assert lg.RuleClassifier().fit(gaps, [1, 0, 0, 1] * 100).predict(gaps)[:4].tolist() == [
        1,
        0,
        0,
        1,
    ]


def test_a_file_with_true_and_false_is_read_as_a_frame_is():
    rng = np.random.default_rng(3)
    late, z = rng.random(200) < 0.4, rng.normal(size=200)
    lines = [f"{a},{b!r},{int(a and b > 0)}" for a, b in zip(late, z.tolist(), strict=True)]
    classifier = lg.fit(io.StringIO("\n".join(["late,z,y", *lines])), label="y")
    assert [str(rule) for rule in classifier.rules_] == ["y :- late, z >= 0."]
    assert (classifier.predict({"late": late, "z": z}) == (late & (z > 0))).all()


def test_a_class_that_is_never_decided_can_be_asked_for():
    rng = np.random.default_rng(4)
    X = {"age": rng.normal(size=60)}
    classifier = lg.RuleClassifier().fit(X, rng.random(60) < 0.2)
    assert classifier.rules_ == ()
    decider = lg.Decider(classifier.program_, ["y"], unknown="ignore")
    assert not decider({"age": 1.0}).answers["y"]
    # The column of the label says nothing where the rows of fit are decided.
    assert not decider.many({**X, "y": np.ones(60, bool)}).answers["y"].any()
    assert str(classifier.program_) == "y :- y."
    few = lg.RuleClassifier().fit({"age": [1, 2, 3, 4]}, [0, 0, 0, 1])
    assert few.notes_ == ["y: no rule pays for itself; no condition tells enough rows apart"]
    with pytest.raises(
        lg.errors.ArgumentError, match="drop must be the numbers of rules in a list"
    ):
        classifier.refit(X, X["age"] > 0, drop=1)


def test_rules_of_points_have_no_condition_that_another_implies():
    rng = np.random.default_rng(5)
    x, z = rng.normal(size=(2, 2000))
    y = rng.random(2000) < 1 / (1 + np.exp(-(3 * x + z)))
    classifier = lg.RuleClassifier(form="points").fit({"x": x, "z": z}, y)
    bodies = classifier.class_rules_[0].bodies
    assert len(bodies) > len({literal.condition.column for (literal,) in bodies})
    conditions = [
        [lg.logic.Condition.parse(name) for name in rule.body] for rule in classifier.rules_
    ]
    for body in conditions:
        assert len({(one.column, one.op) for one in body}) == len(body)
    covers = [np.all([one.mask({"x": x, "z": z}[one.column]) for one in body], axis=0)
              for body in conditions]  # fmt: skip
    assert (np.any(covers, axis=0) == classifier.predict({"x": x, "z": z})).all()
    for i, one in enumerate(covers):  # each rule decides rows that no other does
        assert (one & ~np.any([*covers[:i], *covers[i + 1 :]], axis=0)).any()


def test_a_score_of_one_term_is_printed_as_a_rule():
    rng = np.random.default_rng(6)
    X = {"age": rng.integers(18, 90, 400)}
    y = (X["age"] >= 40) ^ (rng.random(400) < 0.1)
    classifier = lg.RuleClassifier(form="points").fit(X, y)
    low, high = sorted(set(classifier.predict_proba(X)[:, 1].round(2).tolist()))
    assert classifier.class_rules_[0].lines() == [
        f"y :- age >= 40.  % p = {high:.2f}", f"% otherwise p = {low:.2f}"
    ]  # fmt: skip


@pytest.mark.parametrize("form", ["rules", "points"])
@pytest.mark.parametrize("class_weight", [None, {"a": 1.0, "b": 2.0}])
def test_the_program_of_several_classes_derives_what_predict_says(form, class_weight):
    rng = np.random.default_rng(3)
    X = {"x": rng.normal(size=250).round(1), "z": rng.normal(size=250).round(1)}
    scores = np.stack([2 * X["x"], 2 * X["z"], np.zeros(250)], 1) + rng.normal(size=(250, 3))
    y = np.array(list("abc"))[scores.argmax(1)]
    classifier = lg.RuleClassifier(form=form, class_weight=class_weight).fit(X, y)
    heads = [one.head for one in classifier.class_rules_]
    decider = lg.Decider(classifier.program_, heads, unknown="ignore")
    grid = {"x": np.repeat(np.arange(-2, 2.1, 0.5), 9), "z": np.tile(np.arange(-2, 2.1, 0.5), 9)}
    for i, expected in enumerate(classifier.predict(grid).tolist()):
        answers = decider({name: values[i] for name, values in grid.items()}).answers
        assert [head for head in heads if answers[head]] == [f"y({expected})"]


def test_both_ends_of_a_column_are_one_condition_in_text():
    age = np.random.default_rng(0).integers(0, 100, 600)
    X = {"age": age, "how late": np.zeros(600)}
    classifier = lg.RuleClassifier().fit(X, (age >= 18) & (age < 65))
    (row, _) = classifier.rule_table()
    assert row.body == "18 <= age < 65"
    edited = classifier.refit(X, (age >= 18) & (age < 65), edit={1: "y :- 20 <= age < 65."})
    assert edited.rule_table()[0].body == "20 <= age < 65"
    assert {str(rule) for rule in edited.rules_} <= {
        "y :- age < 65, age >= 20.",
        "y :- age >= 20, age < 65.",
    }


@pytest.mark.parametrize("name", ["x >= 2", "it's"])
def test_both_ends_of_a_column_with_any_name_are_printed_and_read(name):
    age = np.random.default_rng(0).integers(0, 100, 600)
    y = (age >= 18) & (age < 65)
    classifier = lg.RuleClassifier().fit({name: age}, y)
    (row, _) = classifier.rule_table()
    quoted = name.replace("'", "\\'")
    assert row.body == f"18 <= '{quoted}' < 65"
    edited = classifier.refit({name: age}, y, edit={1: row.body})
    assert edited.class_rules_[0].bodies == classifier.class_rules_[0].bodies


@pytest.mark.parametrize("seed", [1, 11])
def test_one_threshold_with_wrong_labels_is_one_condition(seed):
    rng = np.random.default_rng(seed)
    X = np.round(100 * rng.random((300, 2)), 1)
    y = (X[:, 0] >= 40) ^ (rng.random(300) < 0.2)
    (found,) = lg.RuleClassifier(form="points").fit(X, y).class_rules_
    assert [len(found.bodies), found.bodies[0][0].condition.column] == [1, "x0"]


def test_two_parts_of_a_rule_become_one():
    values = np.random.default_rng(0).integers(0, 100, (400, 2)).astype(float)
    true = (values < 60).all(1)
    table = columns.literals_of(columns.read_columns(values), np.ones(400)).literals
    search = lists.ListSearch(table, np.stack([true, ~true], 1).astype(float), 5)
    place = {str(name): j for j, name in enumerate(table.names)}
    low, high = [[name for name in place if name.startswith(f"x{c} <")] for c in (0, 1)]
    parts = [(place[low[7]], place[high[2]]), (place[low[2]], place[high[7]])]
    (merged,) = search._move_thresholds(search._merge(parts))
    assert sorted(str(table.names[j]) for j in merged) == ["x0 < 60", "x1 < 60"]


def test_numbers_other_than_those_of_fit_are_true_above_one_half_in_every_form():
    late = np.arange(40) % 2
    classifier = lg.RuleClassifier().fit({"late": late}, late == 1)
    cells = [0.0, -0.0, 1.0, 0.25, 0.5, 0.75, 1e-9, None, 7.0, -1.0]
    expected = [0, 0, 1, 0, 0, 1, 0, 0, 1, 0]
    assert classifier.predict({"late": cells}).tolist() == expected
    space: dict = {}
    exec(classifier.to_python(), space)
    assert [space["p_0"]({"late": cell}) > 0.5 for cell in cells] == expected
    with contextlib.closing(sqlite3.connect(":memory:")) as base:
        base.execute("CREATE TABLE data (late)")
        base.executemany("INSERT INTO data VALUES (?)", [(cell,) for cell in cells])
        assert [row[-1] > 0.5 for row in base.execute(classifier.to_sql())] == expected
    decide = lg.Decider(classifier.program_, ["y"])
    assert [decide({"late": cell}).answers["y"] for cell in cells[:7]] == expected[:7]
    with pytest.raises(lg.errors.DataError, match="a fact is true or false"):
        decide({"late": 7})


def test_rules_for_the_other_class_are_found_where_they_are_shorter():
    rng = np.random.default_rng(0)
    X = rng.random((1500, 8))
    y = (X[:, 0] < 0.7) & (X[:, 1] < 0.7) & (X[:, 2] < 0.7) & (X[:, 3] < 0.7)
    y ^= rng.random(1500) < 0.05
    found = [lg.RuleClassifier(form="rules").fit(X, labels) for labels in (y, ~y)]
    (one, other) = (classifier.predict_proba(X) for classifier in found)
    assert np.allclose(one[:, ::-1], other)
    assert [classifier.class_rules_[0].form.literals for classifier in found] == [4, 4]


def test_categories_of_pandas_that_are_numbers_are_not_cut_in_order():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(1)
    grade = rng.integers(1, 9, 600)
    y = np.isin(grade, [2, 5, 7]) ^ (rng.random(600) < 0.05)
    frame = pandas.DataFrame({"grade": pandas.Categorical(grade)})
    for form in ("rules", "points"):
        classifier = lg.RuleClassifier(form=form).fit(frame, y)
        assert [str(rule) for rule in classifier.rules_] == ["y :- grade in {2, 5, 7}."]
        decide = lg.Decider(classifier.program_, ["y"])
        assert [decide({"grade": k}).answers["y"] for k in (4, 5)] == [False, True]
        assert classifier.predict(pandas.DataFrame({"grade": [4, 5]})).tolist() == [False, True]


def test_yes_and_no_are_the_label_itself_whatever_their_letters():
    ages = {"age": list(range(40))}
    for no, yes in (("No", "Yes"), ("N", "Y"), ("FALSE", "TRUE"), (0, 1)):
        classifier = lg.RuleClassifier().fit(ages, [yes if age < 18 else no for age in range(40)])
        assert [str(rule) for rule in classifier.rules_] == ["y :- age < 18."]


def test_a_network_needs_torch(monkeypatch):
    ages = {"age": list(range(40))}
    classifier = lg.RuleClassifier().fit(ages, [age < 18 for age in range(40)])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(lg.errors.MissingPackageError, match=r"pip install 'latentgamma\[torch\]'"):
        classifier.network(ages)


def test_the_summary_says_points_only_where_there_are_points():
    rng = np.random.default_rng(0)
    ages = {"age": rng.permutation(80).astype(float), "x": rng.random(80)}
    rules = lg.RuleClassifier().fit(ages, ages["age"] < 30)
    assert re.search(r"^rule +if +p +rows", rules.summary(), re.MULTILINE)
    one_term = lg.RuleClassifier(form="points").fit(ages, ages["age"] < 30)
    assert re.search(r"^rule +if +p +rows", one_term.summary(), re.MULTILINE)
    large = lg.RuleClassifier().fit({"id": 2**53 + 2 * np.arange(80)}, np.arange(80) < 30)
    assert "numbers from 2^53 on" in large.summary()


def test_balanced_classes_that_tie_are_decided_alike_by_predict_and_the_program():
    rng = np.random.default_rng(0)
    for classes in (2, 3):
        for n in (7, 11, 19, 23, 29):
            y = np.arange(n) % 7 % classes  # rates such as 3/7
            X = {"z": rng.random(n)}
            classifier = lg.RuleClassifier(class_weight="balanced").fit(X, y)
            assert not any(one.bodies for one in classifier.class_rules_)
            heads = [one.head for one in classifier.class_rules_]
            answers = lg.Decider(classifier.program_, heads)({}).answers
            derived = [one for one, head in enumerate(heads) if answers[head]]
            assert set(classifier.predict(X)) == {0}
            assert derived == ([] if classes == 2 else [0])


def test_a_truth_value_can_be_missing_or_a_text_after_fit():
    rng = np.random.default_rng(0)
    late = rng.random(60) < 0.4
    for y in (late, ~late):
        classifier = lg.RuleClassifier().fit({"late": late}, y)
        yes, no = (classifier.predict_proba({"late": [value]})[0, 1] for value in (True, False))
        given = [None, True, False]
        assert classifier.predict_proba({"late": given})[:, 1].tolist() == [no, yes, no]
        texts = classifier.predict_proba({"late": ["True", None, "false"]})[:, 1].tolist()
        assert texts == [yes, no, no]
        with pytest.raises(lg.errors.DataError, match="expected a boolean as in fit"):
            classifier.predict({"late": ["often", None]})
        space: dict = {}
        exec(classifier.to_python(), space)
        cells = [
            "true",
            "True",
            "1",
            True,
            1,
            1.0,
            "false",
            "False",
            "0",
            "",
            None,
            False,
            0,
            0.0,
        ]
        expected = [yes] * 6 + [no] * 8
        assert [space["p_0"]({"late": cell}) for cell in cells] == expected
        with contextlib.closing(sqlite3.connect(":memory:")) as base:
            base.execute("CREATE TABLE data (late)")
            base.executemany("INSERT INTO data VALUES (?)", [(cell,) for cell in cells])
            assert [row[-1] for row in base.execute(classifier.to_sql())] == expected


def test_every_sum_that_points_can_have_is_printed():
    rng = np.random.default_rng(1)
    X = rng.random((3000, 4)) < 0.5
    y = rng.random(3000) < 1 / (1 + np.exp(2 - X @ [0.5, 1.1, 1.8, 2.9]))
    (found,) = (classifier := lg.RuleClassifier(form="points").fit(X, y)).class_rules_
    totals = sorted(set((classifier.transform(X) @ list(found.form.score.points)).tolist()))
    assert len(totals) > 8
    printed = [part for line in found.lines() if line.startswith("% sum ")
               for part in line.removeprefix("% sum ").split("; ")]  # fmt: skip
    assert [int(part.split(":")[0]) for part in printed] == totals


def test_rules_as_features_come_in_the_frame_that_is_asked_for():
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame({"a": [0, 1] * 20, "b": [0, 0, 1, 1] * 10}, index=range(100, 140))
    classifier = lg.RuleClassifier().fit(X, X["a"] & X["b"]).set_output(transform="pandas")
    frame = classifier.transform(X)
    assert list(frame.columns) == list(classifier.get_feature_names_out())
    assert (frame.index == X.index).all()
    assert (frame.iloc[:, 0] == (X["a"] & X["b"])).all()
    assert isinstance(classifier.set_output(transform="default").transform(X), np.ndarray)
    with pytest.raises(lg.errors.ArgumentError, match="transform"):
        classifier.set_output(transform="excel")


def test_one_threshold_with_wrong_labels_is_not_two():
    rng = np.random.default_rng(1400)
    X = {"age": rng.integers(18, 90, 400), "z": rng.normal(size=400).round(2)}
    X["w"], cut = rng.choice(list("abc"), 400), rng.integers(25, 80)
    y = (X["age"] >= cut) ^ (rng.random(400) < 0.15)
    (found,) = lg.RuleClassifier().fit(X, y).class_rules_
    assert [[str(one) for one in body] for body in found.bodies] == [["age >= 55"]]


def test_a_column_that_was_empty_in_fit_may_hold_anything_later():
    X = {"a": [0, 1] * 20, "empty": [None] * 40, "nan": [float("nan")] * 40}
    classifier = lg.RuleClassifier().fit(X, X["a"])
    later = {"a": [0, 1], "empty": ["text", None], "nan": [3.5, 7]}
    assert classifier.predict(later).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c, X, y: c.explain(5), "explain takes one row, a dictionary or a list"),
        (
            lambda c, X, y: c.explain(pytest.importorskip("polars").DataFrame(X)[0]),
            "explain takes one row, such as table.iloc.0., not a table",
        ),
        (lambda c, X, y: c.score(X, y[:3]), "X has 40 rows, but y has 3"),
        (lambda c, X, y: c.log_loss(X, y[:3]), "X has 40 rows, but y has 3"),
        (lambda c, X, y: c.fit("loans.csv", y), "is the path 'loans.csv'; lg.fit"),
        (lambda c, X, y: c.fit(X, np.array(y, "M8[D]")), "y has classes of type datetime64"),
        (
            lambda c, X, y: c.fit(X, [datetime.date(2026, 1, 1 + a) for a in y]),
            "of type date; write",
        ),
        (lambda c, X, y: c.fit([{"a": a} for a in X["a"]], y), "X is rows with names; give a data"),
        (
            lambda c, X, y: c.fit(np.array([(a,) for a in X["a"]], [("a", "i8")]), y),
            "X is rows with names; give a data frame",
        ),
        (
            lambda c, X, y: c.fit(pytest.importorskip("polars").LazyFrame(X), y),
            "X is of type LazyFrame; give a data frame",
        ),
        (lambda c, X, y: c.fit(X, y, progress=3), "progress must be a function"),
        (lambda c, X, y: c.fit(X, np.array([y, [0.5] * 40]).T), "y has several columns, and 'y1'"),
        (lambda c, X, y: c.predict({"b": X["a"]}), "column 1 of X is 'b', but was 'a' in fit"),
        (
            lambda c, X, y: lg.RuleClassifier(class_weight={0: 0, 1: 0}).fit(X, y),
            "class_weight must be above 0 for some class",
        ),
        (
            lambda c, X, y: c.fit({"a": [0, 5] * 20}, y).refit(X, y, edit={1: "a = b"}),
            "edit: 'a = b' compares a number with a text",
        ),
        (lambda c, X, y: c.refit(X, y, edit=[1]), "edit must be a dictionary"),
        (
            lambda c, X, y: lg.RuleClassifier(class_weight={1: math.inf}).fit(X, y),
            "class_weight must be numbers from 0 on, not inf",
        ),
        (lambda c, X, y: c.fit(X, y, [1e300] * 40), "sample_weight must be .* a sum below 2"),
        (lambda c, X, y: c.fit(X, [f"n{i}" for i in range(40)]), "a column of names or identif"),
        (
            lambda c, X, y: c.fit(X, np.ma.array(y, mask=[False, True] * 20)),
            "y, row 2: the class is missing",
        ),
    ],
)
def test_wrong_calls_are_refused_in_one_line(call, message):
    X, y = {"a": [0, 1] * 20}, [0, 1] * 20
    with pytest.raises(lg.errors.LatentGammaError, match=message):
        call(lg.RuleClassifier().fit(X, y), X, y)


def test_a_midnight_among_times_is_decided_as_in_the_table():
    start = np.datetime64("2025-01-01", "s")
    opened = start + 6 * 3600 * np.arange(200).astype("timedelta64[s]")  # every fourth is midnight
    y = opened >= np.datetime64("2025-01-20T00:00:00")
    classifier = lg.RuleClassifier().fit({"opened": opened}, y)
    assert (classifier.predict({"opened": opened}) == y).all()
    assert (classifier.predict({"opened": opened[::4]}) == y[::4]).all()
    decider = lg.Decider(classifier.program_, "y")
    assert (decider.many({"opened": opened}).answers["y"] == y).all()
    assert [decider({"opened": one}).answers["y"] for one in opened] == y.tolist()


def test_zoned_times_are_decided_as_they_were_learned():
    # Around a midnight of UTC, in another zone, and with parts of a second.
    west = datetime.timezone(datetime.timedelta(hours=-5))
    midnight = datetime.datetime(2024, 2, 4, tzinfo=datetime.UTC)
    for cut in (0, 1, 3600):
        steps = [datetime.timedelta(seconds=s + s % 120 / 240) for s in range(-7200, 7200, 60)]
        steps += [datetime.timedelta(seconds=cut), datetime.timedelta(seconds=cut - 1)]
        opened = [(midnight + step).astimezone(west) for step in steps]
        y = np.array([step.total_seconds() >= cut for step in steps])
        classifier = lg.RuleClassifier().fit({"opened": opened}, y)
        assert (classifier.predict({"opened": opened}) == y).all()
        decider = lg.Decider(classifier.program_, "y")
        assert (decider.many({"opened": opened}).answers["y"] == y).all()
        assert [decider({"opened": one}).answers["y"] for one in opened] == y.tolist()
        space: dict = {}
        exec(classifier.to_python(), space)
        assert [space["p_0"]({"opened": one}) > 0.5 for one in opened] == y.tolist()


def test_numbers_with_commas_in_a_file_are_refused(tmp_path):
    path = tmp_path / "prices.csv"
    path.write_text("price;y\n" + "".join(f"{i},{i % 10};{i % 2}\n" for i in range(40)))
    with pytest.raises(
        lg.errors.DataError, match=r"line 2, column 'price': '0,0' has a ','; write numbers"
    ):
        lg.fit(path, label="y")


def test_the_query_reads_no_column_that_is_called_true():
    rng = np.random.default_rng(0)
    X = {"True": rng.random(60) < 0.5, "late": rng.random(60) < 0.4}
    classifier = lg.RuleClassifier().fit(X, ~X["late"])
    with contextlib.closing(sqlite3.connect(":memory:")) as base:
        base.execute('CREATE TABLE data ("True", late)')
        base.executemany("INSERT INTO data VALUES (?, ?)", np.stack([*X.values()], 1).tolist())
        found = [row[-1] for row in base.execute(classifier.to_sql())]
    assert found == classifier.predict_proba(X)[:, 1].tolist()


def test_the_summary_says_which_class_each_line_is_about():
    age = np.arange(100.0)
    classifier = lg.RuleClassifier(form="rules").fit({"age": age}, age >= 60)
    edited = classifier.refit({"age": age}, age >= 60, edit={1: "age < 60"})
    assert edited.class_rules_[0].lines()[0].startswith("% y less often if age < 60: p = ")
    rare = lg.RuleClassifier(form="rules").fit({"age": age}, (age >= 60) & (age % 4 == 0))
    assert rare.class_rules_[0].lines()[0] == "% y more often if age >= 60: p = 0.25"
    assert rare.rules_ == ()
    (none,) = classifier.refit({"age": age}, age >= 60, drop=[1]).class_rules_
    assert none.lines() == ["% y: no rules, p = 0.40"]
    assert none.to_dict()["otherwise"] == none.form.base


def test_points_are_printed_in_the_order_of_their_numbers():
    X, y = mixed()
    classifier = lg.RuleClassifier(form="points").fit(X, y)
    (found,) = classifier.class_rules_
    for bodies in (found.bodies, found.bodies[::-1]):
        (one,) = classifier.with_bodies(X, y, [bodies]).class_rules_
        printed = [line.split(": ", 1)[1] for line in one.lines()[1 : len(bodies) + 1]]
        assert printed == [", ".join(map(str, body)) for body in bodies]


@pytest.mark.parametrize("name", ["x >= 2", "x<2", "x in {1, 2}", "x is missing", "2 { a; b }"])
@pytest.mark.parametrize("dtype", [bool, int, float])
def test_truth_values_with_the_name_of_a_condition_are_their_own_column(name, dtype):
    rng = np.random.default_rng(0)
    table = {"x": rng.integers(0, 5, 120), "a": rng.random(120) < 0.5, "b": rng.random(120) < 0.5}
    table[name] = (rng.random(120) < 0.5).astype(dtype)
    y = (table["x"] < 4) & (table[name] == 0)
    classifier = lg.RuleClassifier().fit(table, y)
    assert (classifier.predict(table) == y).all()
    decider = lg.Decider(classifier.program_, ["y"], unknown="ignore")
    assert (decider.many(table).answers["y"] == y).all()
    rule = str(classifier.rules_[0])
    edited = classifier.refit(table, y, edit={1: rule})
    assert (edited.predict_proba(table) == classifier.predict_proba(table)).all()


def test_a_label_with_the_name_of_a_condition_can_be_asked_for():
    table = {"x": np.arange(40) % 5, "x >= 2": np.arange(40) % 5 >= 2}
    classifier = lg.fit(table, label="x >= 2")
    (head,) = (one.head for one in classifier.class_rules_)
    decider = lg.Decider(classifier.program_, [head], unknown="ignore")
    assert (decider.many({"x": table["x"]}).answers[head] == table["x >= 2"]).all()


def test_a_fraction_of_wrong_labels_of_0_is_searched_for_exactly():
    table = {"a": [0, 0, 1, 1] * 10, "b": [0, 1, 0, 1] * 10, "y": [0, 1, 1, 0] * 10}
    assert lg.fit(table, label="y", noise=0.0).noise == 0.0
    auto, given = lg.fit(table, label="y", noise="auto"), lg.fit(table, label="y")
    assert auto.summary() == given.summary()
    with pytest.raises(
        lg.errors.ArgumentError, match="noise is for columns that are true or false"
    ):
        lg.fit({**table, "age": range(40)}, label="y", noise=0.0)


def test_missing_categories_are_missing(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    texts = ["de", None, "fr", "de"] * 2
    plain = columns.read_columns({"c": texts})[0]
    encoded = pa.table({"c": pa.array(texts).dictionary_encode()})
    parquet.write_table(encoded, tmp_path / "t.parquet")
    masked = np.ma.array(["de", "fr", "fr", "de"] * 2, mask=[False, True, False, False] * 2)
    tables = {
        "table": columns.read_columns(encoded),
        "file": columns.read_file(tmp_path / "t.parquet"),
        "masked": columns.read_columns({"c": masked}),
        "matrix": columns.read_columns(np.ma.array(masked).reshape(-1, 1)),
    }
    for kind, (found,) in tables.items():
        assert found.kind == plain.kind, kind
        assert found.values.tolist() == plain.values.tolist(), kind


def test_few_different_rows_do_not_let_noise_into_the_held_out_ones():
    found = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        X, y = {"x": rng.normal(size=2000)}, rng.random(2000) < 0.35
        found.append(lg.RuleClassifier().fit(X, y).class_rules_[0].form.name)
    assert found.count("nothing") >= 190


@pytest.mark.parametrize("scale", [1.0, 0.7, 1e12])
def test_folds_divide_the_rows_at_random(scale):
    rng = np.random.default_rng(0)
    table = columns.literals_of(columns.read_columns({"x": rng.integers(0, 3, 900)}), np.ones(900))
    weights = scale * np.eye(2)[rng.integers(0, 2, 900)]
    _, totals, folds = forms._folds(table.literals, weights, 0)
    np.testing.assert_allclose(sum(folds), totals)
    sizes = np.array([fold.sum(0) for fold in folds])
    assert (np.abs(sizes - totals.sum(0) / 5) < 2 + 1e-9 * totals.sum()).all()
    assert (np.std(folds, axis=0) > 1).all() == (scale < 1e9)


def test_columns_of_a_frame_may_have_the_names_of_methods_of_files():
    pandas = pytest.importorskip("pandas")
    read = np.arange(40.0)
    frame = pandas.DataFrame({"read": read, "name": read % 3, "write": read >= 18})
    classifier = lg.RuleClassifier().fit(frame[["read", "name"]], frame["write"])
    assert list(map(str, classifier.rules_)) == ["write :- read >= 18."]
    assert list(map(str, lg.fit(frame, label="write").rules_)) == ["write :- read >= 18."]


def test_options_that_would_have_no_effect_beside_noise_are_refused():
    X, y = planted(0)
    with pytest.raises(lg.errors.ArgumentError, match="noise finds rules, not points"):
        lg.RuleClassifier(noise=0.1, form="points").fit(X, y)
    with pytest.raises(lg.errors.ArgumentError, match="noise counts each row once"):
        lg.RuleClassifier(noise=0.1).fit(X, y, np.linspace(1, 2, len(y)))
    with pytest.raises(lg.errors.ArgumentError, match="and 'a' holds categories; leave noise out"):
        lg.RuleClassifier(noise=0.1).fit({"a": np.where(y, "u", "v")}, y)
    auto, given = lg.RuleClassifier(noise="auto").fit(X, y), lg.RuleClassifier().fit(X, y)
    assert auto.summary() == given.summary()


def test_an_edit_is_one_rule():
    X, y = mixed()
    classifier = lg.RuleClassifier(form="rules").fit(X, y)
    for text, message in (
        ("2 { age < 45; late; home = own }", "write the conditions of one rule, without counts"),
        ("late. y :- age < 45", "write the conditions of one rule, without counts"),
        ("late = true", "late is true or false; write late or not late"),
        ("late is missing", "late is true or false; write late or not late"),
    ):
        with pytest.raises(lg.errors.DataError, match=message):
            classifier.refit(X, y, edit={1: text})
    with pytest.raises(lg.errors.ArgumentError, match="rule 1 is in drop and in edit"):
        classifier.refit(X, y, drop=[1], edit={1: "late"})
    opened = np.datetime64("2025-01-01") + np.arange(len(y)) % 100
    dated = lg.RuleClassifier(form="rules").fit({"opened": opened}, np.arange(len(y)) % 100 < 40)
    with pytest.raises(lg.errors.DataError, match="'opened < 5' compares a date with a number"):
        dated.refit({"opened": opened}, np.arange(len(y)) % 100 < 40, edit={1: "opened < 5"})


def test_classes_that_are_whole_numbers_are_named_alike_in_every_type():
    ages = np.arange(90)
    for y, heads in (
        (ages >= 30, ["y"]),
        (ages // 30, ["y(0)", "y(1)", "y(2)"]),
        ((ages >= 30) + 4, ["y(5)"]),
    ):
        for dtype in (np.int64, np.float64):
            found = lg.RuleClassifier().fit({"age": ages}, y.astype(dtype))
            assert [one.head for one in found.class_rules_] == heads
            assert found.classes_.dtype == dtype


def test_names_of_outputs_are_those_of_no_column_and_of_no_other_output():
    rng = np.random.default_rng(0)
    X = {name: rng.random(300) < 0.5 for name in ("a", "b", "exception(c,1)", "at_least(y(1),1)")}
    y = np.stack([X["a"], X["b"]], axis=1)
    pandas = pytest.importorskip("pandas")
    found = lg.RuleClassifier().fit(X, pandas.DataFrame(y, columns=["a", "a'"]))
    heads = [one.head for one in found.class_rules_]
    assert heads == ["a'", "a''"]
    answers = lg.Decider(found.program_, heads, unknown="ignore").many(X).answers
    assert np.array_equal(np.stack([answers[head] for head in heads], axis=1), y)
    # The rules of a class derive other atoms beside that of the class.
    y = np.where(X["at_least(y(1),1)"], 1, 2 * X["exception(c,1)"])
    found = lg.RuleClassifier().fit(X, y)
    heads = [one.head for one in found.class_rules_]
    answers = lg.Decider(found.program_, heads, unknown="ignore").many(X).answers
    assert [[y[i]] for i in range(300)] == [
        [k for k, head in enumerate(heads) if answers[head][i]] for i in range(300)
    ]


@pytest.mark.parametrize("low", [-1e308, 5e-324, 1e308])
def test_numbers_of_any_size_are_learned_from(low):
    values = np.array([low, 1.5e308 if low > 1 else max(-low, 1e-323)])
    y = np.arange(40) % 2 == 0
    classifier = lg.RuleClassifier().fit({"a": np.where(y, *values)}, y)
    assert (classifier.predict({"a": np.where(y, *values)}) == y).all()


def test_numbers_in_a_column_of_texts_are_refused():
    texts = np.array(["0", "1", "a"] * 20)
    classifier = lg.RuleClassifier().fit({"a": texts}, texts == "1")
    for values in ([0, 1], [0, 2]):
        with pytest.raises(lg.errors.DataError, match="a category as in fit, but found a number"):
            classifier.predict({"a": values})


def test_times_are_learned_from_and_decided_alike_in_every_form(tmp_path):
    pandas = pytest.importorskip("pandas")
    west = datetime.timezone(datetime.timedelta(hours=-5))
    start = datetime.datetime(2024, 2, 3, 19, tzinfo=west)  # midnight in UTC
    zoned = [start + datetime.timedelta(minutes=6 * k) for k in range(400)]
    plain = [one.astimezone(datetime.UTC).replace(tzinfo=None) for one in zoned]
    forms = {
        "zoned": zoned,
        "plain": plain,
        "pandas": pandas.Series(zoned),
        "with a space": list(map(str, plain)),
        "with a T": [one.isoformat() for one in plain],
        "with a zone": list(map(str, zoned)),
        "in UTC": [one.isoformat() + "Z" for one in plain],
        "to a part of a second": [f"{one}.250" for one in plain],
    }
    for cut in (20, 239, 240, 300):  # 240 is a midnight
        y = np.arange(400) > cut
        for given in forms.values():
            classifier = lg.RuleClassifier().fit({"at": given}, y)
            decider = lg.Decider(classifier.program_, "y")
            space: dict = {}
            exec(classifier.to_python(), space)
            for name, values in forms.items():
                assert (classifier.predict({"at": values}) == y).all(), name
                assert (decider.many({"at": values}).answers["y"] == y).all(), name
                assert [decider({"at": one}).answers["y"] for one in values] == y.tolist(), name
                assert [space["p_0"]({"at": one}) > 0.5 for one in values] == y.tolist(), name
    for name, values in forms.items():  # the last classifier, and files that pandas writes
        path = tmp_path / "times.csv"
        pandas.DataFrame({"at": values, "y": y}).to_csv(path, index=False)
        assert str(lg.fit(path, label="y").program_) == str(classifier.program_), name
        assert [one.answers["y"] for one in decider.many(path)] == y.tolist(), name


def test_texts_in_a_column_of_dates_are_refused():
    opened = [f"2024-01-{day:02}" for day in range(1, 32)] * 3
    y = np.array([text > "2024-01-15" for text in opened])
    classifier = lg.RuleClassifier().fit({"opened": opened}, y)
    for wrong in ("31.01.2024", "2024-02-30"):
        with pytest.raises(lg.errors.DataError, match="expected a date as in fit"):
            classifier.predict({"opened": [wrong]})


@pytest.mark.parametrize("cells", [["1_000", "2_000"], ["１", "２"]])
def test_numbers_of_files_are_those_that_requests_can_have(tmp_path, cells):
    path = tmp_path / "x.csv"
    path.write_text("\n".join(["a,y", *(f"{cells[i % 2]},{i % 2}" for i in range(40))]))
    classifier = lg.fit(path, label="y")
    assert str(classifier.program_) == f"y :- {lg.logic.Condition('a', '=', cells[1]).name}."
    decided = lg.Decider(classifier.program_, "y").many(path)
    assert [one.answers["y"] for one in decided] == [i % 2 == 1 for i in range(40)]


def test_times_among_other_texts_are_the_same_in_every_export():
    texts = ["2026-01-31 08:30", "2026-02-01 00:00:00", "later", "2026-02-01T09:30:15"]
    X = {"at": np.array(texts * 30, object), "z": np.arange(120) % 7}
    for positive in ([0], [1], [3], [0, 3], [0, 2]):
        y = np.isin(np.arange(120) % 4, positive)
        classifier = lg.RuleClassifier(form="rules").fit(X, y)
        assert (classifier.predict(X) == y).all()
        assert (lg.Decider(classifier.program_, "y").many(X).answers["y"] == y).all()
        space: dict = {}
        exec(classifier.to_python(), space)
        assert [space["p_0"]({"at": one, "z": 1}) > 0.5 for one in X["at"]] == y.tolist()
        with contextlib.closing(sqlite3.connect(":memory:")) as database:
            database.execute("CREATE TABLE data (at, z)")
            database.executemany("INSERT INTO data VALUES (?, 1)", [(one,) for one in X["at"]])
            assert [p > 0.5 for _, _, p in database.execute(classifier.to_sql())] == y.tolist()


def test_an_end_of_an_interval_is_not_minus_zero():
    x = np.arange(-50.0, 50) / 100
    assert "(-0.01 to 0)" in lg.RuleClassifier().fit({"x": x}, x >= 0).summary()
    assert "-0 " not in lg.RuleClassifier().fit({"x": np.where(x > 0, x, -0.0)}, x > 0).summary()


def test_a_file_that_is_cut_elsewhere_is_refused_with_its_delimiter(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("income, monthly;y\n5;1\n")
    with pytest.raises(
        lg.errors.DataError, match=r"expected 2 cells, .* found 1, separated by ','"
    ):
        lg.fit(path, label="y")
    with pytest.raises(lg.errors.DataError, match="label 'y' is one of the ignored columns"):
        estimator.fit_table(path, "y", delimiter=";", ignore=("y",))
