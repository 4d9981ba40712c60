"""Readings that labels cannot tell apart, counted and compared with enumeration."""

import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import latentgamma as lg


def addition(sums: int = 19) -> lg.Program:
    rules = [(f"sum({x + y})", [f"a({x})", f"b({y})"]) for x, y in product(range(10), repeat=2)]
    return lg.Program.from_rules(rules)


DIGITS = lg.Categorical([[f"{name}({d})" for d in range(10)] for name in "ab"])
SUMS = [f"sum({s})" for s in range(19)]
PAIRS = [(0, 6), (2, 8), (4, 6), (4, 8), (1, 5), (3, 7), (1, 9), (3, 9)]


def test_eight_sums_leave_thirty_six_readings_of_the_digits() -> None:
    found = lg.shortcuts(addition(), {"digit": DIGITS}, {"sum": SUMS}, {"digit": PAIRS})
    assert (found.count, found.exact) == (36, True)
    assert found.labels is not None
    assert sorted(value % 2 for _, value in found.labels) == [0, 1]
    for reading in found.some:
        seen = reading["digit"]
        assert all(seen[x] + seen[y] == x + y for x, y in PAIRS)
        assert seen != tuple(range(10))
    assert "36 readings agree" in str(found)


def test_all_sums_leave_the_true_reading_alone() -> None:
    pairs = list(product(range(10), repeat=2))
    found = lg.shortcuts(addition(), {"digit": DIGITS}, {"sum": SUMS}, {"digit": pairs})
    assert (found.count, found.exact, found.some, found.labels) == (1, True, (), ())
    assert str(found).endswith("only the true one, if each input is read on its own")


def test_the_reading_that_a_network_uses() -> None:
    found = lg.shortcuts(addition(), {"digit": DIGITS}, {"sum": SUMS}, {"digit": PAIRS})
    reading = found.some[0]
    truth = np.array(PAIRS)
    read = np.array(reading["digit"])[truth]
    assert found.taken({"digit": truth}, {"digit": read})["digit"][:10] == reading["digit"]


@pytest.mark.parametrize("seed", range(12))
def test_counts_agree_with_enumeration(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = [f"{x}({v})" for x in "xy" for v in range(3)] + ["f"]
    rules = []
    for n in range(8):
        body = [names[int(rng.integers(3))], names[3 + int(rng.integers(3))]]
        rules.append((f"o{n % 3}", body + (["f"] if rng.random() < 0.4 else [])))
    program = lg.Program.from_rules(rules, atoms=[*names, "o0", "o1", "o2"])
    inputs = {"x": lg.Categorical(names[:3]), "y": lg.Categorical(names[3:6]), "f": ["f"]}
    outputs = ["o0", "o1", "o2"]
    n = int(rng.integers(1, 6))
    examples = {
        "x": rng.integers(3, size=n),
        "y": rng.integers(3, size=n),
        "f": rng.integers(2, size=(n, 1)),
    }

    def derived(x: int, y: int, f: int) -> frozenset[str]:
        facts = [f"x({x})", f"y({y})"] + ["f"] * f
        return lg.closure(program, facts).atoms & set(outputs)

    true = [
        derived(*row) for row in zip(examples["x"], examples["y"], examples["f"][:, 0], strict=True)
    ]
    count = sum(
        all(
            derived(rx[x], ry[y], rf[f]) == label
            for x, y, f, label in zip(
                examples["x"], examples["y"], examples["f"][:, 0], true, strict=True
            )
        )
        for rx in product(range(3), repeat=3)
        for ry in product(range(3), repeat=3)
        for rf in product(range(2), repeat=2)
    )
    found = lg.shortcuts(program, inputs, outputs, examples)
    assert (found.count, found.exact) == (count, True)


def test_a_small_budget_gives_a_bound() -> None:
    found = lg.shortcuts(addition(), DIGITS, SUMS, PAIRS, budget=3)
    assert not found.exact
    assert found.count >= 36
    assert "at most" in str(found)


def test_examples_that_do_not_fit_are_refused() -> None:
    with pytest.raises(lg.errors.DataError, match=r"have the shape \(N, 2\)"):
        lg.shortcuts(addition(), DIGITS, SUMS, [1, 2, 3])
    with pytest.raises(lg.errors.DataError, match="whole numbers from 0 to 9"):
        lg.shortcuts(addition(), DIGITS, SUMS, [[1, 12]])
    with pytest.raises(lg.errors.DataError, match="no values for 'digit'"):
        lg.shortcuts(addition(), {"digit": DIGITS}, SUMS, {"digits": [[1, 2]]})


def test_arguments_of_another_kind_are_refused() -> None:
    program = lg.parse("same :- a(0), b(0). same :- a(1), b(1).")
    digits = lg.Categorical([["a(0)", "a(1)"], ["b(0)", "b(1)"]])

    def run(examples: object, given: object = program, **options: object) -> lg.layer.Shortcuts:
        return lg.shortcuts(given, digits, "same", examples, **options)

    for examples in ([[0, 1], [0]], "x", [[None, 1]], [["0", "1"]], {"": [[0, 1]], "e": [[1]]}):
        with pytest.raises(lg.errors.DataError):
            run(examples)
    with pytest.raises(lg.errors.ProgramError, match="takes a Program"):
        run([[0, 1]], "same.")
    for option, value in (("some", -1), ("some", "x"), ("budget", "x"), ("budget", 1.5)):
        with pytest.raises(lg.errors.ArgumentError, match=option):
            run([[0, 1]], **{option: value})
    found = run(np.zeros((0, 2)))
    assert (found.count, found.exact) == (4, True)
    for truth, read in (
        ([0, 1], [1, 0, 1]),
        ([0, -1], [1, 0]),
        ([0, 0.5], [1, 0]),
        ([0, 1], {"d": [1, 0]}),
        ("x", [0]),
    ):
        with pytest.raises(lg.errors.DataError):
            found.taken(truth, read)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 2])
def test_a_network_takes_a_shortcut_and_two_labels_rule_it_out(seed: int) -> None:
    """Digits read from eight sums alone: every sum is right, and hardly any digit."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    import digit_sums as example

    images, labels, unseen, digits = example.load()
    pairs = example.FEW_PAIRS
    found = lg.shortcuts(example.PROGRAM, example.DIGITS, example.SUMS, np.array(pairs))
    network = example.train(images, labels, pairs, seed=seed)
    alone = example.measure(network, unseen, digits, pairs)
    assert alone.sums > 0.9
    assert alone.digits < 0.6
    assert alone.taken != tuple(range(10))
    # What it reads is one of the readings that agree with all labels.
    assert all(alone.taken[x] + alone.taken[y] == x + y for x, y in pairs)
    labelled = tuple(value for _, value in found.labels or ())
    network = example.train(images, labels, pairs, labelled=labelled, seed=seed)
    cured = example.measure(network, unseen, digits, pairs)
    assert cured.digits > 0.9
    assert cured.taken == tuple(range(10))


def test_the_reading_taken_is_the_most_frequent_one() -> None:
    rng = np.random.default_rng(4)
    program = lg.parse("same :- a(0), b(0). same :- a(1), b(1).")
    digits = lg.Categorical([["a(0)", "a(1)"], ["b(0)", "b(1)"]])
    found = lg.shortcuts(program, digits, "same", [[0, 0], [0, 1]])
    for _ in range(50):
        truth, read = rng.integers(0, 6, (2, 40))
        truth = truth[truth != 3]
        read = read[: len(truth)]
        most = max(truth.max(), read.max()) + 1
        wanted = [
            max(range(most), key=lambda seen, v=value: ((read[truth == v] == seen).sum(), -seen))
            if (truth == value).any()
            else -1
            for value in range(most)
        ]
        assert found.taken(truth, read)[""] == tuple(wanted)
    with pytest.raises(lg.errors.DataError, match="numbers of categories"):
        found.taken([0, 1], [1e30, 0])
