"""Concept mappings that labels cannot tell apart, counted and compared with enumeration."""

import math
import sys
from functools import cache
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest

import latentgamma as lg
from latentgamma.layer.shortcuts import fewest


def addition(sums: int = 19) -> lg.Program:
    rules = [(f"sum({x + y})", [f"a({x})", f"b({y})"]) for x, y in product(range(10), repeat=2)]
    return lg.Program.from_rules(rules)


DIGITS = lg.Categorical([[f"{name}({d})" for d in range(10)] for name in "ab"])
SUMS = [f"sum({s})" for s in range(19)]
PAIRS = [(0, 6), (2, 8), (4, 6), (4, 8), (1, 5), (3, 7), (1, 9), (3, 9)]


def test_eight_sums_leave_thirty_six_mappings_of_the_digits() -> None:
    found = lg.shortcuts(addition(), {"digit": DIGITS}, {"sum": SUMS}, {"digit": PAIRS})
    assert (found.count, found.exact) == (36, True)
    assert found.labels is not None
    assert sorted(value % 2 for _, value in found.labels) == [0, 1]
    for mapping in found.some:
        seen = mapping["digit"]
        assert all(seen[x] + seen[y] == x + y for x, y in PAIRS)
        assert seen != tuple(range(10))
    assert "36 concept mappings agree" in str(found)


def test_all_sums_leave_the_true_mapping_alone() -> None:
    pairs = list(product(range(10), repeat=2))
    found = lg.shortcuts(addition(), {"digit": DIGITS}, {"sum": SUMS}, {"digit": pairs})
    assert (found.count, found.exact, found.some, found.labels) == (1, True, (), ())
    assert str(found).endswith("only the true one, if each input is read on its own")


def test_the_mapping_that_a_network_uses() -> None:
    found = lg.shortcuts(addition(), {"digit": DIGITS}, {"sum": SUMS}, {"digit": PAIRS})
    mapping = found.some[0]
    truth = np.array(PAIRS)
    read = np.array(mapping["digit"])[truth]
    assert lg.layer.concept_mapping({"digit": truth}, {"digit": read}) == mapping


@cache
def outputs_of(program: lg.Program, row: tuple[int, int, int]) -> tuple[bool, ...]:
    """Which outputs follow from x, y and f."""
    facts = [f"x({row[0]})", f"y({row[1]})"] + ["f"] * row[2]
    return tuple(output in lg.closure(program, facts).atoms for output in ("o0", "o1", "o2"))


class Case:
    """A random program of two categories and a fact, with a few examples, and all its mappings."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = np.random.default_rng(seed)
        names = [f"{x}({v})" for x in "xy" for v in range(3)] + ["f"]
        self.outputs = ["o0", "o1", "o2"]
        rules = []
        for n in range(8):
            body = [names[int(rng.integers(3))], names[3 + int(rng.integers(3))]]
            rules.append((f"o{n % 3}", body + (["f"] if rng.random() < 0.4 else [])))
        atoms = [*names, *self.outputs]
        self.program = lg.Program.from_rules(rules, atoms=atoms)
        self.other = lg.Program.from_rules(rules[:5], atoms=atoms)
        self.inputs = {"x": lg.Categorical(names[:3]), "y": lg.Categorical(names[3:6]), "f": ["f"]}
        n = int(rng.integers(1, 6))
        self.rows = list(zip(*(rng.integers(k, size=n).tolist() for k in (3, 3, 2)), strict=True))
        x, y, f = (np.array(column) for column in zip(*self.rows, strict=True))
        self.examples = {"x": x, "y": y, "f": f[:, None]}
        self.labels = [self.derived(row) for row in self.rows]
        self.mappings = list(
            product(
                product(range(3), repeat=3),
                product(range(3), repeat=3),
                product(range(2), repeat=2),
            )
        )
        self.truth = ((0, 1, 2), (0, 1, 2), (0, 1))

    def derived(self, row, program: lg.Program | None = None) -> tuple[bool, ...]:
        return outputs_of(program or self.program, row)

    def shortcuts(self, **options: object) -> lg.layer.Shortcuts:
        return lg.shortcuts(self.program, self.inputs, self.outputs, self.examples, **options)

    def seen(self, mapping, row) -> tuple[int, ...]:
        return tuple(part[value] for part, value in zip(mapping, row, strict=True))

    def agreeing(self, program: lg.Program | None = None) -> list[tuple]:
        return [
            mapping
            for mapping in self.mappings
            if all(
                self.derived(self.seen(mapping, row), program) == label
                for row, label in zip(self.rows, self.labels, strict=True)
            )
        ]


@pytest.mark.parametrize("seed", range(12))
def test_counts_and_fewest_labels_agree_with_enumeration(seed: int) -> None:
    case = Case(seed)
    agreeing = case.agreeing()
    found = case.shortcuts()
    assert (found.count, found.exact) == (len(agreeing), True)

    def left(known: set[tuple[str, int]]) -> int:
        """How many mappings are right on these values."""
        return sum(
            all(m["xyf".index(name)][value] == value for name, value in known) for m in agreeing
        )

    values = [("x", v) for v in range(3)] + [("y", v) for v in range(3)] + [("f", 0), ("f", 1)]
    assert found.labels is not None
    assert left(set(found.labels)) == 1
    for fewer in combinations(values, max(0, len(found.labels) - 1)):
        assert left(set(fewer)) > 1 or not found.labels
    every = [set(zip("xyf", row, strict=True)) for row in case.rows]
    sufficient = [
        size
        for size in range(len(every) + 1)
        for chosen in combinations(every, size)
        if left(set().union(*chosen)) == 1
    ]
    if found.examples is None:
        assert not sufficient
    else:
        assert left(set().union(*(every[n] for n in found.examples))) == 1
        assert len(found.examples) == min(sufficient)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_uncertain_labels_agree_with_enumeration(seed: int) -> None:
    case = Case(seed)
    labels = case.rng.uniform(0.05, 0.95, (len(case.rows), 3))

    def loss(mapping) -> float:
        return -sum(
            math.log(p if true else 1 - p)
            for row, ps in zip(case.rows, labels, strict=True)
            for p, true in zip(ps, case.derived(case.seen(mapping, row)), strict=True)
        )

    losses = [loss(mapping) for mapping in case.mappings]
    for slack in (0.0, 1.5):
        count = sum(one <= loss(case.truth) + slack + 1e-9 for one in losses)
        found = case.shortcuts(labels=labels, slack=slack)
        assert (found.count, found.exact) == (count, True)
        agreeing = [
            m
            for m, one in zip(case.mappings, losses, strict=True)
            if one <= loss(case.truth) + slack + 1e-9
        ]
        assert found.labels is not None
        sizes = {len(found.labels): [found.labels]}
        values = [
            (name, v) for name, size in zip("xyf", (3, 3, 2), strict=True) for v in range(size)
        ]
        sizes[len(found.labels) - 1] = list(combinations(values, max(0, len(found.labels) - 1)))
        for size, choices in sizes.items():
            left = [
                sum(all(m["xyf".index(x)][v] == v for x, v in known) for m in agreeing)
                for known in choices
            ]
            assert (min(left) == 1) is (size == len(found.labels) or not found.labels)
    certain = case.shortcuts(labels=np.array(case.labels, float))
    assert certain.count == len(case.agreeing())


def test_uncertain_labels_of_categories_count_the_one_true_atom() -> None:
    rng = np.random.default_rng(0)
    pairs = list(product(range(3), repeat=2))
    rules = [(f"sum({x + y})", [f"a({x})", f"b({y})"]) for x, y in pairs]
    program = lg.Program.from_rules([*rules, ("none", ["c"])])
    digits = lg.Categorical([[f"{name}({d})" for d in range(3)] for name in "ab"])
    sums = lg.Categorical([f"sum({s})" for s in range(5)])
    labels = rng.dirichlet(np.ones(5), len(pairs))
    losses = [
        -sum(math.log(p[m[x] + m[y]]) for p, (x, y) in zip(labels, pairs, strict=True))
        for m in product(range(3), repeat=3)
    ]
    truth = losses[list(product(range(3), repeat=3)).index((0, 1, 2))]
    for slack in (0.0, 2.0):
        found = lg.shortcuts(program, digits, sums, pairs, labels=labels, slack=slack)
        assert found.count == sum(one <= truth + slack + 1e-9 for one in losses)
    impossible = np.zeros((9, 5))
    impossible[:, 4] = 1
    with pytest.raises(lg.errors.DataError, match="probability 0"):
        lg.shortcuts(program, digits, sums, pairs, labels=impossible)
    with pytest.raises(lg.errors.DataError, match="sum to 1"):
        lg.shortcuts(program, digits, sums, pairs, labels=labels / 2)
    with pytest.raises(lg.errors.DataError, match=r"the shape \(9, 5\)"):
        lg.shortcuts(program, digits, sums, pairs, labels=labels[:, 1:])


def test_a_gain_in_one_component_pays_for_a_loss_in_another() -> None:
    program = lg.parse("x :- a(1). y :- b(1). #external a(0). #external b(0).")
    inputs = {name: lg.Categorical([f"{name}(0)", f"{name}(1)"]) for name in "ab"}
    # Two components: {a 1, b 0} and {a 0, b 1}. Taking a 1 for 0 gains log 7/3, b 1 for 0 loses log 3/2.
    labels = [[0.3, 0.5], [0.5, 0.6]]
    found = lg.shortcuts(program, inputs, ["x", "y"], {"a": [1, 0], "b": [0, 1]}, labels=labels)
    assert found.count == 2 * 2 * (1 + 2)  # b 1 is wrong only if a 1 is wrong
    assert found.labels == (("a", 0), ("a", 1), ("b", 0))


@pytest.mark.parametrize("seed", range(6))
def test_a_network_that_sees_all_inputs_maps_each_example_on_its_own(seed: int) -> None:
    case = Case(seed)
    worlds = list(product(range(3), range(3), range(2)))
    distinct = dict.fromkeys(case.rows)
    alike = {
        row: [world for world in worlds if case.derived(world) == case.derived(row)]
        for row in distinct
    }
    # Every function from the distinct examples to worlds with the same label.
    count = sum(1 for _ in product(*alike.values()))
    found = case.shortcuts(joint=True)
    assert (found.count, found.exact, found.some, found.labels) == (count, True, (), None)
    several = [case.rows.index(row) for row in distinct if len(alike[row]) > 1]
    assert found.examples == tuple(sorted(several))


@pytest.mark.parametrize("seed", range(6))
def test_any_rules_agree_with_enumeration(seed: int) -> None:
    case = Case(seed)

    def consistent(mapping) -> bool:
        label_of: dict[tuple[int, ...], tuple[bool, ...]] = {}
        return all(
            label_of.setdefault(case.seen(mapping, row), label) == label
            for row, label in zip(case.rows, case.labels, strict=True)
        )

    agreeing = [mapping for mapping in case.mappings if consistent(mapping)]
    partitions = {tuple(tuple(part.index(v) for v in part) for part in m) for m in agreeing}
    found = case.shortcuts(rules="any")
    assert (found.count, found.exact) == (len(agreeing), True)
    assert found.partitions == len(partitions)
    for mapping in found.some:
        assert consistent(tuple(mapping.values()))
    assert f"{len(partitions)} up to renaming" in str(found)


@pytest.mark.slow
def test_programs_that_may_be_learned_instead() -> None:
    for seed in range(6):
        case = Case(seed)
        found = case.shortcuts(rules=[case.program, case.other])
        both = len(case.agreeing()) + len(case.agreeing(case.other))
        assert (found.count, found.exact, found.labels) == (both, True, None)


def test_equal_rows_and_columns_are_all_that_any_rules_leave() -> None:
    """Of less-than, each digit is told apart; of parities, even and odd digits alone."""
    pairs = list(product(range(10), repeat=2))

    def left(label) -> lg.layer.Shortcuts:
        rules = [("yes", [f"a({x})", f"b({y})"]) for x, y in pairs if label(x, y)]
        program = lg.Program.from_rules(rules, atoms=[*DIGITS.atoms.ravel().tolist(), "yes"])
        return lg.shortcuts(program, DIGITS, "yes", pairs, rules="any")

    for determined in (lambda x, y: x < y, lambda x, y: y == x + 1):
        found = left(determined)
        assert (found.count, found.partitions, found.some) == (math.factorial(10), 1, ())
        assert str(found).endswith("the labels determine the concepts up to renaming")
    found = left(lambda x, y: (x + y) % 2)
    # 52 partitions of the five even digits, 52 of the odd ones.
    assert (found.count, found.partitions) == (833_763_690, 52**2)


def test_options_that_do_not_go_together_are_refused() -> None:
    case = Case(0)
    for options, match in (
        ({"rules": "any", "joint": True}, "only one"),
        ({"slack": 1.0}, "slack is for labels"),
        ({"rules": "all"}, "rules"),
        ({"rules": [lg.parse("a.")]}, "atoms of the first"),
        ({"slack": -1.0, "labels": 0}, "slack"),
    ):
        with pytest.raises(lg.errors.ArgumentError, match=match):
            case.shortcuts(**options)
    for labels, match in ((np.full((1, 1), 2.0), "shape"), ({"o": 0}, "no probabilities")):
        with pytest.raises(lg.errors.DataError, match=match):
            case.shortcuts(labels=labels)
    many = case.shortcuts(rules="any", budget=1)
    assert (many.exact, many.partitions) == (False, None)
    assert many.count >= case.shortcuts(rules="any").count


def test_the_fewest_choices_agree_with_enumeration() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        sets, choices = (
            [
                frozenset(rng.choice(8, int(rng.integers(1, 4)), replace=False).tolist())
                for _ in range(n)
            ]
            for n in rng.integers(1, 7, 2)
        )
        sufficient = [
            chosen
            for size in range(len(choices) + 1)
            for chosen in combinations(range(len(choices)), size)
            if all(any(choices[n] & one for n in chosen) for one in sets)
        ]
        found = fewest(sets, choices, 10_000)
        assert (found is None) is (not sufficient)
        if found is not None:
            assert found in sufficient
            assert len(found) == min(map(len, sufficient))
    assert fewest([frozenset({1})], [frozenset({1})], 0) is None


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
            lg.layer.concept_mapping(truth, read)


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
    assert alone.mapping != tuple(range(10))
    # It learned one of the mappings that agree with all labels.
    assert all(alone.mapping[x] + alone.mapping[y] == x + y for x, y in pairs)
    labelled = tuple(value for _, value in found.labels or ())
    network = example.train(images, labels, pairs, labelled=labelled, seed=seed)
    cured = example.measure(network, unseen, digits, pairs)
    assert cured.digits > 0.9
    assert cured.mapping == tuple(range(10))


def test_the_mapping_is_the_most_frequent_prediction() -> None:
    rng = np.random.default_rng(4)
    for _ in range(50):
        truth, read = rng.integers(0, 6, (2, 40))
        truth = truth[truth != 3]
        read = read[: len(truth)]
        most = truth.max() + 1
        wanted = [
            max(range(6), key=lambda seen, v=value: ((read[truth == v] == seen).sum(), -seen))
            if (truth == value).any()
            else -1
            for value in range(most)
        ]
        assert lg.layer.concept_mapping(truth, read)[""] == tuple(wanted)
    with pytest.raises(lg.errors.DataError, match="numbers of categories"):
        lg.layer.concept_mapping([0, 1], [1e30, 0])


def test_as_many_wrong_mappings_are_returned_as_were_asked_for() -> None:
    program = lg.parse("x :- a(0). y :- b(0). #external a(1). #external b(1).")
    inputs = {name: lg.Categorical([f"{name}(0)", f"{name}(1)"]) for name in "ab"}
    found = lg.shortcuts(program, inputs, ["x", "y"], {"a": [0], "b": [0]}, some=10)
    every = [
        {"a": (0, one), "b": (0, two)} for one, two in product((0, 1), repeat=2) if one * two == 0
    ]
    assert found.count == 4
    assert len(found.some) == 3
    assert sorted(map(str, found.some)) == sorted(map(str, every))
    assert len(lg.shortcuts(program, inputs, ["x", "y"], {"a": [0], "b": [0]}, some=2).some) == 2


@pytest.mark.filterwarnings("error")
def test_examples_that_are_not_numbers_are_refused_without_a_warning() -> None:
    program = lg.parse("x :- a(0). #external a(1).")
    atoms = lg.Categorical(["a(0)", "a(1)"])
    with pytest.raises(lg.errors.DataError, match="whole numbers from 0 to 1"):
        lg.shortcuts(program, atoms, "x", [math.nan])


def test_values_that_all_labels_treat_alike_are_counted_together() -> None:
    pairs = list(product(range(10), repeat=2))
    rules = [(f"parity({(x + y) % 2})", [f"a({x})", f"b({y})"]) for x, y in pairs]
    digits = lg.Categorical([[f"{name}({d})" for d in range(10)] for name in "ab"])
    found = lg.shortcuts(
        lg.Program.from_rules(rules), digits, ["parity(0)", "parity(1)"], pairs, budget=10_000
    )
    # All parities right or all wrong, and every digit any one of the five with its parity.
    assert (found.count, found.exact) == (2 * 5**10, True)
    assert found.labels == tuple(("", digit) for digit in range(10))
    assert found.examples is not None
    assert sorted(digit for n in found.examples for digit in pairs[n]) == list(range(10))
    for mapping in found.some:
        values = mapping[""]
        assert len({(values[digit] - digit) % 2 for digit in range(10)}) == 1
        assert values != tuple(range(10))
    assert len(set(map(str, found.some))) == 10


def test_values_are_printed_as_atoms_where_each_is_one() -> None:
    program = lg.parse("warm :- c(red). warm :- c(amber). cold :- c(blue).")
    colours = lg.Categorical(["c(red)", "c(blue)", "c(amber)"])
    said = str(lg.shortcuts(program, colours, ["warm", "cold"], [0, 1, 2]))
    assert "for example c(red) as c(amber)\n" in said
    assert "rule out the others: c(red), c(amber)" in said
