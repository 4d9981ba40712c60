"""The symbolic learner: bodies that explain, bodies that are refuted, and noise."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentgamma import DataError, closures, equivalent
from latentgamma._learning.exact_search import (
    Task,
    alternatives,
    cover,
    covered,
    likeliest,
    needed,
    smallest_bodies,
)
from latentgamma._learning.from_closures import _paying, as_program, implications, irredundant
from latentgamma._learning.from_models import canonical_base, common, rules_of_models


def all_states(M):
    return np.array(list(itertools.product([False, True], repeat=M)))


def task_of(bodies, head, M, states=None, noise=0.0, seed=0):
    states = all_states(M) if states is None else states
    states = states[~states[:, head]]
    positive = np.zeros(len(states), bool)
    for body in bodies:
        positive |= covered(states, body)
    flips = np.random.default_rng(seed).random(len(states)) < noise
    allowed = np.arange(M) != head
    return Task(head, states, positive ^ flips, np.ones(len(states), np.int64), allowed, 8)


def antichain(bodies):
    return {b for b in bodies if not any(set(c) < set(b) for c in bodies)}


@settings(max_examples=60, deadline=None)
@given(
    st.sets(
        st.sets(st.integers(1, 6), min_size=1, max_size=4).map(lambda b: tuple(sorted(b))),
        max_size=5,
    )
)
def test_from_all_states_the_learned_bodies_are_the_minimal_true_ones(bodies):
    found = cover(task_of(bodies, 0, 7))
    assert set(found.bodies) == antichain(bodies)
    assert found.unexplained == 0


@settings(max_examples=60, deadline=None)
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
    assert [set(b) for b in smallest_bodies(lacks, 5)] == sorted(expected, key=sorted)


def test_a_body_never_lies_inside_a_negative_state():
    rng = np.random.default_rng(1)
    for seed in range(20):
        states = rng.random((40, 9)) < 0.5
        task = task_of([(1, 2), (3,), (4, 5, 6)], 0, 9, states, seed=seed)
        for body in cover(task).bodies:
            assert task.clashes(body) == 0


def test_a_positive_state_inside_a_negative_one_is_unexplained():
    states = np.array([[0, 1, 0], [0, 1, 1]], bool)
    allowed = np.array([False, True, True])
    task = Task(0, states, np.array([True, False]), np.ones(2, np.int64), allowed, 3)
    found = cover(task)
    assert found.bodies == []
    assert found.unexplained == 1


def test_the_largest_body_is_respected():
    found = cover(task_of([(1, 2, 3)], 0, 6))
    assert found.bodies == [(1, 2, 3)]
    task = task_of([(1, 2, 3)], 0, 6)
    short = Task(task.head, task.states, task.positive, task.counts, task.allowed, 2)
    assert cover(short).bodies == []
    assert cover(short).unexplained == 4


def test_equally_good_bodies_are_told():
    states = np.array([[0, 1, 1], [0, 0, 0]], bool)
    allowed = np.array([False, True, True])
    task = Task(0, states, np.array([True, False]), np.ones(2, np.int64), allowed, 3)
    assert alternatives(task, cover(task).bodies) == {(1,): [(2,)]}
    # One more example decides.
    states = np.vstack([states, [False, False, True]])
    task = Task(0, states, np.array([True, False, False]), np.ones(3, np.int64), allowed, 3)
    assert alternatives(task, cover(task).bodies) == {}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=2, max_size=10),
    st.sampled_from([[(1,)], [(1, 2)], [(1,), (2, 3)]]),
)
def test_alternatives_are_all_bodies_as_short_that_do_as_well(rows, bodies):
    task = task_of(bodies, 0, 5, np.unique(np.array(rows, bool), axis=0))
    found = cover(task).bodies
    told = alternatives(task, found)
    positives = task.states[task.positive]
    for body in found:
        others = [other for other in found if other != body]
        needing = [row for row in positives if not any(row[list(other)].all() for other in others)]
        expected = {
            choice
            for choice in itertools.combinations(range(1, 5), len(body))
            if choice != body
            and not task.clashes(choice)
            and all(row[list(choice)].all() for row in needing)
        }
        assert set(told.get(body, [])) == expected


@pytest.mark.parametrize("seed", range(5))
def test_wrong_labels_do_not_change_the_rules(seed):
    rng = np.random.default_rng(seed)
    states = rng.random((1500, 12)) < 0.4
    bodies = [(1, 2), (3, 4, 5), (6,)]
    task = task_of(bodies, 0, 12, states, noise=0.05, seed=seed)
    assert set(likeliest(task, 0.05).bodies) == set(bodies)


def test_pure_noise_has_no_rules():
    rng = np.random.default_rng(3)
    states = rng.random((1000, 15)) < 0.4
    task = task_of([], 0, 15, states, noise=0.05)
    assert likeliest(task, 0.05).bodies == []


def test_needed_keeps_the_coverage():
    rng = np.random.default_rng(2)
    states = rng.random((50, 6)) < 0.5
    bodies = [(0,), (0, 1), (2, 3), (3,)]
    kept = needed(states, bodies)
    assert set(kept) == {(0,), (3,)}


def test_irredundant_drops_what_others_imply():
    closed = closures(as_program([(1, (0,)), (2, (1,))], 3), all_states(3))
    rules = [(2, (0,)), (1, (0,)), (2, (1,))]
    assert irredundant(rules, closed) == [(2, (1,)), (1, (0,))]


@pytest.mark.parametrize("seed", range(5))
def test_a_rule_that_only_lost_facts_seem_to_need_goes(seed):
    rng = np.random.default_rng(seed)
    rules = [(i + 1, (i - 1, i)) for i in range(1, 11)]  # each atom needs the two before it
    facts = rng.random((800, 12)) < 0.3
    closed = closures(as_program(rules, 12), facts)
    facts, closed = (x ^ (rng.random(x.shape) < 0.02) for x in (facts, closed))
    needless = [(9, (3, 4, 6)), (8, (4, 5, 11))]
    options = {"noise": 0.02, "kept": 0}
    given, known = facts & closed, np.ones_like(closed)
    assert set(_paying([*rules, *needless], given, closed, known, **options)) == set(rules)
    assert _paying(rules[:1], given, closed, known, noise=0.02, kept=1) == rules[:1]


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
    facts = all_states(7)
    closed = closures(program, facts)
    found = implications(
        facts,
        closed,
        np.ones_like(closed),
        ~np.eye(7, dtype=bool),
        lambda tasks, least: [cover(task, least=least) for task in tasks],
        max_body=7,
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


@settings(max_examples=100, deadline=None)
@given(tables)
def test_from_rows_alone_each_set_implies_what_its_rows_share(rows):
    sets = all_states(rows.shape[1])
    expected = np.array([implied(rows, chosen) for chosen in sets])
    assert (common(rows, sets) == expected).all()
    rules = rules_of_models(rows)
    assert (closures(as_program(rules, rows.shape[1]), sets) == expected).all()
    for head, body in rules:  # no atom of a body is needless
        for i in body:
            shorter = np.isin(np.arange(rows.shape[1]), [x for x in body if x != i])
            assert not implied(rows, shorter)[head]


@settings(max_examples=60, deadline=None)
@given(tables)
def test_the_canonical_base_has_the_pseudo_closed_sets_as_premises(rows):
    pseudo = []
    for chosen in sorted(all_states(rows.shape[1]), key=np.sum):
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


def test_rules_that_are_kept_stay_and_need_no_others():
    rows = np.array([[1, 1, 1], [0, 1, 1], [0, 0, 1], [0, 0, 0]], bool)  # a → b → c
    assert set(rules_of_models(rows)) == {(1, (0,)), (2, (1,))}
    assert rules_of_models(rows, [(2, (0,))])[0] == (2, (0,))


def test_a_table_with_too_many_closed_sets_is_refused():
    with pytest.raises(DataError, match="fewer columns"):
        canonical_base(~np.eye(12, dtype=bool), most=1000)
