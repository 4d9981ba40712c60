from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import clingo
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from latentgamma import Program, Rule, closure, parse
from latentgamma.datalog.programs import read
from latentgamma.errors import ParseError, ProgramError
from latentgamma.program import rule_text
from latentgamma.program.names import quote, quote_argument
from latentgamma.program.rule_text import read_rules
from random_programs import programs

TRICKY = [
    *["a", "_a", "not", "not(a)", "nota", "X", "_", "_X", "3", "3a", "-3", "é", "É", "٣", "a²"],
    *["edge(a,b)", "edge(a, b)", 'p(f(a),3,"x y")', "p(not)", "p(X)", "p()", "p(-3)", "p(- 3)"],
    *["p((a,b))", "p((a))", 'p("")', "p('')", "p('x')", "p('x y')", r'p("\"")', r'p("\q")'],
    *["p(a)(b)", "p(a", "p(a))", "p(1.5)", "'", '"', "\\", "\n", "\r", "\r\n", "\0", "\t", " "],
    *["\ufeff", "\u2028", "\x85", "\xa0", "\ud800", "\ud800\udc00", "🦆", "%", "/*", "a.", "a b"],
    *[".", ",", ":-", "#external", "=>", "a\\", "\\'", "e\u0301", 'p("\xa0")', 'p("é")'],
    *["age < 18", "age<18", "c in {a, b}", "x is missing", "'x y' = 1", "p('a < 1')", "p(a) < 1"],
    *["2 { a; b }", "2 {a; b}", "2 { b; a }", "1 { a; not b }", "3 { a; b }", "#count(1,2,3)"],
]
names = st.one_of(
    st.sampled_from(TRICKY), st.text(st.characters(exclude_categories=[]), min_size=1)
)


plain_names = st.sampled_from(["a", "b", "c", "_d1", "edge(a,b)", "é", "42"])


# ---------------------------------------------------------------- laws


@given(programs(names=names))
@settings(max_examples=100, deadline=None)
@example(Program.from_rules([("h", ["2 {a; b}"])]))
@example(parse("h :- '2 { a; b }'."))
def test_what_is_printed_is_read_as_the_same_program(program: Program) -> None:
    assert parse(str(program)) == program


@pytest.mark.parametrize("name", TRICKY)
def test_every_name_can_be_written(name: str) -> None:
    head = quote_argument(name)  # a condition is quoted where it would be derived
    assert parse(f"{head}.").atoms == (name,)
    assert parse(f"{head} :- b.\n  c :- {quote(name)}, {quote(name)} .").atoms[0] == name
    assert quote(name).isprintable()


@pytest.mark.parametrize("name", ["a", "_a", "3", "edge(a,b)", 'p(f(a),3,"x y")', "p(-3)", "größe"])
def test_plain_names_stand_bare(name: str) -> None:
    assert quote(name) == name


@given(names)
@settings(max_examples=100, deadline=None)
def test_a_bare_name_is_read_as_it_stands(name: str) -> None:
    if quote(name) == name:  # a count brings its literals with it
        atoms = tuple(dict.fromkeys(["h", name]))
        assert parse(f"h :-  {name}\n.").atoms[: len(atoms)] == atoms


def test_declarations_are_printed_only_when_the_order_needs_them() -> None:
    pairs = [("h", ["a", "b"]), (("g", "h"), ["a"])]
    assert str(Program.from_rules(pairs)) == "h :- a, b.\nh, g :- a."
    assert str(Program.from_rules(pairs, ["h", "a", "b", "g"])) == "h :- a, b.\nh, g :- a."
    other = Program.from_rules(pairs, ["a", "b", "g", "h", "idle"])
    assert str(other).startswith("#external a.\n#external b.\n#external g.\n#external h.\n#ext")
    assert str(Program.from_rules([])) == ""
    assert str(Rule(("X", "b"), frozenset({"d", "c"}))) == "'X', b :- c, d."


@given(st.one_of(programs(names=plain_names, heads=1), programs(names=plain_names)))
@settings(max_examples=40, deadline=None)
def test_clingo_reads_what_is_printed(program: Program) -> None:
    lines = [line for line in str(program).splitlines() if "42" not in line]
    text = "".join(f"{line}\n" for line in lines).replace("é", "e")
    # To clingo, several heads are a choice of one; here, all of them follow.
    several = any(len(rule.heads) > 1 for rule in parse(text).rules)
    control = clingo.Control()
    control.add("base", [], text)
    control.ground([("base", [])])
    if not several:
        with control.solve(yield_=True) as handle:
            found = {str(symbol) for symbol in handle.model().symbols(atoms=True)}
        assert found == closure(parse(text), ()).atoms


def test_what_clingo_prints_with_show_is_read(tmp_path: Path) -> None:
    source = tmp_path / "rules.lp"
    source.write_text(
        "edge(1..3, 2). path(X,Y) :- edge(X,Y). #show path/2. #show x(X) : path(X,_)."
    )
    done = subprocess.run(
        [sys.executable, "-m", "clingo", "--text", str(source)],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "#show path/2." in done.stdout
    text = "".join(line for line in done.stdout.splitlines(True) if not line.startswith("#p_"))
    expected = {f"{name}({i},2)" for name in ("edge", "path") for i in (1, 2, 3)}
    assert closure(parse(text)).atoms == expected


# ---------------------------------------------------------------- forms


@pytest.mark.parametrize(
    "text",
    [
        "h :- a, b.",
        "h<-a,b.",
        "h :- b, a, b.",
        "a, b => h.",
        "a,b->h.",
        "\ufeffh :-\r\n\ta,\r\n\tb.\r\n",
        "h :- a, b.\r",
        "% first\nh % second\n :- a, % third.\n b.% last",
        "/* h :- c. \n * */ h /**/ :- a,b /***/ .",
        "%* x %* y *% % *%\n *% h :- a, b. %***% ",
        "'h' :- \"a\", 'b'.",
        r"'\u0068' :- '\U00000061', b.",
        "h, h :- a, b.",
    ],
)
def test_one_rule_in_many_forms(text: str) -> None:
    expected = Program.from_rules([("h", ["a", "b"])])
    assert [(r.heads, r.body) for r in parse(text).rules] == [(("h",), frozenset({"a", "b"}))]
    assert {*parse(text).atoms} == {"h", "a", "b"}
    if "b, a" not in text:
        assert parse(text) == expected


def test_facts_and_several_heads() -> None:
    assert parse("a. b :- . => c.") == Program.from_rules([("a", []), ("b", []), ("c", [])])
    assert parse("a, b.") == Program.from_rules([(["a", "b"], [])])
    assert parse("c => a, b.") == parse("a, b :- c.") == Program.from_rules([(["a", "b"], ["c"])])
    for body in ("not a, b", "age < 3, not b", "b, 2 { a; c; not d }", "not 1 { a }, b"):
        assert parse(f"{body} => h, g.") == parse(f"h, g :- {body}.")
    assert parse("a.b:-a.3.") == Program.from_rules([("a", []), ("b", ["a"]), ("3", [])])


def test_declared_atoms_come_first_and_need_no_rule() -> None:
    assert parse("#external z.\n a :- b.\n#external b.").atoms == ("z", "a", "b")


@pytest.mark.parametrize("text", ["", " \n", "\ufeff", "% nothing", "/* */"])
def test_nothing_is_the_empty_program(text: str) -> None:
    assert (parse(text).M, parse(text).R) == (0, 0)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("edge( a , b )", "edge(a,b)"),
        ("edge(\n a,\t% \n b)".replace("% ", ""), "edge(a,b)"),
        ("p( f( a , 'b' ) , 'x y' )", "p(f(a,b),'x y')"),
        ("'Big p'( a , 'b' )", "'Big p'(a,b)"),
        ("'p'(a)", "p(a)"),
        ('p( "x y" )', 'p("x y")'),
        ("p((a , b),c)", "p((a,b),c)"),
        ("'edge(a,b)'", "edge(a,b)"),
        (r"'a\n\\\'\"'", "a\n\\'\""),
    ],
)
def test_spaces_in_terms_and_quotes_around_names_do_not_count(written: str, name: str) -> None:
    assert parse(f"{written}.").atoms == (name,)


# ---------------------------------------------------------------- errors

DEFINITE = "is not part of a definite program"
GROUND = "ground the rules first"


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        # what is not definite Horn
        ("a :- not b.", "1:6", rf"negation \('not'\) {DEFINITE}; give the opposite a name"),
        ("a :- not(b).", "1:6", "negation .* is written 'not' and a blank"),
        (r"a :- b, \+ c.", "1:9", r"negation \('\\\+'\) is written 'not'"),
        ("a :- b, -c.", "1:9", r"negation \('-'\)"),
        ("~a.", "1:1", "negation"),
        (r"a :- \+ b.", "1:6", r"negation \('\\\+'\)"),
        (":- .", "1:4", "expected an atom after ':-'"),
        ("a => .", "1:6", "write a requirement as a rule without a head: ':- a, b.'"),
        (":~ a. [1]", "1:1", "a weak constraint"),
        ("a ; b :- c.", "1:3", rf"a disjunction \(';'\) {DEFINITE}"),
        ("a | b.", "1:3", r"a disjunction \('\|'\)"),
        ("c => a ; b.", "1:8", "a disjunction"),
        ("a :- b; c.", "1:7", "write ',' for 'and', and one rule for each alternative"),
        ("p(X) :- q(X).", "1:3", f"'X' is a variable; {GROUND}.*or put it in quotes"),
        ("X :- a.", "1:1", "'X' is a variable"),
        ("a :- _.", "1:6", "'_' is a variable"),
        ("{a} :- b.", "1:1", "a choice"),
        ("1 {a; b} 1 :- c.", "1:10", "a choice"),
        ("b, 2 {a; b} :- c.", "1:6", "a choice"),
        ("2 {a; b : c}.", "1:3", "a choice"),
        ("a :- {b; c}.", "1:6", "an aggregate"),
        ("a :- 3 { b; c }.", "1:6", "the bound of this count is from 1 to 2"),
        ("a :- 0 { b; c }.", "1:6", "the bound of this count is from 1 to 2"),
        ("a :- 1 { b; c } 1.", "1:17", "a count has no upper bound"),
        ("a :- 1 { b, c }.", "1:11", "expected ';' or '}'"),
        ("a :- 1 { b; 1 { c } }.", "1:13", "a count has atoms, not other counts"),
        ("a :- 1 { b; }.", "1:13", "expected an atom, or 'not' and an atom"),
        ("a :- #sum{1:b} > 1.", "1:6", "an aggregate"),
        ("a :- X = 1.", "1:6", "a comparison"),
        ("a :- b, 3 < 4.", "1:11", "a comparison"),
        ("a :- b + c.", "1:8", "arithmetic"),
        ("p(1+2).", "1:4", "arithmetic"),
        ("p(1..3).", "1:4", "an interval"),
        ("a :- 1..3.", "1:6", "an interval"),
        ("p(a;b).", "1:4", "a pool"),
        ("a :- b : c.", "1:8", r"a condition on an atom \(':'\)"),
        ("0.3::a.", "1:1", r"a probability \('0.3::'\)"),
        ("a::b.", "1:2", "a probability"),
        ("a :- b, !.", "1:9", "a cut"),
        ("?- a.", "1:1", "a query"),
        ("#show a", "1:1", "this '#show' is not closed by '.'"),
        ("#shower a.", "1:1", "the directive '#shower' is not known"),
        (".decl a()", "1:1", "the directive '.decl'"),
        ("a <-> b.", "1:3", "an equivalence is two rules"),
        ("a --> b.", "1:3", "a grammar rule"),
        ("a :- #true.", "1:6", "'#true' is not an atom"),
        ("p([a]).", "1:3", "a list"),
        # what is just wrong
        ("a :- b, .", "1:9", "expected an atom after ',' but found '.'"),
        ("a :- , b.", "1:6", "expected an atom after ':-' but found ','"),
        ("a, :- b.", "1:4", "expected an atom after ',' but found ':-'"),
        ("a :- b", "1:7", "expected '.' at the end of a rule but the text ends"),
        ("a :- b  % end\n", "1:7", "expected '.' at the end of a rule"),
        ("a :-", "1:5", "expected an atom after ':-' but the text ends"),
        ("a :- b\nc :- d.", "2:1", "found 'c'; is the '.' of the rule before it missing"),
        ("a b.", "1:3", "expected ',' or ':-' or '.' after an atom but found 'b'"),
        ("a if b.", "1:3", "'if' is written ':-'"),
        ("a :- b and c.", "1:8", "'and' is written ','"),
        ("a :- b or c.", "1:8", "'or' is not known here; write one rule for each"),
        ("# remark\na :- b.", "1:1", "a comment starts with '%'"),
        ("a :- b. // remark", "1:9", "a comment starts with '%'"),
        ("a :- b, # remark\nc.", "1:9", "a comment starts with '%'"),
        ("a :- b :- c.", "1:8", "expected ',' or '.' after an atom but found ':-'"),
        ("a & b.", "1:3", "write ',' for 'and'"),
        ("(a).", "1:1", r"expected a rule but found '\('"),
        ("a :- 1.5.", "1:6", "a decimal number is not a name; put it in quotes"),
        ("3a.", "1:1", "'3a' starts with a digit"),
        ("p(a b).", "1:5", r"expected ',' or '\)' in a term but found 'b'"),
        ("p(a", "1:4", r"expected ',' or '\)' in a term but the text ends"),
        ("p(", "1:3", "expected an argument but the text ends"),
        ("p().", "1:3", r"expected an argument but found '\)'"),
        ("p((a)).", "1:5", "a tuple of arguments has at least two members"),
        ("p (a).", "1:3", "right after the name, without a space"),
        ("#external a, b.", "1:12", "expected '.' after the one atom of '#external'"),
        ("#external .", "1:11", "expected an atom after '#external'"),
        ("a :- 'b.", "1:6", "this quote is not closed on its line"),
        ('"a\n".', "1:1", "this quote is not closed"),
        ("''.", "1:1", "a name must not be empty"),
        ("p('').", "1:3", "a name must not be empty"),
        (r"'\q'.", "1:2", r"unknown escape '\\q'"),
        (r"'\U00110000'.", "1:2", "unknown escape"),
        ("a. /* b.", "1:4", r"this comment is not closed by '\*/'"),
        ("a. %* b.", "1:4", r"this comment is not closed by '\*%'; write '% \*'"),
        ("/* /* */ */ a.", "1:10", "comments in '/. ./' do not nest"),
        ("a\xa0:- b.", "1:2", r"U\+00A0, NO-BREAK SPACE"),
        ("a.\nb\0.", "2:2", "found a NUL character"),
    ],
)
def test_errors_name_the_construct_and_its_place(text: str, place: str, problem: str) -> None:
    with pytest.raises(ParseError, match=problem) as caught:
        read_rules(text, "rules.lp", negation=False)
    assert str(caught.value).startswith(f"rules.lp:{place}: ")


def test_an_error_shows_the_line_and_a_caret() -> None:
    with pytest.raises(ParseError) as caught:
        parse("a.\nb :- c,\t~ d.\n", path="rules.lp")
    assert str(caught.value).splitlines()[1:] == ["  b :- c, ~ d.", "          ^"]


def test_parse_takes_text_only() -> None:
    with pytest.raises(ProgramError, match="a string of rules, not bytes"):
        parse(b"a.")  # type: ignore[arg-type]


# ---------------------------------------------------------------- sizes


def test_terms_may_be_nested_deeply() -> None:
    depth = 100_000
    name = "f(" * depth + "a" + ")" * depth
    assert quote(name) == name
    for text in (f"{name}.", f"{name} ."):
        assert parse(text).atoms == (name,)
    for text in ("f(" * depth, "f(" * depth + "a.", "(" * depth, "f((" * depth, "/*" * depth):
        with pytest.raises(ParseError):
            parse(text)


@pytest.mark.slow
def test_bodies_may_be_large() -> None:
    atoms = [f"b{i % 100_000}" for i in range(0, 700_000, 7)]
    for body in (atoms, atoms[::-1] + atoms):
        text = f"h :- {', '.join(body)}. g :- {', '.join(sorted(body))}."
        program = parse(text)
        assert (program.M, program.R, program.k) == (100_002, 2, 100_000)
        assert parse(str(program)) == program


@pytest.mark.quick_first
@pytest.mark.parametrize(
    "line",
    ["a" * 2_000_000, "," * 2_000_000, " " * 2_000_000, "a, " * 700_000, "'" + "x" * 2_000_000],
    ids=["word", "commas", "blanks", "atoms", "quote"],
)
def test_a_very_long_line_that_is_wrong_has_a_short_error(line: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(f"b.\na :- {line} c")
    assert len(str(caught.value)) < 500
    assert caught.value.line == 2


# ---------------------------------------------------------------- rules read in one step

fragments = st.sampled_from(
    [
        *["a", "b", "not", "_c", "Xy", "é", "42", "007", "edge(a,b)", "f( a )", "p((a,b))", "_"],
        *["'q r'", '"s"', "'", '"', 'p("x")', "p('y')", r"'\n'", "f(", ")", "(", "p(f(g(1),h),2)"],
        *[
            ":-",
            "<-",
            "=>",
            "->",
            ",",
            ".",
            "..",
            ".5",
            ";",
            "-",
            "<->",
            ":",
            "#external",
            "#show",
            "#",
        ],
        *[" ", "\n", "\t", "\r\n", "\r", "% c\n", "/* c */", "%* c *%", "/*", "*/", "\0", "\xa0"],
        *["%é\xa0\n", "\ufeff", "\x0b", "\x7f", "🦆", "a.", "h:-a,b.", "é:-'é'.", "#external e.\n"],
    ]
)


def outcome(text: str) -> Program | str:
    try:
        return read(text.encode(), path="<text>")
    except ParseError as error:
        return str(error)


@given(st.lists(fragments, max_size=12).map("".join))
@settings(max_examples=400, deadline=None)
@example("#external .")
@example("#show a/1. b.")
@example("b. #show. a. #show x : a, b..c. c.")
@example('#show "." : a. b.')
@example("#show a")
@example("a :- b <-> c.")
@example("#externala.")
@example("\ufeff\ufeffa.")
@example("#external z. z ; b.")
@example("a. b => c. é:-'é',% é\r\n")
def test_rules_read_in_one_step_are_read_as_token_by_token(text: str) -> None:
    assert_read_token_by_token(text)


def assert_read_token_by_token(text: str) -> None:
    expected = outcome(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rule_text, "_plain_rule", lambda text, at: None)
        assert outcome(text) == expected


@pytest.mark.parametrize(
    "end", [".", " => z. a5.", " ; z.", " :- not z.", " :- a0, a1", r", '\n'."]
)
def test_what_follows_a_rule_decides_how_it_is_read(end: str) -> None:
    atoms = ", ".join(f"a{i % 7}(b, c)" for i in range(12))
    assert_read_token_by_token(f"#external y. {atoms}{end}")
    assert_read_token_by_token(f"h :- {atoms}{end}")


@given(programs(names=plain_names), st.sampled_from(["\n", "\r\n", " ", "% comment, é.\n"]))
@settings(max_examples=60, deadline=None)
def test_blanks_and_comments_may_stand_anywhere(program: Program, gap: str) -> None:
    text = str(program).replace(", ", f",{gap}").replace(".\n", f".{gap}")
    assert parse(text) == program
    assert_read_token_by_token(text)
