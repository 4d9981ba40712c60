"""What is fuzzed: every reader, given arbitrary bytes, reads them or raises the library's error."""

from __future__ import annotations

import io
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import latentgamma as lg
from latentgamma._checkpoint import Journal
from latentgamma.datalog.programs import read
from latentgamma.errors import LatentGammaError
from latentgamma.program import rule_text
from latentgamma.program.files import dumps
from latentgamma.program.rule_text import split_facts

PROGRAM = lg.parse("b, 'c d' :- a. e :- b, 'c d'. p(x,1) :- e. a :- p(x,1). f.")
ABOUT = {"data": "d", "seed": 0}
FOLDER = tempfile.TemporaryDirectory(prefix="fuzz-")


def read_rules(data: bytes) -> None:
    """Rule text is read alike in steps of rules and of tokens; it can be written and read again."""
    answers = []
    before = rule_text._plain_rule
    for plain_rule in (before, lambda text, at: None):
        rule_text._plain_rule = plain_rule
        try:
            answers.append(read(data, ".lp"))
        except LatentGammaError:
            answers.append(None)
        finally:
            rule_text._plain_rule = before
    assert answers[0] == answers[1]
    if answers[0] is not None:
        assert read(dumps(answers[0], ".lp").encode(), ".lp") == answers[0]


def read_program(suffix: str) -> Callable[[bytes], None]:
    def check(data: bytes) -> None:
        program = read(data, suffix)
        assert read(dumps(program, ".cnf").encode(), ".cnf") == program

    return check


def read_datalog(data: bytes) -> None:
    """Rules with variables, with small limits on what is grounded."""
    text = data.decode("utf-8", "replace")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lg.datalog.GroundingWarning)
        lg.datalog.ground(text, max_rules=1_000, max_seconds=2)


def read_facts(data: bytes) -> None:
    """A list of facts as on the command line."""
    for fact in split_facts(data.decode("utf-8", "surrogateescape")):
        assert fact


def in_file(name: str, use: Callable[[Path], object]) -> Callable[[bytes], None]:
    def check(data: bytes) -> None:
        path = Path(FOLDER.name) / name
        path.write_bytes(data)
        use(path)

    return check


def read_table(path: Path) -> None:
    from latentgamma.learning.data import observe

    observe(path)


def read_model(path: Path) -> None:
    model = lg.LatentGamma.load(path)
    model(model.state([]), 2)


def read_checkpoint(path: Path) -> None:
    with Journal(path, ABOUT):
        pass


def read_results(path: Path) -> None:
    lg.paper.report.render_html(*lg.paper.report.load(path))


#: The readers by name.
TARGETS: dict[str, Callable[[bytes], None]] = {
    "rules": read_rules,
    "datalog": read_datalog,
    "facts": read_facts,
    "dimacs": read_program(".cnf"),
    "json": read_program(".json"),
    "gzip": read_program(".lp.gz"),
    "csv": in_file("table.csv", read_table),
    "parquet": in_file("table.parquet", read_table),
    "model": in_file("net.safetensors", read_model),
    "checkpoint": in_file("fit.learning", read_checkpoint),
    "results": in_file("results.json", read_results),
}


def check(target: str, data: bytes) -> None:
    """Read the bytes; only the library's own errors are allowed."""
    try:
        TARGETS[target](data)
    except LatentGammaError as error:
        message = str(error)
        if not 0 < len(message) < 4000:
            raise AssertionError("a message is empty or very long") from error


def seeds(target: str) -> list[bytes]:
    """Valid inputs for the fuzzer to start from."""
    if target in ("rules", "dimacs", "json", "gzip"):
        suffix = {"rules": ".lp", "dimacs": ".cnf", "json": ".json", "gzip": ".lp.gz"}[target]
        path = Path(FOLDER.name) / f"seed{suffix}"
        lg.save(PROGRAM, path)
        more = [b"h <- a, 'b'. % x\n#external c.\na, b => h.\n"] if target == "rules" else []
        return [path.read_bytes(), *more]
    if target == "datalog":
        return [
            b"edge(a,b). edge(b,c). path(X,Y) :- edge(X,Y). path(X,Z) :- edge(X,Y), path(Y,Z).",
            b'n(1..5). even(X) :- n(X), X \\ 2 = 0. odd(X) :- n(X), not even(X). s("q") :- odd(3).',
        ]
    if target == "facts":
        return [b"a, p(x, 1), 'c d'", b"a b", b'"q",z']
    if target == "csv":
        return [b"a,b,a',b'\n1,0,1,1\n0,1,0,1\n", b"a;a'\n0;0.25\ntrue;1e-3\n"]
    stream = io.BytesIO()
    if target == "parquet":
        import pyarrow
        from pyarrow import parquet

        columns = {"a": [1, 0], "b": [0, 1], "a'": [1, 1], "b'": [0, 1]}
        parquet.write_table(pyarrow.table(columns), stream)
    elif target == "model":
        found = []
        for form in ("sparse", "dense"):
            path = Path(FOLDER.name) / f"{form}.safetensors"
            lg.oracle(lg.parse("b :- a."), form=form).save(path)
            found.append(path.read_bytes())
        return found
    elif target == "checkpoint":
        path = Path(FOLDER.name) / "seed.learning"
        path.unlink(missing_ok=True)
        with Journal(path, ABOUT) as journal:
            journal.compute("one", lambda: {"bodies": [[0, 1]], "count": 3})
            journal.compute("two", lambda: [])
        return [path.read_bytes()]
    elif target == "results":
        from small_validation import small

        return [small()[0].to_json().encode()]
    return [stream.getvalue()]
