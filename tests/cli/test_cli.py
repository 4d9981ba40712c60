"""The command line: what it answers, its exit codes, and that bad input gets one clear line."""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import latentgamma as lg
from latentgamma.cli import commands
from latentgamma.cli.main import main
from latentgamma.program.rule_text import (
    atom_name,
    facts_in_file,
    split_facts,
)

EXAMPLES = Path(__file__).parents[2] / "examples"
ANIMALS = str(EXAMPLES / "animals.lp")
SEEN = "has_feathers,swims,black_and_white"


@pytest.fixture
def rules(tmp_path):
    def write(text, name="rules.lp"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def shell(*args, stdin=None, **options):
    """Run a command as a process of its own."""
    command = [sys.executable, "-m", "latentgamma", *map(str, args)]
    return subprocess.run(command, input=stdin, capture_output=True, check=False, **options)


# ------------------------------------------------------------------ closure


def test_closure_prints_one_atom_a_line_in_the_order_of_the_program(cli):
    out, err = cli("closure", ANIMALS, "--facts", SEEN)
    program = lg.load(ANIMALS)
    expected = list(lg.closure(program, SEEN.split(",")))
    assert out.splitlines() == expected
    assert err == ""


def test_what_closure_prints_is_a_facts_file_whose_closure_is_the_same(cli, rules):
    path = rules("a :- 'x y', f(1).")
    out, _ = cli("closure", path, "--facts", "'x y', f( 1 )")
    again, _ = cli("closure", path, "--facts-file", rules(out, "facts.txt"))
    assert again == out
    assert set(out.splitlines()) == {"a", "'x y'", "f(1)"}


def test_levels_are_the_levels_of_the_closure(cli):
    known = lg.closure(lg.load(ANIMALS), SEEN.split(","))
    out, _ = cli("closure", ANIMALS, "--facts", SEEN, "--levels")
    pairs = [line.split("\t") for line in out.splitlines()]
    for depth, level in enumerate(known.levels):
        assert {name for d, name in pairs if int(d) == depth} == level
    document = json.loads(cli("closure", ANIMALS, "--facts", SEEN, "--levels", "--json")[0])
    assert [set(level) for level in document["levels"]] == list(known.levels)
    assert set(document["atoms"]) == known.atoms
    assert document["depth"] == known.depth


@pytest.mark.parametrize("format_name", ["lp", "cnf", "json"])
@pytest.mark.parametrize("packed", [False, True])
def test_rules_come_from_standard_input_in_every_format(
    cli, tmp_path, monkeypatch, format_name, packed
):
    path = tmp_path / f"rules.{format_name}"
    lg.save(lg.load(ANIMALS), path)
    data = gzip.compress(path.read_bytes()) if packed else path.read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    from_stdin, _ = cli("closure", "-", "--format", format_name, "--facts", SEEN)
    assert from_stdin == cli("closure", path, "--facts", SEEN)[0]
    nameless = path.rename(tmp_path / "rules")
    assert cli("closure", nameless, "--format", format_name, "--facts", SEEN)[0] == from_stdin


def test_facts_come_from_standard_input_too_but_not_both(cli, monkeypatch):
    def pipe(text):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    pipe("swims\nhas_feathers\nblack_and_white\n")
    out, _ = cli("closure", ANIMALS, "--facts-file", "-")
    assert out == cli("closure", ANIMALS, "--facts", SEEN)[0]
    pipe("a :- b.")
    _, err = cli("closure", "-", "--facts-file", "-", code=2)
    assert "both" in err


def test_facts_of_several_options_are_joined(cli, rules):
    path = rules("d :- a, b, c.")
    out, _ = cli("closure", path, "--facts", "a", "--facts", "b", "--facts-file", rules("c.", "f"))
    assert set(out.split()) == {"a", "b", "c", "d"}


# ------------------------------------------------------------------ facts as text


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("  ", []),
        ("a", ["a"]),
        (" a , b ", ["a", "b"]),
        ("edge(a,b),edge(b,c)", ["edge(a,b)", "edge(b,c)"]),
        ("p(f(x,y),z),q", ["p(f(x,y),z)", "q"]),
        ("'a,b',c", ["'a,b'", "c"]),
        (r"'it\'s, so',c", [r"'it\'s, so'", "c"]),
        ('p("x,)"),q', ['p("x,)")', "q"]),
        ("it's,that's", ["it's", "that's"]),
    ],
)
def test_facts_are_split_at_commas_outside_parentheses_and_quotes(text, names):
    assert split_facts(text) == names


@pytest.mark.parametrize("text", ["a,,b", ",", "a,", "p(a,b", "'a", "p('a)"])
def test_facts_that_are_not_names_between_commas_are_refused(text):
    with pytest.raises(lg.errors.FactsError, match="facts"):
        split_facts(text)


def test_every_name_can_be_given_as_rule_text_writes_it():
    names = [
        "a",
        "x y",
        "it's",
        "f(a,b)",
        "f(a, b)",
        "Upper",
        "not",
        "new\nline",
        "'",
        "a,b",
        "größe",
    ]
    program = lg.Program.from_rules([("h", names)])
    written = str(program).split(":-", 1)[1].strip().removesuffix(".")
    assert [atom_name(program, one) for one in split_facts(written)] == sorted(
        names, key=names.index
    )
    assert [atom_name(program, name) for name in names] == names


@pytest.mark.parametrize(
    "text",
    [
        "a\nx y\nf(b)",
        "a.\n'x y'. f( b ).",
        "% seen\n\na\n  x y  \nf( b )\n",
        "a, 'x y', f(b). % all",
    ],
)
def test_a_facts_file_has_one_name_a_line_or_rule_text(text):
    program = lg.parse("h :- a, 'x y', f(b).")
    assert set(facts_in_file(program, text.encode(), "f")) == {"a", "x y", "f(b)"}


def test_a_facts_file_with_a_rule_in_it_is_refused(cli, rules):
    _, err = cli(
        "closure", ANIMALS, "--facts-file", rules("swims. flies :- swims.", "f.lp"), code=2
    )
    assert "flies :- swims." in err
    assert "is a rule" in err


# ------------------------------------------------------------------ explain


def test_explain_shows_a_proof_and_the_rules_it_uses(cli, tmp_path):
    dot = tmp_path / "proof.dot"
    out, _ = cli("explain", ANIMALS, "needs_ice", "--facts", SEEN, "--dot", dot)
    proof = lg.derivation(lg.load(ANIMALS), SEEN.split(","), "needs_ice")
    assert out.startswith(str(proof))
    for j in proof.rules:
        assert f"rule {j}: {proof.program.rules[j]}" in out
    assert dot.read_text().strip() == proof.to_dot()
    document = json.loads(cli("explain", ANIMALS, "needs_ice", "--facts", SEEN, "--json")[0])
    assert document["derivable"] is True
    assert document["steps"] == proof.to_dict()["steps"]


def test_explain_says_what_is_missing_and_returns_1(cli, tmp_path):
    dot = tmp_path / "proof.dot"
    out, err = cli("explain", ANIMALS, "tiger", "--facts", "has_fur", "--dot", dot, code=1)
    assert "black_stripes" in out
    assert err == ""
    assert not dot.exists()
    document = json.loads(
        cli("explain", ANIMALS, "tiger", "--facts", "has_fur", "--json", code=1)[0]
    )
    assert document["derivable"] is False
    # The law of the answer: with what is missing, it follows.
    cli("explain", ANIMALS, "tiger", "--facts", ",".join(["has_fur", *document["missing"]]))


def test_explain_all_has_a_step_for_every_atom_that_follows(cli):
    facts = SEEN.split(",")
    found = lg.derivations(lg.load(ANIMALS), facts)
    out, _ = cli("explain", ANIMALS, "--all", "--facts", SEEN)
    head, *lines = out.splitlines()
    assert head.split() == ["depth", "atom", "by", "from"]
    assert [line.split(maxsplit=2)[:2] for line in lines] == [
        [str(depth), atom] for depth, atom in zip(found.depth, found, strict=True)
    ]
    document = json.loads(cli("explain", "--all", ANIMALS, "--facts", SEEN, "--json")[0])
    assert document.pop("rule_text") == {str(j): str(found.program.rules[j]) for j in found.rule}
    assert document == found.to_dict()


def test_explain_takes_an_atom_after_the_options(cli):
    assert cli("explain", ANIMALS, "--facts", SEEN, "bird") == cli(
        "explain", ANIMALS, "bird", "--facts", SEEN
    )


def test_the_atom_may_be_written_as_in_rule_text(cli):
    routes = EXAMPLES / "routes.lp"
    facts = "road(ulm,linz), road( linz, graz )"
    out, _ = cli("explain", routes, "route( ulm , wels )", "--facts", facts)
    assert out.startswith("route(ulm,wels)")


# ------------------------------------------------------------------ certify


def test_certify_agrees_with_the_library_and_holds_for_certified_constants(cli):
    program = lg.load(ANIMALS)
    document = json.loads(cli("certify", ANIMALS, "--json")[0])
    assert document["holds"] is True
    certificate = lg.certify(lg.oracle(program), program)
    assert certificate.t_max >= 10**6
    assert document["t_max"] == (None if math.isinf(certificate.t_max) else certificate.t_max)
    assert document["t_min"] == certificate.t_min == certificate.depth
    assert document["constants"] == lg.Constants.certified(program).to_dict()
    out, _ = cli("certify", ANIMALS)
    assert certificate.weakest_rule in out
    assert "stated in the paper" in out


def test_certify_returns_1_where_the_claim_fails(cli, tmp_path):
    clique = tmp_path / "clique.lp"
    lg.save(lg.generators.clique(80), clique)
    paper = ("certify", clique, "--constants", "paper", "--horizon", 100)
    document = json.loads(cli(*paper, "--json", code=1)[0])
    assert document["reaches_horizon"] is False
    assert document["t_max"] < 100 < document["paper"]["t_max"]
    cli("certify", clique)


def test_a_horizon_is_a_claim(cli):
    paper = ("certify", ANIMALS, "--constants", "paper")
    end = json.loads(cli(*paper, "--json")[0])["t_max"]
    cli(*paper, "--horizon", end)
    out, _ = cli(*paper, "--horizon", end + 1, code=1)
    assert f"{end + 1:,}" in out
    further = json.loads(cli("certify", ANIMALS, "--horizon", 10**9, "--json")[0])
    assert further["reaches_horizon"] is True
    assert further["t_max"] is None or further["t_max"] >= 10**9


def test_a_horizon_that_cannot_be_had_is_a_claim_that_fails(cli, rules):
    wide = rules("h :- " + ", ".join(f"a{i}" for i in range(3000)) + ".")
    options = ("--dtype", "bfloat16", "--horizon", 10**50)
    out, err = cli("certify", wide, *options, code=1)
    assert out == ""
    assert len(err.splitlines()) == 1
    document = json.loads(cli("certify", wide, *options, "--json", code=1)[0])
    assert document["holds"] is False
    assert document["message"] in err


@pytest.mark.parametrize("gate", ["sigmoid", "bump"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_constants_are_certified_for_the_gate_and_the_dtype(cli, gate, dtype):
    out = cli("certify", ANIMALS, "--gate", gate, "--dtype", dtype, "--json")[0]
    expected = lg.Constants.certified(lg.load(ANIMALS), dtype=dtype, gate=gate)
    assert json.loads(out)["constants"] == expected.to_dict()


def test_the_bump_gate_never_leaks(cli):
    document = json.loads(
        cli("certify", ANIMALS, "--constants", "paper", "--gate", "bump", "--json")[0]
    )
    assert document["t_max"] is None
    assert document["leak"] == 0


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.safetensors"
    lg.oracle(lg.load(ANIMALS), lg.Constants.paper()).save(path)
    return path


def test_a_saved_model_is_certified_against_rules_in_any_order(cli, saved, rules):
    shuffled = "\n".join(reversed([str(rule) for rule in lg.load(ANIMALS).rules]))
    document = json.loads(cli("certify", rules(shuffled), "--model", saved, "--json")[0])
    direct = json.loads(cli("certify", ANIMALS, "--constants", "paper", "--json")[0])
    assert document["holds"] is True
    assert document["t_min"] == direct["t_min"]


def test_a_saved_model_is_not_certified_against_other_rules(cli, saved, rules):
    wrong = lg.load(ANIMALS).rules[:-1]
    text = "\n".join(map(str, wrong)) + "\nhunts :- mammal, animal."
    out, _ = cli("certify", rules(text), "--model", saved, code=1)
    assert "hunts" in out
    _, err = cli("certify", rules("h :- unheard_of."), "--model", saved, code=2)
    assert "unheard_of" in err


@pytest.mark.parametrize("option", ["--constants=paper", "--gate=bump", "--dtype=float64"])
def test_options_that_a_saved_model_would_ignore_are_refused(cli, saved, option):
    _, err = cli("certify", ANIMALS, "--model", saved, option, code=2)
    assert option.partition("=")[0] in err


# ------------------------------------------------------------------ run


def test_run_shows_the_values_the_operator_has(cli):
    program = lg.load(ANIMALS)
    options = ("--facts", SEEN, "--steps", 4, "--constants", "paper")
    document = json.loads(cli("run", ANIMALS, *options, "--json")[0])
    model = lg.oracle(program, lg.Constants.paper())
    trajectory = model.iterate(model.state(SEEN.split(",")), 4)
    for i, name in enumerate(program.atoms):
        assert document["values"][name] == trajectory.states[:, i].tolist()
    first = {
        a: t for a, t in zip(program.atoms, trajectory.crossing.tolist(), strict=True) if t >= 0
    }
    assert document["crossing"] == first
    assert document["agrees"] is True
    assert set(document["atoms"]) == trajectory.names()
    out, _ = cli("run", ANIMALS, *options)
    table = {line.split()[0]: line for line in out.splitlines()}
    for name, step in first.items():
        assert f"step {step} " in table[name]
        assert table[name].count("*") == 1
    assert "the closure" in out


def test_run_says_where_it_differs_from_the_closure(cli, tmp_path):
    ladder = tmp_path / "ladder.lp"
    lg.save(lg.generators.ladder(10, 3), ladder)
    options = ("--facts", "layer0_0,layer0_1,layer0_2", "--constants", "paper")
    out, _ = cli("run", ladder, *options, "--steps", 10)
    assert "not derived" in out
    out, _ = cli("run", ladder, *options, "--steps", 13)
    assert "not derived" not in out
    cli("run", ladder, "--facts", "layer0_0,layer0_1,layer0_2", "--steps", 10)


def test_a_large_run_shows_what_moves_and_counts_the_rest(cli, tmp_path):
    chain = tmp_path / "chain.lp"
    program = lg.generators.chain(300)
    lg.save(program, chain)
    out, _ = cli("run", chain, "--facts", program.atoms[0], "--steps", 5)
    lines = out.splitlines()
    assert len(lines) < 50
    assert lines[-2].startswith(f"{program.M - (len(lines) - 3)} of {program.M} atoms not shown")


def test_long_runs_show_a_few_steps_with_those_that_matter(cli):
    out, _ = cli("run", ANIMALS, "--facts", SEEN, "--steps", 200)
    head = out.splitlines()[0].split()
    shown = [int(cell) for cell in head if cell.isdigit()]
    assert shown == sorted(shown)
    assert {0, 1, 2, 3, 200} <= set(shown)
    assert len(shown) < 30


@pytest.mark.slow
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_the_gradients_of_a_run_are_those_of_the_report(cli, form):
    from latentgamma.paper.gradients import gradient_report

    options = ("--facts", SEEN, "--steps", 4, "--form", form, "--json")
    exact = json.loads(cli("run", ANIMALS, *options, "--gradient", "exact")[0])["gradient"]
    proof = json.loads(cli("run", ANIMALS, *options, "--gradient", "proof")[0])["gradient"]
    model = lg.oracle(lg.load(ANIMALS), form=form)
    for row in gradient_report(model, SEEN.split(","), steps=4, atoms=list(exact)).rows:
        assert exact[row.atom] == pytest.approx(row.exact)
        assert proof[row.atom] == pytest.approx(row.proof)
    assert proof["needs_ice"] == pytest.approx(1.0)
    assert exact["needs_ice"] < 0.1


def test_a_saved_model_runs(cli, saved):
    options = ("--facts", SEEN, "--steps", 3, "--json")
    from_file, _ = cli("run", ANIMALS, *options, "--model", saved)
    assert json.loads(from_file) == json.loads(
        cli("run", ANIMALS, *options, "--constants", "paper")[0]
    )


# ------------------------------------------------------------------ convert


def test_converting_there_and_back_gives_the_same_program(cli, tmp_path):
    there, back = tmp_path / "a.json.gz", tmp_path / "b.lp"
    assert cli("convert", ANIMALS, there) == ("", "")
    cli("convert", there, back)
    assert lg.load(back) == lg.load(ANIMALS)


# ------------------------------------------------------------------ pictures


@pytest.mark.quick_first
@pytest.mark.parametrize(
    "args",
    [
        ("closure", ANIMALS, "--facts", SEEN),
        ("explain", ANIMALS, "needs_ice", "--facts", SEEN),
        ("certify", ANIMALS),
        ("run", ANIMALS, "--facts", SEEN, "--steps", "3"),
    ],
)
def test_every_command_draws(cli, tmp_path, args):
    picture = tmp_path / "picture.png"
    cli(*args, "--plot", picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    _, err = cli(*args, "--plot", tmp_path / "picture.xyz", code=2)
    assert ".png" in err
    assert len(err.splitlines()) == 1
    _, err = cli(*args, "--plot", tmp_path / "nowhere" / "picture.png", code=2)
    assert "no such folder" in err


def test_without_matplotlib_the_remedy_is_named(cli, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    _, err = cli("closure", ANIMALS, "--plot", tmp_path / "picture.png", code=2)
    assert "pip install 'latentgamma[plot]'" in err


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("bogus",),
        ("closure",),
        ("closure", ANIMALS, "--bogus"),
        ("closure", "no_such_file.lp"),
        ("closure", str(EXAMPLES)),
        ("closure", ANIMALS, "--format", "lp", "--facts-file", "no_such_file"),
        ("closure", "no_such_file", "--format", "lp"),
        ("closure", ANIMALS, "--facts", "feather"),
        ("closure", ANIMALS, "--facts", "a,,b"),
        ("closure", ANIMALS, "--facts-file", str(EXAMPLES)),
        ("closure", "bad\0name.lp"),
        ("explain", ANIMALS, "unicorn"),
        ("explain", ANIMALS, "animal", "--dot", str(EXAMPLES)),
        ("explain", ANIMALS),
        ("explain", ANIMALS, "animal", "--all"),
        ("explain", ANIMALS, "--all", "--dot", "proof.dot"),
        ("explain", ANIMALS, "--all", "--facts", "unicorn"),
        ("certify", ANIMALS, "--constants", "magic"),
        ("certify", ANIMALS, "--depth", "-1"),
        ("certify", ANIMALS, "--horizon", "9" * 500),
        ("certify", ANIMALS, "--model", "no_such_model"),
        ("certify", ANIMALS, "--model", ANIMALS),
        ("run", ANIMALS),
        ("run", ANIMALS, "--steps", "many"),
        ("run", ANIMALS, "--steps", "1" + "0" * 30),
        ("run", ANIMALS, "--steps", "1", "--facts", "unicorn"),
        ("convert", ANIMALS, "out.xyz"),
        ("convert", ANIMALS, str(EXAMPLES / "no" / "out.lp")),
    ],
    ids=lambda args: " ".join(args)[-50:].replace("\0", "NUL"),
)
def test_bad_input_gets_one_line_and_code_2(cli, args):
    out, err = cli(*args, code=2)
    assert out == ""
    assert err.startswith("latentgamma: ")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "text",
    [
        "a :- not a.",
        "a :- b",
        "a(X) :- b(Y).",
        "'",
        b"\xff\xfe",
        b"a\0.",
        "a :- b.\nc :- d e.",
    ],
)
def test_bad_rules_are_shown_with_their_place(cli, rules, text):
    path = rules(text)
    out, err = cli("closure", path, code=2)
    assert out == ""
    assert err.startswith(f"latentgamma: {path}:")
    assert "Traceback" not in err
    assert len(err.splitlines()) in (1, 3)  # the message; or it, the source line and the caret


def test_near_names_are_suggested(cli):
    _, err = cli("closure", ANIMALS, "--facts", "has_feather", code=2)
    assert "did you mean 'has_feathers'?" in err


def test_an_interrupt_is_130_without_a_traceback(cli, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(commands.lg, "closure", interrupted)
    out, err = cli("closure", ANIMALS, code=130)
    assert (out, err) == ("", "latentgamma: interrupted\n")


@pytest.mark.parametrize("name", ["closure", "certify", "run"])
def test_an_empty_program_is_no_special_case(cli, rules, name):
    path = rules("")
    document = json.loads(cli(name, path, *["--steps", 2] * (name == "run"), "--json")[0])
    assert document


# ------------------------------------------------------------------ as a process


def test_version_and_help_come_at_once(cli):
    assert cli("--version")[0].strip() == f"latentgamma {lg.__version__}"
    out, _ = cli("--help")
    for name in ("closure", "explain", "certify", "run"):
        assert name in out
        assert "--json" in cli(name, "--help")[0]


@pytest.mark.quick_first
@pytest.mark.parametrize(
    "args",
    [("--help",), ("closure", ANIMALS, "--facts", SEEN), ("explain", ANIMALS, "animal"),
     ("certify", ANIMALS)],
)  # fmt: skip
def test_symbolic_commands_import_neither_torch_nor_numba_nor_plotting(args):
    assert heavy_imports(*args) == ""


@pytest.mark.slow
def test_that_a_heavy_import_would_be_seen(tmp_path):
    assert "matplotlib" in heavy_imports("closure", ANIMALS, "--plot", tmp_path / "p.png")


def heavy_imports(*args):
    code = (
        "import sys; from latentgamma.cli.main import main; main(sys.argv[1:]); "
        "sys.stderr.write(' '.join({'torch', 'numba', 'matplotlib'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.run(command, capture_output=True, check=True).stderr.decode()


def test_a_process_returns_the_codes_and_pipes_cleanly():
    done = shell("closure", "-", "--facts", "b", "--json", stdin=b"a :- b.")
    assert (done.returncode, done.stderr) == (0, b"")
    assert set(json.loads(done.stdout)["atoms"]) == {"a", "b"}
    assert shell("explain", "-", "a", stdin=b"a :- b.").returncode == 1
    failed = shell("closure", "-", stdin=b"a :- ~ b.")
    assert failed.returncode == 2
    assert failed.stdout == b""
    assert failed.stderr.startswith(b"latentgamma: <stdin>:1:6: ")


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 50_000])  # all in the buffer at the end, or not
def test_a_reader_that_leaves_early_is_not_an_error_message(count):
    text = "\n".join(f"atom_{i}." for i in range(count))
    command = [sys.executable, "-m", "latentgamma", "closure", "-"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    buffered = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    with subprocess.Popen(command, env=buffered, **pipes) as process:
        process.stdout.close()
        process.stdin.write(text.encode())
        process.stdin.close()
        complaint = process.stderr.read()
    assert complaint == b""
    assert process.returncode == 141


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no full device")
def test_a_full_disk_is_one_line():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "latentgamma", "closure", ANIMALS]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_names_that_the_output_cannot_show_are_escaped():
    rules = "größe. 'ñ \\ud800'.".encode()
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    plain = shell("closure", "-", stdin=rules, env=environment)
    assert plain.returncode == 0
    document = shell("closure", "-", "--json", stdin=rules, env=environment)
    assert json.loads(document.stdout)["atoms"] == ["größe", "ñ \ud800"]
    assert json.loads(shell("closure", "-", "--json", stdin=rules).stdout)["atoms"] == [
        "größe", "ñ \ud800"
    ]  # fmt: skip


def on_a_terminal(*args, **environment):
    """What a process prints to a terminal, on both of its streams."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "latentgamma", *map(str, args)]
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", **environment}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=env):
        os.close(theirs)
        chunks = []
        try:
            while chunk := os.read(ours, 65536):
                chunks.append(chunk)
        except OSError:  # how Linux says that the other side has closed
            pass
        os.close(ours)
    return b"".join(chunks).decode()


@pytest.mark.slow
def test_a_terminal_gets_colour_unless_it_is_unwanted_and_a_pipe_never():
    args = ("explain", ANIMALS, "needs_ice", "--facts", SEEN)
    assert "\x1b[" in on_a_terminal(*args)
    assert "\x1b" not in on_a_terminal(*args, NO_COLOR="1")
    assert "\x1b" not in on_a_terminal(*args, NO_COLOR="1", FORCE_COLOR="1")
    assert b"\x1b" not in shell(*args).stdout


@pytest.mark.quick_first
@pytest.mark.parametrize(
    "args",
    [
        ("closure", ANIMALS, "--facts", SEEN),
        ("closure", ANIMALS, "--facts", SEEN, "--levels"),
        ("explain", ANIMALS, "needs_ice", "--facts", SEEN),
        ("certify", ANIMALS),
    ],
    ids=["closure", "levels", "explain", "certify"],
)
def test_a_terminal_shows_every_name_that_a_pipe_shows(args):
    shown = on_a_terminal(*args, NO_COLOR="1")
    for word in shell(*args).stdout.decode().split():
        assert word in shown


@pytest.mark.parametrize("args", [("closure", "-"), ("explain", "-", "[red]y")])
def test_names_are_never_markup(cli, monkeypatch, args):
    monkeypatch.setenv("FORCE_COLOR", "1")
    rules = b"'[red]y' :- '[bold]x[/bold]', ':smile:'. '[bold]x[/bold]'. ':smile:'."
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(rules)))
    out, _ = cli(*args)
    for name in ("[red]y", "[bold]x[/bold]", ":smile:"):
        assert f"'{name}'" in out
    if args[0] == "explain":
        assert "'[red]y' :- ':smile:', '[bold]x[/bold]'." in out


def test_arguments_that_no_command_takes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rules = tmp_path / "r.lp"
    rules.write_text("b :- a.")
    assert main(["closure", str(rules), "--facts", "a", "b"]) == 2
    message = capsys.readouterr().err
    assert "unrecognized arguments: b; atoms are separated by commas" in message
    assert "latentgamma closure --help" in message
