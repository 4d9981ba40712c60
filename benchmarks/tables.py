"""Rules from ordinary tables: real ones beside other learners, planted rules, and many rows.

`real`: five-fold cross-validation on the tables of `--data FOLDER` (CSV files whose last column is
the label) and on those of scikit-learn, with `--seeds N` seeds. The other learners are those of peers.txt:
where imodels is missing, everything runs in the environment of the peers. Balanced accuracy decides at the rate of the class, for
everyone. Learners for two classes learn each of several classes against the rest; others learn all at once.
`planted`: three rules with wrong labels on fresh seeds: how often they are found, with every planted
threshold in the interval that is printed for it. `noise`: labels that no column tells anything about.
`network`: what training the rules as a network gains in log-loss, for rules of all training rows and of a part
of them (a fifth, or one half up to 1,000 rows). `rows`: seconds and memory of one fit.
`--jobs N` works on N (table, seed, learner) at a time. `--sets NAME,NAME` runs some parts only; `peers`
is `real` without `RuleClassifier`, and `ours` is `RuleClassifier` alone. `--done FILE` appends each result to a
file, and what is in it is not run again: a run that was stopped goes on, and peers are run once.
"""

from __future__ import annotations

import importlib.util
import json
import math
import multiprocessing
import os
import resource
import signal
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
#: Learners get the training table with its labels, from 0 on, and a test table; they return the
#: probability of 1, or of each class, and the number of rules and of literals (None if that says nothing).
Learner = Callable[[Any, Any, Any], tuple[Any, int | None, int | None]]
#: CPU seconds after which one fit is given up.
LIMIT = 60


def rows(
    data: Path | None = None,
    seeds: int = 10,
    jobs: int = 1,
    sets: str = "",
    done: Path | None = None,
) -> list[Row]:
    chosen = sets.split(",") if sets else list(PARTS)
    if unknown := [name for name in chosen if name not in PARTS]:
        raise SystemExit(
            f"--sets: there is no part {unknown[0]!r}; choose among {', '.join(PARTS)}"
        )
    if "peers" in chosen and importlib.util.find_spec("imodels") is None:
        import peers

        peers.environment()
        os.execv(peers.PYTHON, [str(peers.PYTHON), *sys.argv])
    known = finished(done)
    left = [task for task in tasks(data, seeds, chosen) if _key(task) not in known]
    for task, row in run(left, jobs):
        known[_key(task)] = row
        if done is not None:
            with done.open("a", encoding="utf-8") as file:
                print(json.dumps({"task": _key(task), **row}), file=file)
    return summary([*known.values()])


#: A part of the benchmark: a function of this module, and its arguments, the folder of tables first.
Task = tuple[str, tuple[Any, ...]]
PARTS = ("ours", "peers", "planted", "noise", "network", "rows")


def _key(task: Task) -> str:
    name, (_, *arguments) = task
    return json.dumps([name, *arguments])


def finished(done: Path | None) -> dict[str, Row]:
    """The results in a file by their tasks; of several for a task, the last."""
    if done is None or not done.exists():
        return {}
    lines = [json.loads(line) for line in done.read_text(encoding="utf-8").splitlines()]
    return {line.pop("task"): line for line in lines}


def tasks(data: Path | None, seeds: int, parts: list[str]) -> Iterator[Task]:
    *names, slow = tables(data)
    learners = [who for who in LEARNERS
                if ("ours" if who == "RuleClassifier" else "peers") in parts]  # fmt: skip
    for seed in range(seeds):  # one seed of everything first, so that a part of it says something
        yield from (("real", (data, name, seed, who)) for name in names for who in learners)
        for half in (2 * seed, 2 * seed + 1):
            if "planted" in parts:
                yield from (("planted", (data, *cell, 1000 + half)) for cell in CELLS)
            if "noise" in parts:
                yield from (("noise", (data, *cell, 2000 + half)) for cell in NOISE)
        if "network" in parts:
            yield from (("network", (data, name, seed)) for name in names)
    for seed in range(seeds):
        yield from (("real", (data, slow, seed, who)) for who in learners)
    if "rows" in parts:
        yield from (("size", (data, n)) for n in (10_000, 100_000, 1_000_000))


def run(given: list[Task], jobs: int) -> Iterator[tuple[Task, Row]]:
    """Yield tasks with their rows, in the order in which they are done."""
    alone = [task for task in given if task[0] == "size"]  # timed: nothing runs beside it
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=20) as pool:
        yield from pool.imap_unordered(one, [task for task in given if task not in alone])
    yield from map(one, alone)


def one(task: Task) -> tuple[Task, Row]:
    warnings.filterwarnings("ignore")
    name, arguments = task
    row: Row = globals()[name](*arguments)
    return task, {"part": name, **row}


# -------------------------------------------------------------------- means over seeds


def summary(found: list[Row]) -> list[Row]:
    """What must hold on each table, means over seeds, and the measures of every seed."""
    parts: dict[str, list[Row]] = {}
    for row in found:
        parts.setdefault(row["part"], []).append(row)
    done = [row for row in parts.get("real", []) if not row["failed"]]
    means = [_mean("real", block, ("table", "rows", "classes", "who"), (*MEASURES, "CPU s"))
             for block in _blocks(done, ("table", "who"))]  # fmt: skip
    order = list(LEARNERS)
    means.sort(key=lambda row: (row["table"], order.index(row["who"])))
    failed = [{"part": "failed", **{k: row[k] for k in ("table", "who", "seed", "failed")}}
              for row in parts.get("real", []) if row["failed"]]  # fmt: skip
    cell = ("columns", "d", "n", "literals of a rule", "wrong labels", "positives")
    counted = ("rules found", "with thresholds", "every row", "every row, one threshold unknown")
    planted = [
        _mean(
            "planted", block, (*cell, "bits to spare"), ("rows decided otherwise", "CPU s"), counted
        )
        for block in _blocks(parts.get("planted", []), cell)
    ]
    noise = [_mean("noise", block, ("columns", "d", "n", "positives"), (), ("nothing found",))
             for block in _blocks(parts.get("noise", []), ("columns", "d", "n", "positives"))]  # fmt: skip
    network = [_mean("network", block, ("table",), NETWORK,
                     ("the network is its rules", "certified"))
               for block in _blocks(parts.get("network", []), ("table",))]  # fmt: skip
    every = []
    for block in _blocks(done, ("table", "who")):
        cells = {f"seed {row['seed']}": "/".join(f"{row[m]:.3f}" for m in MEASURES[:3])
                 for row in sorted(block, key=lambda row: row["seed"])}  # fmt: skip
        every.append({"part": "balanced accuracy/AUC/log-loss", "table": block[0]["table"],
                      "who": block[0]["who"], **cells})  # fmt: skip
    every.sort(key=lambda row: (row["table"], order.index(row["who"])))
    return [*must_hold(means), *means, *failed, *planted, *noise, *network, *parts.get("size", []),
            *every]  # fmt: skip


def _blocks(rows: list[Row], by: tuple[str, ...]) -> list[list[Row]]:
    blocks: dict[Any, list[Row]] = {}
    for row in rows:
        blocks.setdefault(tuple(row[name] for name in by), []).append(row)
    return list(blocks.values())


def _mean(
    part: str, block: list[Row], same: tuple[str, ...], mean: tuple[str, ...],
    count: tuple[str, ...] = (),
) -> Row:  # fmt: skip
    """One row for several seeds: means of some columns, and how often others are true."""
    row: Row = {"part": part, **{name: block[0][name] for name in same}, "seeds": len(block)}
    for name in mean:
        values = [one[name] for one in block if one[name] is not None]
        row[name] = round(float(np.mean(values)), 4) if values else None
    for name in count:
        if block[0][name] is not None:
            row[name] = sum(bool(one[name]) for one in block)
    if part == "real":
        losses = [one["log-loss"] for one in block]
        row["sd of log-loss"] = round(float(np.std(losses)), 4)
    return row


def must_hold(means: list[Row]) -> list[Row]:
    """Which of the comparisons hold on each table, by means over the seeds."""
    found = []
    for name in dict.fromkeys(row["table"] for row in means):
        by = {row["who"]: row for row in means if row["table"] == name}
        if "RuleClassifier" not in by:
            continue
        mine = by["RuleClassifier"]

        def better(
            who: str, measure: str, sign: int, by: Any = by, mine: Any = mine
        ) -> bool | None:
            return bool(sign * (mine[measure] - by[who][measure]) > 0) if who in by else None

        def half(who: str, by: Any = by, mine: Any = mine) -> bool | None:
            return bool(mine["literals"] <= by[who]["literals"] / 2) if who in by else None

        found.append({
            "part": "must hold", "must hold": name,
            "log-loss < tuned tree": better("tree, tuned", "log-loss", -1),
            "log-loss < ten boosted rules": better("ten boosted rules", "log-loss", -1),
            "AUC > RIPPER": better("RIPPER", "AUC", 1),
            "balanced accuracy > RIPPER": better("RIPPER", "balanced accuracy", 1),
            "half of the tree's literals": half("tree, tuned"),
            "half of the tree's tuned for accuracy": half("tree, tuned for accuracy"),
            "half of the boosted": half("ten boosted rules"),
            "half of RIPPER's": half("RIPPER"),
            "log-loss - logistic": round(mine["log-loss"] - by["logistic regression"]["log-loss"], 4)
            if "logistic regression" in by else None,
            "log-loss < base rate": better("base rate", "log-loss", -1),
        })  # fmt: skip
    if found:
        total: Row = {"part": "must hold", "must hold": f"of {len(found)}"}
        for name in list(found[0])[2:]:
            values = [row[name] for row in found if row[name] is not None]
            total[name] = sum(v <= 0.02 if isinstance(v, float) else v for v in values)
        found.append(total)
    return found


# -------------------------------------------------------------------- real tables


def tables(data: Path | None) -> dict[str, Callable[[], tuple[Any, Any]]]:
    """Readers of tables by name: a frame, and the classes from 0 on."""
    import pandas as pd
    from sklearn import datasets

    def file(path: Path) -> tuple[Any, Any]:
        frame = pd.read_csv(path)
        y = frame.pop(frame.columns[-1])
        return frame, np.unique(y, return_inverse=True)[1]

    def from_sklearn(load: Callable[..., Any]) -> tuple[Any, Any]:
        found = load(as_frame=True)
        y = found.target.to_numpy()
        if len(np.unique(y)) > 20:  # numbers: above the median or not
            y = (y > np.median(y)).astype(int)
        return found.data, y

    found: dict[str, Callable[[], tuple[Any, Any]]] = {}
    for path in sorted(data.glob("*.csv")) if data else ():
        found[path.stem] = lambda path=path: file(path)  # type: ignore[misc]
    for name in ("breast_cancer", "diabetes", "iris", "wine", "digits"):  # digits is slow: last
        load = getattr(datasets, f"load_{name}")
        found[f"sklearn {name}"] = lambda load=load: from_sklearn(load)  # type: ignore[misc]
    return found


MEASURES = ("balanced accuracy", "AUC", "log-loss", "rules", "literals")


def real(data: Path | None, name: str, seed: int, who: str) -> Row:
    """One learner on one table: the means over five folds."""
    from sklearn.model_selection import StratifiedKFold

    X, y = tables(data)[name]()
    scores, start, failed = [], time.process_time(), ""
    for train, test in StratifiedKFold(5, shuffle=True, random_state=seed).split(X, y):
        try:
            with_limit(LIMIT)
            p, rules, literals = several(who, X.iloc[train], y[train], X.iloc[test])
        except ImportError as error:
            failed = f"{error.name} is not installed"
        except Exception as error:  # whatever becomes of a peer, it has a row
            failed = f"{type(error).__name__}: {str(error)[:60]}"
        finally:
            with_limit(0)
        if failed:
            break
        scores.append([*measured(y[train], y[test], p),
                       *(np.nan if v is None else v for v in (rules, literals))])  # fmt: skip
    found = np.mean(scores, axis=0).tolist() if not failed else [np.nan] * 5
    cells = {k: None if np.isnan(v) else round(v, 4) for k, v in zip(MEASURES, found, strict=True)}
    return {"table": name, "rows": len(y), "classes": len(np.unique(y)), "seed": seed, "who": who,
            **cells, "CPU s": round((time.process_time() - start) / 5, 2), "failed": failed}  # fmt: skip


def with_limit(seconds: int) -> None:
    """Raise TimeoutError after this many CPU seconds; 0 for never."""

    def late(number: int, frame: Any) -> None:
        raise TimeoutError(f"longer than {LIMIT} CPU s")

    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)


def several(who: str, X: Any, y: Any, test: Any) -> tuple[Any, int | None, int | None]:
    """What a learner says of each class: itself, or each class against the rest. (n, classes)."""
    k, learner = int(y.max()) + 1, LEARNERS[who]
    if k == 2 or who in MANY_CLASSES:
        p, rules, literals = learner(X, y, test)
        p = np.asarray(p, float)
        return np.stack([1 - p, p], axis=1) if p.ndim == 1 else p, rules, literals
    found = [learner(X, (y == c).astype(int), test) for c in range(k)]
    p = np.clip(np.stack([np.asarray(one[0], float) for one in found], axis=1), 1e-6, 1)
    counts = [None if found[0][i] is None else sum(one[i] or 0 for one in found) for i in (1, 2)]
    return p / p.sum(1, keepdims=True), counts[0], counts[1]


def measured(y: Any, true: Any, p: Any) -> tuple[float, float, float]:
    """Balanced accuracy, AUC and log-loss; `y` has the classes of the training rows."""
    from sklearn.metrics import balanced_accuracy_score, log_loss, roc_auc_score

    p = np.clip(p, 1e-6, 1 - 1e-6)
    p = p / p.sum(1, keepdims=True)
    decided = (p / np.bincount(y) * len(y)).argmax(1)
    if p.shape[1] == 2:
        area = roc_auc_score(true, p[:, 1])
    else:
        area = roc_auc_score(true, p, multi_class="ovr")
    loss = log_loss(true, p, labels=range(p.shape[1]))
    return float(balanced_accuracy_score(true, decided)), float(area), float(loss)


def ours(X: Any, y: Any, test: Any) -> tuple[Any, int, int]:
    found = (classifier := lg.RuleClassifier().fit(X, y)).class_rules_
    rules, literals = (
        sum(len(one.bodies) for one in found),
        sum(one.form.literals for one in found),
    )
    return classifier.predict_proba(test), rules, literals


def majority(X: Any, y: Any, test: Any) -> tuple[Any, int, int]:
    return np.tile(np.bincount(y) / len(y), (len(test), 1)), 0, 0


def _numbers(X: Any, test: Any) -> tuple[Any, Any]:
    """Both tables with a column for each category, and the median where a number is missing."""
    import pandas as pd

    both = pd.get_dummies(pd.concat([X, test])).astype(float)
    both = both.fillna(both.iloc[: len(X)].median()).fillna(0.0)
    both.columns = [f"{i} {name}" for i, name in enumerate(both.columns)]
    return both.iloc[: len(X)], both.iloc[len(X) :]


def tree(depth: int | None = None, scoring: str | None = None) -> Learner:
    """A tree of this depth, or the one of a grid with the best score in five folds."""

    def learn(X: Any, y: Any, test: Any) -> tuple[Any, int, int]:
        from sklearn.model_selection import GridSearchCV
        from sklearn.tree import DecisionTreeClassifier

        X, test = _numbers(X, test)
        model = DecisionTreeClassifier(max_depth=depth, random_state=0)
        if depth is None:
            grid = {"max_depth": [1, 2, 3, 4, 5, 6, 8], "min_samples_leaf": [1, 5, 20]}
            model = GridSearchCV(model, grid, scoring=scoring).fit(X, y).best_estimator_
        else:
            model.fit(X, y)
        leaves = model.tree_.children_left == -1
        depths = np.zeros(len(leaves), int)
        for node in np.flatnonzero(~leaves):
            for child in (model.tree_.children_left[node], model.tree_.children_right[node]):
                depths[child] = depths[node] + 1
        return model.predict_proba(test), int(leaves.sum()), int(depths[leaves].sum())

    return learn


def logistic(X: Any, y: Any, test: Any) -> tuple[Any, None, None]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, test = _numbers(X, test)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)).fit(X, y)
    return model.predict_proba(test), None, None


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
    return model.predict_proba(test.to_numpy())[:, 1], len(used), _literals(used)


def _literals(rules: list[Any]) -> int:
    return sum(str(rule).count(" and ") + 1 for rule in rules)


def slipper(X: Any, y: Any, test: Any) -> tuple[Any, int, int]:
    import imodels

    X, test = _numbers(X, test)
    model = imodels.SlipperClassifier(n_estimators=10).fit(X.to_numpy(), y)
    rules = [one.rule for one in model.estimators_]
    return model.predict_proba(test.to_numpy())[:, 1], len(rules), sum(map(len, rules))


def skope(X: Any, y: Any, test: Any) -> tuple[Any, int, int]:
    import imodels

    X, test = _numbers(X, test)
    model = imodels.SkopeRulesClassifier(random_state=0).fit(X.to_numpy(), y)
    rules = model.rules_
    return model.predict_proba(test.to_numpy())[:, 1], len(rules), _literals(rules)


def ripper(X: Any, y: Any, test: Any) -> tuple[Any, int, int]:
    import wittgenstein

    X, test = _numbers(X, test)
    model = wittgenstein.RIPPER(random_state=0)
    model.fit(X, y)
    bodies = [rule.conds for rule in model.ruleset_.rules]
    return model.predict_proba(test)[:, 1], len(bodies), sum(map(len, bodies))


def corels(X: Any, y: Any, test: Any) -> tuple[Any, int, int]:
    """A certifiably optimal list over quartiles, with the rate of each rule as its probability."""
    from corels import CorelsClassifier

    X, test = _numbers(X, test)
    columns, others = [], []
    for name in X:
        for cut in np.unique(np.quantile(X[name], [0.25, 0.5, 0.75])):
            if 0 < (X[name] > cut).mean() < 1:
                columns.append((X[name] > cut).to_numpy())
                others.append((test[name] > cut).to_numpy())
    features, tested = (np.stack(one, axis=1).astype(np.uint8) for one in (columns, others))
    model = CorelsClassifier(verbosity=[], n_iter=100_000, c=0.01, max_card=2)
    model.fit(features, y)
    antecedents = [rule["antecedents"] for rule in model.rl().rules]

    def group(rows: Any) -> Any:
        found = np.full(len(rows), len(antecedents) - 1)
        for i in reversed(range(len(antecedents) - 1)):
            holds = [rows[:, abs(j) - 1] == (j > 0) for j in antecedents[i]]
            found[np.all(holds, axis=0)] = i
        return found

    mine, base = group(features), y.mean()
    rates = [(y[mine == i].sum() + base) / ((mine == i).sum() + 1) for i in range(len(antecedents))]
    literals = sum(map(len, antecedents[:-1]))
    return np.array(rates)[group(tested)], len(antecedents) - 1, literals


def ebm(X: Any, y: Any, test: Any) -> tuple[Any, None, None]:
    """Boosted shape functions; pairs of columns only where there are few, for time."""
    from interpret.glassbox import ExplainableBoostingClassifier

    X, test = _numbers(X, test)
    pairs = 0 if X.shape[1] > 20 else "3x"
    model = ExplainableBoostingClassifier(
        random_state=0, n_jobs=1, outer_bags=4, interactions=pairs
    ).fit(X, y)
    return model.predict_proba(test), None, None


LEARNERS: dict[str, Learner] = {
    "RuleClassifier": ours,
    "base rate": majority,
    "tree, depth 3": tree(3),
    "tree, tuned": tree(scoring="neg_log_loss"),
    "tree, tuned for accuracy": tree(scoring="accuracy"),
    "logistic regression": logistic,
    "ten boosted rules": boosted,
    "FIGS": figs,
    "RuleFit": rulefit,
    "SLIPPER": slipper,
    "SkopeRules": skope,
    "RIPPER": ripper,
    "corels": corels,
    "EBM": ebm,
}
#: Those that learn several classes at once. The others learn each class against the rest.
MANY_CLASSES = (
    "RuleClassifier",
    "base rate",
    "tree, depth 3",
    "tree, tuned",
    "tree, tuned for accuracy",
    "logistic regression",
    "EBM",
)


# -------------------------------------------------------------------- planted rules

#: Columns are numbers, columns, rows, literals of a rule, wrong labels, positives.
CELLS = [
    *((numbers, d, n, size, wrong, rate)
      for numbers in (False, True)
      for d, n, size, wrong, rate in (
          (20, 500, 2, 0.0, 0.5), (20, 1000, 2, 0.1, 0.3), (50, 2000, 3, 0.05, 0.3),
          (20, 5000, 3, 0.2, 0.3), (100, 5000, 4, 0.1, 0.3), (50, 5000, 5, 0.05, 0.3),
          (100, 5000, 5, 0.0, 0.5), (20, 5000, 3, 0.02, 0.05), (20, 5000, 3, 0.0, 0.02),
          (20, 5000, 4, 0.01, 0.02), (20, 500, 3, 0.2, 0.3), (50, 2000, 2, 0.2, 0.5),
      )),
]  # fmt: skip

#: A literal: its column, whether it is an upper bound, and the bound.
Planted = list[list[tuple[int, bool, float]]]


def plant(
    numbers: bool, d: int, n: int, size: int, wrong: float, rate: float, seed: int
) -> tuple[Any, Any, Any, Planted]:
    """Three rules of `size` literals, each in as many rows; together in about `rate` of all.

    Returns:
        The table, what the rules say, the labels, and the rules.
    """
    rng = np.random.default_rng(seed)
    each = 1 - (1 - rate) ** (1 / 3)
    X = np.round(1000 * rng.random((n, d)), 2)
    if not numbers:  # every column is true in the share of rows that rules of this size need
        share = each ** (1 / size)
        X = (1000 * share > X).astype(float)
    rules: Planted = []
    for _ in range(3):
        chosen = rng.permutation(d)[:size].tolist()
        shares = each ** rng.dirichlet(np.full(size, 4.0))
        upper = rng.random(size) < 0.5
        if numbers:
            bounds = np.where(upper, shares, 1 - shares) * 1000
        else:
            upper, bounds = np.zeros(size, bool), np.full(size, 0.5)
        bounds = np.round(bounds, 2)
        rules.append(list(zip(chosen, upper.tolist(), bounds.tolist(), strict=True)))
    true = np.any([_holds(X, body) for body in rules], axis=0)
    return X, true, true ^ (rng.random(n) < wrong), rules


def _holds(X: Any, body: list[tuple[int, bool, float]]) -> Any:
    return np.all([(X[:, c] < t) if low else (X[:, c] >= t) for c, low, t in body], axis=0)


def planted(
    _: Path | None, numbers: bool, d: int, n: int, size: int, wrong: float, rate: float, seed: int
) -> Row:
    X, true, y, rules = plant(numbers, d, n, size, wrong, rate, seed)
    start = time.process_time()
    (found,) = (classifier := lg.RuleClassifier().fit(X, y)).class_rules_
    seconds = time.process_time() - start
    wanted = [{(f"x{c}", low): t for c, low, t in body} for body in rules]
    same, inside = found.form.name == "rules" and len(found.bodies) == 3, True
    for body, row in zip(found.bodies, found.statistics, strict=False):
        mine = {_side(literal): literal for literal in body}
        match = next((one for one in wanted if one.keys() == mine.keys()), None)
        if match is None:
            same = False
            continue
        wanted.remove(match)
        for interval in row.thresholds:
            bound = match[_side(next(x for x in body if str(x) == interval.condition))]
            low, high = interval.low, interval.high
            inside &= (low is None or low < bound) and (high is None or bound <= high)
    return {
        "columns": "numbers" if numbers else "true or false", "d": d, "n": n, "literals of a rule": size,
        "wrong labels": wrong, "positives": rate, "seed": seed,
        "bits to spare": round(spare(numbers, d, n, size, wrong, rate), 1),
        "rules found": same, "with thresholds": bool(same and inside),
        "every row": bool(same and (classifier.predict(X) == true).all()),
        "every row, one threshold unknown": _oracle(X, y, rules, true) if numbers else None,
        "rows decided otherwise": int((classifier.predict(X) != true).sum()),
        "CPU s": round(seconds, 2),
    }  # fmt: skip


def _side(literal: Any) -> tuple[str, bool]:
    if literal.condition is None:
        return literal.name, literal.negated
    return literal.condition.column, literal.condition.op == "<"


def spare(numbers: bool, d: int, n: int, size: int, wrong: float, rate: float) -> float:
    """The bits that the last of three such rules saves beyond its own, as expected.

    The last rule is found among the rows that the others leave over. It takes the bits of `size`
    thresholds of a column, of as many as there are different ones, and the data suffice if it
    saves more.
    """
    each = 1 - (1 - rate) ** (1 / 3)
    rows = n * (1 - each) ** 2
    share = each

    def entropy(p: float) -> float:
        return 0.0 if p in (0, 1) else -p * math.log2(p) - (1 - p) * math.log2(1 - p)

    before = entropy(share * (1 - wrong) + (1 - share) * wrong)
    saved = rows * (before - entropy(wrong)) - 0.5 * math.log2(rows * share)
    options = 2 * 63 if numbers else 2
    takes = (
        size * math.log2(d * options) - math.log2(math.factorial(size)) + math.log2(size + 1) + 2
    )
    return saved - takes


def _oracle(X: Any, y: Any, rules: Planted, true: Any) -> bool:
    """Whether the likeliest value of each threshold decides every row as planted.

    All other thresholds, the columns and the rate of wrong labels are known, so nobody who has
    to find them can do it more often.
    """
    right = np.where(y, 1, -1)
    for i, body in enumerate(rules):
        rest = [_holds(X, other) for j, other in enumerate(rules) if j != i]
        alone = ~np.any(rest, axis=0)
        for k, (c, low, bound) in enumerate(body):
            rows = alone & _holds(X, [*body[:k], *body[k + 1 :]])
            values, places = np.unique(X[rows, c], return_inverse=True)
            below = np.concatenate([[0], np.cumsum(np.bincount(places, right[rows], len(values)))])
            gain = below if low else below[-1] - below
            if gain[np.searchsorted(values, bound)] < gain.max():
                return False
    return True


#: Columns, rows, positives, and whether columns are numbers.
NOISE = [
    (20, 500, 0.5, False),
    (20, 500, 0.3, True),
    (50, 1000, 0.05, True),
    (100, 1000, 0.5, True),
    (100, 5000, 0.3, True),
]


def noise(_: Path | None, d: int, n: int, rate: float, numbers: bool, seed: int) -> Row:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) if numbers else rng.random((n, d)) < 0.5
    found = lg.RuleClassifier().fit(X, rng.random(n) < rate).class_rules_
    return {"columns": "numbers" if numbers else "true or false", "d": d, "n": n, "positives": rate,
            "seed": seed, "nothing found": not any(one.bodies for one in found)}  # fmt: skip


# -------------------------------------------------------------------- rules as a network


def network(data: Path | None, name: str, seed: int) -> Row:
    """The held-out log-loss of rules, and of what is read back after training them as a network.

    Once the rules are those of all training rows, and once those of a fifth of these, whose
    thresholds are less precise; the network is trained on all training rows.
    """
    from sklearn.model_selection import StratifiedKFold

    X, y = tables(data)[name]()
    losses, same, certified = [], True, True
    for train, test in StratifiedKFold(5, shuffle=True, random_state=seed).split(X, y):
        inner, held, found = X.iloc[train], X.iloc[test], []
        for rows in (train, train[:: 5 if len(train) > 1000 else 2]):
            rules = lg.RuleClassifier().fit(X.iloc[rows], y[rows])
            found += [rules.predict_proba(held)] * 2
            if any(one.bodies for one in rules.class_rules_):
                again = rules.refit(inner, y[train])  # the same rules, with the rates of all rows
                trained = again.network(inner).fit(inner, y[train])
                back = trained.extract(inner, y[train])
                found[-2:] = again.predict_proba(held), back.predict_proba(held)
                network = back.network(inner).eval()
                same &= bool(np.allclose(network.predict_proba(held), found[-1]))
                certified &= bool(trained.certified().certificate.holds)
        losses.append([measured(y[train], y[test], p)[2] for p in found])
    means = np.round(np.mean(losses, axis=0), 4).tolist()
    return {"table": name, "seed": seed, **dict(zip(NETWORK, means, strict=True)),
            "the network is its rules": same, "certified": certified}  # fmt: skip


NETWORK = ("rules", "rules, trained", "rules of a part", "rules of a part, trained")


# -------------------------------------------------------------------- many rows


def size(_: Path | None, n: int) -> Row:
    """One fit in a process of its own."""
    code = f"import sys; sys.path[:0] = {sys.path!r}; import tables; tables.one_size({n})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    found = done.stdout.split() if done.returncode == 0 else [None] * 4
    return {"rows": n, "columns": 50,
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
