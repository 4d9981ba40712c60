"""The command that learns: its output is a program, and a run that breaks off can go on."""

from __future__ import annotations

import functools
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import latentgamma as lg
from latentgamma.cli import learn as learn_command
from latentgamma.operator.model import oracle

EXAMPLES = Path(__file__).parents[2] / "examples"
ANIMALS = lg.load(EXAMPLES / "animals.lp")
SEEN = EXAMPLES / "animals_transitions.csv"
CHAIN = "a,b,c,a',b',c'\n1,0,0,1,1,0\n0,1,0,0,1,1\n0,0,1,0,0,1\n0,0,0,0,0,0\n"


@pytest.fixture
def learn(cli, tmp_path, monkeypatch):
    """Run the command in an empty folder; gives the output and the errors."""
    monkeypatch.chdir(tmp_path)
    return functools.partial(cli, "learn")


@pytest.fixture
def seen(tmp_path):
    """A copy of the example, so that nothing is written beside the original."""
    path = tmp_path / "seen.csv"
    path.write_bytes(SEEN.read_bytes())
    return path


@pytest.fixture
def chain(tmp_path):
    path = tmp_path / "chain.csv"
    path.write_text(CHAIN)
    return path


def rules(text):
    return [str(rule) for rule in lg.parse(text).rules]


def test_the_example_is_what_the_rules_do():
    names, *rows = [line.split(",") for line in SEEN.read_text().splitlines()]
    M = ANIMALS.M
    assert names == [*ANIMALS.atoms, *(f"{name}'" for name in ANIMALS.atoms)]
    values = np.array(rows, int).astype(bool)
    after = [ANIMALS.mask(lg.logic.step(ANIMALS, row)) for row in values[:, :M]]
    assert (np.stack(after) == values[:, M:]).all()


def test_what_is_printed_is_the_program_and_nothing_is_left_behind(learn, seen, tmp_path):
    out, err = learn(seen)
    assert err == ""
    assert lg.equivalent(lg.parse(out), lg.Program.from_rules(ANIMALS.rules, lg.parse(out).atoms))
    assert set(lg.parse(out).atoms) == set(ANIMALS.atoms)
    assert re.search(r"^bird :- has_feathers\. +% support \d+, confidence 1\.000$", out, re.M)
    for remark in ("method symbolic (no label is wrong", "1.0000 of the held-out examples",
                   "wrong labels assumed: none", "✓ the network: exact from step 4 "):  # fmt: skip
        assert remark in out
    assert [path.name for path in tmp_path.iterdir()] == ["seen.csv"]


@pytest.mark.parametrize("name", ["rules.lp", "rules.cnf", "rules.json", "rules.lp.gz"])
def test_the_rules_are_written_in_every_format(learn, chain, name):
    out, _ = learn(chain, "-o", name, "--model", "m.safetensors", "--plot", "curve.svg")
    assert {str(rule) for rule in lg.load(name).rules} == {"b :- a.", "c :- b."}
    assert set(lg.load(name).atoms) == set("abc")
    assert out.startswith("2 rules by method symbolic")
    assert "support" not in out.splitlines()[0]
    model = lg.LatentGamma.load("m.safetensors")
    assert lg.certify(model, model.program).holds
    assert "<svg" in Path("curve.svg").read_text()
    assert sorted(os.listdir()) == sorted(["chain.csv", "curve.svg", "m.safetensors", name])


def test_json_has_all_that_the_library_says(learn, seen):
    document = json.loads(learn(seen, "--json", "--explain", "penguin")[0])
    result = lg.fit(seen)
    for entry, one in zip(document["rules"], result.evidence, strict=True):
        assert entry["rule"] == str(one.rule)
        assert entry["body"] == sorted(one.rule.body)
        assert (entry["support"], entry["confidence"]) == (one.support, one.confidence)
    for key in ("accuracy", "training_accuracy", "noise", "method", "reason"):
        assert document[key] == getattr(result, key)
    assert document["notes"] == list(result.notes)
    assert document["unexplained"] == dict(result.unexplained)
    assert document["certificate"] == result.certificate.to_dict()
    assert [m["explained"] for m in document["history"]] == [m.explained for m in result.history]
    new = [rule for moment in document["history"] for rule in moment["new"]]
    assert sorted(new) == sorted(entry["rule"] for entry in document["rules"])
    assert document["explain"] == {"penguin": result.explain("penguin")}


def test_options_reach_the_learner(learn, chain, tmp_path):
    assert rules(learn(chain)[0]) == ["b :- a.", "c :- b."]
    assert rules(learn(chain, "--target", "c")[0]) == ["c :- b."]
    assert rules(learn(chain, "--target", "b,c", "--bodies", "a")[0]) == ["b :- a."]
    assert rules(learn(chain, "--forbid", "c:b,b:c")[0]) == ["b :- a."]
    assert rules(learn(chain, "--max-body", "0")[0]) == []
    assert "by method gradient (as requested)" in learn(chain, "--method", "gradient")[0]
    assert rules(learn(chain, "--heads", "c")[0]) == ["c :- b."]
    assert "% b :- a." in "% " + learn(chain, "--explain", "b")[0].splitlines()[0]
    known = tmp_path / "known.lp"
    known.write_text("c :- a.")
    _, err = learn(chain, "--known", known, code=2)
    assert "known rule 'c :- a.' is wrong" in err
    assert rules(learn(chain, "--known", known, "--refine")[0]) == ["b :- a.", "c :- b."]


def test_closures_trajectories_and_two_tables_are_taken(learn, chain, tmp_path):
    runs = tmp_path / "runs.csv"
    runs.write_text("trajectory,a,b,c\nx,1,0,0\nx,1,1,0\nx,1,1,1\ny,0,0,0\ny,0,0,0\n")
    assert rules(learn(runs, "--kind", "trajectories")[0]) == ["b :- a.", "c :- b."]
    assert "pass --kind trajectories" in learn(runs, code=2)[1]
    before, after = tmp_path / "before.csv", tmp_path / "after.csv"
    before.write_text("a,b,c\n1,0,0\n0,1,0\n0,0,1\n0,0,0\n")
    after.write_text("a,b,c\n1,1,1\n0,1,1\n0,0,1\n0,0,0\n")
    assert rules(learn(before, after, "--kind", "closures")[0]) == ["b :- a.", "c :- b."]
    assert "the targets are not closures" in learn(chain, "--kind", "closures", code=2)[1]


def test_noise_and_what_is_open_are_told(learn, tmp_path):
    rng = np.random.default_rng(0)
    before = rng.random((400, 4)) < 0.5
    after = before.copy()
    after[:, 1] |= before[:, 0]
    after ^= rng.random(after.shape) < 0.05
    table = tmp_path / "noisy.csv"
    lines = ["a,b,c,d,a',b',c',d'"]
    lines += [",".join(str(int(x)) for x in [*s, *t]) for s, t in zip(before, after, strict=True)]
    table.write_text("\n".join(lines))
    assert "pass --noise auto" in learn(table, code=2)[1]
    out, _ = learn(table, "--noise", "auto")
    assert rules(out) == ["b :- a."]
    assert re.search(r"wrong labels assumed: [3-6]\.\d\d%", out)
    assert "(wrong labels among them)" in out
    few = tmp_path / "few.csv"
    few.write_text("a,b,c,a',b',c'\n1,1,0,1,1,1\n0,0,0,0,0,0\n")
    out, _ = learn(few)
    assert "% undecided: c :- a.  or  c :- b.  or  c :- a, b." in out
    assert "1 of 1 rule has fewer than 3 supporting examples: c :- a. (1)" in out


def test_a_network_that_is_not_proved_is_code_1(learn, seen, monkeypatch):
    def without_effect(*args, **options):
        built = oracle(*args, **options)
        built.offset.data += 100.0  # no rule can fire
        return built

    monkeypatch.setattr("latentgamma.operator.model.oracle", without_effect)
    out, _ = learn(seen, code=1)
    assert "✗ the network:" in out
    lg.parse(out)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["nowhere.csv"], "no such file"),
        (["chain.csv", "nowhere.csv"], "no such file"),
        (["."], "it is a folder"),
        (["chain.csv", "-o", "rules.txt"], "is not known: its name must end in"),
        (["chain.csv", "-o", "no/rules.lp"], "no such folder"),
        (["chain.csv", "--model", "."], "this is a folder"),
        (["chain.csv", "--plot", "p.xyz"], ".png"),
        (["chain.csv", "--target", "d"], "--heads name an atom these data do not have: 'd'"),
        (["chain.csv", "--explain", "d"], "--explain names an atom"),
        (["chain.csv", "--forbid", "a"], "HEAD:ATOM"),
        (["chain.csv", "--forbid", ":a"], "HEAD:ATOM"),
        (["chain.csv", "--forbid", "a:z"], "'z'"),
        (["chain.csv", "--noise", "most"], "a fraction from 0 to 1"),
        (["chain.csv", "--noise", "0.7"], "from 0 to 0.5"),
        (["chain.csv", "--refine"], "--known"),
        (["chain.csv", "--known", "nowhere.lp"], "no such file"),
        (["chain.csv", "--device", "moon"], "device 'moon' cannot be used"),
        (["chain.csv", "--checkpoint", "chain.csv", "--fresh"], "are the same file"),
        (["chain.csv", "--checkpoint", "zeros.npz"], "is not a checkpoint"),
        (["chain.csv", "--checkpoint", "zeros.npz", "--fresh"], "is not deleted"),
        (["bytes.csv"], "position 5: invalid start byte; save it in UTF-8"),
        (["zeros.npz"], "a .csv, .tsv or .parquet file"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(learn, chain, args, told):
    Path("bytes.csv").write_bytes(b"a,a'\n\xff,1\n")
    np.savez("zeros.npz", zeros=np.zeros(3))
    before = sorted(os.listdir())
    out, err = learn(*args, code=2)
    assert out == ""
    assert told in err
    assert err.startswith("latentgamma: ")
    assert len(err.splitlines()) == 1
    assert sorted(os.listdir()) == before
    assert chain.read_text() == CHAIN


def interrupted_after(count, monkeypatch):
    """Let the next runs break off after so many reports."""
    fit = lg.fit

    def broken(*args, progress, **options):
        moments = []

        def stop(moment):
            moments.append(moment)
            progress(moment)
            if len(moments) == count:
                raise KeyboardInterrupt

        return fit(*args, progress=stop, **options)

    monkeypatch.setattr(learn_command.lg, "fit", broken)


@pytest.mark.parametrize("output", [(), ("-o", "rules.lp")])
def test_an_interrupted_run_goes_on_with_the_same_command(learn, seen, monkeypatch, output):
    expected, _ = learn(seen, *output)
    kept = "rules.lp.learning" if output else "seen.csv.learning"
    with monkeypatch.context() as patch:
        interrupted_after(5, patch)
        out, err = learn(seen, *output, code=130)
    assert out == ""
    assert err.startswith("latentgamma: interrupted; 5 finished pieces of work saved in ")
    assert kept in err
    assert "--fresh" in err
    assert kept in os.listdir()
    _, err = learn(seen, *output, "--seed", 1, code=2)
    assert "seed was 0 and is 1" in err.splitlines()[-1]
    out, err = learn(seen, *output)
    assert out == expected
    assert "resuming from" in err
    assert "with 5 finished pieces of work" in err
    assert kept not in os.listdir()


def test_a_fresh_start_forgets_what_was_kept(learn, chain, monkeypatch):
    with monkeypatch.context() as patch:
        interrupted_after(1, patch)
        learn(chain, "--checkpoint", "mine", code=130)
    assert "mine" in os.listdir()
    _, err = learn(chain, "--checkpoint", "mine", "--seed", 1, "--fresh")
    assert err == ""
    assert os.listdir() == ["chain.csv"]


def test_an_interrupt_before_anything_is_finished_leaves_nothing(learn, chain, monkeypatch):
    monkeypatch.setattr("latentgamma.learning.strategies.find_rules", interrupt)
    _, err = learn(chain, code=130)
    assert err == "latentgamma: interrupted, before anything was finished\n"
    assert os.listdir() == ["chain.csv"]


def interrupt(*args):
    raise KeyboardInterrupt


@pytest.mark.slow
def test_a_terminal_shows_progress_and_the_output_stays_clean(seen):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "latentgamma", "learn", seen, "--method", "gradient",
               "--target", "bird,mammal"]  # fmt: skip
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "OMP_NUM_THREADS": "1"}  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=env) as process:
        os.close(theirs)
        chunks = []
        try:
            while chunk := os.read(ours, 65536):
                chunks.append(chunk)
        except OSError:  # how Linux says that the other side has closed
            pass
        out = process.stdout.read().decode()
    os.close(ours)
    shown = b"".join(chunks).decode()
    assert process.returncode == 0
    assert "\x1b" not in out
    assert set(rules(out)) == {
        str(rule) for rule in ANIMALS.rules if rule.heads[0] in ("bird", "mammal")
    }
    assert "% explained" in shown
    assert "round 1" in shown


def test_models_are_all_used_unless_some_are_kept_aside_on_purpose(learn, tmp_path):
    rows = np.unique(np.random.default_rng(0).random((60, 6)) < 0.6, axis=0)
    table = tmp_path / "models.csv"
    lines = [",".join("abcdef"), *(",".join(map(str, row)) for row in rows.astype(int))]
    table.write_text("\n".join(lines))
    program = lg.parse(learn(str(table), "--kind", "models")[0])
    index = [program.index[name] for name in "abcdef"]
    closed = lg.closures(program, rows[:, np.argsort(index)])
    assert (closed[:, index] == rows).all()


def test_a_name_with_a_colon_can_be_forbidden(learn, tmp_path):
    table = tmp_path / "names.csv"
    table.write_text("x:y,x:y',wet,wet'\n1,1,0,1\n0,0,0,0\n1,1,1,1\n0,0,1,1\n")
    assert rules(learn(str(table), "--holdout", "0")[0]) == ["wet :- 'x:y'."]
    for pair in ("wet:x:y", "wet:'x:y'"):
        assert rules(learn(str(table), "--holdout", "0", "--forbid", pair)[0]) == []


@pytest.mark.slow
def test_a_table_comes_from_the_standard_input(chain, tmp_path):
    command = [
        sys.executable,
        "-m",
        "latentgamma",
        "learn",
        "-",
        "--delimiter",
        ";",
        "--ignore",
        "id",
    ]
    lines = [f"{n};{line.replace(',', ';')}" for n, line in enumerate(CHAIN.splitlines())]
    text = "\n".join(["id" + lines[0][1:], *lines[1:]])
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert rules(done.stdout) == ["b :- a.", "c :- b."]
    assert done.stderr == ""
    assert os.listdir(tmp_path) == ["chain.csv"]  # there is no name to call a checkpoint by
    wrong = subprocess.run(
        command, input=text.replace("1", "x"), capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 2
    assert "standard input, line 2, column 'a': expected 0, 1, yes" in wrong.stderr


def test_messages_and_notes_name_options_of_the_command_line(learn, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("a,a'\n1,0\n")
    assert "pass --noise auto" in learn(table, code=2)[1]
    table.write_text("a,b,c,h,a',b',c',h'\n1,1,1,0,1,1,1,1\n1,1,0,0,1,1,0,0\n"
                     "1,0,1,0,1,0,1,0\n0,1,1,0,0,1,1,0\n")  # fmt: skip
    out, _ = learn(table, "--max-body", 2)
    assert "to take them raise --max-body" in out
    table.write_text("income,late\n20000,yes\n")
    assert "--label names the column to predict" in learn(table, code=2)[1]
    for args in (("--kind", "models", "--heads", "a"), ("--delimiter", "::"), ("--ignore", "q")):
        assert "=" not in learn(table, *args, code=2)[1]


# ---- Rules for the classes of an ordinary table

LOANS = "income,home,default\n" + "".join(
    f"{20_000 + 500 * i},{'own' if i % 3 else 'rent'},{'yes' if i < 22 else 'no'}\n"
    for i in range(60)
)


def test_a_label_column_gives_rules_for_its_classes(learn, tmp_path) -> None:
    Path("loans.csv").write_text(LOANS)
    out, _ = learn("loans.csv", "--label", "default")
    assert "default :- income < 31000." in out
    out, _ = learn("loans.csv", "--label", "default", "--json")
    assert json.loads(out)["program"] == "default :- income < 31000."
    for name in ("rules.lp", "rules.json", "rules.sql", "rules.py", "rules.svg"):
        learn("loans.csv", "--label", "default", "--plot" if name.endswith("svg") else "-o", name)
    assert str(lg.load("rules.lp")) == str(lg.load("rules.json")) == "default :- income < 31000."
    assert 'WHEN "income" < 31000 THEN' in Path("rules.sql").read_text()
    space: dict = {}
    exec(Path("rules.py").read_text(), space)
    assert space["p_0"]({"income": 20_000}) > 0.9 > 0.1 > space["p_0"]({"income": 40_000})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--label", "defalt"), "does not have: 'defalt' (did you mean 'default'?)"),
        (("--label", "default", "--kind", "closures"), "--kind has no meaning with --label"),
        (("--label", "default", "-o", "rules.txt"), "rules.txt"),
        (("--form", "points"), "--form is only for --label"),
    ],
)
def test_a_wrong_use_of_label_is_refused(learn, arguments, message) -> None:
    Path("loans.csv").write_text(LOANS)
    _, err = learn("loans.csv", *arguments, code=2)
    assert message in err


def test_noise_gives_no_rules_and_exit_code_1(learn) -> None:
    rng = np.random.default_rng(0)
    cells = rng.normal(size=(100, 3)).round(2)
    rows = [f"{a},{b},{'yes' if c > 0 else 'no'}" for a, b, c in cells]
    Path("noise.csv").write_text("\n".join(["a,b,label", *rows, ""]))
    out, _ = learn("noise.csv", "--label", "label", code=1)
    assert "no rule pays for itself; the nearest is" in out


def test_a_fraction_of_wrong_labels_of_0_reaches_the_classifier(learn) -> None:
    Path("loans.csv").write_text(LOANS)
    _, err = learn("loans.csv", "--label", "default", "--noise", "0", code=2)
    assert "noise is for columns that are true or false, and 'income' holds numbers" in err
    assert learn("loans.csv", "--label", "default", "--noise", "auto") == learn(
        "loans.csv", "--label", "default"
    )
