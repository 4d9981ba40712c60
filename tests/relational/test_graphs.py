"""Rules of knowledge graphs, held against enumeration and against clingo."""

import itertools
import pickle
import random
import re

import numpy as np
import pytest

import latentgamma as lg
from latentgamma.relational import graphs
from latentgamma.relational.result import derived_atoms

pytest.importorskip("clingo")
pytest.importorskip("numba")

mine = lg.relational.mine_chains
FAMILY = [
    ("ann", "parent", "bob"),
    ("bob", "parent", "cid"),
    ("ann", "grandparent", "cid"),
    ("dan", "parent", "eve"),
    ("eve", "parent", "fay"),
]


def random_graph(seed: int, entities: int = 7, relations: int = 2, count: int = 20):
    """A random graph; some triples lead from an entity to itself."""
    rng = random.Random(seed)
    return [
        (
            f"e{rng.randrange(entities)}",
            f"r{rng.randrange(relations)}",
            f"e{rng.randrange(entities)}",
        )
        for _ in range(count)
    ]


def everything(triples, **options):
    return mine(triples, min_support=1, min_confidence=0.0, max_rules=10**7, **options)


def step_targets(triples, relation, back, entity):
    ends = ((t, h) if back else (h, t) for h, r, t in triples if r == relation)
    return {b for a, b in ends if a == entity}


def path_pairs(triples, body):
    """The pairs that a body derives, by enumeration of its paths."""
    entities = {name for h, _, t in triples for name in (h, t)}
    paths = [(x,) for x in sorted(entities)]
    for relation, back in body:
        paths = [(*p, y) for p in paths for y in step_targets(triples, relation, back, p[-1])]
    return {
        (p[0], p[-1]) for p in paths if len({p[0], *p[1:-1]}) == len(p) - 1 and p[-1] not in p[1:-1]
    }


@pytest.mark.parametrize("seed", range(4))
def test_every_path_rule_is_found_with_its_counts(seed: int) -> None:
    triples = set(random_graph(seed))
    found = {(rule.head, rule.body): rule for rule in everything(triples, constants=False).rules}
    steps = list(itertools.product(("r0", "r1"), (False, True)))
    expected = set()
    for length in (1, 2, 3):
        for body in itertools.product(steps, repeat=length):
            pairs = path_pairs(triples, body)
            for head in ("r0", "r1"):
                if body == ((head, False),):
                    continue
                true = {(h, t) for h, r, t in triples if r == head}
                those = (
                    pairs - {p for p in true if p[0] == p[1]} if body == ((head, True),) else pairs
                )
                if not those & true:
                    continue
                expected.add((head, body))
                rule = found[head, body]
                known = [pair for pair in those if any(pair[0] == h for h, _ in true)]
                assert (rule.support, rule.instances) == (len(those & true), len(those))
                assert rule.confidence == rule.support / rule.instances
                assert rule.pca_confidence == rule.support / len(known)
                assert not rule.estimated
    assert set(found) == expected


def constant_rules(triples, least=1):
    """Rules with constants by enumeration: (head, first, constant, body, end) -> (support, instances)."""
    entities = sorted({name for h, _, t in triples for name in (h, t)})
    steps = sorted(set(itertools.product({r for _, r, _ in triples}, (False, True))))
    step = {(*s, e): step_targets(triples, *s, e) - {e} for s in steps for e in entities}
    bodies = {}
    for s in steps:
        bodies[(s,), None] = {x for x in entities if step[*s, x]}
        for d in entities:
            bodies[(s,), d] = {x for x in entities if d in step[*s, x]}
            for second in steps:
                middle = {z for z in entities if d in step[*second, z]}
                reached = {z for z in middle for x in entities if z in step[*s, x]}
                if len(reached) > 1:
                    bodies[(s, second), d] = {
                        x for x in entities if x != d and (step[*s, x] & middle) - {x}
                    }
    found = {}
    for (body, d), members in bodies.items():
        for (relation, back), c in itertools.product(steps, entities):
            own = body[0] == (relation, back)
            if own and (len(body) == 2 or d in (None, c)):
                continue
            instances = members - {c}
            support = {x for x in instances if c in step[relation, back, x]}
            if len(support) >= least:
                having = {x for x in instances if step_targets(triples, relation, back, x)}
                found[relation, back, c, body, d] = (len(support), len(instances), len(having))
    weight = {key: support / (size + 5) for key, (support, size, _) in found.items()}
    return {
        key: value
        for key, value in found.items()
        if key[4] is None or weight[key] > weight.get((*key[:3], key[3][:1], None), 0)
    }


@pytest.mark.parametrize("seed", range(3))
def test_every_rule_with_constants_is_found_with_its_counts(seed: int, monkeypatch) -> None:
    monkeypatch.setattr(graphs, "_MOST_CONSTANTS", 10**6)
    triples = set(random_graph(seed, 6, 2, 16))
    found = {
        (r.head, r.constant_first, r.constant, r.body, r.end): r
        for r in everything(triples, max_length=2).rules
        if r.constant is not None
    }
    expected = constant_rules(triples)
    for key, (support, instances, having) in expected.items():
        rule = found[key]
        assert (rule.support, rule.instances) == (support, instances)
        assert rule.pca_confidence == support / having
    assert set(found) == set(expected)


def test_the_text_says_what_was_counted() -> None:
    triples = set(random_graph(5, 6, 2, 14))
    rules = everything(triples, max_length=2)
    facts = {}
    for h, r, t in triples:
        facts.setdefault(f"{r}/2", []).append((h, t))
    lines = rules.text.splitlines()
    heads = [re.match(r"(r\d)\((\w+),(\w+)\) :- (.*)", line).groups() for line in lines]
    text = "\n".join(f"n{i}({a},{b}) :- {body}" for i, (_, a, b, body) in enumerate(heads))
    derived = derived_atoms(text, facts, [f"n{i}/2" for i in range(len(lines))])
    pairs = {i: set() for i in range(len(lines))}
    for name, *pair in derived:
        pairs[int(name[1:])].add(tuple(pair))
    plain = {}
    for rule in rules.rules:
        plain.setdefault(rule.text, []).append((rule.support, rule.instances))
    for i, line in enumerate(lines):
        short = re.sub(r", \w+ != \w+", "", line)
        support = len(pairs[i] & set(facts[f"{heads[i][0]}/2"]))
        assert (support, len(pairs[i])) in plain[short]


def predictions(triples, rule):
    """The links that a rule predicts, by enumeration."""
    if rule.constant is None:
        return path_pairs(triples, rule.body)
    if rule.end is None:
        starts = {x for x, y in path_pairs(triples, rule.body) if x != y}
    else:
        starts = {x for x, y in path_pairs(triples, rule.body) if y == rule.end != x}
    starts -= {rule.constant}
    return {(rule.constant, x) if rule.constant_first else (x, rule.constant) for x in starts}


@pytest.mark.parametrize("seed", range(3))
def test_ranks_are_those_of_enumeration(seed: int) -> None:
    every = random_graph(seed, 8, 3, 40)
    train, valid, test = set(every[:30]), set(every[30:35]), set(every[35:])
    names = {name for h, _, t in train for name in (h, t)}
    valid = [t for t in valid if {t[0], t[2]} <= names]
    test = sorted(t for t in test if {t[0], t[2]} <= names)
    found = mine(train, min_support=1)
    entities = found.entities
    weights = {}  # of the rules that predict a link
    for rule in found.rules:
        weight = rule.support / (rule.instances + graphs.PSEUDO_INSTANCES)
        for h, t in predictions(train, rule):
            weights.setdefault((h, rule.head, t), []).append(weight)
    true = {*train, *valid, *test}
    keys = {
        "maximum": lambda link: sorted(weights.get(link, []), reverse=True),
        "noisy_or": lambda link: round(1 - np.prod([1 - w for w in weights.get(link, [])]), 9),
    }
    for aggregation, key in keys.items():
        ranking = found.rank(test, valid, aggregation=aggregation)
        for (h, r, t), ranks in zip(test, ranking.ranks, strict=True):
            for rank, links in zip(
                ranks,
                ([(h, r, e) for e in entities], [(e, r, t) for e in entities]),
                strict=True,
            ):
                rivals = [key(link) for link in links if link not in true]
                own = key((h, r, t))
                better = sum(other > own for other in rivals)
                assert rank == 1 + better + rivals.count(own) / 2
        assert ranking.mrr == pytest.approx(np.mean([1 / x for x in ranking.ranks.ravel()]))
        assert ranking.hits(3) == np.mean(ranking.ranks <= 3)
        assert ranking.complete


def test_predictions_are_in_the_order_of_the_ranks() -> None:
    train = random_graph(3, 8, 3, 30)
    found = mine(train, min_support=1)
    for aggregation in ("maximum", "noisy_or", "non_redundant"):
        for head in (None, "e1"):
            tail = "e2" if head is None else None
            made = found.predict(head, "r1", tail, top=99, aggregation=aggregation)
            ranks = found.rank([one.triple for one in made], aggregation=aggregation).ranks
            assert not {one.triple for one in made} & set(train)
            # Each is ranked alone here: the others are filtered, so all have rank 1.
            assert (ranks[:, int(head is None)] <= 1 + len(found.entities) / 2).all()
            scores = [one.score for one in made]
            assert scores == sorted(scores, reverse=True)
            alone = [found.rank([one.triple], aggregation=aggregation) for one in made]
            places = [float(one.ranks[0, int(head is None)]) for one in alone]
            assert places == sorted(places)
            for one in made:
                assert all((one.triple[0], one.triple[2]) in predictions(set(train), r)
                           for r in one.rules)  # fmt: skip


def test_the_same_evidence_counts_once() -> None:
    """Two relations with the same pairs make two rules with the same predictions."""
    rng = random.Random(1)
    pairs = [(f"a{i}", f"b{rng.randrange(40)}") for i in range(60)]
    true = [(a, "h", b) for a, b in pairs[:30]]
    once = [*true, *((a, "r", b) for a, b in pairs)]
    twice = [*once, *((a, "s", b) for a, b in pairs)]
    options = {"max_length": 1, "constants": False}
    link = pairs[-1][0]
    score = mine(once, **options).predict(link, "h")[0].score
    double = mine(twice, **options)
    assert len(double.predict(link, "h")[0].rules) == 2
    assert double.predict(link, "h")[0].score == pytest.approx(score)
    noisy = double.predict(link, "h", aggregation="noisy_or")[0].score
    assert noisy == pytest.approx(1 - (1 - score) ** 2)


def test_the_overlap_of_rules_is_estimated() -> None:
    from latentgamma.relational import graph_loops

    rng = random.Random(2)
    sets = [np.array(sorted(rng.sample(range(3000), size))) for size in (10, 400, 1000, 2000)]
    sets.append(np.union1d(sets[1], sets[0]))
    signatures = np.full((len(sets), graph_loops.BINS), 0xFFFFFFFF, np.uint32)
    for members, signature in zip(sets, signatures, strict=True):
        graph_loops.sign(members, signature)
    shared = np.eye(len(sets), dtype=np.float32)
    graph_loops.overlaps(signatures, shared)
    for i, j in itertools.combinations(range(len(sets)), 2):
        exact = len(np.intersect1d(sets[i], sets[j])) / len(np.union1d(sets[i], sets[j]))
        assert shared[i, j] == pytest.approx(exact, abs=0.12)
    assert graphs.components(shared >= 0.8).tolist() == [0, 1, 2, 3, 1]


def planted_graph(seed: int, people: int = 300, noise: int = 600):
    """`uses(X,Y)` follows from three steps, `speaks(X, english)` from a constant two steps away."""
    rng = random.Random(seed)
    triples = set()
    speaks = {"uk": "english", "us": "english", "fr": "french"}
    country = {f"city{i}": rng.choice(list(speaks)) for i in range(30)}
    triples |= {(city, "in_country", land) for city, land in country.items()}
    for i in range(people):
        city = rng.choice(list(country))
        triples |= {(f"p{i}", "lives_in", city), (f"p{i}", "speaks", speaks[country[city]])}
        triples.add((f"p{i}", "works_at", f"f{rng.randrange(60)}"))
    triples |= {(f"s{i}", "supplies", f"f{i % 60}") for i in range(90)}
    triples |= {(f"s{i}", "makes", f"tool{rng.randrange(40)}") for i in range(90)}
    works = path_pairs(triples, (("works_at", False), ("supplies", True), ("makes", False)))
    triples |= {(x, "uses", y) for x, y in works if rng.random() < 0.8}
    names = sorted({name for h, _, t in triples for name in (h, t)})
    triples |= {
        (rng.choice(names), f"n{rng.randrange(4)}", rng.choice(names)) for _ in range(noise)
    }
    return sorted(triples)


@pytest.mark.quick_first
@pytest.mark.parametrize("seed", range(2))
def test_planted_rules_are_found(seed: int) -> None:
    triples = planted_graph(seed)
    found = mine(triples, work_limit=30_000_000, seed=seed)
    rules = {rule.text: rule for rule in found.rules}
    three = rules["uses(X,Y) :- works_at(X,Z), supplies(U,Z), makes(U,Y)."]
    assert three.confidence == pytest.approx(0.8, abs=0.05)
    assert not three.estimated
    assert rules["speaks(X,english) :- lives_in(X,Z), in_country(Z,uk)."].confidence == 1.0
    again = mine(triples, work_limit=30_000_000, seed=seed)
    assert again.rules == found.rules
    assert again.notes == found.notes


def test_large_bodies_are_estimated(monkeypatch) -> None:
    triples = planted_graph(3)
    exact = {rule.text: rule for rule in mine(triples, constants=False, max_length=2).rules}
    monkeypatch.setattr(graphs, "_EDGES_OF_A_BODY", 300)
    found = mine(triples, constants=False, max_length=2)
    estimates = [rule for rule in found.rules if rule.estimated and rule.text in exact]
    assert estimates
    for rule in estimates:
        if exact[rule.text].support > 100:
            assert rule.instances == pytest.approx(exact[rule.text].instances, rel=0.6)


def test_a_time_limit_returns_the_rules_so_far() -> None:
    found = mine(planted_graph(0), time_limit=1e-9)
    assert found.timed_out
    assert any("time limit" in note for note in found.notes)
    assert isinstance(found.predict("p1", "speaks"), tuple)
    assert not mine(FAMILY).timed_out


def test_a_link_is_explained_by_rules_and_triples() -> None:
    triples = planted_graph(0)
    found = mine(triples, work_limit=30_000_000)
    head, _, tail = next(t for t in triples if t[1] == "uses")
    shown = found.explain(head, "uses", tail, top=50)
    assert shown
    for rule, bodies in shown:
        assert bodies
        for body in bodies:
            assert set(body) <= set(triples)
            assert (head, "uses", tail) not in body
            assert len(body) == len(rule.body)
    english = found.explain(
        "p0", "speaks", next(t[2] for t in triples if t[:2] == ("p0", "speaks"))
    )
    assert any(rule.end in {"uk", "us", "fr"} for rule, _ in english)


def test_a_program_of_the_rules_derives_the_links() -> None:
    triples = [*FAMILY, ("New York", "parent", "O'Hara")]
    found = mine(triples, min_support=1, constants=False)
    program = found.as_program(min_confidence=0.4)
    derived = lg.closure(program, []).atoms
    assert {"grandparent(dan,fay)", 'parent("New York","O\'Hara")'} <= derived
    proof = lg.derivation(program, [], "grandparent(dan,fay)")
    assert "parent(dan,eve)" in str(proof)


def test_rules_can_be_pickled() -> None:
    found = mine(FAMILY, min_support=1)
    again = pickle.loads(pickle.dumps(found))
    assert again.predict("dan", "grandparent") == found.predict("dan", "grandparent")


def test_triples_with_unknown_names_have_no_rank() -> None:
    found = mine(FAMILY, min_support=1)
    asked = [("zoe", "parent", "ann"), ("dan", "grandparent", "fay"), ("ann", "aunt", "bob")]
    ranking = found.rank(asked, known=[("zoe", "aunt", "ann")])
    assert ranking.triples == (("dan", "grandparent", "fay"),)
    assert ranking.ranks.shape == (1, 2)
    assert ranking.left_out == (asked[0], asked[2])
    with pytest.raises(lg.errors.DataError, match="no triples to rank"):
        found.rank(asked[:1])


def test_a_frame_of_triples_is_read() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(FAMILY, columns=["head", "relation", "tail"])
    assert mine(frame, min_support=1).rules == mine(FAMILY, min_support=1).rules


@pytest.mark.slow
def test_validation_triples_choose_threshold_and_length() -> None:
    triples = planted_graph(1)
    rng = random.Random(0)
    held = set(rng.sample([t for t in triples if t[1] == "uses"], 40))
    found = mine([t for t in triples if t not in held], work_limit=20_000_000, validation=held)
    chosen = found.longest, found.threshold
    assert found.longest == 3  # `uses` follows from three steps
    scores = {}
    for found.longest, found.threshold in itertools.product((1, 2, 3), graphs._THRESHOLDS):
        scores[found.longest, found.threshold] = found.rank(held).mrr
    assert scores[chosen] == max(scores.values())


def test_bodies_that_are_too_long_are_not_used() -> None:
    triples = planted_graph(1)
    found = mine(triples, work_limit=20_000_000)
    short = mine(triples, work_limit=20_000_000, constants=False)
    found.longest = short.longest = 2
    for rules in (found, short):
        made = rules.predict("p1", "uses")
        assert all(len(rule.body) <= 2 for one in made for rule in one.rules)


def test_progress_is_reported() -> None:
    calls = []
    mine(FAMILY, progress=lambda *call: calls.append(call))
    assert calls
    assert all(done <= total for _, done, total in calls)


def test_relations_become_predicates() -> None:
    triples = [("A b", "/p/Q r", "c"), ("A b", "p_q_r", "c"), ("x", "/p/Q r", "y"), ("x", "p_q_r", "y"),
               ("x", "7", "y")]  # fmt: skip
    found = mine(triples, min_support=1)
    lg.datalog.ground(found.text, facts={"p_q_r/2": [("a", "b")]})
    assert any(rule.text == "p_q_r_2(X,Y) :- p_q_r(X,Y)." for rule in found.rules)
    assert any("r_7(X,Y)" in rule.text for rule in found.rules)
    assert {rule.head for rule in found.rules} <= {"/p/Q r", "p_q_r", "7"}


def test_small_and_odd_graphs() -> None:
    one = mine([("a", "r", "b")])
    assert one.rules == ()
    assert one.predict("a", "r") == ()
    assert one.explain("a", "r", "b") == ()
    assert one.rank([("b", "r", "a")]).ranks.tolist() == [[1.5, 1.5]]
    twice = mine([("a", "r", "b"), ("a", "r", "b"), (1, "r", 2)])
    assert twice.notes == ("1 duplicate triple left out",)
    assert twice.predict(1, "r") == ()
    assert "0 rules of 1 relation" in repr(one)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mine([]), "no triples"),
        (lambda: mine("abc"), "list of triples"),
        (lambda: mine([("a", "b")]), r"entry 1 is \('a', 'b'\)"),
        (lambda: mine([("a", "b", 1.5)]), "texts or whole numbers"),
        (lambda: mine(["abc"]), "entry 1 is 'abc'"),
        (lambda: mine(FAMILY, max_length=6), "max_length must be a whole number from 1 to 5"),
        (lambda: mine(FAMILY, min_support=0), "min_support"),
        (lambda: mine(FAMILY).predict("zoe", "parent"), "no entity 'zoe'"),
        (lambda: mine(FAMILY).predict("ann", "sister"), "no relation 'sister'"),
        (lambda: mine(FAMILY).predict("ann", "parent", "bob"), "head or tail is None"),
        (lambda: mine(FAMILY).rank([]), "no triples to rank"),
        (lambda: mine(FAMILY).rank(FAMILY, aggregation="sum"), "aggregation must be one of"),
    ],
)  # fmt: skip
def test_wrong_graphs_are_refused(call, message: str) -> None:
    with pytest.raises(lg.LatentGammaError, match=message):
        call()


def test_the_longest_rules_have_a_variable_for_every_entity() -> None:
    path = [(f"n{i}_{k}", f"r{k}", f"n{i}_{k + 1}") for i in range(60) for k in range(5)]
    ends = [(f"n{i}_0", "far", f"n{i}_5") for i in range(60)]
    found = lg.relational.mine_chains([*path, *ends], max_length=5, constants=False)
    assert "far(X,Y) :- r0(X,Z), r1(Z,U), r2(U,V), r3(V,W), r4(W,Y)." in {
        rule.text for rule in found.rules
    }
    (_, bodies), *_ = found.explain("n7_0", "far", "n7_5")
    assert bodies == (tuple(triple for triple in path if triple[0].startswith("n7_")),)
