"""Decisions: answers, rules, proofs, smallest changes, tables, and bad requests."""

from __future__ import annotations

import json
import pickle
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import latentgamma as lg
from latentgamma.errors import ArgumentError, DataError, FactsError, ProgramError
from latentgamma.program.names import split_count

VALUES: dict[str, list[Any]] = {
    "x": [None, 0, 1, 1.5, 2, 7.0],
    "c": [None, "a", "b", "Z"],
    "p": [False, True],
    "q": [None, True],
}
INPUTS = [
    "x < 1",
    "x >= 2",
    "x != 1",
    "x in {1, 2}",
    "x is missing",
    "c = a",
    "c in {a, b}",
    "p",
    "q",
]


def random_text(seed: int) -> str:
    """Rules in layers with conditions, counts, negation, a cycle, labels and a requirement."""
    rng = random.Random(seed)
    known, lines = list(INPUTS), ["#external p. #external q."]
    for layer in range(3):
        heads = [f"h{layer}", f"g{layer}"]
        for n, head in enumerate(heads * 2):
            body = []
            for name in rng.sample(known, rng.randint(1, 2)):
                some = [f"{'not ' * (rng.random() < 0.3)}{n}" for n in rng.sample(known, 3)]
                count = f"{rng.randint(1, 3)} {{ {'; '.join(some)} }}"
                literal = rng.choice([name, name, count])
                body.append(f"{'not ' * (rng.random() < 0.3)}{literal}")
            lines.append(f"% @rule L{layer}.{n}" if rng.random() < 0.5 else "")
            lines.append(f"{head} :- {', '.join(body)}.")
        lines.append(f"{heads[0]} :- {heads[1]}, p. {heads[1]} :- {heads[0]}, c = a.")
        known += heads
    lines.append(f"% @rule REQ\n:- h2, {rng.choice(INPUTS)}.")
    return "\n".join(lines)


def requests() -> Iterator[dict[str, Any]]:
    for values in product(*VALUES.values()):
        yield dict(zip(VALUES, values, strict=True))


def facts_of(program: lg.Program, request: dict[str, Any]) -> set[str]:
    facts = {name for name, value in request.items() if value is True and name in program.index}
    found = program.conditions.items()
    return facts | {name for name, c in found if c.holds(request.get(c.column))}


@pytest.mark.parametrize("seed", range(10))
def test_decisions_are_those_of_the_closure_one_by_one_and_in_a_table(seed: int) -> None:
    program = lg.parse(random_text(seed))
    decider = lg.Decider(program, ["h2", "g2", "h0"], unknown="ignore")
    rows = list(requests())
    table = {name: [row[name] for row in rows] for name in VALUES}
    together = decider.many(table)
    assert isinstance(together, lg.decide.Decisions)
    assert len(together) == len(rows)
    for n, request in enumerate(rows):
        known = lg.closure(program, facts_of(program, request)).atoms
        decision = decider(request)
        assert decision.answers == {name: name in known for name in ("h2", "g2", "h0")}
        assert {v.rule for v in decision.violated} == {
            "REQ" for r in program.requirements.values() if r in known
        }
        assert {name: bool(rows[n]) for name, rows in together.answers.items()} == decision.answers
        assert together.rules[n] == decision.rules
        assert bool(together.violated["REQ"][n]) == bool(decision.violated)
        absent = {name: value for name, value in request.items() if value is not None}
        assert decider(absent).answers == decision.answers  # what is not said is missing
        assert decider(absent).digest == decision.digest


def check_proof(program: lg.Program, proof: lg.logic.Derivation, request: dict[str, Any]) -> None:
    """A checker that shares nothing with the decider but the closure."""
    facts = facts_of(program, request)
    known = lg.closure(program, facts).atoms
    proved: set[str] = set()
    for step in proof.steps:
        count = split_count(step.atom)
        assert set(step.premises) <= proved
        assert not set(step.negated) & known
        if count is not None:
            bound, atoms, negated = count
            assert set(step.premises) <= set(atoms)
            assert set(step.negated) <= set(negated)
            assert len(step.premises) + len(step.negated) >= bound
        elif step.rule is None:
            assert step.atom in facts
        else:
            rule = program.rules[step.rule]
            assert step.atom in rule.heads
            assert (rule.body, rule.negated) == (set(step.premises), set(step.negated))
        proved.add(step.atom)
    assert proof.atom in proved
    assert proof.holds()


@pytest.mark.parametrize("seed", range(4))
def test_every_proof_is_checked_and_uses_the_rules_that_are_listed(seed: int) -> None:
    program = lg.parse(random_text(seed))
    decider = lg.Decider(program, ["h2", "g1"], unknown="ignore")
    for request in list(requests())[::5]:
        decision = decider(request)
        assert set(decision.proof) == {name for name, answer in decision.answers.items() if answer}
        used = set()
        for proof in decision.proof.values():
            check_proof(program, proof, request)
            used |= {program.label(j).id if program.label(j) else f"rule {j}" for j in proof.rules}
        assert used == set(decision.rules)


@pytest.mark.parametrize("seed", range(5))
def test_changes_are_the_fewest(seed: int) -> None:
    program = lg.parse(random_text(seed))
    decider = lg.Decider(program, "h1", unknown="ignore")
    every = list(requests())
    good = [request for request in every if "h1" in lg.closure(program, facts_of(program, request))]
    for request in every[:: 7 + seed]:
        decision = decider(request)
        if decision.answers["h1"]:
            assert decision.missing == {}
            continue
        changes = decision.missing["h1"]
        distance = [sum(not _same(k, r[k], request[k]) for k in r) for r in good]
        if changes is None:
            assert not good
            continue
        assert len(changes) == min(distance)
        names = {change.name for change in changes}
        others = [r for r in every if all(_same(k, r[k], request[k]) or k in names for k in r)]
        meeting = [r for r in others if _meets(program, r, changes)]
        assert meeting
        assert all(r in good for r in meeting)  # every value that meets the conditions is enough


def _same(name: str, one: Any, other: Any) -> bool:
    return bool(one) == bool(other) if name in "pq" else bool(one == other)


def _meets(program: lg.Program, request: dict[str, Any], changes: tuple[Any, ...]) -> bool:
    facts = facts_of(program, request)
    wanted = [text for change in changes for text in change.needed]
    return all((t[4:] not in facts) if t.startswith("not ") else (t in facts) for t in wanted)


def test_how_changes_read() -> None:
    decider = lg.Decider(
        "loan :- income >= 30000, not minor, checked. minor :- age < 18. rich :- income > 1e5.",
        ["loan", "rich"],
    )
    missing = decider({"income": 28500, "age": 17}).missing
    assert [str(change) for change in missing["loan"] or ()] == [
        "income >= 30000 (income is 28500: 1500 short)",
        "not age < 18 (age is 17: 1 short)",
        "checked",
    ]
    assert (
        str((missing["rich"] or ())[0])
        == "income > 100000 (income is 28500: more than 71500 short)"
    )
    assert str((decider({}).missing["rich"] or ())[0]) == "income > 100000 (income is missing)"
    impossible = lg.Decider("a :- x > 2, x < 1.", "a")
    assert impossible({"x": 1.5}).missing == {"a": None}
    assert "no change was found" in str(impossible({"x": 1.5}))
    wide = lg.Decider("a :- " + ", ".join(f"x{n} > {n}, f{n}" for n in range(20)) + ".", "a")
    changes = wide({f"x{n}": 0 for n in range(20)}).missing["a"]
    assert changes is not None
    assert {change.name for change in changes} == {f"{k}{n}" for k in "xf" for n in range(20)}


def test_a_change_names_every_condition_that_a_value_must_meet() -> None:
    band = lg.Decider("ok :- age >= 18, age < 65.", "ok")
    (change,) = band({"age": 70}).missing["ok"] or ()
    assert str(change) == "age >= 18, age < 65 (age is 70: more than 5 too much)"
    known = lg.Decider(
        "ok :- not out. out :- age < 18. out :- age > 65. out :- age is missing.", "ok"
    )
    (change,) = known({}).missing["ok"] or ()
    assert change.needed == ("not age < 18", "not age > 65", "not age is missing")
    # No number meets both conditions; only a request without one does.
    (change,) = lg.Decider("ok :- not x > 1, not x < 7.", "ok")({"x": 2}).missing["ok"] or ()
    assert str(change) == "x is missing (x is 2)"


def test_each_of_two_equal_requirements_is_reported() -> None:
    decider = lg.Decider("a :- b.\n% @rule R1\n:- a.\n% @rule R2\n:- a.", "a")
    assert [v.rule for v in decider({"b": True}).violated] == ["R1", "R2"]
    assert {name: rows.tolist() for name, rows in decider.many({"b": [True]}).violated.items()} == {  # type: ignore[union-attr]
        "R1": [True],
        "R2": [True],
    }


LITERALS = [f"{n}x {op} " for n in ("", "not ") for op in ("<", "<=", ">", ">=", "=", "!=")]  # fmt: skip


@pytest.mark.parametrize("first", [f"{text}10" for text in LITERALS])
def test_distances_are_those_of_the_nearest_number(first: str) -> None:
    grid = [n / 16 for n in range(8 * 16, 14 * 16)]  # all constants and values are multiples of 1/2
    for second in [f"{text}12" for text in LITERALS]:
        decider = lg.Decider(f"a :- {first}, {second}. a :- x = 12, b.", "a")
        clause = f"{first} and {second}".replace(" = ", " == ")
        fits = [y for y in grid if eval(clause, {"x": y})]
        for x in (8.5, 9.5, 10, 11, 12, 13.5):
            if x in fits or not fits:
                continue
            nearest = min(abs(y - x) for y in fits)
            further = nearest * 2 % 1 != 0
            (change,) = decider({"x": x}).missing["a"] or ()
            assert abs(change.distance or 0) == nearest - further / 16
            assert x + (change.distance or 0) + further / 16 in fits or (
                x + (change.distance or 0) - further / 16 in fits
            )
            assert change.further == further
            said = str(change)
            assert ("more than" in said) == (further and nearest > 1 / 16)
            assert ("short" in said) == ((change.distance or 0) > 0)


@pytest.mark.parametrize("first", ["x < 3", "y < 3"])
def test_a_number_without_end_is_changed_last(first: str) -> None:
    second = "y < 3" if first == "x < 3" else "x < 3"
    decider = lg.Decider(f"a :- {first}. a :- {second}.", "a")
    for large in (float("inf"), 10**400, Fraction(10**400), 1e308):
        (change,) = decider({"x": large, "y": 5}).missing["a"] or ()
        assert str(change) == "y < 3 (y is 5: more than 2 too much)"
        (change,) = decider({"x": large, "y": large}).missing["a"] or ()
        assert "inf too much" not in str(change)
        assert decider({"x": -large}).answers == {"a": True}


def test_the_proof_of_a_negation_names_values_that_are_missing() -> None:
    decider = lg.Decider("refer :- sick, not young. young :- child. child :- age < 21.", "refer")
    assert "not young  (rule 1 needs child; age is missing)" in str(decider({"sick": True}))
    assert "not young  (rule 1 needs child)" in str(decider({"sick": True, "age": 48}))
    with pytest.raises(KeyError, match=r"see decision\.missing"):
        decider({"sick": False, "age": 48}).proof["refer"]


def test_texts_and_more_names_are_read_alike_in_requests_tables_and_files(tmp_path: Path) -> None:
    decider = lg.Decider("refer :- sick, age >= 21.", "refer")
    (tmp_path / "r.csv").write_text("id,sick,age\n7,yes,48\n")
    (from_file,) = decider.many(tmp_path / "r.csv")  # type: ignore[misc]
    from_table = decider.many({"id": ["7"], "sick": ["yes"], "age": [48]})[0]  # type: ignore[index]
    alone = decider({"id": "7", "sick": "yes", "age": 48})
    assert {d.digest for d in (from_file, from_table, alone)} == {alone.digest}  # type: ignore[union-attr]
    assert alone.answers == {"refer": True}
    with pytest.raises(DataError, match=r"'agee', which is neither .*did you mean 'age'"):
        decider({"sick": "no", "agee": 48})


@dataclass
class Applicant:
    age: int
    guardian: bool = False


class Row(NamedTuple):
    age: int
    guardian: bool


def test_every_kind_of_request() -> None:
    decider = lg.Decider("blocked :- age < 18, not guardian.", "blocked")
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"age": [17, 30], "guardian": [False, True], "name": ["a", "b"]})
    for request in (
        {"age": 17, "guardian": False},
        {"age": np.int64(17)},
        {"age": np.float32(17), "guardian": np.bool_(False)},
        {"age": 17, "guardian": 0},
        Applicant(17),
        Row(17, False),
        frame.drop(columns="name").iloc[0],
    ):
        assert decider(request).answers == {"blocked": True}
    assert decider.many(frame).answers["blocked"].tolist() == [True, False]  # type: ignore[union-attr]
    assert decider.many(frame)[1].answers == {"blocked": False}  # type: ignore[index]
    assert [d.answers["blocked"] for d in decider.many([{"age": 17}, {"age": 30}])] == [True, False]  # type: ignore[union-attr]
    unknown = pd.DataFrame({"age": [17, 17], "guardian": [pd.NA, True]}, dtype=object)
    assert decider.many(unknown).answers["blocked"].tolist() == [True, False]  # type: ignore[union-attr]
    table = decider.many(frame).table()  # type: ignore[union-attr]
    assert table["rules"] == [("rule 0",), ()]
    assert table["violated"] == [(), ()]
    changes = decider.many(frame).table(missing=True)["missing"]  # type: ignore[union-attr]
    assert changes == [
        {},
        {"blocked": ["age < 18 (age is 30: more than 12 too much)", "not guardian"]},
    ]


def test_requirements_are_reported_with_their_facts() -> None:
    decider = lg.Decider("ok :- age >= 18. % @rule SAN: sanctions\n:- ok, country in {ir}.", "ok")
    (violation,) = decider({"age": 30, "country": "ir"}).violated
    assert violation.rule == "SAN"
    assert violation.facts == ("ok", "country in {ir} (country is ir)")
    assert decider({"age": 30}).violated == ()
    with pytest.raises(ProgramError, match=r"no request can meet the requirement ':- a.'"):
        lg.Decider("a. :- a. b :- c.", "b")


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        (
            {"agee": 3},
            r"^the request has 'agee', which is neither a column nor a fact of the pr.*'age'",
        ),
        ({3: 4}, "^the names of a request are texts, not 3"),
        ({"age": "17"}, r"^'age' is '17' \(a text\), but the rules compare it with numbers"),
        ({"age": True}, "^'age' is True"),
        ({"age": [3]}, r"^'age' is \[3\]"),
        ({"country": 49}, r"^'country' is 49 \(int\), but the rules compare it with texts"),
        ({"guardian": "maybe"}, "^'guardian' is 'maybe'; a fact is true or false"),
        ({"guardian": 1.5}, "^'guardian' is 1.5"),
        ({"guardian": -1}, "^'guardian' is -1"),
        ([1, 2], "^a request is a dictionary, a dataclass or a row, not list"),
        (None, "^a request is a dictionary"),
    ],
)
def test_bad_requests_are_one_clear_line(request_: Any, problem: str) -> None:
    decider = lg.Decider("a :- age < 18, country = de, not guardian.", "a")
    with pytest.raises(DataError, match=problem) as caught:
        decider(request_)
    assert "\n" not in str(caught.value)
    assert decider({"age": float("nan"), "country": None}).answers == {"a": False}


def test_bad_deciders() -> None:
    for text, problem in (
        ("a :- age < 18, age = old.", "compare 'age' with numbers and with texts"),
        ("a :- age < 18, age.", "'age' is a column and an atom"),
        ("'age < 18' :- b. a :- age < 18.", "a rule derives 'age < 18'"),
    ):
        with pytest.raises(ProgramError, match=problem):
            lg.Decider(text, "a")
    with pytest.raises(FactsError, match="'approve'"):
        lg.Decider("approved :- b.", "approve")
    with pytest.raises(ProgramError, match="at least one question"):
        lg.Decider("a :- b.", [])
    with pytest.raises(ArgumentError, match="unknown must be one of 'refuse', 'ignore'"):
        lg.Decider("a :- b.", "a", unknown="drop")
    with pytest.raises(ProgramError, match="too many for a decider"):
        lg.Decider(lg.generators.chain(40_000), "a39999")
    with pytest.raises(DataError, match="the table has no column 'age'"):
        lg.Decider("a :- age < 18.", "a").many({"x": [1]})
    with pytest.raises(DataError, match="row 1: 'age' is 'x'"):
        lg.Decider("a :- age < 18.", "a").many({"age": [1, "x"]})


def test_decisions_follow_their_schema_and_have_a_digest() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    program = lg.parse(random_text(3))
    decider = lg.Decider(program, ["h2", "g2"], unknown="ignore")
    digests = set()
    for request in list(requests())[::3]:
        decision = decider(request)
        values = json.loads(decision.to_json(proof=True, missing=True))
        jsonschema.validate(values, lg.decide.SCHEMA)
        digests.add(decision.digest)
        again = lg.Decider(lg.parse(str(program)), ["h2", "g2"], unknown="ignore")
        assert again(dict(reversed(request.items()))).digest == decision.digest
    assert len(digests) == len(list(requests())[::3]) // 1
    other = lg.Decider(program, ["h2"], unknown="ignore")
    assert other({"x": 1}).digest != decider({"x": 1}).digest
    for broken in ({"kind": "decision"}, {**values, "more": 1}, {**values, "digest": "x"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, lg.decide.SCHEMA)


def test_a_decision_does_not_change_with_its_request() -> None:
    decider = lg.Decider("a :- age < 18.", "a", unknown="ignore")
    request = {"age": 17, "id": object()}
    decision = decider(request)
    request["age"] = 30
    assert decision.request["age"] == 17
    assert "age is 17" in str(decision.proof["a"])
    # The same values have the same digest, whatever else the request has.
    same = [{"age": 17.0}, {"age": np.int8(17), "id": 3}, {"age": np.float64(17), "x": None}]
    assert {decider(other).digest for other in same} == {decision.digest}
    assert decider({"age": 17.5}).digest != decision.digest
    asked = lg.Decider("a :- x is missing.", "a")
    for value in (10**400, [1], {"y": 2}, float("inf"), "\ud800"):
        assert json.loads(asked({"x": value}).to_json(missing=True))["answers"] == {"a": False}


def test_files(tmp_path: Path) -> None:
    decider = lg.Decider("a :- age < 18, country = de, not guardian.", "a")
    text = "id,age,country,guardian\n1,17,de,false\n2,x,de,no\n3,17,de,1\n4,,de,\n\n5,17\n6,1.5e1, de ,0\n"
    path = tmp_path / "r.csv"
    path.write_text("\ufeff" + text, encoding="utf-8")
    found = list(decider.many(path, errors="keep"))  # type: ignore[arg-type]
    shown = [str(f) if isinstance(f, DataError) else f.answers["a"] for f in found]  # type: ignore[attr-defined]
    wrong = "line 3: 'age' is 'x' (a text), but the rules compare it with numbers"
    cells = "line 7: 2 cells, but the header has 4"
    assert shown == [True, wrong, False, False, cells, True]
    with pytest.raises(DataError, match=r"^line 3: 'age' is 'x'"):
        list(decider.many(path))  # type: ignore[arg-type]
    path.write_text(f"age,country,guardian\n{'9' * 140_000},de,no\n")
    with pytest.raises(DataError, match=r"r\.csv: line 2: field larger than field limit"):
        list(decider.many(path))  # type: ignore[arg-type]
    lines = ['{"age": 17, "country": "de"}', "", "[1]", "{", '{"age": "17"}', '{"agee": 1}']
    path = tmp_path / "r.jsonl"
    path.write_text("\n".join(lines))
    found = list(decider.many(str(path), errors="keep"))  # type: ignore[arg-type]
    assert found[0].answers == {"a": True}  # type: ignore[union-attr]
    assert [str(f).partition(": ")[0] for f in found[1:]] == [
        "line 3",
        "line 4",
        "line 5",
        "line 6",
    ]
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    table = pa.table(
        {"age": [17, None], "country": ["de", "de"], "guardian": [None, True], "id": [1, 2]}
    )
    pyarrow.parquet.write_table(table, tmp_path / "r.parquet")
    rows = [d.answers["a"] for d in decider.many(tmp_path / "r.parquet")]  # type: ignore[union-attr]
    assert rows == [True, False]
    assert decider.many(table).answers["a"].tolist() == rows  # type: ignore[union-attr]
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    (tmp_path / "bad.csv").write_bytes(b"age,country,guardian\n\xff\n")
    (tmp_path / "less.csv").write_text("age\n3\n")
    for name in ("bad.parquet", "bad.csv", "less.csv", "none.csv", "x.xls"):
        with pytest.raises(DataError):
            list(decider.many(tmp_path / name))  # type: ignore[arg-type]


def test_uncertain_facts_give_probabilities() -> None:
    decider = lg.Decider(
        "ok :- 2 { a; b; not c; x > 1 }. both :- ok, a. both :- a, b.", ["ok", "both"]
    )
    soft = {"a": 0.3, "b": 0.8, "c": 0.4}
    decision = decider({**soft, "x": 3})
    expected = dict.fromkeys(decider.questions, 0.0)
    for world in product([False, True], repeat=3):
        chance = 1.0
        for (_, p), true in zip(soft.items(), world, strict=True):
            chance *= p if true else 1 - p
        answers = decider({**dict(zip(soft, world, strict=True)), "x": 3}).answers
        for name, answer in answers.items():
            expected[name] += chance * answer
    assert decision.probability == pytest.approx(expected)
    assert decision.answers == decider({"b": True, "x": 3}).answers  # above one half is true
    for kind in (Decimal, np.float64, lambda p: Fraction(str(p))):
        same = decider({name: kind(p) for name, p in soft.items()} | {"x": 3})
        assert same.probability == decision.probability
        assert same.digest == decision.digest
    assert decider({"a": 1.0, "b": 0, "c": Decimal("sNaN")}).probability is None
    assert json.loads(decision.to_json())["probability"] == pytest.approx(expected)
    wide = lg.Decider("p :- " + ", ".join(f"f{n}" for n in range(30)) + ".", "p")
    with pytest.raises(DataError, match="30 uncertain facts"):
        _ = wide({f"f{n}": 0.5 for n in range(30)}).probability


def test_a_grounded_program_decides() -> None:
    program = lg.datalog.ground(
        "% @rule P\nmay(X) :- member(X), not banned(X).  member(a). member(b). #external banned(X) : member(X)."
    )
    decider = lg.Decider(program, ["may(a)", "may(b)"])
    decision = decider({"banned(a)": True})
    assert decision.answers == {"may(a)": False, "may(b)": True}
    assert "by P, line 2 with X=b" in str(decision.proof["may(b)"])


def test_a_single_decision_imports_neither_torch_nor_numba() -> None:
    code = """
import sys, latentgamma as lg
d = lg.Decider("% @rule R\\na :- 2 { x < 3; c = de; p }, not b. b :- q. :- a, q.", ["a"])
one = d({"x": 1, "p": True})
assert one.answers == {"a": True} and one.rules == ("R",), one
one.to_json(proof=True), d({}).to_json(missing=True)
print(sorted({"torch", "numba", "clingo", "pandas", "starlette"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_request_cannot_state_what_is_asked() -> None:
    text = "approve :- income >= 30000."
    with pytest.raises(lg.errors.DataError, match="'approve', which is what the rules are asked"):
        lg.Decider(text, "approve")({"approve": True, "income": 1})
    lenient = lg.Decider(text, "approve", unknown="ignore")
    assert not lenient({"approve": True, "income": 1}).answers["approve"]
    table = {"approve": [True, False], "income": [1, 40_000]}
    assert [d.answers["approve"] for d in lg.Decider(text, "approve").many(table)] == [False, True]


def test_a_request_cannot_state_what_rules_derive() -> None:
    text = "approve :- affordable. affordable :- debt_ratio < 0.4."
    decider = lg.Decider(text, "approve")
    with pytest.raises(lg.errors.DataError, match="'affordable', which the rules derive"):
        decider({"debt_ratio": 0.9, "affordable": True})
    table = {"debt_ratio": [0.9, 0.1], "affordable": [True, False]}
    assert decider.many(table).answers["approve"].tolist() == [False, True]
    stated = lg.Decider(text, "approve", facts=["affordable"])
    assert stated({"debt_ratio": 0.9, "affordable": True}).answers == {"approve": True}
    assert stated.many(table).answers["approve"].tolist() == [True, True]


def test_columns_are_not_compared_with_each_other() -> None:
    text = "late :- end_date < start_date."
    request = {"end_date": "2026-05-01", "start_date": "2026-01-01"}
    with pytest.raises(lg.errors.DataError, match="'start_date', which is also a column"):
        lg.Decider(text, "late")(request)
    with pytest.raises(lg.errors.DataError, match="also a column"):
        lg.Decider(text, "late").many({name: [value] for name, value in request.items()})
    with pytest.raises(lg.errors.ProgramError, match="also a column"):
        lg.Decider(f'{text} new :- start_date > "2026".', "late")
    assert lg.Decider("a :- status = open.", "a")({"status": "open", "id": 3}).answers["a"]


def test_a_name_that_may_be_misspelt_gives_a_warning() -> None:
    with pytest.warns(UserWarning, match="no rule derives 'minr', and no rule uses 'minor'"):
        lg.Decider("approve :- income >= 30000, not minr. minor :- age < 18.", "approve")


def test_names_with_numbers_give_few_warnings() -> None:
    program = lg.parse("".join(f"decided{i} :- decide{i}.\n" for i in range(40)))
    with pytest.warns(UserWarning, match="misspelt") as caught:
        lg.Decider(program, "decided0")
    assert len(caught) == 5


def test_conditions_in_rules_with_variables_are_refused() -> None:
    pytest.importorskip("clingo")
    with pytest.raises(lg.errors.ProgramError, match="only rules without variables compare"):
        lg.Decider("ok :- p(X), X >= 3. p(4). approve :- ok, age >= 18.", "approve")


def test_deciders_and_decisions_can_be_pickled() -> None:
    decider = lg.Decider("a :- b, x >= 3. b :- c.", "a", facts=["b"])
    decision = pickle.loads(pickle.dumps(decider({"x": 4, "b": True})))
    assert decision.answers == {"a": True}
    assert str(decision) == str(decider({"x": 4, "b": True}))


def test_numbers_of_files_are_written_plainly(tmp_path: Path) -> None:
    decider = lg.Decider("a :- x >= 18.", "a")
    for cell in ("1_8", "١٨"):
        (tmp_path / "x.csv").write_text(f"x\n{cell}\n", encoding="utf-8")
        with pytest.raises(lg.errors.DataError, match="compare it with numbers"):
            list(decider.many(tmp_path / "x.csv"))
    (tmp_path / "x.csv").write_text("id, x\n1, 18\n")
    assert [d.answers["a"] for d in decider.many(tmp_path / "x.csv")] == [True]
    with pytest.raises(lg.ParseError, match="without ',' between its digits"):
        lg.parse("poor :- income < 30,000.")
    with pytest.raises(lg.errors.DataError, match="not a list of values"):
        decider.many({"x": 1})


def test_whole_numbers_that_floats_round_are_refused_in_rules() -> None:
    with pytest.raises(lg.ParseError, match="write it as a text"):
        lg.parse("a :- account = 9007199254740993.")
    assert lg.Decider('a :- account = "9007199254740993".', "a")({"account": "9007199254740993"})


def test_questions_are_names() -> None:
    with pytest.raises(lg.errors.ArgumentError, match="questions"):
        lg.Decider("a :- b.", None)  # type: ignore[arg-type]


@pytest.mark.parametrize("more", ["", "y :- x. x :- y."])
def test_of_several_rules_that_apply_the_first_is_named(more: str) -> None:
    """Also where a later rule needs less, or the same."""
    text = "% @rule A\nx :- b, d.\n% @rule B\nx :- d, b.\n% @rule C\nx :- b.\n d :- c.\n" + more
    decider = lg.Decider(text, "x")
    request = {"b": True, "c": True}
    assert decider(request).rules[-1] == "A"
    assert decider.many({name: [True] for name in request}).rules[0][-1] == "A"
    assert decider({"b": True, "c": False}).rules == ("C",)


@pytest.mark.parametrize(
    "text",
    [
        "% @rule A\nx :- b.\n% @rule B\nx, y :- c.\n",  # of the two heads, y comes before x
        "% @rule A\nx :- b, y.\n% @rule B\nx :- c.\n y :- c. y :- z. z :- y.\n",
    ],
)
@pytest.mark.parametrize("more", ["", "w :- x, y.\n", "x :- c, b.\n"])
def test_the_first_rule_is_named_beside_other_heads_and_cycles(text: str, more: str) -> None:
    decider = lg.Decider(text + more, "x")
    assert decider({"b": True, "c": True}).rules[-1] == "A"
    assert decider.many({"b": [True], "c": [True]}).rules[0][-1] == "A"
    assert decider({"b": False, "c": True}).rules == ("B",)


def test_requirements_are_written_in_the_order_of_the_program() -> None:
    decider = lg.Decider("zed :- year > 3. :- zed, not alpha, beta.", "zed")
    text = ":- zed, beta, not alpha."
    table = {"year": [4], "alpha": [False], "beta": [True]}
    assert list(decider.many(table).violated) == [text]
    (violation,) = decider({"year": 4, "beta": True}).violated
    assert violation.requirement == text
    assert violation.facts == ("zed", "beta", "not alpha")


def test_a_file_that_is_not_utf8_is_refused_with_a_way_to_read_it(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    decider = lg.Decider("a :- x = é.", "a")
    for name, data in (("x.csv", "x\né\n"), ("x.jsonl", '{"x": "é"}\n')):
        for encoding, byte in (("latin-1", "0xe9"), ("utf-16", "0xff")):
            (tmp_path / name).write_bytes(data.encode(encoding))
            with pytest.raises(lg.errors.DataError, match=f"read as UTF-8.*{byte}") as caught:
                list(decider.many(tmp_path / name))
            call = re.search(r"many\((pandas.*)\)$", str(caught.value))
            assert call is not None
            table = eval(call[1], {"pandas": pandas})
            assert decider.many(table).answers["a"].tolist() == [True]


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_cells_are_separated_as_where_rules_are_learned(
    tmp_path: Path, mark: str, suffix: str
) -> None:
    path = tmp_path / f"x{suffix}"
    lines = [["b, c; d", "x", "y"], *([f'"{i},"', i, i > 4] for i in range(40))]
    rows = [mark.join(str(cell) for cell in line) for line in lines[1:]]
    path.write_text("\n".join([mark.join(['"b, c; d"', "x", "y"]), *rows]))
    learned = lg.fit(path, label="y")
    assert str(learned.program_) == "y :- x >= 5."
    answers = [found.answers["y"] for found in lg.Decider(learned.program_, "y").many(path)]
    assert answers == [line[2] for line in lines[1:]]


def test_the_place_of_an_error_in_jsonl_is_the_line_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"x": 1}\n\n{"x":\n')
    *_, error = lg.Decider("a :- x > 0.", "a").many(tmp_path / "x.jsonl", errors="keep")
    assert str(error) == "line 3: not valid JSON: expecting value at column 6"


def test_no_change_asks_for_a_text_below_the_empty_one() -> None:
    decider = lg.Decider(
        'a :- s < "". b :- not s >= "", not s is missing. c :- s <= "".', list("abc")
    )
    found = decider({"s": "x"}).missing
    assert found["a"] is None
    assert found["b"] is None
    assert list(map(str, found["c"] or ())) == ['s <= "" (s is x)']


def test_the_digest_has_of_a_column_that_is_only_asked_for_whether_it_is_missing() -> None:
    decider = lg.Decider("a :- day is missing, x > 1.", "a")
    days = [date(2026, 1, 31), datetime(2026, 1, 31), "2026-01-31", object()]
    assert len({decider({"x": 2, "day": day}).digest for day in days}) == 1
    assert decider({"x": 2, "day": None}).digest != decider({"x": 2, "day": days[0]}).digest


def test_the_literals_of_a_count_are_different() -> None:
    with pytest.raises(lg.ParseError, match="from 1 to 1, the number of its different literals"):
        lg.parse("a :- 2 { b; b }.")


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.object_])
def test_a_column_of_texts_may_be_all_missing(dtype):
    """A table reader gives NaN for an empty column of texts."""
    decider = lg.Decider("a :- s = x. b :- s is missing.", ["a", "b"])
    many = decider.many({"s": np.array([np.nan, np.nan], dtype)})
    assert many.answers["a"].tolist() == [False, False]
    assert many.answers["b"].tolist() == [True, True]
    assert many[0].answers == decider({"s": None}).answers
    with pytest.raises(lg.LatentGammaError, match=r"row 1: 's' is 2.0"):
        decider.many({"s": np.array([np.nan, 2.0], dtype)})


def test_unknown_facts_are_called_facts():
    with pytest.raises(lg.LatentGammaError, match="facts name an atom"):
        lg.Decider("a :- b.", "a", facts=["c"])


def test_the_digest_depends_on_values_and_not_on_their_types() -> None:
    decider = lg.Decider("a :- x >= 0.1, day < '2026-02-01', vip.", "a")
    days = ["2026-01-31", date(2026, 1, 31), datetime(2026, 1, 31), np.datetime64("2026-01-31T00")]
    numbers = [0.1, Decimal("0.1"), np.longdouble(0.1), np.float64(0.1)]
    vips = [True, 1, 1.0, np.bool_(True), "yes"]
    found = {
        decider({"x": x, "day": day, "vip": vip}).digest
        for x, day, vip in product(numbers, days, vips)
    }
    assert len(found) == 1
    assert decider({"x": 0.1, "day": days[0], "vip": 0.9}).digest not in found
    assert decider({"x": 0.1, "day": days[0], "vip": 0}).digest not in found
    assert decider({"x": float("inf"), "day": days[0], "vip": 1}).digest not in found


def test_bad_values_and_columns_are_refused_by_name() -> None:
    decider = lg.Decider("a :- x >= 18. a :- vip, country = 'd'.", "a")
    with pytest.raises(DataError, match=r"'x' is .*timedelta64"):
        decider({"x": np.timedelta64(1, "D")})
    assert not decider({"x": np.timedelta64("NaT")}).answers["a"]
    for name, value in (("country", "d"), ("vip", True), ("vip", "1"), ("x", 5)):
        table = {"x": [1], "vip": [True], "country": ["d"], name: value}
        with pytest.raises(DataError, match=rf"the column '{name}' is .*, not a list of values"):
            decider.many(table)
    with pytest.raises(lg.errors.ArgumentError, match="facts must be names of atoms, not 5"):
        lg.Decider("a :- b.", "a", facts=5)  # type: ignore[arg-type]


def test_missing_values_of_every_kind_of_column_are_missing() -> None:
    pa = pytest.importorskip("pyarrow")
    decider = lg.Decider(
        "a :- c = x. b :- c != x. m :- c is missing. f :- g.", ["a", "b", "m", "f"]
    )
    requests = [{"c": "y", "g": True}, {"c": None, "g": None}, {"c": "x", "g": False}]
    array = pa.array(["y", None, "x"])
    columns = {
        "an array of pyarrow": array,
        "categories": array.dictionary_encode(),
        "chunks of categories": pa.chunked_array([array.dictionary_encode()]),
        "masked": np.ma.array(["y", "x", "x"], mask=[False, True, False]),
        "texts of numpy": np.array(["y", None, "x"], np.dtypes.StringDType(na_object=None)),
    }
    for kind, column in columns.items():
        many = decider.many({"c": column, "g": pa.array([True, None, False])})
        found = {name: answers.tolist() for name, answers in many.answers.items()}
        assert found["a"] == [False, False, True], kind
        assert found["b"] == [True, False, False], kind
        assert found["m"] == [False, True, False], kind
        assert found["f"] == [True, False, False], kind
        for row, request in enumerate(requests):
            assert many[row].digest == decider(request).digest, kind


def test_what_is_not_a_table_of_rows_is_refused() -> None:
    decider = lg.Decider("a :- x > 1.", "a")
    for column in ({2, 3}, {0: 2, 1: 3}):
        with pytest.raises(DataError, match="not a list of values"):
            decider.many({"x": column})
    pl = pytest.importorskip("polars")
    with pytest.raises(DataError, match="a LazyFrame is not a table of rows; collect"):
        decider.many(pl.LazyFrame({"x": [1, 2]}))
    pd = pytest.importorskip("pandas")
    with pytest.raises(
        DataError, match=r"no column 'x', which the rules need; it has \('x', 1\), 0"
    ):
        decider.many(pd.DataFrame([[1, 2]], columns=pd.Index([("x", 1), 0], dtype=object)))
