"""Learning: exact where the data identify the rules, honest where they do not."""

import gzip
import sys

import numpy as np
import pytest

import latentgamma as lg
from latentgamma.learning.data import observe


def step(program, states):
    after = states.copy()
    for j in range(program.R):
        fires = states[:, program.body_of(j)].all(1)
        after[:, program.heads_of(j)] |= fires[:, None]
    return after


def some_states(M, count, seed, density=0.4):
    return np.random.default_rng(seed).random((count, M)) < density


def same_step(p, q, seed=5):
    states = some_states(p.M, 4000, seed)
    return bool((step(p, states) == step(q, states)).all())


PROGRAM = lg.generators.random(8, 10, seed=1)
STATES = some_states(8, 400, 0)


@pytest.mark.quick_first
@pytest.mark.parametrize("method", ["symbolic", "gradient"])
@pytest.mark.parametrize("kind", ["transitions", "closures"])
def test_the_program_is_found_and_proved(method, kind):
    after = step(PROGRAM, STATES) if kind == "transitions" else lg.closures(PROGRAM, STATES)
    result = lg.fit(STATES, after, kind=kind, method=method, atoms=PROGRAM.atoms)
    assert lg.equivalent(result.program, PROGRAM)
    assert result.accuracy == 1.0
    assert result.certificate.holds
    assert lg.certify(result.model, PROGRAM).holds
    assert not result.unexplained
    if kind == "transitions":
        assert same_step(result.program, PROGRAM)


@pytest.mark.quick_first
@pytest.mark.parametrize("method", ["symbolic", "gradient"])
def test_wrong_labels_are_seen_through(method):
    states = some_states(8, 4000, 3)
    labels = step(PROGRAM, states)
    labels ^= np.random.default_rng(1).random(labels.shape) < 0.03
    result = lg.fit(states, labels, atoms=PROGRAM.atoms, noise="auto", method=method)
    assert same_step(result.program, PROGRAM)
    assert result.noise == pytest.approx(0.03, abs=0.01)
    (note,) = (note for note in result.notes if "the true rules would get" in note)
    assert result.training_accuracy == pytest.approx(float(note.split()[-6]), abs=0.05)


@pytest.mark.quick_first
@pytest.mark.parametrize("method", ["symbolic", "gradient"])
def test_what_always_follows_is_a_rule_without_a_body_under_wrong_labels_too(method):
    program = lg.parse("animal. bird :- feathers. flies :- bird, light. #external often.")
    rng = np.random.default_rng(3)
    states = rng.random((600, program.M)) < 0.4
    states[:, program.index["often"]] = False
    labels = step(program, states)
    # Nine times in ten is not always, whatever three wrong labels in a hundred can do.
    labels[:, program.index["often"]] = rng.random(600) < 0.9
    labels ^= rng.random(labels.shape) < 0.03
    result = lg.fit(states, labels, atoms=program.atoms, noise=0.03, method=method)
    assert set(result.program.rules) >= set(program.rules)
    assert all(one.rule.body or one.rule.heads == ("animal",) for one in result.evidence)


def test_closures_with_wrong_entries_are_learned():
    program = lg.generators.chain(10)
    rng = np.random.default_rng(1)
    states = rng.random((2000, 10)) < 0.15
    closed = lg.closures(program, states)
    closed ^= rng.random(closed.shape) < 0.02
    states ^= rng.random(states.shape) < 0.02
    result = lg.fit(states, closed, kind="closures", noise=0.02, atoms=program.atoms)
    assert lg.equivalent(result.program, program)


def test_trajectories_are_transitions_in_a_row():
    paths = [STATES]
    for _ in range(3):
        paths.append(step(PROGRAM, paths[-1]))
    result = lg.fit(np.stack(paths, axis=1), kind="trajectories", atoms=PROGRAM.atoms)
    assert same_step(result.program, PROGRAM)


def test_missing_labels_are_no_evidence():
    labels = step(PROGRAM, STATES).astype(float)
    labels[np.random.default_rng(0).random(labels.shape) < 0.3] = np.nan
    result = lg.fit(STATES, labels, atoms=PROGRAM.atoms)
    assert same_step(result.program, PROGRAM)


def test_tensors_and_probabilities_are_taken():
    torch = pytest.importorskip("torch")
    after = step(PROGRAM, STATES)
    soft = torch.from_numpy(np.where(after, 0.97, 0.03))
    result = lg.fit(torch.from_numpy(STATES).float(), soft, atoms=PROGRAM.atoms)
    assert same_step(result.program, PROGRAM)
    assert any("3.00% of them round to the wrong side" in note for note in result.notes)
    assert result.noise == lg.fit(STATES, soft, noise="auto").noise == pytest.approx(0.03)
    result = lg.fit(np.where(STATES, 0.9, 0.0), after, atoms=PROGRAM.atoms)
    assert any("of the inputs lie between 0 and 1, and were rounded" in n for n in result.notes)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["symbolic", "gradient"])
def test_probabilities_say_more_than_what_they_round_to(method):
    # A network that sees a faint sign of each atom, and knows how often the atom follows.
    states = some_states(8, 1500, 5)
    after, rng = step(PROGRAM, states), np.random.default_rng(2)
    sign = rng.normal(np.where(after, 1.2, -1.2))
    often = np.array([after[~states[:, i], i].mean() for i in range(8)]).clip(0.01, 0.99)
    likely = 1 / (1 + np.exp(-2.4 * sign) * (1 - often) / often)
    likely[states] = 1.0
    options = {"atoms": PROGRAM.atoms, "method": method}
    assert same_step(lg.fit(states, likely, **options).program, PROGRAM)
    share = (after != (likely > 0.5))[~states].mean()
    rounded = lg.fit(states, likely > 0.5, noise=float(share), **options)
    assert not same_step(rounded.program, PROGRAM)


def test_a_table_brings_its_atoms(tmp_path):
    table = tmp_path / "seen.csv"
    table.write_text("a,b,c,a',b',c'\n1,1,0,1,1,1\n1,0,0,1,0,0\n0,1,0,0,1,0\n0,0,0,,0,0\n")
    result = lg.fit(table, holdout=0)
    assert [str(rule) for rule in result.program.rules] == ["c :- a, b."]
    both = tmp_path / "after.csv"
    both.write_text("c,b,a\n1,1,1\n0,0,1\n0,1,0\n0,0,0\n")
    before = tmp_path / "before.csv"
    before.write_text("a,b,c\n1,1,0\n1,0,0\n0,1,0\n0,0,0\n")
    assert lg.fit(before, both, holdout=0).program == result.program


def test_known_rules_stay():
    known = lg.parse("c :- a.")
    states = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    after = [[1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 0, 0]]
    result = lg.fit(states, after, atoms=list("abcd"), known=known, holdout=0)
    assert {str(rule) for rule in result.program.rules} == {"c :- a.", "d :- b."}


def test_a_known_rule_that_is_wrong_is_refused_or_refined():
    states, after = [[1, 0, 0], [1, 1, 0], [0, 0, 0]], [[1, 0, 0], [1, 1, 1], [0, 0, 0]]
    known = lg.parse("c :- a.")
    with pytest.raises(lg.errors.DataError, match=r"known rule 'c :- a\.' is wrong in 1 of the 2"):
        lg.fit(states, after, atoms=list("abc"), known=known, holdout=0)
    result = lg.fit(states, after, atoms=list("abc"), known=known, refine=True, holdout=0)
    assert [str(rule) for rule in result.program.rules] == ["c :- b."]


def test_background_knowledge_limits_the_rules():
    states, after = [[1, 1, 0], [0, 0, 0]], [[1, 1, 1], [0, 0, 0]]
    names = list("abc")

    def rules(**options):
        return [
            str(r) for r in lg.fit(states, after, atoms=names, holdout=0, **options).program.rules
        ]

    assert rules() == ["c :- a."]
    assert rules(bodies=["b"]) == ["c :- b."]
    assert rules(forbidden=[("c", "a")]) == ["c :- b."]
    assert rules(heads=["a"]) == []
    with pytest.raises(lg.errors.DataError, match="heads name an atom"):
        rules(heads=["z"])


def test_what_the_data_cannot_decide_is_told():
    result = lg.fit([[1, 1, 0], [0, 0, 0]], [[1, 1, 1], [0, 0, 0]], atoms=list("abc"), holdout=0)
    (one,) = result.undecided
    options = {str(one.rule), *(str(r) for r in one.alternatives)}
    assert options == {"c :- a.", "c :- b.", "c :- a, b."}
    assert "or: c :- b." in result.explain("c")
    assert "no rule for a" in result.explain("a")


def test_what_no_rule_explains_is_told():
    states = [[1, 0, 0], [1, 1, 0], [0, 0, 0]]
    after = [[1, 0, 1], [1, 1, 0], [0, 0, 0]]  # c follows from a, but not from a and b
    result = lg.fit(states, after, atoms=list("abc"), holdout=0)
    assert result.program.R == 0
    assert dict(result.unexplained) == {"c": 1}
    assert "1 example with c that no rule explains" in result.explain("c")


def test_atoms_that_never_vary_are_told():
    result = lg.fit([[1, 0, 0], [1, 0, 1]], [[1, 0, 0], [1, 0, 1]], atoms=list("abc"), holdout=0)
    assert "always true before" in result.notes[0]
    assert "'a'" in result.notes[0]
    assert "never true before" in result.notes[1]
    assert result.program.R == 0


@pytest.mark.parametrize(
    ("inputs", "targets", "options", "message"),
    [
        (
            [[1, 0], [1, 0]],
            [[1, 0], [1, 1]],
            {},
            "1 label contradicts another one: rows 2 and 1 have one state",
        ),
        (
            [[1, 0]],
            [[0, 0]],
            {},
            "rules only add atoms, but 'a0' is true before and false after in row 1",
        ),
        ([[np.nan, 0]], [[0, 0]], {}, "a state cannot have a missing value"),
        (
            [[2, 0]],
            [[1, 0]],
            {},
            "inputs, row 1, column 'a0': expected a value from 0 to 1, but found 2",
        ),
        (np.zeros((0, 3)), np.zeros((0, 3)), {}, "nothing to learn from"),
        ([[1, 0]], [[1, 0, 0]], {}, "must have one shape"),
        ([1, 0], [1, 0], {}, "shape \\(N, M\\)"),
        ([["x"]], [[1]], {}, "rows of numbers"),
        ([[1, 0]], [[1, 0]], {"atoms": ["a"]}, "2 columns, but 1 name in atoms"),
        ([[1, 0]], [[1, 0]], {"atoms": ["a", "a"]}, "different non-empty"),
        ([[1, 0]], [[1, 0]], {"method": "magic"}, "method must be one of"),
        ([[1, 0]], [[1, 0]], {"kind": "magic"}, "kind must be one of"),
        ([[1, 0]], [[1, 0]], {"noise": 0.7}, "from 0 to 0.5, 0.5 excluded"),
        ([[1, 0]], [[1, 0]], {"noise": "auto"}, "at least 50 labels"),
        ([[1, 0]], None, {}, "targets are missing"),
        ("nowhere.csv", None, {}, "there is no such file"),
    ],
)
def test_bad_input_is_refused_with_a_reason(inputs, targets, options, message):
    wrong_option = options in ({"method": "magic"}, {"kind": "magic"}, {"noise": 0.7})
    error = lg.errors.ArgumentError if wrong_option else lg.errors.DataError
    with pytest.raises(error, match=message):
        lg.fit(inputs, targets, **options)


def test_a_table_says_where_it_is_wrong(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("a,a'\n1,1\n1\n")
    with pytest.raises(lg.errors.DataError, match=r"t\.csv, line 3: expected 2 cells"):
        lg.fit(table)
    table.write_text("a,a'\n\n1,0.5\n1,maybe\n")
    message = r"t\.csv, line 4, column \"a'\": expected 0, 1, yes, no.*but found 'maybe'"
    with pytest.raises(lg.errors.DataError, match=message):
        lg.fit(table)
    table.write_text("a,a'\n3,1\n")
    message = r"t\.csv, line 2, column 'a': .* found '3', which is not from 0 to 1"
    with pytest.raises(lg.errors.DataError, match=message):
        lg.fit(table)
    table.write_text("a,a,a'\n1,1,1\n")
    with pytest.raises(lg.errors.DataError, match=r"t\.csv: two columns are called 'a'"):
        lg.fit(table)
    table.write_text("a,b\n1,1\n")
    with pytest.raises(lg.errors.DataError, match="no column ends in a prime"):
        lg.fit(table)


def test_repeated_examples_count_as_often_as_they_come():
    data = observe([[1, 0], [1, 0], [0, 0]], [[1, 1], [1, 1], [0, 0]])
    assert data.N == 2
    assert data.counts.tolist() == [2, 1]
    result = lg.fit([[1, 0], [1, 0], [0, 0]], [[1, 1], [1, 1], [0, 0]], holdout=0)
    assert result.evidence[0].support == 2


def test_learning_is_reproducible_and_reports():
    entries, after = [], step(PROGRAM, STATES)
    soon = lg.operator.Homotopy(steps=40)
    runs = [
        lg.fit(STATES, after, method="gradient", seed=4, homotopy=soon, progress=entries.append)
        for _ in range(2)
    ]
    assert runs[0].program == runs[1].program
    assert runs[0].history == runs[1].history
    assert entries[-1].stage == "done"


@pytest.mark.parametrize("method", ["symbolic", "gradient"])
def test_the_new_rules_of_a_learning_curve_add_up_to_the_program(method):
    after, known = step(PROGRAM, STATES), lg.Program.from_rules(PROGRAM.rules[:2], PROGRAM.atoms)
    options = {"homotopy": lg.operator.Homotopy(steps=40)} if method == "gradient" else {}
    result = lg.fit(STATES, after, atoms=PROGRAM.atoms, method=method, known=known, **options)
    new = [rule for entry in result.history for rule in entry.new]
    assert sorted(map(str, [*new, *known.rules])) == sorted(map(str, result.program.rules))
    shares = [entry.explained for entry in result.history]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    counts = [entry.rules for entry in result.history]
    assert counts == sorted(counts)
    assert counts[-1] == result.program.R


def test_rules_from_closures_are_told_round_by_round():
    program = lg.generators.chain(6)
    closed = lg.closures(program, STATES[:, :6])
    result = lg.fit(STATES[:, :6], closed, kind="closures", atoms=program.atoms)
    new = {str(rule) for entry in result.history for rule in entry.new}
    assert new >= {str(rule) for rule in result.program.rules}
    assert result.history[0].explained < 1.0
    assert result.history[-1].explained == 1.0


def test_targets_that_look_like_closures_are_told():
    def hinted(program, states, closed):
        after = lg.closures(program, states) if closed else step(program, states)
        notes = lg.fit(states, after, atoms=program.atoms).notes
        return any("the targets look like closures" in note for note in notes)

    for program in (PROGRAM, lg.generators.chain(8)):
        assert hinted(program, STATES, closed=True)
        assert not hinted(program, STATES, closed=False)
    # Where no rule feeds another, one step is everything.
    flat = lg.parse("b :- a. c :- a, d. f :- e, g. #external h.")
    assert not hinted(flat, STATES, closed=True)


def test_targets_that_are_no_closures_are_refused():
    states = some_states(8, 200, 0, density=0.2)
    with pytest.raises(lg.errors.DataError, match="the targets are not closures: the facts of row"):
        lg.fit(states, step(PROGRAM, states), kind="closures")
    # The facts of the first lie in the closure of the second, which lacks c; then it is unknown.
    facts, closed = [[0, 1, 0], [1, 0, 0]], [[0, 1, 1], [1, 1, 0]]
    with pytest.raises(lg.errors.DataError, match=r"row 1 are .* target of row 2, but 'c'"):
        lg.fit(facts, closed, kind="closures", atoms=list("abc"))
    closed[1][2] = np.nan
    result = lg.fit(facts, closed, kind="closures", atoms=list("abc"))
    derived = lg.closures(result.program, np.array(facts, bool))
    assert (derived == (np.array(closed) == 1))[~np.isnan(closed)].all()


def test_rules_that_few_examples_bear_out_are_told():
    states, after = [[1, 0, 0, 0], [0, 0, 1, 0]], [[1, 1, 0, 0], [0, 0, 1, 1]]
    notes = lg.fit(states * 2, after * 2, atoms=list("abcd"), holdout=0).notes
    assert any(
        "2 of 2 rules have fewer than 3 supporting examples: b :- a. (2)" in n for n in notes
    )
    assert not any("fewer than" in n for n in lg.fit(states * 3, after * 3, holdout=0).notes)


def test_parquet_tables_are_read(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = tmp_path / "seen.parquet"
    columns = {"a": [1, 1, 0, 0], "b": [True, False, True, False], "c": [0.0, 0.0, 0.0, 0.0]}
    columns |= {"a'": [1, 1, 0, None], "b'": [1, 0, 1, 0], "c'": [1, 0, 0, 0]}
    parquet.write_table(pyarrow.table(columns), table)
    result = lg.fit(table, holdout=0)
    assert [str(rule) for rule in result.program.rules] == ["c :- a, b."]
    runs = {"trajectory": ["x", "x", "y", "y"], "a": [1, 1, 0, 0], "b": [0, 1, 0, 0]}
    parquet.write_table(pyarrow.table(runs), table)
    result = lg.fit(table, kind="trajectories", holdout=0)
    assert [str(rule) for rule in result.program.rules] == ["b :- a."]
    parquet.write_table(pyarrow.table({"a": ["x"], "a'": ["y"]}), table)
    with pytest.raises(
        lg.errors.DataError, match=r"seen\.parquet, row 1, column 'a': expected 0, 1, yes"
    ):
        lg.fit(table)
    table.write_bytes(b"a,b")
    with pytest.raises(lg.errors.DataError, match=r"seen\.parquet is not a Parquet table"):
        lg.fit(table)


def test_without_pyarrow_the_remedy_is_named(tmp_path, monkeypatch):
    table = tmp_path / "seen.parquet"
    table.write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(lg.errors.MissingPackageError, match="Parquet files need pyarrow"):
        lg.fit(table)


def test_trajectories_may_have_names(tmp_path):
    table = tmp_path / "runs.csv"
    table.write_text("trajectory,a,b\nmonday,1,0\nmonday,1,1\ntuesday,0,0\ntuesday,0,0\n")
    result = lg.fit(table, kind="trajectories", holdout=0)
    assert [str(rule) for rule in result.program.rules] == ["b :- a."]
    with pytest.raises(lg.errors.DataError, match='pass kind="trajectories"'):
        lg.fit(table)


def test_an_annealing_tunes_a_model():
    model = lg.oracle(PROGRAM)
    homotopy = lg.operator.Homotopy(steps=10)
    homotopy.tune(model, 0, tie=True)
    assert model.sharpness.detach().numpy() == pytest.approx(2.25, abs=1e-3)
    homotopy.tune(model, 9)
    assert model.sharpness.detach().numpy() == pytest.approx(9.0, abs=1e-3)
    assert float(model.gate.detach()) == pytest.approx(5.0, abs=1e-3)
    body = model.step_parameters().body_total.detach()
    assert model.threshold.detach().numpy() == pytest.approx(body.numpy() - 0.5, abs=1e-5)
    with pytest.raises(lg.errors.ArgumentError, match="steps must be"):
        lg.operator.Homotopy(steps=0)


# ------------------------------------------------------------------------ nothing silent


@pytest.mark.quick_first
@pytest.mark.parametrize("method", ["symbolic", "gradient"])
def test_a_head_may_get_no_body(method):
    states = [[1, 0, 0], [1, 1, 0], [0, 0, 0]]
    after = [[1, 0, 1], [1, 1, 0], [0, 0, 0]]  # c follows from a, but not from a and b
    result = lg.fit(states, after, atoms=list("abc"), holdout=0, method=method)
    assert result.program.R == 0
    assert dict(result.unexplained) == {"c": 1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"homotopy": lg.operator.Homotopy(steps=3)}, 'homotopy is used by method="gradient" only'),
        (
            {"method": "symbolic", "homotopy": lg.operator.Homotopy()},
            'used by method="gradient" only',
        ),
        ({"refine": True}, "refine=True is about known rules"),
        ({"kind": "models", "homotopy": lg.operator.Homotopy()}, "does not use homotopy"),
        ({"kind": "models", "bodies": ["a0"], "max_body": 2}, "does not use bodies, max_body"),
        ({"kind": "models", "forbidden": [("a0", "a1")]}, "does not use forbidden"),
    ],
)
def test_an_option_without_effect_is_refused(options, message):
    targets = None if "kind" in options else [[1, 0]]
    with pytest.raises(lg.errors.ArgumentError, match=message):
        lg.fit([[1, 0]], targets, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"known": "a1 :- a0."}, {"refine": "yes"}, {"progress": 5}, {"seed": 1.5}, {"seed": -1},
        {"heads": 5}, {"heads": [5]}, {"bodies": 5}, {"forbidden": ["ab"]}, {"forbidden": [1]},
        {"forbidden": 1}, {"atoms": 5}, {"max_body": 2.5}, {"max_body": -1}, {"max_body": True},
        {"holdout": "x"}, {"holdout": 1}, {"noise": [0.1]}, {"noise": True}, {"noise": np.nan},
        {"checkpoint": 5}, {"homotopy": 5, "method": "gradient"}, {"kind": [1]}, {"method": 1},
    ],
)  # fmt: skip
def test_an_option_of_a_wrong_type_is_named(options):
    name = next(iter(options))
    with pytest.raises(lg.errors.ArgumentError, match=f"^{name} must be .*") as raised:
        lg.fit([[1, 0]], [[1, 0]], **options)
    assert repr(next(iter(options.values()))) in str(raised.value) or name in (
        "heads", "forbidden")  # fmt: skip


@pytest.mark.parametrize("device", ["cuda:99", "moon", 5.5])
def test_a_device_that_is_not_there_is_refused(device):
    with pytest.raises(lg.errors.ArgumentError, match=r"device .* cannot be used"):
        lg.fit([[1, 0]], [[1, 0]], device=device)


@pytest.mark.parametrize("kind", ["transitions", "closures"])
def test_what_three_of_four_lines_leave_open_is_reported(kind):
    states, after = [[1, 1, 0], [0, 1, 0], [0, 0, 0]], [[1, 1, 1], [0, 1, 0], [0, 0, 0]]
    result = lg.fit(states, after, kind=kind, atoms=list("abh"), holdout=0)
    (one,) = result.undecided
    assert (str(one.rule), [str(other) for other in one.alternatives]) == (
        "h :- a.",
        ["h :- a, b."],
    )
    assert "undecided: h :- a.  or  h :- a, b." in result.summary()
    states, after = [*states, [1, 0, 0]], [*after, [1, 0, 0]]
    result = lg.fit(states, after, kind=kind, atoms=list("abh"), holdout=0)
    assert [str(rule) for rule in result.program.rules] == ["h :- a, b."]
    assert not result.undecided


def test_bodies_that_are_almost_as_likely_are_reported_with_noise():
    rng = np.random.default_rng(0)
    states = rng.random((400, 4)) < 0.5
    states[:, 1] = states[:, 0]  # the same column twice
    states[:, 3] = False
    labels = states.copy()
    labels[:, 3] = states[:, 0] & states[:, 2]
    labels[:, 3] ^= rng.random(400) < 0.05
    result = lg.fit(states, labels, atoms=list("abch"), noise=0.05, heads="h", bodies=list("abc"))
    (one,) = result.evidence
    rules = {str(one.rule), *(str(other) for other in one.alternatives)}
    assert {"h :- a, c.", "h :- b, c."} <= rules


@pytest.mark.slow
def test_a_long_conjunction_is_found_and_what_is_claimed_was_proved():
    rng = np.random.default_rng(1)
    coins = rng.random((4000, 35)) < 0.5
    literals = np.stack([coins, ~coins], 2).reshape(4000, 70)
    body = 2 * rng.choice(35, 8, replace=False) + rng.integers(0, 2, 8)
    head = literals[:, body].all(1)[:, None]
    before, after = np.hstack([literals, head & False]), np.hstack([literals, head])
    result = lg.fit(before, after, heads=["a70"], holdout=0)
    (rule,) = result.program.rules
    assert rule.body == {f"a{i}" for i in body}
    assert "no shorter rule explains the same examples" in result.reason
    shorter = lg.fit(before, after, heads=["a70"], holdout=0, max_body=7)
    assert not any(set(rule.body) == {f"a{i}" for i in body} for rule in shorter.program.rules)


def test_of_many_alternatives_the_first_ones_and_the_longest_are_listed():
    names = [*(f"x{i:02}" for i in range(20)), "h"]
    states = np.array([[1] * 20 + [0], [0] * 21])
    result = lg.fit(states, states | [[1], [0]] * np.eye(21, dtype=int)[20], atoms=names, holdout=0)
    (one,) = result.undecided
    assert str(one.rule) == "h :- x00."
    assert [str(other) for other in one.alternatives[:2]] == ["h :- x01.", "h :- x02."]
    assert len(one.alternatives) == 10
    assert one.alternatives[-1].body == set(names[:8])
    line = next(line for line in result.summary().splitlines() if "undecided" in line)
    longest = ", ".join(names[:8])
    assert (
        line
        == f"% undecided: h :- x00.  or  h :- x01.  or  h :- x02.  or  7 more  or  h :- {longest}."
    )


def test_undecided_weights_are_penalised_near_the_end():
    homotopy = lg.operator.Homotopy(steps=101)
    assert [homotopy.at(step).decision for step in (0, 60, 61, 100)] == [0.0, 0.0, 0.05, 0.05]


@pytest.mark.parametrize("kind", ["transitions", "closures"])
def test_what_was_not_proved_is_not_claimed(kind, monkeypatch):
    states = np.array([[i >> 2 & 1, i >> 1 & 1, i & 1, 0] for i in range(8)], bool)
    after = states.copy()
    after[:, 3] = states[:, :3].all(1)
    options = {"kind": kind, "atoms": list("abch"), "holdout": 0}
    assert "and no shorter rule explains" in lg.fit(states, after, **options).reason
    monkeypatch.setattr("latentgamma.learning.exact._MOST_VISITED", 1)
    result = lg.fit(states, after, **options)
    assert [str(rule) for rule in result.program.rules] == ["h :- a, b, c."]
    assert "for 1 rule it was not proved that no shorter one explains" in result.reason


def test_a_body_above_the_limit_is_noted():
    states = [[1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 1, 0]]
    after = [[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 1, 0]]
    result = lg.fit(states, after, atoms=list("abch"), max_body=2, holdout=0)
    assert result.program.R == 0
    assert any("for 1 label only rules with more than 2 atoms" in note for note in result.notes)
    assert lg.fit(states, after, atoms=list("abch"), holdout=0).program.k == 3


def test_a_summary_is_a_program_with_comments():
    result = lg.fit(STATES, step(PROGRAM, STATES), atoms=PROGRAM.atoms)
    text = result.summary()
    assert lg.equivalent(lg.parse(text), lg.Program.from_rules(PROGRAM.rules, lg.parse(text).atoms))
    assert f"{result.program.R} rules by method symbolic" in text
    assert "1.0000 of the held-out examples" in text
    assert "✓ the network: exact from step" in text


# ------------------------------------------------------------------------ tables


COLUMNS = {"a": [1, 1, 0, 0], "b": [True, False, True, False], "c": [0.0, 0.0, 0.0, 0.0]}
COLUMNS |= {"a'": [1, 1, 0, None], "b'": [1, 0, 1, 0], "c'": ["yes", "no", "NO", "false"]}


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_are_taken(library):
    frames = pytest.importorskip(library)
    result = lg.fit(frames.DataFrame(COLUMNS), holdout=0)
    assert [str(rule) for rule in result.program.rules] == ["c :- a, b."]
    before = frames.DataFrame({name: COLUMNS[name] for name in "abc"})
    after = frames.DataFrame({name: COLUMNS[f"{name}'"] for name in "cab"})
    assert lg.fit(before, after, holdout=0).program == result.program
    runs = frames.DataFrame(
        {"trajectory": ["x", "x", "y", "y"], "a": [1, 1, 0, 0], "b": [0, 1, 0, 0]}
    )
    result = lg.fit(runs, kind="trajectories", holdout=0)
    assert [str(rule) for rule in result.program.rules] == ["b :- a."]
    wrong = frames.DataFrame(COLUMNS | {"c'": ["yes", "no", "maybe", "false"]})
    message = r"inputs, row 3, column \"c'\": expected 0, 1, yes, no.*but found 'maybe'"
    with pytest.raises(lg.errors.DataError, match=message):
        lg.fit(wrong)


def test_nullable_columns_of_pandas_are_taken():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(COLUMNS)
    for name in COLUMNS:
        frame[name] = frame[name].astype("string" if name == "c'" else "Float64")
    assert [str(rule) for rule in lg.fit(frame, holdout=0).program.rules] == ["c :- a, b."]


LINES = ["id,a,b,b',id'", "one,yes,no,TRUE,x", "two,no,no,0,x", "three,y,n,?,x", "four,1,0,1.0,x"]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("compress", [False, True])
def test_text_tables_are_read_with_any_delimiter_and_compressed(tmp_path, delimiter, compress):
    text = "\n".join(LINES).replace(",", delimiter).encode()
    path = tmp_path / ("t.csv.gz" if compress else "t.csv")
    path.write_bytes(gzip.compress(text) if compress else text)
    data = observe(path, ignore=["id"])
    assert data.atoms == ("a", "b")
    assert [str(rule) for rule in lg.fit(data, holdout=0).program.rules] == ["b :- a."]
    with path.open("rb") as file:
        again = observe(file, ignore=["id"], delimiter=delimiter)
    assert (again.states == data.states).all()
    with pytest.raises(
        lg.errors.DataError, match=r"t\.csv.*, line 2, column 'id': expected 0, 1, yes"
    ):
        observe(path)
    with pytest.raises(
        lg.errors.DataError, match=r"ignored columns name a column t\.csv.* does not have"
    ):
        observe(path, ignore=["c"])


def test_a_damaged_compressed_table_is_refused(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress("\n".join(LINES).encode())[:-9])
    with pytest.raises(lg.errors.DataError, match=r"t\.csv\.gz is damaged"):
        lg.fit(path)


def test_messages_count_rows_from_one_and_repeated_rows_too():
    before, after = [[1, 0], [1, 0], [0, 0], [1, 0]], [[1, 1], [1, 1], [0, 0], [1, 0]]
    with pytest.raises(
        lg.errors.DataError, match="rows 1 and 4 have one state, but 'a1' follows in only"
    ):
        lg.fit(before, after)
    with pytest.raises(lg.errors.DataError, match="'a0' is true before and false after in row 3"):
        lg.fit([[0, 1], [0, 1], [1, 0]], [[0, 1], [0, 1], [0, 0]])


# ------------------------------------------------------------------------ edges of noise and doubt


@pytest.mark.parametrize("soft", [False, True])
def test_a_head_without_labels_keeps_its_known_rules_and_gets_no_other(soft):
    states = some_states(4, 60, 1)
    labels = np.where(states, 1.0, 0.0)
    labels[:, 3] = np.maximum(labels[:, 3], states[:, 0])
    if soft:
        labels = labels.clip(0.05, 0.95)
    labels[:, 2] = np.nan
    known = lg.parse("c :- a, b.")
    result = lg.fit(states, labels, atoms="abch", known=known, noise=0.05)
    assert [str(rule) for rule in result.program.rules] == ["c :- a, b.", "h :- a."]


def test_one_soft_label_leaves_the_noise_of_the_others():
    states, rng = some_states(8, 400, 6, density=0.5), np.random.default_rng(6)
    labels = states.copy()
    labels[:, 7] |= states[:, 0] & states[:, 1]
    labels = (labels ^ (rng.random(labels.shape) < 0.2)).astype(float)
    labels[np.flatnonzero(labels[:, 3])[0], 3] = 0.9
    result = lg.fit(states, labels, atoms="abcdefgh", noise=0.2, heads="h")
    assert [str(rule) for rule in result.program.rules] == ["h :- a, b."]


def test_a_largest_body_of_no_atoms_is_kept_to_with_noise():
    labels = step(PROGRAM, STATES)
    result = lg.fit(STATES, labels, atoms=PROGRAM.atoms, noise=0.05, max_body=0)
    assert all(not rule.body for rule in result.program.rules)


def test_a_probability_as_good_as_certain_is_taken_as_certain():
    labels = step(PROGRAM, STATES).astype(float)
    labels[labels == 1] -= 1e-9
    assert lg.fit(STATES, labels, atoms=PROGRAM.atoms).noise == 0


def test_numbers_of_numpy_can_be_kept_in_a_checkpoint(tmp_path):
    after = step(PROGRAM, STATES)
    checkpoint = tmp_path / "fit.learning"
    first = lg.fit(STATES, after, seed=np.int64(3), max_body=np.int64(3), checkpoint=checkpoint)
    kept = checkpoint.read_bytes()
    again = lg.fit(STATES, after, seed=3, max_body=3, checkpoint=checkpoint)
    assert again.program == first.program == lg.fit(STATES, after, seed=3, max_body=3).program
    assert checkpoint.read_bytes() == kept  # the same options: nothing is learned again


def test_files_and_tables_that_cannot_be_meant(tmp_path):
    np.save(tmp_path / "one.npy", STATES)
    with pytest.raises(lg.errors.DataError, match=r"a \.csv, \.tsv or \.parquet file; .*one\.npy"):
        lg.fit(tmp_path / "one.npy", STATES)
    (tmp_path / "four.csv").write_text("a,a',a''\n1,1,0\n")
    with pytest.raises(lg.errors.DataError, match="stands alone"):
        lg.fit(tmp_path / "four.csv")


def test_states_without_any_body_are_tried_before_those_with_an_uncertain_one():
    from latentgamma.learning.bodies import HeadTask
    from latentgamma.learning.gradient import _Head

    states = np.eye(200, dtype=bool)  # all of one size, so that nothing else decides
    every = np.ones(200, np.bool_)
    head = _Head(HeadTask(0, states, every, np.ones(200, np.int64), every, 8), 0.0)
    head.unexplained[:-3] = False
    head.choose(8)
    assert {197, 198, 199} <= {int(atom) for seed in head.seeds for atom in seed}
