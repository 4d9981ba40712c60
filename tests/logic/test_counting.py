"""Counts in bodies, against enumeration in every semantics; their proofs and missing facts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations, product

import pytest

import latentgamma as lg
from latentgamma import Program, parse
from latentgamma.datalog.programs import read
from latentgamma.program.counting import counts_of, written_program
from latentgamma.program.files import dumps
from latentgamma.program.names import quote, split_count

INPUTS = ["a", "b", "c", "d", "age < 18"]


def random_text(rng: random.Random, *, negation: bool) -> str:
    """Rules in layers: an atom uses the inputs and the atoms of the layers below."""
    known, lines = list(INPUTS), []
    for layer in range(3):
        heads = [f"h{layer}", f"g{layer}"]
        for head in heads * 2:
            body = []
            for _ in range(rng.randint(1, 2)):
                names = rng.sample(known, rng.randint(2, 4))
                literals = [f"not {n}" if negation and rng.random() < 0.3 else n for n in names]
                count = f"{rng.randint(1, len(names))} {{ {'; '.join(literals)} }}"
                literal = rng.choice([count, count, rng.choice(known)])
                body.append(f"not {literal}" if negation and rng.random() < 0.2 else literal)
            lines.append(f"{head} :- {', '.join(body)}.")
        known += heads
    return "\n".join(lines)


def holds(name: str, true: set[str]) -> bool:
    """What an atom of a body means, by counting."""
    count = split_count(name)
    if count is None:
        return name in true
    bound, atoms, negated = count
    return sum(n in true for n in atoms) + sum(n not in true for n in negated) >= bound


def brute_force(program: Program, facts: set[str]) -> set[str]:
    """The rules as they are written, layer by layer."""
    true = set(facts)
    written = [r for r in program.rules if split_count(r.heads[0]) is None and r.heads[0][0] != "#"]
    for layer in range(3):
        for _ in written:
            for rule in written:
                fires = all(holds(n, true) for n in rule.body)
                fires &= not any(holds(n, true) for n in rule.negated)
                if fires and rule.heads[0][1:] == str(layer):
                    true |= set(rule.heads)
    return true


def worlds() -> Iterator[set[str]]:
    for values in product([False, True], repeat=len(INPUTS)):
        yield {name for name, value in zip(INPUTS, values, strict=True) if value}


def written_atoms(known: frozenset[str]) -> set[str]:
    return {name for name in known if split_count(name) is None}


@pytest.mark.quick_first
@pytest.mark.parametrize("seed", range(12))
def test_closures_are_those_of_counting(seed: int) -> None:
    program = parse(random_text(random.Random(seed), negation=seed % 3 > 0))
    facts = [w & set(program.atoms) for w in worlds()]
    rows = lg.closures(program, [list(f) for f in facts])
    for given, row in zip(facts, rows, strict=True):
        expected = brute_force(program, given)
        known = lg.closure(program, given)
        assert written_atoms(known.atoms) == expected
        assert len(known) == len(list(known)) == len(known.atoms)
        assert all(holds(name, expected) for name in known)  # also the counts themselves
        assert program.names(row) == known.atoms


@pytest.mark.parametrize("seed", range(40))
def test_what_is_printed_is_read_as_the_same_program(seed: int) -> None:
    program = parse(random_text(random.Random(seed), negation=seed % 2 > 0))
    assert "#count" not in str(program)
    assert parse(str(program)) == program
    assert read(dumps(program, ".json").encode(), ".json") == program
    if program.definite:
        assert read(dumps(program, ".cnf").encode(), ".cnf") == program
    order = sorted(program.atoms)
    moved = Program.from_rules(
        program.rules, order
    )  # no text has this order: raw rules are printed
    assert parse(str(moved)) == moved
    assert read(dumps(moved, ".json").encode(), ".json") == moved


@pytest.mark.parametrize("seed", range(40))
def test_rules_that_name_a_count_are_those_of_the_text(seed: int) -> None:
    program = parse(random_text(random.Random(seed), negation=seed % 2 > 0))
    written = written_program(program)
    assert Program.from_rules(written.rules, written.atoms) == program


def test_a_count_that_rules_name_means_the_same_after_saving() -> None:
    for atoms in (None, ["x", "a", "b", "2 { a; b }"], ["2 { a; b }", "x"]):
        program = Program.from_rules([("x", ["2 { a; b }"])], atoms)
        assert "x" in lg.closure(program, ["a", "b"])
        assert "x" not in lg.closure(program, ["a"])
        for suffix in (".lp", ".json", ".cnf"):
            assert read(dumps(program, suffix).encode(), suffix) == program
    with pytest.raises(lg.errors.ProgramError, match="own negation"):
        Program.from_rules([("a", ["1 { not a }"])])


@pytest.mark.slow
def test_the_size_grows_with_literals_times_bound() -> None:
    for n, k in ((20, 3), (60, 30), (200, 2)):
        program = parse(f"p :- {k} {{ {'; '.join(f'x{i}' for i in range(n))} }}.")
        assert n + 2 + n * k >= program.M
        assert 1 + 2 * n * k >= program.R
        assert "p" in lg.closure(program, [f"x{i}" for i in range(n - k, n)])
        assert "p" not in lg.closure(program, [f"x{i}" for i in range(n - k + 1, n)])


# ---------------------------------------------------------------- proofs and missing facts


def check_proof(program: Program, proof: lg.logic.Derivation, facts: set[str]) -> None:
    """A checker that knows the written rules and how to count, and nothing else."""
    true = brute_force(program, facts)
    proved: set[str] = set()
    for step in proof.steps:
        count = split_count(step.atom)
        assert not step.atom.startswith("#")
        assert set(step.premises) <= proved
        assert not any(holds(name, true) for name in step.negated)
        if count is not None:
            bound, atoms, negated = count
            assert step.rule is None
            assert set(step.premises) <= set(atoms)
            assert set(step.negated) <= set(negated)
            assert len(set(step.premises)) + len(set(step.negated)) == bound == step.needed
        elif step.rule is None:
            assert step.atom in facts
        else:
            rule = program.rules[step.rule]
            assert (step.atom,) == rule.heads
            assert rule.body == set(step.premises)
            assert rule.negated == set(step.negated)
        proved.add(step.atom)
    assert proof.atom in proved
    assert proof.facts <= facts
    assert proof.holds()


@pytest.mark.quick_first
@pytest.mark.parametrize("seed", range(8))
def test_every_proof_is_checked(seed: int) -> None:
    program = parse(random_text(random.Random(seed), negation=seed % 2 > 0))
    for given in list(worlds())[::3]:
        facts = given & set(program.atoms)
        found = lg.derivations(program, facts)
        assert not any(name.startswith("#") for name in found)
        for atom in ("h1", "g2", "h2"):
            proof = lg.derivation(program, facts, atom)
            assert (proof is not None) == (atom in brute_force(program, facts))
            if proof is not None:
                check_proof(program, proof, facts)
                assert "#count" not in str(proof) + proof.to_json()


def test_how_proofs_and_missing_facts_read() -> None:
    program = parse(
        "criteria :- 2 { fever; cough; loss_of_smell }, not 2 { x; not y; z }. fever :- hot."
    )
    assert str(lg.derivation(program, ["hot", "cough", "y"], "criteria")).splitlines() == [
        "criteria  (rule 0)",
        "├─ 2 { cough; fever; loss_of_smell }  (fever and cough: 2 of the 2 needed)",
        "│  ├─ fever  (rule 1)",
        "│  │  └─ hot  (given)",
        "│  └─ cough  (given)",
        "└─ not 2 { x; z; not y }  (none: 0 of the 2 needed)",
    ]
    text = str(lg.why_not(program, ["hot", "y"], "2 { fever; cough; loss_of_smell }"))
    assert "fever: 1 of the 2 needed" in text
    assert "it would with" in text


@pytest.mark.parametrize("seed", range(6))
def test_missing_facts_are_the_fewest(seed: int) -> None:
    """Each literal of these counts is an input, so that the cheapest derivation is the smallest."""
    rng = random.Random(seed)
    literals = rng.sample(INPUTS, 4)
    program = parse(f"p :- {rng.randint(1, 4)} {{ {'; '.join(literals)} }}, {rng.choice(INPUTS)}.")
    for given in worlds():
        facts = given & set(program.atoms)
        missing = lg.why_not(program, facts, "p")
        if missing is None:
            continue
        assert "p" in lg.closure(program, facts | missing.missing)
        free = [name for name in INPUTS if name in program.index and name not in facts]
        smaller = combinations(free, len(missing.missing) - 1)
        assert not any("p" in lg.closure(program, facts | set(more)) for more in smaller)


# ---------------------------------------------------------------- the operator, soft facts


@pytest.mark.quick_first
@pytest.mark.parametrize("seed", [1, 2])
def test_the_certified_operator_counts(seed: int) -> None:
    torch = pytest.importorskip("torch")
    program = parse(random_text(random.Random(seed), negation=seed % 2 > 0))
    model = lg.oracle(program)
    assert lg.certify(model, program).holds
    facts = [sorted(w & set(program.atoms)) for w in worlds()][::4]
    state = torch.tensor(program.state(facts))
    final = model(state)
    for given, row in zip(facts, final.detach().numpy(), strict=True):
        assert written_atoms(program.names(row)) == brute_force(program, set(given))


@pytest.mark.parametrize("negation", [False, True])
def test_soft_facts_are_counted(negation: bool) -> None:
    """Godel: the k-th largest value; probability: the sum over all worlds."""
    torch = pytest.importorskip("torch")
    last = "not d" if negation else "d"
    program = parse(f"p :- 2 {{ a; b; c; {last} }}.")
    names = ["a", "b", "c", "d"]
    values = torch.tensor([[0.9, 0.2, 0.7, 0.4], [0.1, 0.3, 0.8, 0.05], [0.6, 0.55, 0.3, 0.9]])
    soft = values.clone()
    soft[:, 3] = 1 - soft[:, 3] if negation else soft[:, 3]
    layer = lg.Layer(program, inputs=names, outputs=["p"], semantics="godel").eval()
    expected = soft.sort(dim=1, descending=True).values[:, 1]
    assert torch.allclose(layer(values)[:, 0], expected, atol=1e-5)
    layer = lg.Layer(program, inputs=names, outputs=["p"], semantics="probability").eval()
    total = torch.zeros(len(values))
    for world in product([0, 1], repeat=4):
        if sum(world) >= 2:
            chosen = torch.tensor(world)
            total += torch.where(chosen == 1, soft, 1 - soft).prod(dim=1)
    assert torch.allclose(layer(values)[:, 0], total, atol=1e-5)


SAME = [
    ("d :- 2 { a; b; c }.", "d :- a, b. d :- a, c. d :- b, c."),
    ("d :- 1 { a; b }.", "d :- a. d :- b. d :- 1 { a; b }."),
    ("d :- 1 { a; not b }.", "d :- a. d :- not b."),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_programs_are_compared_without_the_atoms_of_counts(one: str, other: str) -> None:
    pytest.importorskip("clingo")
    p, q = parse(one), parse(other)
    assert lg.equivalent(p, q)
    assert lg.equivalent(q, p)
    found = lg.equivalent(p, parse(f"{other} d :- c, e."))
    assert found.witness is not None
    assert found.witness <= {"a", "b", "c", "d", "e"}
    assert found.atom == "d"
    assert (found.atom in lg.closure(p, found.witness & set(p.atoms))) is False


def test_counts_are_listed() -> None:
    program = parse("p :- 1 { a; not b }, q.")
    assert list(counts_of(program).values()) == [(1, ("a",), ("b",))]
    assert quote("1 { a; not b }") == "1 { a; not b }"
    assert lg.closure(program, ["b", "q"]).atoms == {"b", "q"}


def test_a_cycle_through_the_negation_in_a_count_is_refused() -> None:
    with pytest.raises(lg.ParseError, match="not stratified") as caught:
        parse("a :- 1 { b; not a }.")
    assert ":1:13:" in str(caught.value)
