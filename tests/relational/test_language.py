"""Types, worlds, constants, negation, comparisons, partial programs, and Prolog files."""

import itertools
import random
import re
from pathlib import Path

import numpy as np
import pytest

import latentgamma as lg
import relational_tasks as tasks
from latentgamma.relational import read_popper
from latentgamma.relational.clauses import Clause, clause_bits
from latentgamma.relational.problem import Language
from latentgamma.relational.prolog import Prolog, PrologError, read_term, term_text

pytest.importorskip("clingo")

PURSES = {
    "coins": [("ann", 1), ("bob", 7), ("cid", 9), ("dan", 3), ("eve", 8), ("fay", 6)],
    "friend": [("ann", "bob"), ("cid", "bob"), ("dan", "eve"), ("eve", "fay")],
}


def people(name: str, *who: str) -> list[tuple[str, str]]:
    return [(name, one) for one in who]


# ---- Claims, against enumeration


def random_problem(seed: int) -> tuple[dict, list, list, dict]:
    """Numbers with a relation and a property, random labels, and some of the options."""
    rng = random.Random(seed)
    numbers = range(4)
    pairs = list(itertools.product(numbers, repeat=2))
    background = {
        "p": rng.sample(pairs, rng.randint(2, 6)),
        "q": [(n,) for n in rng.sample(numbers, rng.randint(1, 3))],
    }
    arity = rng.choice([1, 1, 2])
    atoms = [("t", *row) for row in itertools.product(numbers, repeat=arity)]
    rng.shuffle(atoms)
    count = rng.randint(1, len(atoms) // 3)
    options = {
        "constants": rng.random() < 0.5,
        "negation": rng.random() < 0.5,
        "comparisons": rng.choice([(), ("!=",), ("<",), (">=",)]),
        "types": {"p": ("n", "n"), "q": ("n",), "t": ("n",) * arity},
        "world": False,
    }
    rest = atoms[count:]
    return background, atoms[:count], rest[: rng.randint(1, len(rest))], options


def shortest_cover(result: lg.relational.RelationalResult, literals: int) -> float:
    """The length of the shortest set of rules of at most three variables that explains the examples."""
    problem = result.problem
    (target,) = problem.targets
    relations = problem.relations[:-1]
    n, arity = len(problem.constants), target.arity
    values = list(range(n))
    extensions = []
    for relation in relations:
        grid = np.array(list(itertools.product(values, repeat=relation.arity)))
        holds = relation.holds(*grid.T)
        extensions.append({tuple(row) for row in grid[holds].tolist()})
    possible = [
        (number, arguments)
        for number, relation in enumerate(relations)
        for arguments in itertools.product(range(3), repeat=relation.arity)
    ]

    def codes(which) -> set[int]:
        return set(which.tolist())

    positive, negative = codes(target.positive), codes(target.negative)
    best: dict[frozenset[int], float] = {}
    assignments = list(itertools.product(values, repeat=3))
    for size in range(1, literals + 1):
        for body in itertools.combinations(possible, size):
            bound = {v for p, literal in body if relations[p].test is None for v in literal}
            used = {v for _, literal in body for v in literal}
            if not set(range(arity)) <= bound or not used <= bound or not linked(body, arity):
                continue
            if used - set(range(arity)) != set(range(arity, 1 + max([*used, arity - 1]))):
                continue
            heads = set()
            for values_of in assignments:
                if all(tuple(values_of[v] for v in lit) in extensions[p] for p, lit in body):
                    code = 0
                    for place in range(arity):
                        code = code * n + values_of[place]
                    heads.add(code)
            if heads & negative or not heads & positive:
                continue
            key = frozenset(heads & positive)
            bits = clause_bits(Clause(0, arity, body), len(relations))
            best[key] = min(bits, best.get(key, 1e9))
    cheapest = {frozenset(): 0.0}
    for key, bits in best.items():
        for covered, so_far in list(cheapest.items()):
            union = covered | key
            if so_far + bits < cheapest.get(union, 1e9):
                cheapest[union] = so_far + bits
    return cheapest.get(frozenset(positive), float("inf"))


def linked(body, arity: int) -> bool:
    """Whether every literal shares a variable with the head, or with one that does."""
    known, left = set(range(arity)), [set(literal) for _, literal in body]
    while left:
        near = [one for one in left if one & known]
        if not near:
            return False
        known |= set().union(*near)
        left = [one for one in left if not one & known]
    return True


@pytest.mark.slow
@pytest.mark.parametrize(
    "seeds", [range(12), pytest.param(range(12, 60), marks=pytest.mark.slow)], ids=str
)
def test_claims_with_constants_negation_and_comparisons_agree_with_enumeration(seeds) -> None:
    claims = 0
    for seed in seeds:
        background, positive, negative, options = random_problem(seed)
        result = lg.relational.fit(
            background, positive, negative, recursive=False, max_body=2, max_variables=3, **options
        )
        claim = re.search(
            r"no set of rules with bodies of up to (\d) literals? and 3", result.reason
        )
        if claim is None:
            continue
        claims += 1
        best = shortest_cover(result, int(claim[1]))
        if not result.found:
            assert best == float("inf"), (seed, result.reason, best)
            continue
        assert best >= result.bits - 0.05, (seed, result.text, best, result.bits)
        derived = result.predict(background)
        assert {tuple(map(str, atom)) for atom in positive} <= derived
        assert not {tuple(map(str, atom)) for atom in negative} & derived
        assert result.certificate.holds
    assert claims >= len(seeds) // 3


# ---- Types and worlds


def test_declared_types_keep_numbers_of_examples_and_sizes_apart() -> None:
    background = {"piece": [(1, "a"), (2, "b"), (3, "c")], "size": [("a", 5), ("b", 6), ("c", 3)]}
    background["large"] = [(5,), (6,), (1,), (2,)]  # the states 1 and 2 are no sizes
    background["few"] = [(3,)]  # a size, though there is a state 3
    examples = [("good", 1), ("good", 2)], [("good", 3)]
    guessed = lg.relational.fit(background, *examples, recursive=False, max_body=3)
    types = {
        "good": ("scene",),
        "piece": ("scene", "piece"),
        "size": ("piece", "n"),
        "large": ("n",),
    }
    declared = lg.relational.fit(background, *examples, recursive=False, max_body=3, types=types)
    assert declared.rules == ("good(X) :- piece(X,Y), size(Y,Z), large(Z).",)
    assert any("one variable of type 'scene'" in note for note in declared.notes)
    assert guessed.rules == declared.rules  # an example's number is not taken for a size
    kinds = dict(zip(guessed.problem.names, guessed.problem.types, strict=True))
    assert kinds["few"][0] == kinds["size"][1] != kinds["good"][0]
    assert any("numbers of examples are not compared" in note for note in guessed.notes)
    joined = lg.relational.fit(background, *examples, recursive=False, max_body=3, world=False)
    assert joined.rules == ("good(X) :- large(X).",)
    # Where no program is found so, numbers are compared.
    needed = lg.relational.fit(
        {"piece": [(n, f"p{n}") for n in range(1, 10)], "even": [(2,), (4,)], "size": [("p1", 2), ("p2", 4)]},
        [("good", 2), ("good", 4)], [("good", 1), ("good", 3)], recursive=False, max_body=2,
    )  # fmt: skip
    assert needed.rules == ("good(X) :- even(X).",)


def test_rules_do_not_join_worlds_unless_allowed() -> None:
    background = {
        "value": [("e1", 1), ("e2", 2), ("e3", 1), ("e4", 3)],
        "on": [("e1",), ("e3",), ("e4",)],
        "off": [("e2",)],
    }
    types = {"same": ("state",), "value": ("state", "n"), "on": ("state",), "off": ("state",)}
    # Only a value that some other state has tells the examples apart.
    examples = [("same", "e1"), ("same", "e3")], [("same", "e4")]
    options = {"types": types, "recursive": False, "comparisons": ["!="], "max_body": 3}
    apart = lg.relational.fit(background, *examples, **options)
    joined = lg.relational.fit(background, *examples, world=False, **options)
    assert not apart.complete
    assert joined.complete
    assert joined.text.count("value(") == 2


def test_inputs_have_a_value_first() -> None:
    background = {"next": [(0, 1), (1, 2), (2, 3), (3, 4)], "big": [(3,), (4,)]}
    examples = [("t", 2), ("t", 3)], [("t", 1), ("t", 4)]
    free = lg.relational.fit(background, *examples, recursive=False, max_body=2)
    directed = lg.relational.fit(
        background,
        *examples,
        recursive=False,
        max_body=2,
        directions={"next": ("out", "in"), "big": ("in",), "t": ("in",)},
    )
    assert free.rules == ("t(X) :- next(X,Y), big(Y).",)
    assert "next(X,Y)" not in directed.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"types": {"coins": ("person",)}}, "coins has 2"),
        ({"types": ["coins"]}, "by predicate"),
        ({"types": {"coins": None}}, "names 1 argument, but coins has 2"),
        ({"directions": {"coins": ("in", "up")}}, "'in'"),
        ({"directions": "in"}, r"directions are given by predicate, such as .* \('in', 'out'\)"),
        ({"world": "state"}, "world is one of the types"),
        ({"world": 3}, "world must be"),
        ({"constants": "ann"}, "constants must be"),
        ({"comparisons": ["~"]}, "comparisons"),
        ({"negation": "yes"}, "negation must be"),
        ({"closed_world": 2}, "closed_world must be"),
        ({"work_limit": 0}, "work_limit"),
        ({"max_clauses": 0}, "max_clauses"),
    ],
)
def test_options_of_another_kind_are_refused(options: dict, message: str) -> None:
    with pytest.raises(lg.LatentGammaError, match=message):
        lg.relational.fit(PURSES, people("rich", "bob"), people("rich", "ann"), **options)


def test_types_of_a_predicate_without_facts_are_noted() -> None:
    result = lg.relational.fit(
        {"e": [("a", "b")]},
        [("t", "a")],
        types={"t": ("node",), "edge": ("node", "node")},
        directions={"f": ("in",)},
        max_body=1,
    )
    assert "there are no facts of edge/2, f/1, whose types or directions are given" in result.notes


# ---- Constants, negation, comparisons


@pytest.mark.parametrize(
    ("positive", "negative", "options", "rule"),
    [
        ("bob cid eve", "ann dan fay", {"comparisons": [">="]}, "t(X) :- coins(X,Y), Y >= 7."),
        ("ann", "bob cid dan eve fay", {"constants": ["1"]}, "t(X) :- coins(X,1)."),
        ("dan eve", "ann bob cid fay", {"negation": True, "constants": ["bob"]},
         "t(X) :- friend(X,Y), not friend(X,bob)."),
        ("ann dan", "bob cid eve fay", {"comparisons": ["<"]},
         "t(X) :- coins(X,Y), friend(X,Z), coins(Z,U), Y < U."),
    ],
)  # fmt: skip
def test_a_rule_uses_the_option_and_is_certified(positive, negative, options, rule: str) -> None:
    result = lg.relational.fit(
        PURSES,
        people("t", *positive.split()),
        people("t", *negative.split()),
        recursive=False,
        **options,
    )
    assert result.rules == (rule,)
    assert result.certificate.holds
    assert any(next(iter(options)) in note for note in result.notes)
    assert result.predict(PURSES) == set(people("t", *positive.split()))


def test_the_advice_names_the_option_that_helps() -> None:
    rich, poor = people("t", "bob", "cid", "eve"), people("t", "ann", "dan", "fay")
    result = lg.relational.fit(PURSES, rich, poor, recursive=False, max_body=2)
    assert not result.complete
    assert "comparisons=True gives one that does" in result.reason


# ---- Something instead of nothing, and positive examples alone


@pytest.mark.slow
def test_the_best_program_with_exceptions_is_returned() -> None:
    background = {"q": [(n,) for n in range(30)], "r": [(n,) for n in range(30, 60)]}
    positive = [("t", n) for n in range(29)]
    negative = [("t", n) for n in range(29, 60)]
    result = lg.relational.fit(background, positive, negative, recursive=False)
    assert result.found
    assert not result.complete
    assert result.rules == ("t(X) :- q(X).",)
    assert result.wrong == ("t(29)",)
    assert result.unexplained == ()
    assert result.accuracy == pytest.approx(59 / 60)
    assert result.to_dict()["complete"] is False


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("uncle", marks=pytest.mark.slow), "connectedness"])
def test_a_relation_is_learned_from_some_positive_examples(name: str) -> None:
    train, test = tasks.task(name, 2, size="medium"), tasks.task(name, 2, size="large")
    shown = random.Random(2).sample(train.positive, round(0.6 * len(train.positive)))
    result = lg.relational.fit(train.background, shown, closed_world=False, max_body=2)
    assert result.predict(test.background) == set(test.positive)
    assert result.complete
    assert "positive examples alone" in result.reason
    assert not any("closed world" in note for note in result.notes)
    closed = lg.relational.fit(train.background, shown, closed_world=True, max_body=1)
    assert not closed.complete


@pytest.mark.slow
def test_a_work_limit_ends_the_call_at_the_same_place() -> None:
    train = tasks.worlds("trains", 3, 60)
    found = []
    for seconds in (500.0, 900.0):
        result = lg.relational.fit(
            train.background,
            train.positive,
            train.negative,
            work_limit=20_000_000,
            time_limit=seconds,
            **train.options,
        )
        assert not result.timed_out
        found.append(({**result.to_dict(), "seconds": 0}, len(result.history)))
        found[-1][0].pop("history")
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["trains", *(pytest.param(n, marks=pytest.mark.slow) for n in ("scenes", "counter"))]
)
def test_a_program_about_worlds_is_right_on_others(name: str) -> None:
    train, test = tasks.worlds(name, 1), tasks.worlds(name, 1, test=True)
    result = lg.relational.fit(
        train.background, train.positive, train.negative, time_limit=300, **train.options
    )
    derived = result.predict(test.background) & {*test.positive, *test.negative}
    assert derived == set(test.positive)
    assert result.certificate.holds


# ---- Prolog


@pytest.mark.parametrize(
    ("query", "answers"),
    [
        ("tail([1,2,3],X)", ["tail([1,2,3],[2,3])"]),
        ("even(4)", ["even(4)"]),
        ("even(3)", []),
        ("all_even([2,4])", ["all_even([2,4])"]),
        ("all_even([2,3])", []),
        ("larger(1,5,X)", ["larger(1,5,5)"]),
        ("first(3)", ["first(3)"]),
        ("append(X,[2],[1,2])", ["append([1],[2],[1,2])"]),
        ("member(X,[a,b])", ["member(a,[a,b])", "member(b,[a,b])"]),
        ("sort([3,1,2,1],X)", ["sort([3,1,2,1],[1,2,3])"]),
        ("count([a,b,a],X)", ["count([a,b,a],2)"]),
        ("loop(1)", []),
    ],
)
def test_queries_are_answered(query: str, answers: list[str]) -> None:
    clauses = """
        tail([_|T],T); even(A) :- 0 is A mod 2; all_even(L) :- \\+ (member(X,L), \\+ even(X));
        larger(A,B,C) :- (A > B -> C = A ; C = B); first(X) :- X > 1, !; first(_);
        count(L,N) :- findall(X, (member(X,L), X == a), R), length(R,N); loop(X) :- loop(X)
    """
    prolog = Prolog([read_term(clause) for clause in re.split(r";\s+(?!C)", clauses.strip())])
    assert [term_text(answer) for answer in prolog.answers(read_term(query))] == answers


@pytest.mark.parametrize("text", ["p(", "p(X", "[1,2", "[1|X,2]", "p q", "#count{X}"])
def test_what_is_not_a_term_is_refused(text: str) -> None:
    with pytest.raises(PrologError):
        read_term(text)


@pytest.mark.parametrize(
    "goal",
    [
        "\\+ member(z,L)",
        "(member(z,L) -> fail ; true)",
        "forall(member(X,L), X = a)",
        "findall(X, natural(X), R)",
    ],
)
def test_what_a_bound_left_open_is_no_negation(goal: str) -> None:
    """The calls for z, which is last, are too deep."""
    many = f"[{','.join('a' * 200)},z]"
    prolog = Prolog([read_term("natural(0)"), read_term("natural(X) :- natural(Y), X is Y + 1")])
    assert prolog.answers(read_term(goal.replace("L", many))) == []
    assert prolog.answers(read_term(goal.replace("L", "[a,a]"))) or "natural" in goal


@pytest.mark.parametrize(
    ("operation", "results"), [("mod", "1 2 -2 -1"), ("rem", "1 -1 1 -1"), ("//", "2 -2 -2 2")]
)
def test_quotients_of_negative_numbers(tmp_path: Path, operation: str, results: str) -> None:
    """Rules that clingo evaluates, and those that it does not, have the numbers of Prolog."""
    pairs = [(7, 3), (-7, 3), (7, -3), (-7, -3)]
    for (one, other), result in zip(pairs, results.split(), strict=True):
        (answer,) = Prolog([]).answers(read_term(f"X is {one} {operation} {other}"))
        assert term_text(answer.args[0]) == result
        background = f"n({one}). r(X,Y) :- n(X), Y is X {operation} {other}."
        found = read_popper(write(tmp_path, background, "", "pos(t(1))."))
        assert found.background["r/2"] == [(str(one), result)]


def test_numbers_and_lists_of_facts_stay_beside_a_fact_with_a_variable(tmp_path: Path) -> None:
    background = "e(a,-3). e(b,[x,y]). e(A,b). p(a). p(b)."
    bias = "head_pred(t,1). body_pred(e,2). body_pred(p,1)."
    found = read_popper(write(tmp_path, background, bias, "pos(t(a)). neg(t(b))."))
    assert {("a", "-3"), ("b", "[x,y]"), ("a", "b")} <= set(found.background["e/2"])


def write(folder: Path, background: str, bias: str, examples: str) -> Path:
    for name, text in (("bk.pl", background), ("bias.pl", bias), ("exs.pl", examples)):
        (folder / name).write_text(text)
    return folder


LISTS = """
    tail([_|T],T). head([H|_],H). empty([]). even(A) :- 0 is A mod 2.
    geq(A,B) :- integer(A), integer(B), A >= B. last([X],X). strange(X) :- foo(X, !.
"""
LIST_BIAS = """
    enable_recursion. max_vars(4). max_body(4). head_pred(f,{arity}).
    body_pred(tail,2). body_pred(head,2). body_pred(empty,1). body_pred(even,1). body_pred(geq,2).
    type(tail,(list,list)). type(head,(list,element,)). type(empty,(list,)). type(even,(element,)).
    type(geq,(element,element)). direction(tail,(in,out)). direction(head,(in,out)).
    direction(empty,(in,)). direction(even,(in,)). direction(geq,(in,in)).
    type(f,({kinds},)). direction(f,({ways},)).
"""


@pytest.mark.quick_first
@pytest.mark.parametrize(
    ("kinds", "examples", "right", "wrong"),
    [
        ("list,element", "pos(f([1,2,3],3)). pos(f([7,5],5)). pos(f([4],4)). neg(f([1,2,3],2))."
         " neg(f([7,5],7)). neg(f([6,1,1],6)).", "f([8,9,6],6)", "f([8,9,6],9)"),
        ("list", "pos(f([2,4,6])). pos(f([8,2])). pos(f([])). neg(f([2,3,4])). neg(f([1]))."
         " neg(f([4,6,5])). neg(f([4,4,8,7])).", "f([10,2])", "f([10,2,1])"),
    ],
    ids=["last", "evens"],
)  # fmt: skip
def test_a_program_on_lists_is_learned(tmp_path: Path, kinds, examples, right, wrong) -> None:
    arity = kinds.count(",") + 1
    ways = ",".join(["in", "out"][:arity])
    bias = LIST_BIAS.format(arity=arity, kinds=kinds, ways=ways)
    found = read_popper(write(tmp_path, LISTS, bias, examples))
    result = lg.relational.fit(found.background, found.positive, found.negative, **found.options)
    assert result.complete
    assert result.certificate.holds
    other = write(tmp_path, LISTS, bias, f"pos({right}). neg({wrong}).")
    derived = result.predict(read_popper(other).background)
    assert read_popper(other).positive[0] in derived
    assert read_popper(other).negative[0] not in derived
    assert any("last/2" in line for line in found.unused)
    assert any("1 clause that cannot be read" in line for line in found.unused)


def test_lists_that_are_reached_late_are_built_as_well(tmp_path: Path) -> None:
    bias = """
        max_vars(5). max_body(4). head_pred(f,2). body_pred(head,2). body_pred(tail,2). body_pred(cons,3).
        type(f,(list,list)). type(head,(list,element)). type(tail,(list,list)).
        type(cons,(element,list,list)). direction(f,(in,out)). direction(head,(in,out)).
        direction(tail,(in,out)). direction(cons,(in,in,out)).
    """
    examples = "pos(f([1,2],[1,1,1,1,2])). pos(f([3],[3,3,3,3])). neg(f([1,2],[1,1,2])). neg(f([3],[3,3]))."
    background = "head([H|_],H). tail([_|T],T). cons(A,B,C) :- append([A],B,C)."
    found = read_popper(write(tmp_path, background, bias, examples))
    result = lg.relational.fit(found.background, found.positive, found.negative, **found.options)
    assert result.rules == ("f(X,Y) :- head(X,Z), cons(Z,X,U), cons(Z,U,V), cons(Z,V,Y).",)


BUILT_BIAS = """
    enable_recursion. max_vars(6). max_body(5). max_clauses(3). head_pred(f,2). body_pred(empty,1).
    body_pred(head,2). body_pred(tail,2). body_pred(even,1). body_pred(odd,1). body_pred(cons,3). body_pred(put_last,3).
    type(f,(list,list)). type(empty,(list,)). type(head,(list,element)). type(tail,(list,list)).
    type(even,(element,)). type(odd,(element,)). type(cons,(element,list,list)). type(put_last,(list,element,list)).
    direction(f,(in,out)). direction(empty,(out,)). direction(head,(in,out)). direction(tail,(in,out)).
    direction(even,(in,)). direction(odd,(in,)). direction(cons,(in,in,out)). direction(put_last,(in,in,out)).
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("examples", "rules"),
    [
        ("pos(f([1,2,3],[3,2,1])). pos(f(['A',b],[b,'A'])). pos(f([],[])). neg(f([1,2],[1,2])). neg(f([1],[])).",
         "f(X,Y) :- empty(X), empty(Y). f(X,Y) :- head(X,Z), tail(X,U), f(U,V), put_last(V,Z,Y)."),
        ("pos(f([4,1,2],[4,2])). pos(f([6],[6])). pos(f([],[])). neg(f([1,2],[1,2])). neg(f([6],[])). neg(f([1],[1])).",
         "f(X,Y) :- empty(X), empty(Y). f(X,Y) :- head(X,Z), odd(Z), tail(X,U), f(U,Y)."
         " f(X,Y) :- head(X,Z), even(Z), tail(X,U), f(U,V), cons(Z,V,Y)."),
    ],
    ids=["reverse", "filter"],
)  # fmt: skip
def test_recursive_rules_may_build_lists_that_no_example_has(tmp_path, examples, rules) -> None:
    """Each literal follows those that give its inputs a value, as Prolog needs it."""
    background = """
        empty([]). head([H|_],H). tail([_|T],T). even(A) :- integer(A), 0 is A mod 2. odd(A) :- integer(A), 1 is A mod 2.
        cons(H,T,[H|T]). put_last(L,X,R) :- append(L,[X],R).
    """
    found = read_popper(write(tmp_path, background, BUILT_BIAS, examples))
    options = {**found.options, "work_limit": 80_000_000, "alternatives": 0}
    result = lg.relational.fit(found.background, found.positive, found.negative, **options)
    assert " ".join(result.rules) == rules
    assert result.complete
    assert result.certificate.holds


def test_a_predicate_with_a_fact_and_a_rule_on_lists_is_evaluated(tmp_path: Path) -> None:
    background = "size([],0). size([_|T],N) :- size(T,M), N is M+1. :- table size/2."
    bias = "head_pred(f,1). body_pred(size,2). type(f,(list,)). type(size,(list,int)). direction(size,(in,out))."
    folder = write(tmp_path, background, bias, "pos(f([a,b])). neg(f([a])).")
    found = read_popper(folder)
    assert found.background == {"size/2": [("[a,b]", "2"), ("[a]", "1")]}
    assert not found.unused
    assert "size/2" in " ".join(
        read_popper(
            write(tmp_path, background + "p(a).", bias + "body_pred(p,1).", "pos(f([a]))."),
            ground_lists=0,
        ).unused
    )


def test_values_are_reached_from_the_inputs_of_an_example() -> None:
    """The tuples that a derivation can have are listed, and not those with lists of two examples."""
    lists = [(f"l{n}_{k}", f"l{n}_{k + 1}") for n in range(12) for k in range(9)]
    positive = [("drop", f"l{n}_0", n % 8 + 1, f"l{n}_{n % 8 + 1}") for n in range(12)]
    negative = [("drop", f"l{n}_0", n % 8 + 2, f"l{n}_{n % 8 + 1}") for n in range(8)]
    language = Language(
        types={"drop": ("list", "n", "list"), "tail": ("list", "list"), "down": ("n", "n")},
        directions={"drop": ("in", "in", "out"), "tail": ("in", "out"), "down": ("in", "out")},
    )
    facts = {"tail": lists, "down": [(k + 1, k) for k in range(9)]}
    problem = tasks.problem(facts, positive, negative, language)
    (target,) = problem.targets
    atoms = {problem.atom(target, code) for code in problem.relevant(target)}
    calls = {
        f"drop(l{n}_{done},{n % 8 + 1 - done},l{n}_{n % 8 + 1})"
        for n in range(12)
        for done in range(n % 8 + 1)
    }
    assert calls <= atoms
    numbers = sum(n + 3 if n < 8 else n % 8 + 2 for n in range(12))  # from 0 up to the largest one
    assert len(atoms) == numbers * 10 * 10


def test_lists_are_left_out_on_request(tmp_path: Path) -> None:
    bias = LIST_BIAS.format(arity=1, kinds="list", ways="in")
    folder = write(
        tmp_path, LISTS + "short([]). short([1]).", bias + " body_pred(short,1).", "pos(f([]))."
    )
    found = read_popper(folder, ground_lists=0)
    assert found.background == {"empty/1": [("[]",)], "short/1": [("[]",), ("[1]",)]}
    assert any("ground_lists= evaluates" in line for line in found.unused)


def test_prolog_on_lists_is_an_argument_of_fit(tmp_path: Path) -> None:
    positive = [("last", "[1,2,3]", 3), ("last", "[7,5]", 5), ("last", "[4]", 4)]
    negative = "last([1,2,3],2). last([7,5],7). last([6,1,1],6)."
    types = {"last": ("list", "item"), "head": ("list", "item"), "tail": ("list", "list")}
    ways = {"last": ("in", "out"), "head": ("in", "out"), "tail": ("in", "out")}
    text = "head([H|_],H). tail([_|T],T). empty([]). p(X) :- q(X)."
    options = {"ground_lists": 3, "types": types, "directions": ways, "max_body": 3}
    result = lg.relational.fit(text, positive, negative, **options)
    assert result.rules == (
        "last(X,Y) :- head(X,Y), tail(X,Z), empty(Z).",
        "last(X,Y) :- tail(X,Z), last(Z,Y).",
    )
    assert any("not used" in note and "p/1" in note for note in result.notes)
    path = tmp_path / "bk.pl"
    path.write_text(text)
    assert lg.relational.fit(path, positive, negative, **options).rules == result.rules
    hurried = lg.relational.fit(text + " q(4).", positive, negative, time_limit=1e-9, **options)
    assert any("not every term" in note for note in hurried.notes)
    named = [("t", "Anna"), ("t", "Cid")]  # not variables
    found = lg.relational.fit("p('Anna'). p('Cid'). q('Bob').", named, ground_lists=0)
    assert found.rules == ("t(X) :- p(X).",)
    with pytest.raises(lg.errors.DataError, match="a text or a path of Prolog"):
        lg.relational.fit({"p": [(1,)]}, positive, negative, ground_lists=3)


def test_numbers_that_bias_files_declare_as_constants_are_used(tmp_path: Path) -> None:
    bias = (
        "head_pred(t,1). body_pred(w,2). constant(5,n). type(t,(o,)). type(w,(o,n)). max_vars(2)."
    )
    examples = "pos(t(a)). pos(t(c)). neg(t(b))."
    found = read_popper(write(tmp_path, "w(a,5). w(b,6). w(c,5)", bias, examples))
    result = lg.relational.fit(found.background, found.positive, found.negative, **found.options)
    assert result.rules == ("t(X) :- w(X,5).",)


def test_rules_and_constants_of_popper_files_are_used(tmp_path: Path) -> None:
    background = """
        :- style_check(-discontiguous).
        does(1,p1,a). does(1,p2,b). does(2,p1,a). does(2,p2,a). does(3,p1,b). does(3,p2,b).
        at(1, pos(2,3)). at(2, pos(2,3)). at(3, pos(4,4)).
        draws(E,A) :- does(E,A,B), does(E,C,B), A \\= C.
        alone(E) :- does(E,A,_), \\+ draws(E,A).
        c_p1(p1).
    """
    bias = """
        max_clauses(1). head_pred(t,2). body_pred(draws,2). body_pred(at,2). body_pred(alone,1).
        body_pred(C,1) :- constant(C,_). type(C,(T,)) :- constant(C,T). constant(c_p1, player).
        type(t,(ex,player)). type(draws,(ex,player)). type(at,(ex,place)). type(alone,(ex,)).
        :- clause(C), #count{V : clause_var(C,V), var_type(C,V,ex)} != 1.
        allow_singletons. prop(singleton,at). strange_setting(1).
    """
    examples = "pos(t(2,p1)). pos(t(3,p1)). neg(t(1,p1)). neg(t(2,p2))."
    found = read_popper(write(tmp_path, background, bias, examples))
    assert found.options["world"] == "ex"
    assert found.options["max_clauses"] == 1
    assert sorted(found.background["alone/1"]) == [("1",)]
    assert ("1", "pos(2,3)") in found.background["at/2"]
    result = lg.relational.fit(found.background, found.positive, found.negative, **found.options)
    assert result.rules == ("t(X,Y) :- draws(X,Y), c_p1(Y).",)
    assert "one variable for the world" in result.reason
    assert found.unused == ["bias.pl: settings that have no meaning here: strange_setting"]


@pytest.mark.parametrize("other", ["_", "Y"])
def test_any_value_in_a_negated_atom_of_prolog_needs_no_example(tmp_path: Path, other) -> None:
    background = f"father(sam,amy). mother(ann,amy). man(X) :- father(X,_), \\+ mother(X,{other})."
    bias = "head_pred(t,1). body_pred(man,1). body_pred(father,2). type(father,(who,who))."
    found = read_popper(write(tmp_path, background, bias, "pos(t(amy))."))
    assert (found.background["man/1"], found.unused) == ([("sam",)], [])


def test_constants_without_facts_may_be_named_in_rules(tmp_path: Path) -> None:
    background = "edge(a,b). edge(b,c). edge(d,a). hue(a,red). hue(b,green). hue(c,red). hue(d,red)"
    bias = """
        head_pred(t,1). head_pred(t,1). body_pred(edge,2). body_pred(hue,2). constant(red, colour).
        type(t,(node,)). type(edge,(node,node)). type(hue,(node,colour)).
        :- body_pred(P,1), clause(C), #count{V : clause_var(C,V)} > 5.
    """
    found = read_popper(
        write(tmp_path, background, bias, "pos(t(b)). pos(t(d)). neg(t(a)). neg(t(c))")
    )
    assert found.options["constants"] == ["red"]
    assert found.options["target"] == ["t/1"]
    assert ("d", "red") in found.background["hue/2"]  # the last fact has no full stop
    assert found.negative == [("t", "a"), ("t", "c")]
    assert found.unused == ["bias.pl: settings that have no meaning here: constraints (:- ...)"]
    result = lg.relational.fit(found.background, found.positive, found.negative, **found.options)
    assert result.rules == ("t(X) :- edge(X,Y), hue(Y,red).",)


def test_a_predicate_may_name_a_value_that_only_inputs_use(tmp_path: Path) -> None:
    bias = """
        head_pred(t,1). body_pred(at,2). body_pred(five,1). body_pred(gt,2). max_vars(3). max_body(3). bkcons.
        type(t,(o,)). type(at,(o,n)). type(five,(n,)). type(gt,(n,n)). direction(t,(in,)).
        direction(at,(in,out)). direction(five,(out,)). direction(gt,(in,in)).
    """
    background = "gt(A,B) :- A > B. five(5)." + "".join(f" at(o{n},{n})." for n in range(10))
    examples = "".join(f"{'pos' if n > 5 else 'neg'}(t(o{n}))." for n in range(10))
    found = read_popper(write(tmp_path, background, bias, examples))
    assert not found.unused
    result = lg.relational.fit(found.background, found.positive, found.negative, **found.options)
    assert result.rules == ("t(X) :- at(X,Z), five(Y), gt(Z,Y).",)


def test_more_variables_are_tried_before_more_rules_than_max_clauses() -> None:
    """The rule has two literals and six variables, of which short bodies have at most four."""
    facts = {f"c{n}": [(f"o{n}",)] for n in range(8)}
    facts["u"] = [(f"o{n}", f"x{n}", f"y{n % 3}", f"z{n}") for n in range(6)]
    facts["q"] = [(f"x{n}", f"p{n % 4}", f"z{n}", f"k{n}") for n in (0, 2, 4, 5)]
    positive = [("t", f"o{n}") for n in (0, 2, 4, 5)]
    negative = [("t", f"o{n}") for n in (1, 3, 6, 7)]
    result = lg.relational.fit(facts, positive, negative, recursive=False, max_clauses=1)
    assert len(result.rules) == 1
    assert result.complete


@pytest.mark.parametrize("setting", ["max_vars(N).", "head_pred(t,one).", "body_pred(t,1.5)."])
def test_settings_without_a_whole_number_are_refused(tmp_path: Path, setting: str) -> None:
    with pytest.raises(lg.errors.DataError, match="whole number"):
        read_popper(write(tmp_path, "p(a).", setting, "pos(t(a))."))


@pytest.mark.parametrize(
    "text", ["(3,4)", "((a,b),c)", "(a,b,c)", "(a,)", "1-2", "1-(2-3)", "7 mod 2"]
)
def test_the_text_of_a_term_is_read_as_the_same_term(text: str) -> None:
    term = read_term(f"p({text})")
    assert term_text(term) == f"p({text})"
    assert read_term(term_text(term)) == term


@pytest.mark.parametrize(
    ("text", "name"), [("'it''s'", "it's"), ('"a""b"', 'a"b'), (r"'a\'b'", "a'b"), ("''", "")]
)
def test_quotes_are_doubled_in_quotes(text: str, name: str) -> None:
    assert read_term(text) == name


def test_two_literals_of_a_wide_predicate_have_their_variables() -> None:
    rng = random.Random(2)
    cells, close, apart = [], [], []
    for game in range(12):
        king, rook, other = rng.sample(range(1, 9), 3)
        cells += [
            (game, f"p{king}", "w", "k"),
            (game, f"p{rook}", "w", "r"),
            (game, f"p{other}", "b", "k"),
        ]
        (close if abs(king - rook) == 1 else apart).append(("near", game))
    squares = range(1, 9)
    background = {
        "cell": cells,
        "distance": [(f"p{a}", f"p{b}", f"d{abs(a - b)}") for a in squares for b in squares],
        "one": [("d1",)],
    }
    result = lg.relational.fit(
        background, close, apart, recursive=False, max_variables=7, alternatives=0
    )
    assert result.complete
    assert len(result.rules) == 1
    assert result.rules[0].count("cell(") == 2
    assert "no set of rules" not in result.reason


def test_predicates_are_invented_for_bodies_of_two_literals() -> None:
    steps = [(n, n + 1) for n in range(6)]
    result = lg.relational.fit(
        {"step": steps},
        [("three", n, n + 3) for n in range(4)],
        invent=1, max_body=2, recursive=False, closed_world=True, alternatives=0,
    )  # fmt: skip
    assert result.complete
    assert len(result.rules) == 2
    assert "inv1" in result.text


def test_a_target_that_is_named_twice_is_learned_once() -> None:
    result = lg.relational.fit({"p": [("a",)]}, [("t", "a")], [("t", "b")], target=["t", "t/1"])
    assert result.rules == ("t(X) :- p(X).",)


def test_fewer_rules_are_preferred_without_a_false_claim() -> None:
    background = {
        "a": [(n,) for n in range(4)], "b": [(n,) for n in range(4, 8)],
        "c": [(n, m) for n in range(8) for m in range(2)], "d": [(0,), (1,), (20,)],
    }  # fmt: skip
    examples = [("t", n) for n in range(8)], [("t", 20)]
    few = lg.relational.fit(background, *examples, recursive=False, max_clauses=1)
    assert len(few.rules) == 1
    many = lg.relational.fit(
        {"a": background["a"], "b": background["b"]}, *examples, recursive=False, max_clauses=1
    )
    assert len(many.rules) == 2
    assert not re.search("no set of rules", many.reason)
    assert any("max_clauses" in note for note in many.notes)
