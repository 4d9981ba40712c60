"""Learns rules from a table of loans, and decides a new one with them.

python examples/loan_rules.py
"""

from __future__ import annotations

import numpy as np

import latentgamma as lg


def loans(n: int, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """A table of loans, a twentieth of whose labels is wrong, and who did not pay back."""
    rng = np.random.default_rng(seed)
    table = {
        "income": rng.lognormal(10.4, 0.4, n).round(),
        "late_payments": rng.poisson(1.0, n),
        "home": rng.choice(["own", "rent", "family"], n),
    }
    table["income"][rng.random(n) < 0.05] = np.nan  # not everyone says
    default = (table["income"] < 31000) & (table["late_payments"] >= 2)
    default |= (table["home"] == "rent") & (table["late_payments"] >= 3)
    return table, default ^ (rng.random(n) < 0.05)


def main() -> None:
    table, default = loans(2000, seed=0)
    classifier = lg.RuleClassifier().fit(table, default)
    print(classifier.summary())

    unseen, truth = loans(2000, seed=1)
    print(f"\naccuracy on other loans: {classifier.score(unseen, truth):.3f} of at most 0.95")

    print("\none loan:")
    print(classifier.explain({"income": 28500, "late_payments": 3, "home": "own"}))

    fewer = classifier.refit(table, default, drop=[2])
    print("\nwithout rule 2:", *fewer.notes_)
    print(f"\n{classifier.to_sql('loans')}")


if __name__ == "__main__":
    main()
