"""Rules from ordinary tables: real ones beside other learners, planted rules, and many rows.

`real`: five-fold cross-validation on the tables of `--data FOLDER` (CSV files whose last column is
the label) and on those of scikit-learn, with `--seeds N` seeds. Others run where they are installed:
imodels, wittgenstein, interpret. Balanced accuracy decides at the rate of the class, for everyone.
`planted`: fresh seeds of three rules with wrong labels; how often the rules are about exactly those
columns, and how often all rows of the sample are decided as by the planted rules, as where every
threshold is in the gap of the sample; a wrong label beside a threshold can hide where it is. `noise`: labels that no column tells anything about.
`rows`: CPU seconds and memory of one fit.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import latentgamma as lg

Row = dict[str, Any]
#: Learners get the training table with its labels and a test table; they return the probability of
#: the positive class, and the number of rules and of literals (None if that says nothing).
Learner = Callable[[Any, Any, Any], tuple[Any, int | None, int | None]]


def rows(data: Path | None = None, seeds: int = 10) -> list[Row]:
    warnings.filterwarnings("ignore")
    return [*real(data, seeds), *planted(seeds), *noise(seeds), *sizes()]


# -------------------------------------------------------------------- real tables


def tables(data: Path | None) -> Iterator[tuple[str, Any, Any]]:
    import pandas as pd
    from sklearn.datasets import load_breast_cancer, load_wine

    for path in sorted(data.glob("*.csv")) if data else ():
        frame = pd.read_csv(path)
        y = frame.pop(frame.columns[-1])
        yield path.stem, frame, (y == y.max()).to_numpy().astype(int)
    for name, load in (("sklearn breast_cancer", load_breast_cancer), ("sklearn wine", load_wine)):
        found = load(as_frame=True)
        yield name, found.data, (found.target == 1).to_numpy().astype(int)


def real(data: Path | None, seeds: int) -> Iterator[Row]:
    from sklearn.metrics import balanced_accuracy_score, log_loss, roc_auc_score
    from sklearn.model_selection import StratifiedKFold

    for name, X, y in tables(data):
        for seed in range(seeds):
            for who, learner in LEARNERS.items():
                scores, start, failed = [], time.process_time(), ""
                for train, test in StratifiedKFold(5, shuffle=True, random_state=seed).split(X, y):
                    try:
                        p, rules, literals = learner(X.iloc[train], y[train], X.iloc[test])
                    except ImportError as error:
                        failed = f"{error.name} is not installed"
                        break
                    except Exception as error:  # whatever becomes of a peer, it has a row
                        failed = f"{type(error).__name__}: {str(error)[:60]}"
                        break
                    p = np.clip(np.asarray(p, float), 1e-6, 1 - 1e-6)
                    scores.append([
                        balanced_accuracy_score(y[test], p > y[train].mean()),
                        roc_auc_score(y[test], p), log_loss(y[test], p),
                        np.nan if rules is None else rules, np.nan if literals is None else literals,
                    ])  # fmt: skip
                found = np.mean(scores, axis=0).tolist() if not failed else [None] * 5
                names = ("balanced accuracy", "AUC", "log-loss", "rules", "literals")
                cells = {k: None if v is None or np.isnan(v) else round(v, 4)
                         for k, v in zip(names, found, strict=True)}  # fmt: skip
                seconds = round((time.process_time() - start) / 5, 2)
                yield {"part": "real", "table": name, "rows": len(y), "seed": seed, "who": who,
                       **cells, "CPU s": seconds, "failed": failed}  # fmt: skip


def ours(X: Any, y: Any, test: Any) -> tuple[Any, int, int]:
    (found,) = (classifier := lg.RuleClassifier().fit(X, y)).class_rules_
    return classifier.predict_proba(test)[:, 1], len(found.bodies), found.form.literals


def majority(X: Any, y: Any, test: Any) -> tuple[Any, int, int]:
    return np.full(len(test), y.mean()), 0, 0


def _numbers(X: Any, test: Any) -> tuple[Any, Any]:
    """Both tables with a column for each category."""
    import pandas as pd

    both = pd.get_dummies(pd.concat([X, test])).astype(float)
    both.columns = [f"{i} {name}" for i, name in enumerate(both.columns)]
    return both.iloc[: len(X)], both.iloc[len(X) :]


def tree(depth: int | None) -> Learner:
    def learn(X: Any, y: Any, test: Any) -> tuple[Any, int, int]:
        from sklearn.model_selection import GridSearchCV
        from sklearn.tree import DecisionTreeClassifier

        X, test = _numbers(X, test)
        model = DecisionTreeClassifier(max_depth=depth, random_state=0)
        if depth is None:
            grid = {"max_depth": [1, 2, 3, 4, 5, 6, 8], "min_samples_leaf": [1, 5, 20]}
            model = GridSearchCV(model, grid, scoring="neg_log_loss").fit(X, y).best_estimator_
        else:
            model.fit(X, y)
        leaves = model.tree_.children_left == -1
        depths = np.zeros(len(leaves), int)
        for node in np.flatnonzero(~leaves):
            for child in (model.tree_.children_left[node], model.tree_.children_right[node]):
                depths[child] = depths[node] + 1
        return model.predict_proba(test)[:, 1], int(leaves.sum()), int(depths[leaves].sum())

    return learn


def logistic(X: Any, y: Any, test: Any) -> tuple[Any, None, None]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, test = _numbers(X, test)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)).fit(X, y)
    return model.predict_proba(test)[:, 1], None, None


def boosted(X: Any, y: Any, test: Any) -> tuple[Any, int, int]:
    import imodels

    X, test = _numbers(X, test)
    model = imodels.BoostedRulesClassifier(n_estimators=10, random_state=0)
    model.fit(X.to_numpy(), y, feature_names=list(X))
    count = len(model.estimators_)
    return model.predict_proba(test.to_numpy())[:, 1], count, count


def figs(X: Any, y: Any, test: Any) -> tuple[Any, int, int]:
    import imodels

    X, test = _numbers(X, test)
    model = imodels.FIGSClassifier(max_rules=12).fit(X.to_numpy(), y)
    return model.predict_proba(test.to_numpy())[:, 1], model.complexity_, model.complexity_


def rulefit(X: Any, y: Any, test: Any) -> tuple[Any, int, int]:
    import imodels

    X, test = _numbers(X, test)
    model = imodels.RuleFitClassifier(random_state=0).fit(X.to_numpy(), y)
    used = [
        rule
        for rule, weight in zip(model.rules_without_feature_names_, model.coef, strict=False)
        if weight
    ]
    literals = sum(rule.count(" and ") + 1 for rule in used)
    return model.predict_proba(test.to_numpy())[:, 1], len(used), literals


def ripper(X: Any, y: Any, test: Any) -> tuple[Any, int, int]:
    import wittgenstein

    X, test = _numbers(X, test)
    model = wittgenstein.RIPPER(random_state=0)
    model.fit(X, y)
    bodies = [rule.conds for rule in model.ruleset_.rules]
    return model.predict_proba(test)[:, 1], len(bodies), sum(map(len, bodies))


def ebm(X: Any, y: Any, test: Any) -> tuple[Any, None, None]:
    from interpret.glassbox import ExplainableBoostingClassifier

    X, test = _numbers(X, test)
    model = ExplainableBoostingClassifier(random_state=0, n_jobs=1, outer_bags=4).fit(X, y)
    return model.predict_proba(test)[:, 1], None, None


LEARNERS: dict[str, Learner] = {
    "RuleClassifier": ours,
    "base rate": majority,
    "tree, depth 3": tree(3),
    "tree, tuned": tree(None),
    "logistic regression": logistic,
    "ten boosted rules": boosted,
    "FIGS": figs,
    "RuleFit": rulefit,
    "RIPPER": ripper,
    "EBM": ebm,
}


# -------------------------------------------------------------------- planted rules


def planted(seeds: int) -> Iterator[Row]:
    """Three rules of two or three literals over columns that are true or false, or numbers."""
    for numeric in (False, True):
        for d, n, wrong, rate in GRID:
            exact, same, columns_right, literals, start = 0, 0, 0, [], time.process_time()
            for seed in range(1000, 1000 + seeds):
                X, true, y, bodies = plant(seed, n, d, wrong, rate, numeric=numeric)
                (found,) = (classifier := lg.RuleClassifier().fit(X, y)).class_rules_
                literals.append(found.form.literals)
                same += bool((classifier.predict(X) == true).mean() > 0.995)
                columns = {frozenset(_column(literal) for literal in body) for body in found.bodies}
                columns_right += columns == bodies
                exact += columns == bodies and bool((classifier.predict(X) == true).all())
            yield {"part": "planted", "columns": "numbers" if numeric else "true or false", "d": d,
                   "n": n, "wrong labels": wrong, "positives": rate, "seeds": seeds, "columns right": columns_right, "exact": exact,
                   "99.5% right": same, "literals": float(np.mean(literals)),
                   "CPU s": round((time.process_time() - start) / seeds, 2)}  # fmt: skip


#: Columns, rows, wrong labels, positives.
GRID = [
    (20, 1000, 0.0, 0.3), (20, 1000, 0.1, 0.3), (20, 5000, 0.2, 0.3), (50, 2000, 0.05, 0.3),
    (100, 5000, 0.1, 0.3), (20, 5000, 0.02, 0.05), (20, 1000, 0.2, 0.5),
]  # fmt: skip


def _column(literal: Any) -> str:
    return literal.name if literal.condition is None else literal.condition.column


def plant(
    seed: int, n: int, d: int, wrong: float, rate: float, *, numeric: bool
) -> tuple[Any, Any, Any, set[frozenset[str]]]:
    """Three disjoint sets of columns, each a rule; together they hold in about `rate` of the rows."""
    rng = np.random.default_rng(seed)
    size = 2 if rate >= 0.2 else 3
    chosen = rng.permutation(d)[: 3 * size].reshape(3, size)
    each = 1 - (1 - rate) ** (1 / 3)
    share = each ** (1 / size)  # of the rows that one literal holds in
    values = rng.random((n, d))
    holds = values < share
    true = np.any([holds[:, columns].all(1) for columns in chosen], axis=0)
    y = true ^ (rng.random(n) < wrong)
    X = np.round(1000 * values, 2) if numeric else holds
    if numeric:
        true = np.any([(X[:, c] < 1000 * share).all(1) for c in chosen], axis=0)
        y = true ^ (rng.random(n) < wrong)
    bodies = {frozenset(f"x{i}" for i in columns) for columns in chosen}
    return X, true, y, bodies


def noise(seeds: int) -> Iterator[Row]:
    for d, n, rate, numeric in (
        (20, 500, 0.5, False),
        (20, 500, 0.3, True),
        (50, 1000, 0.05, True),
    ):
        empty = 0
        for seed in range(2000, 2000 + seeds):
            rng = np.random.default_rng(seed)
            X = rng.normal(size=(n, d)) if numeric else rng.random((n, d)) < 0.5
            found = lg.RuleClassifier().fit(X, rng.random(n) < rate).class_rules_
            empty += not any(one.bodies for one in found)
        yield {"part": "noise", "columns": "numbers" if numeric else "true or false", "d": d, "n": n,
               "positives": rate, "seeds": seeds, "nothing found": empty}  # fmt: skip


# -------------------------------------------------------------------- many rows


def sizes() -> Iterator[Row]:
    for n in (10_000, 100_000, 1_000_000):
        code = f"import sys; sys.path[:0] = {sys.path!r}; import tables; tables.one_size({n})"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        found = done.stdout.split() if done.returncode == 0 else [None] * 4
        yield {"part": "rows", "rows": n, "columns": 50,
               **dict(zip(("seconds", "CPU s", "GB", "literals"), found, strict=True))}  # fmt: skip


def one_size(n: int) -> None:
    """Print seconds, CPU seconds, the peak of memory and the literals of one fit."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 50)).astype(np.float32)
    y = (X[:, 0] > 0.5) & (X[:, 1] < 0) | (X[:, 2] > 1) & (X[:, 3] > 0) & (X[:, 4] < 0.3)
    y ^= rng.random(n) < 0.05
    start, cpu = time.perf_counter(), time.process_time()
    classifier = lg.RuleClassifier().fit(X, y)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    literals = sum(one.form.literals for one in classifier.class_rules_)
    print(f"{seconds:.1f} {cpu:.1f} {peak:.2f} {literals}")
