from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from latentgamma import Program, load, oracle, parse, save
from latentgamma.datalog.programs import read
from latentgamma.errors import ArgumentError, LatentGammaError, ParseError, ProgramError
from latentgamma.program.files import SUFFIXES, dumps
from random_programs import programs

ALL = [suffix + packed for suffix in SUFFIXES for packed in ("", ".gz")]
names = st.one_of(
    st.sampled_from(
        ["x1", "x2", "x3", "X", "c", "3", "= a", "p(a, b)", "'", "a\nb", "\0", "heads 2"]
    ),
    st.text(min_size=1),
)


EXAMPLE = Program.from_rules(
    [("bird", ["penguin"]), (["animal", "swims"], ["bird", "penguin"]), ("penguin", [])],
    ["animal", "bird", "penguin", "swims", "idle one"],
)

# ---------------------------------------------------------------- laws


@pytest.mark.parametrize("suffix", ALL)
def test_a_saved_program_is_loaded_as_the_same_program(suffix: str, tmp_path: Path) -> None:
    for program in (EXAMPLE, Program.from_rules([]), Program.from_rules([], ["a"])):
        path = tmp_path / f"rules{suffix}"
        save(program, path)
        assert load(path) == load(str(path)) == program
        assert read(path.read_bytes(), suffix) == program
        first = path.read_bytes()
        save(program, path)
        assert path.read_bytes() == first


@pytest.mark.parametrize("suffix", SUFFIXES)
@given(program=programs(names=names))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_dumped_program_is_read_as_the_same_program(suffix: str, program: Program) -> None:
    assert read(dumps(program, suffix).encode(), suffix) == program


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_line_ends_and_a_byte_order_mark_do_not_count(suffix: str) -> None:
    text = dumps(EXAMPLE, suffix)
    for data in (
        text.replace("\n", "\r\n"),
        text.replace("\n", "\r"),
        f"\ufeff{text}",
        f"{text}\n",
    ):
        assert read(data.encode(), suffix.removeprefix(".")) == EXAMPLE


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("data", [b"", b"\n", b" \r\n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_the_empty_program(suffix: str, data: bytes) -> None:
    assert read(data, suffix) == Program.from_rules([])
    assert read(gzip.compress(data), f"{suffix}.gz") == Program.from_rules([])


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_large_bodies_come_back(suffix: str) -> None:
    atoms = [f"b{i}" for i in range(100_000)]
    program = Program.from_rules([("h", atoms), (atoms[::3], ["h"])], [*atoms[::-1], "h"])
    assert read(dumps(program, suffix).encode(), suffix) == program


def test_bytes_that_are_not_text_are_refused_with_their_place() -> None:
    with pytest.raises(ParseError, match="byte 0xff at offset 7"):
        read(b"a.\n% \xc3\xa9\xff")
    with pytest.raises(ParseError, match="NUL"):
        read(b"a. % \0")


# ---------------------------------------------------------------- DIMACS


def test_dimacs_as_others_write_it() -> None:
    text = "c a comment of 3 words\nc 1 Bird\nc var 2 = edge( a, b )\nc 77 years\np  cnf 4 3 \n1 -2\n-4 -2 0 c\n"
    with pytest.raises(ParseError, match=r"f.cnf:7:9: expected a literal but found 'c'"):
        read(text.encode(), ".cnf", path="f.cnf")
    program = read(text.replace(" c\n", "\nc 4 -> 'x y'\n2 0 3 3 -3 0").encode(), ".cnf")
    assert program.atoms == ("Bird", "edge(a,b)", "x3", "x y")
    assert [(r.heads, set(r.body)) for r in program.rules] == [
        (("Bird",), {"edge(a,b)", "x y"}),
        (("edge(a,b)",), set()),
        (("x3",), {"x3"}),
    ]


def test_several_heads_are_one_clause_each() -> None:
    program = Program.from_rules([(["x1", "x2"], ["x3"]), ("x3", [])])
    assert dumps(program, ".cnf") == "p cnf 3 3\nc heads 2\n1 -3 0\n2 -3 0\n3 0\n"
    assert read(b"p cnf 3 3\n1 -3 0\n2 -3 0\n3 0\n", ".cnf").R == 3


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("p cnf 2 1\n\n -1 -2 0", r"f:3:2: a clause without a positive literal is a constraint"),
        ("p cnf 2 2\n1 0\n0", "f:3:1: a clause without a positive literal"),
        ("p cnf 3 2\n1 -2 0 1\n-2 3 0", "f:3:4: a second positive literal.* a disjunction"),
        ("1 0", "f:1:1: expected the header 'p cnf VARIABLES CLAUSES' first"),
        ("p cnf 2", "f:1:1: expected a header"),
        ("p sat 2 1", "f:1:1: expected a header"),
        ("p cnf 1 1\np cnf 1 1\n1 0", "f:2:1: expected one header"),
        ("p cnf 1 2\n1 0", "f: the header announces 2 clauses, but the file has 1"),
        ("p cnf 1 1\n1", "f:2:1: expected a 0 at the end of the last clause"),
        ("p cnf 1 1\n1 -2 0", "f:2:3: this literal is beyond the 1 variable announced"),
        ("p cnf 1 1\n1 -x 0", "f:2:3: expected a literal but found '-x'"),
        ("p cnf 1 1\n1 +1 0", r"f:2:3: expected a literal but found '\+1'"),
        ("p cnf 1 1\n1 1_0 0", "f:2:3: expected a literal"),
        ("p cnf 1 1\n1 -- 0", "f:2:3: expected a literal"),
        ("p cnf 1 1\n1 -99999999999 0", "f:2:3: expected a literal"),
        (f"p cnf 1 1\n1 {'9' * 5000} 0", "f:2:3: expected a literal but found '9{39}…'"),
        ("p cnf 999999999 0", "f:1:1: 999999999 variables are far more"),
        ("c 1 a\nc 1 b\np cnf 1 0", "f:2:1: variable 1 is called a already"),
        ("c 1 a\nc 2 a\np cnf 2 0", "f:2:1: variables 1 and 2 are both called a"),
        ("c 1 x2\np cnf 2 0", "f:1:1: variables 1 and 2 are both called x2"),
        ("p cnf 2 2\nc heads 3\n1 0 2 0", "f:2:1: expected 3 whole clauses after this line"),
        ("p cnf 2 2\n1\nc heads 2\n0 2 0", "f:3:1: expected 2 whole clauses"),
        ("p cnf 2 2\nc heads 0\n1 0 2 0", "f:2:1: expected 0 whole clauses"),
        ("p cnf 3 2\nc heads 2\n1 -3 0\n2 0", "f:4:1: the clauses of one rule have the same body"),
        ("p cnf 1 1\n1 0\0", "f:2:4: found a NUL"),
    ],
)
def test_dimacs_errors(text: str, problem: str) -> None:
    with pytest.raises(ParseError, match=problem):
        read(text.encode(), ".cnf", path="f")


def test_a_place_is_found_beyond_the_first_block_of_literals() -> None:
    text = "p cnf 9 30001\n" + "1 -2\n0\n" * 30_000 + "3 -2 4 0\n"
    with pytest.raises(ParseError, match=r"f:60002:6: a second positive"):
        read(text.encode(), ".cnf", path="f")


# ---------------------------------------------------------------- JSON


def test_json_as_others_write_it() -> None:
    rules = [{"body": ["penguin"], "head": "bird"}, {"head": ["penguin"]}]
    expected = Program.from_rules([("bird", ["penguin"]), ("penguin", [])])
    assert read(json.dumps(rules).encode(), ".json") == expected
    assert read(json.dumps({"rules": rules}).encode(), ".json") == expected
    ordered = read(
        json.dumps({"atoms": ["a", "penguin", "bird"], "rules": rules}).encode(), ".json"
    )
    assert ordered.atoms == ("a", "penguin", "bird")
    assert ordered.rules == expected.rules
    written = json.loads(dumps(EXAMPLE, ".json"))
    assert set(written) == {"latentgamma", "kind", "atoms", "rules"}
    assert written["rules"][1] == {"head": ["animal", "swims"], "body": ["bird", "penguin"]}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[", "f:1:2: not valid JSON: expecting value"),
        ("{} x", "f:1:4: not valid JSON: extra data"),
        ("[" * 100_000, "f: this JSON is nested too deeply"),
        ('{"head":' * 100_000, "f: this JSON is nested too deeply"),
        ("9" * 5000, "f: not valid JSON"),
        ("3", "f: expected a list of rules, or an object with a list of 'rules', not 3"),
        ("{}", "f: the object has no 'rules'"),
        ('{"rules": {}}', "f: expected a list of rules, .* not an object"),
        ('{"rules": [{"head": "a"}], "atoms": []}', "^f: the rules use 'a', which 'atoms' does"),
        ('{"head": "a"}', "f: expected a list of rules"),
        ("[3]", r"f: rules\[0\] must be an object with 'head' and 'body', not 3"),
        ('[{"head": "a"}, {}]', r"rules\[1\] must be an object"),
        ('[{"head": 3}]', r"rules\[0\].head must be a list of names, not 3"),
        ('[{"head": "a", "body": {}}]', r"rules\[0\].body must be a list of names, not an object"),
        ('[{"head": "a", "body": [1]}]', r"rules\[0\].body: a name is a non-empty string, not 1"),
        ('[{"head": "a", "body": [""]}]', r"rules\[0\].body: a name is a non-empty string, not ''"),
        ('[{"body": ["a"]}]', r"rules\[0\] has no 'head'; it is \[\] for a requirement"),
        ('[{"head": "a", "if": "b"}]', r"rules\[0\] has a key 'if'; a rule has 'head' and 'body'"),
        ('[{"head": "a", "head": "b"}]', "an object has the key 'head' twice"),
        ('{"rules": [], "rules": []}', "an object has the key 'rules' twice"),
        ('{"rules": [], "more": 1}', "unknown key 'more'; a program has latentgamma, kind, atoms"),
        ('{"latentgamma": 2, "rules": []}', '"latentgamma" must be 1, not 2'),
        ('{"latentgamma": true, "rules": []}', '"latentgamma" must be 1, not true'),
        ('{"kind": "model", "rules": []}', '"kind" must be "program", not \'model\''),
        ('{"atoms": "a", "rules": []}', "'atoms' must be a list of names, not 'a'"),
        ('{"atoms": [NaN], "rules": []}', r"atoms\[0\]: a name is a non-empty string, not NaN"),
        ('{"atoms": ["a", "a"], "rules": []}', "'atoms' names 'a' twice"),
        ('{"atoms": ["a"], "rules": [{"head": "b"}]}', "the rules use 'b', which 'atoms' does not"),
        ('{"atoms": [{"head": "a"}], "rules": []}', r"atoms\[0\]: a name is"),
        ("[]\0", "f:1:3: found a NUL"),
    ],
)
def test_json_errors(text: str, problem: str) -> None:
    with pytest.raises(ParseError, match=problem):
        read(text.encode(), ".json", path="f")


def test_json_refuses_what_it_cannot_bring_back() -> None:
    with pytest.raises(ProgramError, match="JSON cannot hold the lone surrogate"):
        dumps(Program.from_rules([("\ud800\udc00", [])]), ".json")


# ---------------------------------------------------------------- files


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match=r"cannot read '.*no\.lp': there is no such file"):
        load(tmp_path / "no.lp")
    (tmp_path / "folder.lp").mkdir()
    for folder in (tmp_path, tmp_path / "folder.lp"):
        with pytest.raises(ProgramError, match="it is a folder, not a file"):
            load(folder)
        with pytest.raises(ProgramError, match=r"folder, not a file|the format of .* is not known"):
            save(EXAMPLE, folder)
    (tmp_path / "rules.txt").write_text("a.")
    with pytest.raises(
        ProgramError, match=r"its name must end in \.lp, \.pl, \.dl, \.cnf, \.json,"
    ):
        load(tmp_path / "rules.txt")
    with pytest.raises(ProgramError, match=r"the format of .* is not known"):
        save(EXAMPLE, tmp_path / "rules.gz")
    with pytest.raises(ProgramError, match="cannot read"):
        load("a\0.lp")
    with pytest.raises(ProgramError, match=r"cannot write '.*': there is no such file or folder"):
        save(EXAMPLE, tmp_path / "no" / "a.lp")
    with pytest.raises(ProgramError, match="load takes a path, not int"):
        load(0)  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match="read takes bytes, not str"):
        read("a.")  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match="use save"):
        dumps(EXAMPLE, ".lp.gz")


def test_the_format_may_be_named(tmp_path: Path) -> None:
    path = tmp_path / "rules.txt"
    path.write_text("b :- a.")
    with pytest.raises(ProgramError, match="format='lp', or --format lp where a command has it"):
        load(path)
    assert load(path, format="lp") == parse("b :- a.")
    with pytest.raises(ProgramError, match=r"or in one of them and \.gz$"):  # save has no format=
        save(EXAMPLE, path)
    path.write_bytes(gzip.compress(dumps(EXAMPLE, ".json").encode()))
    assert load(path, format="json.gz") == EXAMPLE
    with pytest.raises(ArgumentError, match=r"format must be one of 'lp', .*, not 'toml'"):
        load(path, format="toml")


def test_a_model_is_not_a_program(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    oracle(parse("b :- a.")).save(path)
    with pytest.raises(
        ProgramError, match=r"is a model or a layer, not a program; use LatentGamma\.load"
    ):
        load(path)
    with pytest.raises(
        ProgramError, match=r"save takes a Program, not str; make one with lg\.parse"
    ):
        save("b :- a.", tmp_path / "rules.lp")  # type: ignore[arg-type]


def test_the_suffix_may_be_in_capitals(tmp_path: Path) -> None:
    save(EXAMPLE, tmp_path / "RULES.JSON.GZ")
    assert load(tmp_path / "RULES.JSON.GZ") == EXAMPLE


PACKED = gzip.compress(b"a.", mtime=0)


@pytest.mark.parametrize(
    ("data", "suffix", "problem"),
    [
        (
            b"a.\nb\xff.",
            ".lp",
            r"f:2:2: byte 0xff at offset 4 is not UTF-8; save the file as UTF-8",
        ),
        (b"\xc3\xa9\xc3", ".lp", "f:1:2: byte 0xc3 at offset 2 is not UTF-8"),
        ("a.".encode("utf-16"), ".lp", "it looks like UTF-16"),
        (PACKED, ".lp", r"it is compressed; end its name with \.gz"),
        (b"p cnf\xff", ".cnf", "offset 5 is not UTF-8"),
        (b'["\xff"]', ".json", "offset 2 is not UTF-8"),
        (b"a.\0", ".lp", "f:1:3: found a NUL"),
        (b"\0", ".lp", "f:1:1: found a NUL"),
        (b"a.", ".lp.gz", "f: this is not gzip data"),
        (PACKED[:-1], ".lp.gz", "f: the compressed data ends too early"),
        (PACKED[:5], ".lp.gz", "ends too early"),
        (PACKED + b"x", ".lp.gz", "the compressed data is damaged"),
        (PACKED[:-8] + bytes(8), ".lp.gz", "the compressed data is damaged"),
    ],
)
def test_bytes_that_are_not_text(data: bytes, suffix: str, problem: str) -> None:
    with pytest.raises(ParseError, match=problem):
        read(data, suffix, path="f")


def test_every_cut_of_a_compressed_file_is_an_error() -> None:
    data = gzip.compress(dumps(EXAMPLE).encode(), mtime=0)
    for size in range(1, len(data)):
        with pytest.raises(LatentGammaError, match=r"ends too early|not gzip data|damaged"):
            read(data[:size], ".lp.gz")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_format_may_be_named_without_its_dot(suffix: str) -> None:
    for name in (suffix, suffix.removeprefix(".")):
        with pytest.raises(ParseError):
            read(b"{ this is nothing", name)


def test_a_program_is_printed_although_the_rules_of_a_count_would_not_be_stratified() -> None:
    program = Program.from_arrays([0, 1], [1], [0], atoms=["a", "1 { not a }"])
    assert str(program) == "a :- 1 { not a }."
