"""Learning of rules with variables, held against enumeration and against clingo."""

import itertools
import math
import random
import re
from dataclasses import replace

import numpy as np
import pytest

import latentgamma as lg
import relational_tasks as tasks
from latentgamma.relational import chains
from latentgamma.relational.budget import Budget
from latentgamma.relational.clauses import (
    BodySearch,
    Clause,
    Examples,
    body_bindings,
    canonical,
    clause_bits,
    clause_text,
    instances,
)
from latentgamma.relational.problem import (
    Relation,
    atom_form,
    decode,
    encode,
)
from latentgamma.relational.result import derived_atoms
from latentgamma.relational.search import Selection

pytest.importorskip("clingo")

NAMES = [name for pair in tasks.NAMES.values() for name in pair]
CHAIN = "succ(0,1). succ(1,2). succ(2,3). succ(3,4). succ(4,5). succ(5,6). succ(6,7). zero(0)."


def evens(last: int) -> list[tuple[str, int]]:
    return [("even", n) for n in range(0, last + 1, 2)]


def random_relation(rng: random.Random, n: int, arity: int, rows: int) -> Relation:
    every = list(itertools.product(range(n), repeat=arity))
    chosen = np.array(sorted(rng.sample(every, min(rows, len(every)))), np.int64)
    return Relation("r", chosen.reshape(-1, arity), n, (0,) * arity)


@pytest.mark.parametrize("seed", range(30))
def test_bindings_are_those_of_enumeration(seed: int) -> None:
    rng = random.Random(seed)
    n = rng.randint(1, 4)
    relations = [random_relation(rng, n, arity, rng.randint(1, 8)) for arity in (1, 2, 2, 3)]
    variables = rng.randint(1, 4)
    body = []
    for _ in range(rng.randint(1, 4)):
        number = rng.randrange(4)
        arity = relations[number].arity
        body.append((number, tuple(rng.randrange(variables) for _ in range(arity))))
    used = sorted({v for _, literal in body for v in literal})
    keep = rng.sample(used, rng.randint(1, len(used)))
    found = body_bindings(tuple(body), keep, relations, Budget(60))
    rows = set(zip(*(column.tolist() for column in found[0]), strict=True))
    facts = [{tuple(row) for row in relation.rows.tolist()} for relation in relations]
    expected = set()
    for values in itertools.product(range(n), repeat=len(used)):
        value = dict(zip(used, values, strict=True))
        if all(tuple(value[v] for v in literal) in facts[p] for p, literal in body):
            expected.add(tuple(value[v] for v in keep))
    assert rows == expected


def test_codes_and_rows_are_inverse() -> None:
    rows = np.array([[0, 1, 2], [2, 2, 0], [1, 0, 1]])
    assert np.array_equal(decode(encode(list(rows.T), 3, 3), 3, 3), rows)


def test_variants_of_a_body_have_one_canonical_form() -> None:
    rng = random.Random(0)
    for _ in range(200):
        body = [(rng.randrange(3), (rng.randrange(5), rng.randrange(5))) for _ in range(4)]
        new = [0, 1, *rng.sample([2, 3, 4], 3)]
        other = [(p, tuple(new[v] for v in literal)) for p, literal in body]
        rng.shuffle(other)
        assert canonical(body, 2) == canonical(other, 2)
    assert canonical([(0, (0, 2))], 2) != canonical([(0, (2, 0))], 2)


@pytest.mark.quick_first
@pytest.mark.parametrize("seed", range(8))
def test_the_candidates_are_all_bodies_that_no_shorter_safe_one_contains(seed: int) -> None:
    """Every body of two literals is tried; a longer one only where no part of it is safe."""
    rng = random.Random(seed)
    every = list(itertools.product(range(4), repeat=2))
    p, q = rng.sample(every, 5), rng.sample(every, 5)
    truth = rng.choice(
        ["t(X,Y) :- p(X,Z), q(Z,Y).", "t(X,Y) :- p(X,Y), q(Y,X).", "t(X,Y) :- q(Y,X)."]
    )
    background = {"p": p, "q": q}
    positive = sorted(derived_atoms(truth, background, ["t/2"]))
    if not positive:
        positive = [("t", str(p[0][0]), str(p[0][1]))]
    problem = tasks.problem(background, positive)
    target = problem.targets[0]
    examples = Examples.of(problem, target, 1000, 0, unlabelled=True)
    search = BodySearch(problem, target, problem.relations, [0, 1], [target.relation], examples)
    found = set()
    for _ in range(2):
        clauses, complete = search.next_level(4, Budget(60))
        assert complete
        found |= {clause.body for clause in clauses}
    true = {tuple(row[1:]) for row in positive}
    forms = [atom_form(one.name, one.arity) for one in problem.relations]

    def heads(body: tuple) -> set[tuple[str, ...]]:
        clause = Clause(target.relation, 2, body)
        return {a[1:] for a in derived_atoms(clause_text(clause, forms), background, ["t/2"])}

    literals = [(r, a) for r in (0, 1) for a in itertools.product(range(4), repeat=2)]
    safe = set()
    for size in (1, 2):
        for body in itertools.combinations(literals, size):
            used = {v for _, a in body for v in a}
            if not {0, 1} <= used or (used - {0, 1}) not in (set(), {2}, {2, 3}):
                continue
            if all(set(a) & {0, 1} for _, a in body) or _linked(body):
                derived = heads(body)
                if derived and derived <= true:
                    safe.add(canonical(body, 2))
    for body in found:
        assert heads(body) <= true
    for body in safe - found:  # what is missing has a shorter part, or repeats a variable
        assert any(heads(other) >= heads(body) for other in found)


def _linked(body: tuple) -> bool:
    known = {0, 1}
    left = [set(a) for _, a in body]
    while left:
        hit = [a for a in left if a & known]
        if not hit:
            return False
        for a in hit:
            known |= a
            left.remove(a)
    return True


SOLVED = ["predecessor", "fizz", "uncle", "cyclic"]


@pytest.mark.quick_first
@pytest.mark.parametrize("name", SOLVED)
def test_a_task_is_solved_and_right_on_a_larger_instance(name: str) -> None:
    train, larger = tasks.task(name, 1), tasks.task(name, 1, size="large")
    result = lg.relational.fit(train.background, train.positive, invent=1)
    assert result.found
    assert result.predict(train.background) == set(train.positive)
    assert result.predict(larger.background) == set(larger.positive)
    assert result.certificate is not None
    assert result.certificate.holds
    assert result.model is not None
    facts = lg.datalog.inputs(result.program)
    assert lg.closure(result.program, facts).atoms >= {
        f"{atom[0]}({','.join(atom[1:])})" for atom in train.positive
    }


@pytest.mark.slow
def test_the_learned_program_is_the_shortest_of_all_sets_of_candidates() -> None:
    background = {"p": [("a", "b"), ("b", "c"), ("c", "d")], "q": [("a",), ("c",)]}
    positive = [("t", "a"), ("t", "b"), ("t", "c")]
    result = lg.relational.fit(background, positive, max_body=2, max_variables=2)
    problem = tasks.problem(background, positive)
    forms = [atom_form(one.name, one.arity) for one in problem.relations]
    literals = [(0, a) for a in itertools.product(range(2), repeat=2)]
    literals += [(r, (v,)) for r in (1, 2) for v in range(2)]
    literals.remove((2, (0,)))
    clauses = []
    for size in (1, 2):
        for body in itertools.combinations(literals, size):
            clauses += [Clause(2, 1, body)] if 0 in {v for _, a in body for v in a} else []
    wanted = set(positive)
    lengths = [
        sum(clause_bits(clause, len(forms)) for clause in chosen)
        for size in (1, 2)
        for chosen in itertools.combinations(clauses, size)
        if derived_atoms("\n".join(clause_text(c, forms) for c in chosen), background, ["t/1"])
        == wanted
    ]
    assert result.bits == pytest.approx(min(lengths))


def test_mutually_recursive_targets_are_learned_together() -> None:
    examples = [*evens(7), *[("odd", n) for n in range(1, 8, 2)]]
    result = lg.relational.fit(CHAIN, examples, max_body=2, max_variables=2)
    assert result.found
    assert "odd(X) :- " in result.text
    assert "even(X) :- " in result.text
    later = {"zero": [(0,)], "succ": [(n, n + 1) for n in range(30)]}
    expected = {("even" if n % 2 == 0 else "odd", str(n)) for n in range(31)}
    assert result.predict(later) == expected


def test_tuples_without_a_label_may_be_needed_in_between() -> None:
    positive = [("even", 0), ("even", 6)]
    negative = [("even", n) for n in (1, 3, 5, 7)]
    result = lg.relational.fit(CHAIN, positive, negative)
    assert result.found
    atoms = result.predict(CHAIN)
    assert {("even", "0"), ("even", "6")} <= atoms
    assert not atoms & {("even", str(n)) for n in (1, 3, 5, 7)}


def test_examples_that_no_program_explains_are_reported_as_such() -> None:
    result = lg.relational.fit("p(a,b). p(b,a). q(c).", [("t", "a")], closed_world=True)
    assert not result.found
    assert result.text == ""
    assert result.rules == ()
    assert result.unexplained == ("t(a)",)
    assert "no rule without a negative example derives 1 positive example" in result.reason
    assert result.program is None
    assert result.certificate is None
    with pytest.raises(lg.errors.DataError, match="no program was found"):
        result.predict("p(a,b).")


def test_alternatives_say_where_they_differ() -> None:
    result = lg.relational.fit(
        {"p": [("a", "b"), ("c", "d")], "q": [("a", "b"), ("c", "d")]},
        [("t", "a", "b"), ("t", "c", "d")],
    )
    texts = {result.text, *(one.text for one in result.alternatives)}
    assert {"t(X,Y) :- p(X,Y).", "t(X,Y) :- q(X,Y)."} <= texts
    for one in result.alternatives:
        background = ". ".join(one.facts.replace("), ", ")|").split("|")) + "."
        atom = tuple(one.atom.replace(")", "").replace("(", ",").split(","))
        here = derived_atoms(f"{one.text}\n{background}", {}, ["t/2"])
        assert (atom in here) is one.derives
        assert (atom in result.predict(background)) is not one.derives


@pytest.mark.slow
def test_evidence_counts_the_examples_of_each_rule() -> None:
    train = tasks.task("undirected-edge", 2)
    result = lg.relational.fit(train.background, train.positive)
    edges = set(train.background["edge"])
    both = {(a, b) for a, b in edges if (b, a) in edges}
    by_rule = {one.rule: one for one in result.evidence}
    direct = by_rule["linked(X,Y) :- edge(X,Y)."]
    assert direct.support == len(edges)
    assert direct.needed in {len(edges) - len(both), len(train.positive)}


def test_closed_world_is_said() -> None:
    result = lg.relational.fit("p(a). p(b). q(a).", [("t", "a")])
    assert any("closed world" in note for note in result.notes)
    assert not any("exclude nothing" in note for note in result.notes)
    result = lg.relational.fit("p(a). p(b).", [("t", "a"), ("t", "b")])
    assert any("exclude nothing" in note for note in result.notes)
    result = lg.relational.fit("p(a). q(b).", [("t", "a")], [("t", "b")])
    assert not any("closed world" in note for note in result.notes)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda fit: fit("p(a).", []), "no positive examples"),
        (lambda fit: fit("p(a).", 3), "positive is Datalog text"),
        (lambda fit: fit("p(a).", [3]), "starts with its predicate"),
        (lambda fit: fit("p(a).", [("t", "a")], [("t", "a")]), "both positive and negative"),
        (lambda fit: fit("p(a).", [("t", "a")], [("s", "a")]), "which is not a target"),
        (lambda fit: fit("p(a).", [("t", "a")], target="s"), "no positive examples of 's'"),
        (lambda fit: fit("p(a).", [("t", "a")], target=3), "target is the name"),
        (lambda fit: fit("p(a).", [("t", "a")], invent=-1), "invent must be a whole number"),
        (
            lambda fit: fit("p(a).", [("t", "a")], invent=7),
            "invent must be a whole number from 0 to 2",
        ),
        (lambda fit: fit("p(a).", [("t", "a")], max_body=0), "max_body must be a whole number"),
        (lambda fit: fit("p(a).", [("t", "a")], noise=0.7), "noise must be a fraction"),
        (lambda fit: fit("p(a).", [("t",)]), "'t' has no arguments"),
        (lambda fit: fit({}, [("t", "a")]), "the background holds no facts"),
        (
            lambda fit: fit("p(a,b).", [("t", "a", "b")], max_variables=1),
            "a target has 2 arguments",
        ),
        (
            lambda fit: fit("p(a).", [("t", "a")], invent=2, noise=0.1),
            "with wrong labels, invent is at most 1",
        ),
        (lambda fit: fit("p(a).", [("t", "a")], noise=0.1, checkpoint="x"), "leave it out"),
        (lambda fit: fit("p(a).", [("t", "a")], method="magic"), "method must be one of"),
        (
            lambda fit: fit("p(a).", [("t", "a")], time_limit=0),
            "time_limit must be a number of seconds above 0",
        ),
        (lambda fit: fit("p(a", [("t", "a")]), "<text>"),
        (lambda fit: fit({"p": [("a", "b"), ("a",)]}, [("t", "a")]), "missing a column"),
    ],
)
def test_wrong_arguments_say_what_was_expected(call, message: str) -> None:
    with pytest.raises(lg.LatentGammaError, match=message):
        call(lg.relational.fit)


def test_an_unknown_task_is_named() -> None:
    with pytest.raises(lg.errors.ArgumentError, match="there is no task 'nonsense'"):
        tasks.task("nonsense")


@pytest.mark.quick_first
@pytest.mark.parametrize("name", tasks.names())
def test_every_task_needs_every_rule_of_its_program(name: str) -> None:
    one = tasks.task(name, 5)
    assert one.positive == sorted(derived_atoms(one.truth, one.background, [one.target]))
    assert one != tasks.task(name, 6)
    assert one == tasks.task(name, 5)


def test_bodies_may_use_predicates_of_three_arguments() -> None:
    sums = {"add": [(a, b, a + b) for a in range(4) for b in range(4)]}
    result = lg.relational.fit(sums, [("less", a, b) for a in range(7) for b in range(a, min(7, a + 4))
                                      if a < 4], max_body=1)  # fmt: skip
    assert result.text == "less(X,Y) :- add(X,Z,Y)."


@pytest.mark.quick_first
@pytest.mark.parametrize("name", ["fizz", "even-succ2"])
def test_a_task_is_solved_with_wrong_labels(name: str) -> None:
    train, larger = tasks.task(name, 3, size="medium"), tasks.task(name, 3, size="large")
    positive, negative = tasks.flip_labels(train, 0.1, 3)
    result = lg.relational.fit(train.background, positive, negative, noise=0.1)
    assert result.predict(larger.background) == set(larger.positive)
    wrong = set(positive) ^ set(train.positive)  # every tuple has a label
    assert result.accuracy == pytest.approx(1 - len(wrong) / (len(positive) + len(negative)))
    assert len(result.unexplained) + len(result.wrong) == len(wrong)
    assert any("a label is worth 3.2 bits" in note for note in result.notes) == bool(
        result.alternatives
    )


@pytest.mark.slow
def test_a_short_recursive_rule_is_a_candidate_beside_longer_ones_that_gain_more() -> None:
    train = tasks.task("connectedness", 9, size="medium")
    larger = tasks.task("connectedness", 9, size="large")
    positive, negative = tasks.flip_labels(train, 0.1, 9)
    result = lg.relational.fit(train.background, positive, negative, noise=0.1)
    assert result.predict(larger.background) == set(larger.positive)


def test_labels_without_a_rule_give_no_program() -> None:
    rng = random.Random(1)
    background = {"p": [(n, rng.randrange(40)) for n in range(40)]}
    labels = [("t", n) for n in range(40)]
    rng.shuffle(labels)
    for noise in ("auto", 0):
        result = lg.relational.fit(background, labels[:20], labels[20:], noise=noise, max_body=2)
        assert not result.found
        assert noise == 0 or "fewer bits" in result.reason
        (nearest,) = [note for note in result.notes if "bits longer than a list" in note]
        assert re.search(r" [0-9]+\.[0-9] bits.*: t\(X\) :- p\(.*\)\.$", nearest)


def test_two_invented_predicates_that_do_not_help() -> None:
    rng = random.Random(0)
    pairs = [pair for pair in itertools.product(range(12), repeat=2) if rng.random() < 0.12]
    background = {"p": pairs, "q": [(n,) for n in range(12) if rng.random() < 0.5]}
    labels = [("t", n) for n in range(12)]
    rng.shuffle(labels)
    limits = {"max_body": 1, "max_variables": 2, "work_limit": 30_000_000}
    result = lg.relational.fit(background, labels[:6], labels[6:], invent=2, **limits)
    assert not result.complete


def test_flipped_labels_are_the_share_that_was_asked_for() -> None:
    one = tasks.task("less-than", 4)
    positive, negative = tasks.flip_labels(one, 0.25, 0)
    every = len(positive) + len(negative)
    assert len(set(positive) ^ set(one.positive)) == round(0.25 * every)
    assert not set(positive) & set(negative)


@pytest.mark.quick_first
@pytest.mark.parametrize("name", ["even-odd", "grandparent", "buzz"])
def test_search_and_gradient_agree(name: str) -> None:
    one, larger = tasks.task(name, 2), tasks.task(name, 2, size="large")
    by_search = lg.relational.fit(one.background, one.positive)
    by_gradient = lg.relational.fit(one.background, one.positive, method="gradient")
    assert by_gradient.method == "gradient"
    assert by_search.predict(larger.background) == by_gradient.predict(larger.background)
    assert by_gradient.bits >= by_search.bits - 1e-6


@pytest.mark.parametrize("recursive", [True, False])
def test_alternatives_are_measured_as_the_program_is(recursive: bool) -> None:
    facts = {"likes": [("a", "b"), ("c", "d")], "knows": [("a", "b"), ("c", "d")]}
    examples = [("invites", "a", "b"), ("invites", "c", "d")]
    found = lg.relational.fit(facts, examples, recursive=recursive)
    assert found.bits == pytest.approx(1 + math.log2(3 if recursive else 2) + 2)
    assert found.alternatives[0].bits == pytest.approx(found.bits)


@pytest.mark.slow
def test_two_results_agree_or_say_where_they_differ() -> None:
    facts = {"likes": [("a", "b"), ("c", "d")], "knows": [("a", "b"), ("c", "d"), ("e", "f")]}
    examples = [("invites", "a", "b"), ("invites", "c", "d")]
    negative = [("invites", "b", "a")]
    one = lg.relational.fit(facts, examples, negative)
    other = next(a for a in one.alternatives if "knows" in a.text or "likes" in a.text)
    assert one.agreement(one).same
    by_gradient = lg.relational.fit(facts, examples, negative, method="gradient")
    assert one.agreement(by_gradient).same == (one.text == by_gradient.text)
    swapped = lg.relational.fit({"knows": facts["likes"], "likes": facts["knows"]}, examples)
    with pytest.raises(lg.LatentGammaError, match="of different examples"):
        one.agreement(swapped)
    changed = replace(
        one, text=other.text, clauses=_clauses_of(one, other.text), method="gradient", bits=99.0
    )
    agreement = one.agreement(changed)
    assert not agreement.same
    assert "only the program of method" in agreement.account
    assert "the description of method 'search' is shorter by" in agreement.account
    assert "is an alternative of method 'search'" in agreement.account


def _clauses_of(result, text: str):
    """The program of one rule with the other background predicate."""
    clause = result.clauses.clauses[0]
    forms = result.clauses.forms
    number = next(n for n, form in enumerate(forms) if text.endswith(f" {form.format('X', 'Y')}."))
    return replace(result.clauses, clauses=(clause._replace(body=((number, (0, 1)),)),))


def test_a_result_without_a_program_is_compared_by_its_reason() -> None:
    facts, examples = {"p": [("a",), ("b",)]}, [("t", "a")]
    none = lg.relational.fit(facts, examples, closed_world=True)
    found = replace(none, found=True, method="gradient")
    assert none.agreement(none).account == "neither method found a program"
    assert none.agreement(found).account.startswith("only method 'gradient' found a program")


@pytest.mark.slow
def test_the_gradient_shows_alternatives_that_explain_the_examples() -> None:
    train = tasks.task("buzz", 1)
    result = lg.relational.fit(train.background, train.positive, method="gradient")
    assert result.alternatives
    for one in result.alternatives:
        assert set(tasks.derived(one.text, train.background, train.target)) == set(train.positive)
    assert any("sampled" in text for text in result.notes)


@pytest.mark.slow
def test_an_invented_predicate_is_learned_with_wrong_labels() -> None:
    train, larger = tasks.task("cyclic", 3, size="medium"), tasks.task("cyclic", 3, size="large")
    positive, negative = tasks.flip_labels(train, 0.1, 3)
    result = lg.relational.fit(train.background, positive, negative, noise=0.1, invent=1)
    assert "inv1" in result.text
    assert result.predict(larger.background) == set(larger.positive)
    assert result.certificate.holds


PARENT = "parent(X,Y) :- father(X,Y). parent(X,Y) :- mother(X,Y). "


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "target", "truth"),
    [
        ("grandparent", "great/2", "great(X,Y) :- grand(X,Z), parent(Z,Y)."
         f"grand(X,Y) :- parent(X,Z), parent(Z,Y). {PARENT}"),
        ("connectedness", "four/2", "four(X,Y) :- two(X,Z), two(Z,Y). two(X,Y) :- link(X,Z), link(Z,Y)."
         "link(X,Y) :- edge(X,Y). link(X,Y) :- edge(Y,X)."),
    ],
    ids=["great", "four"],
)  # fmt: skip
def test_two_predicates_are_invented(task: str, target: str, truth: str) -> None:
    background = tasks.task(task, 1, size="medium").background
    examples = tasks.derived(truth, background, target)
    options = {"recursive": False, "max_body": 2, "alternatives": 0, "time_limit": 600}
    result = lg.relational.fit(background, examples, invent=2, **options)
    assert "inv2" in result.text
    other = tasks.task(task, 2, size="large").background
    assert result.predict(other) == set(tasks.derived(truth, other, target))


def test_gradient_with_wrong_labels_has_no_alternative_without_rules() -> None:
    positive, negative = ([("t", name) for name in names] for names in ("abc", "de"))
    result = lg.relational.fit(
        {"f": [("a",), ("b",), ("c",)]}, positive, negative, method="gradient", noise=0.2
    )
    assert result.text == "t(X) :- f(X)."
    assert all(one.text for one in result.alternatives)


def test_the_gradient_finds_no_program_where_there_is_none() -> None:
    result = lg.relational.fit("p(a,b). p(b,a). q(c).", [("t", "a")], method="gradient")
    assert not result.found
    assert result.unexplained == ("t(a)",)


@pytest.mark.slow
def test_the_gradient_learns_from_wrong_labels() -> None:
    train, larger = tasks.task("fizz", 3, size="medium"), tasks.task("fizz", 3, size="large")
    positive, negative = tasks.flip_labels(train, 0.1, 3)
    options = {"noise": "auto", "method": "gradient"}
    result = lg.relational.fit(train.background, positive, negative, **options)
    assert result.predict(larger.background) == set(larger.positive)
    assert result.noise == pytest.approx(0.1, abs=0.02)


def test_a_composition_table_extends_to_longer_chains() -> None:
    train = tasks.kinship_chains(5000, [2, 3, 4], seed=5)
    learned = lg.relational.learn_composition(train)
    assert learned.entries == tasks.true_table()
    assert not learned.unexplained
    for chain, relation in tasks.kinship_chains(60, [5, 8, 10], seed=6):
        assert learned.predict(chain) == {relation}
    chain, relation = tasks.kinship_chains(1, [7], seed=7)[0]
    facts = " ".join(f"{r}({n},{n + 1})." for n, r in enumerate(chain))
    ends = {a[0] for a in derived_atoms(f"{learned.text}\n{facts}", {}, [f"{r}/2" for r in NAMES])
            if a[1:] == ("0", "7")}  # fmt: skip
    assert ends == {relation}


def test_chains_show_entries_that_no_chain_of_two_shows() -> None:
    learned = lg.relational.learn_composition(
        [(("father", "father"), "grandfather"), (("father", "father", "wife"), "grandmother")]
    )
    assert learned.entries["grandfather", "wife"] == "grandmother"
    assert learned.support["grandfather", "wife"] == 1
    assert learned.predict(("father", "sister")) == frozenset()
    assert "·" in learned.grid()


def mixed_splits(chain, table):
    """The distribution of a chain, by recursion over all its splits."""
    if len(chain) == 1:
        return np.eye(len(table))[chain[0]]
    parts = [
        np.einsum("i,j,ijk", mixed_splits(chain[:m], table), mixed_splits(chain[m:], table), table)
        for m in range(1, len(chain))
    ]
    return sum(parts) / len(parts)


def test_the_distribution_of_a_chain_mixes_its_splits() -> None:
    rng = np.random.default_rng(1)
    table = rng.dirichlet(np.ones(4), (4, 4))
    codes = rng.integers(4, size=(6, 5))
    answers = rng.integers(4, size=6)
    found = chains._inside(codes, table)[0, 5]
    for row, chain in zip(found, codes.tolist(), strict=True):
        np.testing.assert_allclose(row, mixed_splits(chain, table))

    def likelihood(changed):
        return np.log(chains._inside(codes, changed)[0, 5][range(6), answers]).sum()

    slope = chains._slope(codes, answers, table)
    for place in itertools.product((0, 3), (1, 2), range(4)):
        step = np.zeros_like(table)
        step[place] = 1e-6
        numeric = (likelihood(table + step) - likelihood(table - step)) / 2e-6
        assert slope[place] == pytest.approx(numeric, rel=1e-4, abs=1e-6)


@pytest.mark.slow
def test_open_answers_have_their_probabilities() -> None:
    train, test = tasks.family_chains(2500, [2, 3, 4], 1), tasks.family_chains(400, [3], 2)
    learned = lg.relational.learn_composition(train)
    chances = [learned.predict_proba(chain) for chain, _ in test]
    for chance in chances:
        assert list(chance.values()) == sorted(chance.values(), reverse=True)
        assert sum(chance.values()) == pytest.approx(1)
    right = [next(iter(p)) == answer for p, (_, answer) in zip(chances, test, strict=True)]
    single = [learned.predict(chain) == {answer} for chain, answer in test]
    first = [next(iter(p.values())) for p in chances]
    assert np.mean(right) > np.mean(single) + 0.03
    assert np.mean(first) == pytest.approx(np.mean(right), abs=0.08)
    share = [answer for chain, answer in tasks.family_chains(20_000, [2], 3)
             if chain == ("son", "grandmother")]  # fmt: skip
    expected = share.count("mother") / len(share)
    assert learned.predict_proba(("son", "grandmother"))["mother"] == pytest.approx(
        expected, abs=0.15
    )
    with pytest.raises(lg.errors.DataError, match="has the relation 'cousin'"):
        learned.predict_proba(("son", "cousin"))


@pytest.mark.parametrize("examples", [[], [3], [("ab", "c")], [(("a",), "b")], [(("a", 1), "b")]])
def test_chains_of_another_form_are_refused(examples) -> None:
    with pytest.raises(lg.errors.DataError, match="chain"):
        lg.relational.learn_composition(examples)


@pytest.mark.slow
def test_a_choice_that_runs_out_of_time_keeps_the_earlier_program(monkeypatch) -> None:
    """The numbers of a choice belong to the candidates that it was made of."""
    one = tasks.task("connectedness", 1)
    expected = lg.relational.fit(one.background, one.positive, max_body=3)
    shortest = Selection.shortest
    calls = []

    def once(self):
        calls.append(self)
        return shortest(self) if len(calls) == 1 else None

    monkeypatch.setattr(Selection, "shortest", once)
    result = lg.relational.fit(one.background, one.positive, max_body=3)
    assert len(calls) > 1
    assert result.predict(one.background) == set(one.positive)
    assert result.bits >= expected.bits
    assert result.reason == "the shortest description that was found"


@pytest.mark.slow
def test_a_rule_that_reaches_a_negative_example_in_two_steps_is_not_chosen() -> None:
    """3 gives 4, which has no label, and 4 gives 5, which is negative."""
    result = lg.relational.fit(CHAIN, [("t", 0), ("t", 3)], [("t", 5)])
    assert ("t", "5") not in result.predict(CHAIN)
    assert {("t", "0"), ("t", "3")} <= result.predict(CHAIN)


def test_a_tuple_without_a_label_does_not_refute_a_rule() -> None:
    """1 would give 3, which is negative, but nothing derives 1."""
    result = lg.relational.fit(CHAIN, [("t", 0), ("t", 4)], [("t", n) for n in (3, 5, 6)])
    texts = [result.text, *(one.text for one in result.alternatives)]
    assert any("succ" in text and text.count("t(") > 2 for text in texts)
    problem = tasks.problem(CHAIN, [("t", 0), ("t", 4)], [("t", 3)])
    succ, t = problem.names.index("succ"), problem.names.index("t")
    clause = Clause(t, 1, ((succ, (1, 2)), (succ, (2, 0)), (t, (1,))))
    found = instances(clause, 1.0, problem, problem.targets[0], problem.relations, [t], Budget(60))
    assert found is not None


def test_instances_whose_head_is_in_their_body_are_left_out() -> None:
    problem = tasks.problem({"p": [("a", "b"), ("c", "d")]}, [("t", "a")])
    clause = Clause(1, 1, ((0, (0, 1)), (0, (2, 1)), (1, (2,))))  # t(X) :- p(X,Y), p(Z,Y), t(Z).
    target = problem.targets[0]
    assert instances(clause, 1.0, problem, target, problem.relations, [1], Budget(60)) is None


def test_names_and_constants_may_have_braces() -> None:
    """They are not taken for the arguments of a literal."""
    rows = [("a", "{0}"), ("b", "{0}"), ("c", "{x}"), ("d", "{x}")]
    result = lg.relational.fit(
        {"'is{0}'": rows}, [("t", "a"), ("t", "b")], [("t", "c"), ("t", "d")], constants=True
    )
    assert result.text == """t(X) :- 'is{0}'(X,"{0}")."""
    assert result.predict({"'is{0}'": rows}) == {("t", "a"), ("t", "b")}
    assert result.to_dict()["rules"][0]["support"] == 2


def test_examples_may_come_from_iterators() -> None:
    """They are read once, also where another search follows for an option that would help."""
    positive, negative = ((("t", x) for x in part) for part in ("ab", "c"))
    result = lg.relational.fit({"p": [("a",), ("c",)]}, positive, negative)
    assert not result.found
    assert "constants=True gives one that does" in result.reason


@pytest.mark.parametrize("as_text", [False, True])
def test_predicates_may_have_names_in_quotes(as_text: bool) -> None:
    trains = [("a", "b"), ("b", "c")]
    text = " ".join(f"'night train'({one},{other})." for one, other in trains)
    facts = text if as_text else {"'night train'": trains}
    options = {"target": "'way back'", "types": {"'night train'": ("stop", "stop")}}
    result = lg.relational.fit(facts, ["'way back'(b,a).", "'way back'(c,b)."], **options)
    assert result.text == "'way back'(X,Y) :- 'night train'(Y,X)."
    assert result.predict(facts) == {("'way back'", "b", "a"), ("'way back'", "c", "b")}


def test_relations_of_a_composition_table_may_have_any_name() -> None:
    learned = lg.relational.learn_composition([(("Wife", "Mother"), "mother in law")])
    assert learned.text == "'mother in law'(X,Z) :- 'Wife'(X,Y), 'Mother'(Y,Z)."
    facts = "'Wife'(adam,bea). 'Mother'(bea,cora)."
    derived = derived_atoms(f"{learned.text} {facts}", {}, ["'mother in law'/2"])
    assert derived == {("'mother in law'", "adam", "cora")}
