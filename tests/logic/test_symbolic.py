"""The symbolic learner: bodies that explain, bodies that are refuted, and noise."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentgamma import closures, equivalent
from latentgamma.errors import DataError
from latentgamma.learning.bodies import HeadTask, as_program, covered, remove_implied
from latentgamma.learning.closures import ClosureExamples, rules_from_closures, worth_keeping
from latentgamma.learning.exact import (
    add_alternatives,
    drop_redundant,
    find_rules,
    smallest_bodies,
)
from latentgamma.learning.implications import (
    canonical_base,
    common,
    rules_of_models,
)
from latentgamma.learning.noisy import find_likely_rules
from reference import every_fact_set


def task_of(bodies, head, M, states=None, noise=0.0, seed=0):
    states = every_fact_set(M) if states is None else states
    states = states[~states[:, head]]
    positive = np.zeros(len(states), bool)
    for body in bodies:
        positive |= covered(states, body)
    flips = np.random.default_rng(seed).random(len(states)) < noise
    allowed = np.arange(M) != head
    return HeadTask(head, states, positive ^ flips, np.ones(len(states), np.int64), allowed, 8)


def antichain(bodies):
    return {b for b in bodies if not any(set(c) < set(b) for c in bodies)}


@settings(max_examples=30, deadline=None)
@given(
    st.sets(
        st.sets(st.integers(1, 6), min_size=1, max_size=4).map(lambda b: tuple(sorted(b))),
        max_size=5,
    )
)
def test_from_all_states_the_learned_bodies_are_the_minimal_true_ones(bodies):
    found = find_rules(task_of(bodies, 0, 7))
    assert set(found.bodies) == antichain(bodies)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=1, max_size=8))
def test_smallest_bodies_are_all_the_smallest_hitting_sets(rows):
    lacks = np.array(rows, bool)
    hitting = [
        set(c)
        for size in range(6)
        for c in itertools.combinations(range(5), size)
        if lacks[:, list(c)].any(1).all()
    ]
    least = min((len(c) for c in hitting), default=None)
    expected = [c for c in hitting if len(c) == least]
    assert [set(b) for b in smallest_bodies(lacks, 5).bodies] == sorted(expected, key=sorted)


def test_a_body_never_lies_inside_a_negative_state():
    rng = np.random.default_rng(1)
    for seed in range(20):
        states = rng.random((40, 9)) < 0.5
        task = task_of([(1, 2), (3,), (4, 5, 6)], 0, 9, states, seed=seed)
        for body in find_rules(task).bodies:
            assert task.counterexamples(body) == 0


def test_a_positive_state_inside_a_negative_one_is_unexplained():
    states = np.array([[0, 1, 0], [0, 1, 1]], bool)
    allowed = np.array([False, True, True])
    task = HeadTask(0, states, np.array([True, False]), np.ones(2, np.int64), allowed, 3)
    found = find_rules(task)
    assert found.bodies == []


def test_the_largest_body_is_respected():
    found = find_rules(task_of([(1, 2, 3)], 0, 6))
    assert found.bodies == [(1, 2, 3)]
    task = task_of([(1, 2, 3)], 0, 6)
    short = HeadTask(task.head, task.states, task.positive, task.counts, task.allowed, 2)
    assert find_rules(short).bodies == []


def with_alternatives(task):
    found = find_rules(task)
    add_alternatives(task, found)
    return found


def test_bodies_that_fit_as_well_are_reported_until_an_example_decides():
    # Three of the four lines of h = a and b leave h :- a and h :- a, b.
    states = np.array([[0, 1, 1], [0, 0, 1], [0, 0, 0]], bool)
    allowed = np.array([False, True, True])
    task = HeadTask(0, states, np.array([True, False, False]), np.ones(3, np.int64), allowed, 3)
    assert with_alternatives(task).bodies == [(1,)]
    assert with_alternatives(task).alternatives == {(1,): [(1, 2)]}
    states = np.vstack([states, [False, True, False]])
    positive = np.array([True, False, False, False])
    task = HeadTask(0, states, positive, np.ones(4, np.int64), allowed, 3)
    assert with_alternatives(task).bodies == [(1, 2)]
    assert with_alternatives(task).alternatives == {}


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=2, max_size=10),
    st.sampled_from([[(1,)], [(1, 2)], [(1,), (2, 3)], [(1, 2, 3), (2, 4)]]),
    st.integers(2, 4),
)
def test_alternatives_are_the_bounds_of_all_bodies_that_fit(rows, bodies, max_body):
    task = task_of(bodies, 0, 5, np.unique(np.array(rows, bool), axis=0))
    task = dataclasses.replace(task, max_body=max_body)
    found = with_alternatives(task)
    positives = task.states[task.positive]
    for body in found.bodies:
        others = [other for other in found.bodies if other != body]
        needing = [row for row in positives if not any(row[list(other)].all() for other in others)]
        fitting = {
            choice
            for size in range(max_body + 1)
            for choice in itertools.combinations(range(1, 5), size)
            if not task.counterexamples(choice) and all(row[list(choice)].all() for row in needing)
        }
        assert body in fitting
        alternatives = found.alternatives.get(body, [])
        assert set(alternatives) <= fitting - {body}
        assert bool(alternatives) == (len(fitting) > 1)
        shortest = min(map(len, fitting))
        assert len(body) == shortest
        assert {b for b in fitting if len(b) == shortest} <= {body, *alternatives}
        if alternatives:
            assert len(alternatives[-1]) == max(map(len, fitting))


def literals(rng, count, coins):
    heads = rng.random((count, coins)) < 0.5
    return np.stack([heads, ~heads], 2).reshape(count, 2 * coins)


@pytest.mark.quick_first
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("coins", "bodies", "size"), [(35, 1, 8), (35, 3, 7), (120, 1, 8)])
def test_long_conjunctions_of_many_literals_are_found(seed, coins, bodies, size):
    rng = np.random.default_rng(seed)
    states = np.hstack([np.zeros((4000, 1), bool), literals(rng, 4000, coins)])  # head: atom 0
    true = {
        tuple(sorted((1 + 2 * rng.choice(coins, size, False) + rng.integers(0, 2, size)).tolist()))
        for _ in range(bodies)
    }
    found = with_alternatives(task_of(true, 0, 2 * coins + 1, states))
    assert set(found.bodies) == true
    assert found.unproved == 0
    assert found.alternatives == {}


def test_a_search_that_was_cut_short_claims_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    states = np.hstack([np.zeros((300, 1), bool), literals(rng, 300, 20)])
    task = task_of([(1, 4, 6, 7, 10)], 0, 41, states)
    task = dataclasses.replace(task, max_body=12)
    lacks = ~task.negatives[:, np.flatnonzero(task.positives[0])]
    assert smallest_bodies(lacks, 12).proved
    cut_short = smallest_bodies(lacks, 12, visits=3)
    assert not cut_short.proved
    (body,) = cut_short.bodies
    assert lacks[:, body].any(1).all()
    assert not any(lacks[:, [i for i in body if i != j]].any(1).all() for j in body)


def test_a_body_above_the_limit_is_counted_and_left_out():
    task = dataclasses.replace(task_of([(1, 2, 3)], 0, 6), max_body=2)
    found = find_rules(task)
    assert found.bodies == []
    assert found.too_long == 4
    inside = np.array([[0, 1, 0], [0, 1, 1]], bool)  # no body at all would do
    allowed = np.array([False, True, True])
    task = HeadTask(0, inside, np.array([True, False]), np.ones(2, np.int64), allowed, 1)
    assert find_rules(task).too_long == 0


@pytest.mark.parametrize("seed", range(5))
def test_wrong_labels_do_not_change_the_rules(seed):
    rng = np.random.default_rng(seed)
    states = rng.random((1500, 12)) < 0.4
    bodies = [(1, 2), (3, 4, 5), (6,)]
    task = task_of(bodies, 0, 12, states, noise=0.05, seed=seed)
    assert set(find_likely_rules(task, 0.05).bodies) == set(bodies)


def test_pure_noise_has_no_rules():
    rng = np.random.default_rng(3)
    states = rng.random((1000, 15)) < 0.4
    task = task_of([], 0, 15, states, noise=0.05)
    assert find_likely_rules(task, 0.05).bodies == []


def test_needed_keeps_the_coverage():
    rng = np.random.default_rng(2)
    states = rng.random((50, 6)) < 0.5
    bodies = [(0,), (0, 1), (2, 3), (3,)]
    kept = drop_redundant(states, bodies)
    assert set(kept) == {(0,), (3,)}


def test_irredundant_drops_what_others_imply():
    closed = closures(as_program([(1, (0,)), (2, (1,))], 3), every_fact_set(3))
    rules = [(2, (0,)), (1, (0,)), (2, (1,))]
    assert remove_implied(rules, closed) == [(2, (1,)), (1, (0,))]


@pytest.mark.parametrize("seed", range(5))
def test_a_rule_that_only_lost_facts_seem_to_need_goes(seed):
    rng = np.random.default_rng(seed)
    rules = [(i + 1, (i - 1, i)) for i in range(1, 11)]  # each atom needs the two before it
    facts = rng.random((800, 12)) < 0.3
    closed = closures(as_program(rules, 12), facts)
    facts, closed = (x ^ (rng.random(x.shape) < 0.02) for x in (facts, closed))
    needless = [(9, (3, 4, 6)), (8, (4, 5, 11))]
    known, allowed = np.ones_like(closed), np.ones((12, 12), bool)
    examples = ClosureExamples(facts & closed, closed, known, allowed, 3)
    assert set(worth_keeping([*rules, *needless], examples, 0.02)) == set(rules)
    with_one = dataclasses.replace(examples, kept=needless[:1])
    assert worth_keeping(needless[:1], with_one, 0.02) == needless[:1]


@pytest.mark.parametrize("seed", range(4))
def test_all_closures_identify_the_program(seed):
    rng = np.random.default_rng(seed)
    rules = [
        (
            int(head),
            tuple(sorted(rng.choice([i for i in range(7) if i != head], size, False).tolist())),
        )
        for head, size in zip(rng.integers(0, 7, 8), rng.integers(1, 4, 8), strict=True)
    ]
    program = as_program(rules, 7)
    facts = every_fact_set(7)
    closed = closures(program, facts)
    found = rules_from_closures(
        ClosureExamples(facts, closed, np.ones_like(closed), ~np.eye(7, dtype=bool), 7),
        lambda tasks, least: [find_rules(task, least=least) for task in tasks],
    )
    assert equivalent(as_program(found, 7), program)


tables = (
    st.integers(1, 6)
    .flatmap(
        lambda M: st.lists(st.lists(st.booleans(), min_size=M, max_size=M), min_size=1, max_size=8)
    )
    .map(lambda rows: np.array(rows, bool))
)


def implied(rows, chosen):
    return rows[(rows | ~chosen).all(1)].all(0)


@settings(max_examples=40, deadline=None)
@given(tables)
def test_from_rows_alone_each_set_implies_what_its_rows_share(rows):
    sets = every_fact_set(rows.shape[1])
    expected = np.array([implied(rows, chosen) for chosen in sets])
    assert (common(rows, sets) == expected).all()
    rules = rules_of_models(rows)
    assert (closures(as_program(rules, rows.shape[1]), sets) == expected).all()
    for head, body in rules:  # no atom of a body is needless
        for i in body:
            shorter = np.isin(np.arange(rows.shape[1]), [x for x in body if x != i])
            assert not implied(rows, shorter)[head]


@settings(max_examples=30, deadline=None)
@given(tables)
def test_the_canonical_base_has_the_pseudo_closed_sets_as_premises(rows):
    pseudo = []
    for chosen in sorted(every_fact_set(rows.shape[1]), key=np.sum):
        below = [p for p in pseudo if (p <= chosen).all()]
        if (
            all((implied(rows, p) <= chosen).all() for p in below)
            and (implied(rows, chosen) != chosen).any()
        ):
            pseudo.append(chosen)
    premises, conclusions = canonical_base(rows)
    assert {p.tobytes() for p in premises} == {p.tobytes() for p in pseudo}
    assert len(premises) == len(pseudo)
    assert all((implied(rows, p) == c).all() for p, c in zip(premises, conclusions, strict=True))


@pytest.mark.parametrize("width", [9, 70])
def test_compiled_code_applies_the_same_implications(monkeypatch, width):
    rng = np.random.default_rng(width)
    rows = rng.random((12, width)) < 0.9 if width > 9 else rng.random((30, 9)) < 0.6
    expected = canonical_base(rows)
    monkeypatch.setattr("latentgamma.learning.implications._MANY_TESTS", 0)
    found = canonical_base(rows)
    assert len(found[0]) > 10
    for one, other in zip(found, expected, strict=True):
        assert {row.tobytes() for row in one} == {row.tobytes() for row in other}


def test_rules_that_are_kept_stay_and_need_no_others():
    rows = np.array([[1, 1, 1], [0, 1, 1], [0, 0, 1], [0, 0, 0]], bool)  # a → b → c
    assert set(rules_of_models(rows)) == {(1, (0,)), (2, (1,))}
    assert rules_of_models(rows, [(2, (0,))])[0] == (2, (0,))


@settings(max_examples=40, deadline=None)
@given(tables)
def test_the_limit_is_on_the_number_of_closed_sets(rows):
    closed = {implied(rows, chosen).tobytes() for chosen in every_fact_set(rows.shape[1])}
    canonical_base(rows, most=len(closed))
    with pytest.raises(DataError, match=f"more than {len(closed) - 1:,} closed sets"):
        canonical_base(rows, most=len(closed) - 1)
