"""Facts mean the same everywhere, and integers are never guessed at."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import latentgamma as lg
from latentgamma import Program
from latentgamma.errors import FactsError
from latentgamma.program.facts import (
    fact_mask,
    fact_masks,
    fact_rows,
    fact_values,
)

PROGRAM = lg.parse("c :- a, b. d :- c. edge(x,y) :- d.")  # atoms c a b d edge(x,y)
A, B = PROGRAM.index["a"], PROGRAM.index["b"]
MASK = PROGRAM.mask(["a", "b"])

ONE_SET: dict[str, Any] = {
    "names": ["a", "b"],
    "a tuple": ("a", "b"),
    "a set of names": {"a", "b"},
    "names in an array": np.array(["a", "b"]),
    "names in an object array": np.array(["a", "b"], object),
    "indices": [A, B],
    "indices in a set": {A, B},
    "indices in an array": np.array([A, B]),
    "indices in an unsigned array": np.array([A, B], np.uint8),
    "a name and an index": ["a", B],
    "a range": range(1, 3),
    "booleans": MASK,
    "a list of booleans": MASK.tolist(),
    "a tensor of booleans": torch.from_numpy(MASK),
    "integers 0 and 1": MASK.astype(int),
    "small integers 0 and 1": MASK.astype(np.int8),
    "a tensor of integers": torch.from_numpy(MASK).long(),
    "a state": MASK.astype(float),
    "a list of floats": MASK.astype(float).tolist(),
    "a tensor": torch.from_numpy(MASK).bfloat16(),
    "a tensor with gradient": torch.from_numpy(MASK).float().requires_grad_(),
    "a dictionary": {"a": 1, "b": True},
    "a dictionary with falsehoods": {"a": 1.0, "b": 1, "c": 0.0, "d": False},
    "a dictionary of indices": {A: 1, B: 1},
    "an iterator": iter(["a", "b"]),
    "a closure": lg.closure(lg.parse("a. b."), []),
}
IN_A_FEW_FORMS = [name for name in ONE_SET if name != "an iterator"]


def ask_step(program: Program, facts: Any) -> set[str]:
    return lg.logic.step(program, facts) - {"c"}


def ask_derivation(program: Program, facts: Any) -> frozenset[str]:
    proof = lg.derivation(program, facts, "c")
    assert proof is not None
    return proof.facts


def ask_why_not(program: Program, facts: Any) -> set[str]:
    larger = Program.from_rules(
        [*program.rules, ("e", ["a", "b", "f"])], (*program.atoms, "e", "f")
    )
    if not isinstance(facts, (dict, list, set, frozenset, tuple, range, lg.logic.Closure)) and (
        len(facts) == program.M
    ):
        facts = np.append(np.asarray(torch.as_tensor(facts).detach().double()), [0, 0])
    elif isinstance(facts, list) and len(facts) == program.M:
        facts = [*facts, type(facts[0])(0), type(facts[0])(0)]
    answer = lg.why_not(larger, facts, "e")
    assert answer is not None
    return {"a", "b", "f"} - set(answer.missing)


QUESTIONS: dict[str, Callable[[Program, Any], Any]] = {
    "mask": lambda program, facts: program.names(program.mask(facts)),
    "state": lambda program, facts: program.names(program.state(facts)),
    "step": ask_step,
    "closure": lambda program, facts: lg.closure(program, facts).levels[0],
    "closures": lambda program, facts: program.names(lg.closures(program, [facts])[0]) & {"a", "b"},
    "derivation": ask_derivation,
    "derivations": lambda program, facts: lg.derivations(program, facts).facts,
    "why_not": ask_why_not,
    "model.state": lambda program, facts: program.names(lg.oracle(program).state(facts)),
    "gradient_report": lambda program, facts: set(
        lg.paper.gradient_report(lg.oracle(program), facts).facts
    ),
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("form", IN_A_FEW_FORMS)
def test_every_function_reads_every_form(question: str, form: str) -> None:
    assert QUESTIONS[question](PROGRAM, ONE_SET[form]) == {"a", "b"}


def test_an_iterator_is_read_once() -> None:
    assert np.array_equal(fact_mask(PROGRAM, iter(["a", "b"])), MASK)
    assert np.array_equal(fact_masks(PROGRAM, (iter(x) for x in (["a", "b"], []))).sum(1), [2, 0])


@pytest.mark.parametrize("empty", [(), [], set(), {}, np.array([]), np.array([], int), "", None])
def test_no_facts(empty: Any) -> None:
    if empty is None or isinstance(empty, str):
        with pytest.raises(FactsError):
            fact_mask(PROGRAM, empty)
    else:
        assert not fact_mask(PROGRAM, empty).any()


# ---------------------------------------------------------------- what used to be wrong


def test_integers_0_and_1_are_a_state() -> None:
    program = lg.parse("#external a. #external b. #external c. d :- b.")
    assert lg.closure(program, np.array([0, 0, 0, 1])).atoms == {"d"}
    rows = np.array([[0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]])
    expected = [[False, True, False, True], [False, False, False, True], [False] * 4]
    assert lg.closures(program, rows).tolist() == expected
    assert lg.closures(program, rows.astype(float)).tolist() == expected
    assert lg.closures(program, torch.from_numpy(rows)).tolist() == expected


def test_the_values_of_a_dictionary_count() -> None:
    program = lg.parse("c :- b.")
    assert lg.closure(program, {"b": 0.0}).atoms == set()
    assert lg.closure(program, {"b": False}).atoms == set()
    assert lg.closure(program, {"b": 1}).atoms == {"b", "c"}
    assert lg.closures(program, [{"b": 0}, {"b": 1}]).tolist() == [[False, False], [True, True]]


def test_names_may_be_written_as_in_rule_text() -> None:
    assert lg.closure(PROGRAM, ["edge( x, y )"]).atoms == {"edge(x,y)"}
    assert lg.derivation(PROGRAM, ["a", "b"], "edge(x, y)").atom == "edge(x,y)"
    assert fact_values(PROGRAM, {"'edge(x,y)'": 0.5})[PROGRAM.index["edge(x,y)"]] == 0.5


# ---------------------------------------------------------------- soft values


def test_soft_values_are_for_models() -> None:
    soft = {"a": 0.7, "b": 1}
    expected = np.zeros(5)
    expected[[A, B]] = 0.7, 1
    for form in (soft, expected, expected.tolist(), torch.from_numpy(expected)):
        assert np.array_equal(PROGRAM.state(form), expected)
        assert torch.equal(lg.oracle(PROGRAM).state(form), torch.from_numpy(expected).float())
        for ask in (lg.closure, lg.logic.step, fact_mask, fact_masks):
            with pytest.raises(
                FactsError, match=r"'a' has the value 0\.7, but here a fact is true"
            ):
                ask(PROGRAM, form)
    assert np.array_equal(PROGRAM.state([soft, {}]), [expected, np.zeros(5)])
    with pytest.raises(FactsError, match=r"'a' has the value 0\.7"):
        lg.closures(PROGRAM, np.stack([expected, expected]))


@pytest.mark.parametrize("value", [-0.1, 1.5, np.nan, np.inf])
def test_values_lie_between_0_and_1(value: float) -> None:
    for form in ({"a": value}, np.where(np.arange(5) == A, value, 0.0)):
        with pytest.raises(FactsError, match=r"'a' has the value .*; the values of a state lie"):
            PROGRAM.state(form)


# ---------------------------------------------------------------- integers are never guessed at


def by_the_rule(M: int, values: tuple[int, ...]) -> set[int] | None:
    """The documented meaning of an integer array, in sets; None where it must be refused."""
    state = len(values) == M and set(values) <= {0, 1}
    distinct = len(set(values)) == len(values)
    indices = all(0 <= v < M for v in values) and distinct
    if state and indices:
        return None if values else set()
    if state:
        return {i for i, v in enumerate(values) if v}
    if len(values) == M or set(values) <= {0, 1}:  # it resembles a state
        return set(values) if indices else None
    return set(values) if all(0 <= v < M for v in values) else None


def test_every_short_array_of_integers() -> None:
    for M in range(5):
        program = Program.from_rules([], atoms=[f"p{i}" for i in range(M)])
        for n in range(5):
            for values in product(range(-1, 4), repeat=n):
                expected = by_the_rule(M, values)
                if expected is None:
                    with pytest.raises(FactsError):
                        fact_mask(program, np.array(values, int))
                else:
                    read = fact_mask(program, np.array(values, int))
                    assert set(np.flatnonzero(read)) == expected


def test_every_short_list_of_integers() -> None:
    for M in range(1, 5):
        program = Program.from_rules([], atoms=[f"p{i}" for i in range(M)])
        for n in range(5):
            for values in product(range(M), repeat=n):
                assert set(np.flatnonzero(fact_mask(program, set(values)))) == set(values)
                for form in (list(values), values):
                    if n == M and set(values) <= {0, 1}:
                        with pytest.raises(
                            FactsError, match="or the indices of some; use booleans"
                        ):
                            fact_mask(program, form)
                        with pytest.raises(FactsError, match=r"fact set 0: .* or the indices"):
                            fact_rows(program, [form])
                    else:
                        assert set(np.flatnonzero(fact_mask(program, form))) == set(values)
                        assert set(np.flatnonzero(fact_rows(program, [form])[0])) == set(values)


def test_a_matrix_of_integers_is_read_as_a_whole() -> None:
    pair = lg.parse("#external a. #external b.")
    assert lg.closures(pair, np.array([[0, 1], [1, 1]])).tolist() == [[False, True], [True, True]]
    with pytest.raises(FactsError, match="can be the values of all 2 atoms or the indices"):
        lg.closures(pair, np.array([[0, 1], [1, 0]]))
    assert np.array_equal(fact_rows(PROGRAM, np.array([[0, 4], [2, 3]])).sum(1), [2, 2])
    with pytest.raises(FactsError, match="neither a state"):
        lg.closures(PROGRAM, np.array([[0, 2, 0, 1, 0]]))  # counts
    with pytest.raises(FactsError, match="neither a state"):
        lg.closure(PROGRAM, np.array([0, 0, 1, 0]))  # the state of another program
    assert fact_rows(PROGRAM, np.zeros((3, 0), int)).shape == (3, 5)
    assert fact_rows(PROGRAM, np.zeros((0, 5), int)).shape == (0, 5)


@pytest.mark.slow
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_one_and_many_agree(data: st.DataObject) -> None:
    M = data.draw(st.integers(3, 8))
    program = Program.from_rules([], atoms=[f"p{i}" for i in range(M)])
    index = st.integers(0, M - 1)
    one = st.one_of(
        st.frozensets(index),
        st.frozensets(index).map(lambda s: [program.atoms[i] for i in s]),
        st.dictionaries(st.sampled_from(program.atoms), st.sampled_from([0, 1, 0.0, 1.0, True])),
        st.lists(st.booleans(), min_size=M, max_size=M).map(np.array),
        st.lists(st.sampled_from([0.0, 1.0]), min_size=M, max_size=M),
    )
    sets = data.draw(st.lists(one, min_size=1, max_size=6))
    rows = np.stack([fact_mask(program, facts) for facts in sets])
    assert np.array_equal(fact_rows(program, sets), rows)
    assert np.array_equal(fact_masks(program, sets), rows)
    assert np.array_equal(fact_values(program, sets), rows.astype(float))


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        (["aa"], r"facts name an atom .* 'aa' \(did you mean 'a'\?\)"),
        ({"aa": 1}, r"facts name an atom .* 'aa'"),
        ({"a": "yes"}, r"the value of 'a' is a number between 0 and 1, not 'yes' \(str\)"),
        ({"a": 1, A: 0}, "facts give a value to 'a' twice"),
        ([5], "fact index 5 is outside 0…4"),
        ([2**70], "fact index 1180591620717411303424 is outside"),
        (np.array([-1]), "fact index -1 is outside"),
        (5, "fact index 5 is outside"),
        (True, r"not True \(bool\)"),
        (1.0, r"not 1.0 \(float\)"),
        (None, r"not None \(NoneType\)"),
        ([None], "a fact is a name or an index, but this one is None"),
        ([True, "a"], "a fact is a name or an index, but this one is True"),
        (np.zeros(3, bool), r"boolean facts have one entry for each atom, shape \(5,\), .* \(3,\)"),
        (np.zeros(3), r"a state has one entry for each atom, shape \(5,\)"),
        ([0.5, 0.5], r"a state has one entry for each atom, shape \(5,\), .* \(2,\)"),
        (np.zeros((2, 2, 5)), r"but this one has shape \(2, 2, 5\)"),
        (np.zeros(5, complex), "boolean, integer or floating, not complex128"),
    ],
)
def test_what_is_no_fact_set_is_refused(facts: Any, problem: str) -> None:
    for read in (fact_mask, fact_masks, fact_values):
        with pytest.raises(FactsError, match=problem):
            read(PROGRAM, facts)


@pytest.mark.parametrize(
    "facts", ["a", 3, {"a": 1}, ["a", "b"], [0, 1], MASK, [["a"], "b"], [True]]
)
def test_many_sets_are_not_one(facts: Any) -> None:
    with pytest.raises(FactsError, match="for a single set use closure"):
        lg.closures(PROGRAM, facts)


def test_one_set_and_many_are_not_mixed() -> None:
    with pytest.raises(FactsError, match="but not both at once"):
        lg.oracle(PROGRAM).state(["a", ["b"]])
