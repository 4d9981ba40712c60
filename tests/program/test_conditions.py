"""Conditions on columns: written, read, and evaluated one value and one column at a time."""

from __future__ import annotations

import math
import warnings
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import latentgamma as lg
from latentgamma import Program, closure, parse
from latentgamma.datalog.programs import read
from latentgamma.decide.columns import Column
from latentgamma.errors import DataError, ParseError, ProgramError
from latentgamma.logic import Condition, condition_rows
from latentgamma.program import rule_text
from latentgamma.program.files import SUFFIXES, dumps
from latentgamma.program.names import quote
from latentgamma.program.rule_text import split_facts

columns = st.one_of(
    st.sampled_from(["age", "in", "is", "missing", "not", "Net Income", "3", "X", "a.b", "it's"]),
    st.text(min_size=1, max_size=5),
)
numbers = st.one_of(
    st.integers(-5, 5),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
)
texts = st.one_of(
    st.sampled_from(["open", "Open", "", "not", "x y", '"', "3", "}", "a, b"]), st.text()
)


@st.composite
def conditions(draw: st.DrawFn) -> Condition:
    column = draw(columns)
    op = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "in", "is missing"]))
    if op == "is missing":
        return Condition(column, op)
    kind = draw(st.sampled_from([numbers, texts]))
    if op == "in":
        return Condition(column, op, tuple(draw(st.lists(kind, min_size=1, max_size=4))))
    return Condition(column, op, draw(kind))


# ---------------------------------------------------------------- written and read


@pytest.mark.slow
@given(conditions())
@settings(max_examples=300, deadline=None)
def test_a_condition_is_read_as_it_was_written(condition: Condition) -> None:
    name = condition.name
    assert Condition.parse(name) == condition
    assert Condition.parse(name).name == name  # type: ignore[union-attr]
    if all(" " <= c <= "~" for c in name):
        assert quote(name) == name
    spaced = parse(f"a :- b, {quote(name)} .\nc :- not\n{quote(name)}.")
    assert spaced.atoms == ("a", "b", name, "c")
    assert spaced.conditions == {name: condition}


@pytest.mark.slow
@given(st.lists(conditions(), min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_programs_with_conditions_are_the_same_in_every_format(given: list[Condition]) -> None:
    names = [condition.name for condition in given]
    program = Program.from_rules([("p", names), (names[0], ["q"]), ("r", names[-1:])])
    assert parse(str(program)) == program
    for suffix in SUFFIXES:
        try:
            data = dumps(program, suffix).encode()
        except (ProgramError, UnicodeEncodeError):
            continue  # a lone surrogate
        assert read(data, suffix) == program


def test_canonical_forms() -> None:
    program = parse("""
        minor :- age<18.  flagged :- status == "open", country in {kp, 'ir',kp}.
        age >= 65.0, not_retired => working.  x :- t = "Open", not 'Net Income' > -1.50e3.
        low :- x <-3, y is
            missing.  % a comment
    """)
    assert str(program).splitlines() == [
        "minor :- age < 18.",
        "flagged :- status = open, country in {ir, kp}.",
        "working :- age >= 65, not_retired.",
        "x :- t = \"Open\", not 'Net Income' > -1500.",
        "low :- x < -3, y is missing.",
    ]
    assert parse("h <-5.") == parse("h :- 5.")  # an arrow, where none came before
    assert closure(program, ["age<18", "age >= 65.0", "not_retired"]).atoms >= {"minor", "working"}
    assert split_facts('a, x in {b, "c}"}, y = 3') == ["a", 'x in {b, "c}"}', "y = 3"]


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("a :- x < .", "1:10", "a column is compared with a number, a word"),
        ("a :- x in {}.", "1:12", "a column is compared with"),
        ("a :- x in {a, 3}.", "1:11", "a set has numbers or texts, not both"),
        ("a :- x in {a b}.", "1:13", "expected ',' or '}'"),
        ("a :- x in (a, b).", "1:8", "written with braces: 'country in {ir, kp}'"),
        ("a :- x not in {a}.", "1:8", "'not' stands before the column: 'not country in {ir, kp}'"),
        ("a :- x is not missing.", "1:8", "stands before the column: .* 'not age is missing'"),
        ("a :- x >= 2026-01-31.", "1:15", 'a date is a text; write it in quotes, such as "2026'),
        ("a :- x > 3%.", "1:11", "but the text ends; what follows '%' is a comment"),
        ("a :- x > 3%.\nb :- c.", "2:1", "but found 'b'; what follows '%' is a comment"),
        ("a :- x < 1_000.", "1:10", "a column is compared with"),
        ("a :- x < 1e999.", "1:10", "this number is too large"),
        ("a :- country = DE.", "1:16", 'DE starts like a variable; write "DE", in quotes'),
        ("a :- country in {de, US}.", "1:22", "US starts like a variable"),
        ("a :- x < 3 < 4.", "1:12", "a comparison"),
        ("a :- 'x' < 3 < 4.", "1:14", "a comparison"),
        ("a :- f(x) < 4.", "1:11", "a comparison"),
        ("a :- 17 < age.", "1:9", "has a column on its left"),
        ("a :- age => 17.", "1:10", "did you mean '>='"),
        ("x < 3.", "1:1", "a rule does not derive a condition"),
        ("b, x < 3 :- a.", "1:4", "a rule does not derive a condition"),
        ("a => x < 3.", "1:6", "a rule does not derive a condition"),
        ("h <= b.", "1:1", "a rule does not derive a condition"),
    ],
)
def test_what_is_not_a_condition_is_shown_in_its_place(text: str, place: str, problem: str) -> None:
    with pytest.raises(ParseError, match=problem) as caught:
        parse(text)
    assert f":{place}:" in str(caught.value)


def test_comparisons_of_rules_with_variables_stay_those_of_clingo() -> None:
    program = parse("p(X) :- q(X), X < 2.  q(1).  q(2).")
    assert program.conditions == {}
    assert program.facts == {"p(1)", "q(1)", "q(2)"}
    assert parse("a :- c = X, q(X).  q(c).").facts == {"a", "q(c)"}
    quoted = parse("p(X) :- 'age < 18', q(X, 'x = 1').  #external 'age < 18'.  q(1,'x = 1').")
    assert "p(1)" in closure(quoted, ["age < 18"]).atoms


def test_what_looks_like_a_condition_among_rules_with_variables_is_warned_of() -> None:
    with pytest.warns(lg.datalog.GroundingWarning, match=r":1:10: 'age < 18' compares two const"):
        parse("minor :- age < 18.  p(X) :- q(X).  q(1).")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parse("#const n = 3.  a :- n < 4.  p(X) :- q(X), X < n, 3 < 4.  q(1).")


@pytest.mark.parametrize("at", range(0, 40, 13))
def test_a_rule_with_a_condition_among_others_is_read_token_by_token(
    at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"h{n % 9}, g{n} :- b{n % 7}, c{n % 5}." for n in range(40)]
    lines[at] = "age, h :- new, other, age, age < 18, x in {1, 2}, country = de, late."
    lines.append("age :- new.")
    text = "\n".join(lines)
    found = parse(text)
    monkeypatch.setattr(rule_text, "_plain_rule", lambda text, at: None)
    assert parse(text) == found


# ---------------------------------------------------------------- evaluated

MISSING = [None, math.nan, np.float32("nan"), Decimal("nan")]


def expected(condition: Condition, value: Any) -> bool:
    """What a condition means, in Python's own words."""
    if value is None or (not isinstance(value, str) and value != value):
        return condition.op == "is missing"
    if isinstance(value, (bool, np.bool_)):
        value = str(bool(value)).lower()
    if condition.op == "is missing":
        return False
    if condition.op == "in":
        return any(value == other for other in condition.value)  # type: ignore[union-attr]
    sign = {"=": "=="}.get(condition.op, condition.op)
    return bool(eval(f"value {sign} other", {"value": value, "other": condition.value}))


@pytest.mark.slow
@given(st.data())
@settings(max_examples=300, deadline=None)
def test_a_column_is_evaluated_as_its_values_are(data: st.DataObject) -> None:
    condition = data.draw(conditions())
    text = condition.is_text
    small = st.one_of(st.integers(-6, 6), st.floats(-6, 6), st.sampled_from([2.0**60, math.inf]))
    known = st.one_of(texts, st.booleans()) if text else small
    if condition.value is not None:  # often a constant of the condition itself
        parts = condition.value if isinstance(condition.value, tuple) else (condition.value,)
        known = st.one_of(known, st.sampled_from(parts))
    values = data.draw(st.lists(st.one_of(st.sampled_from(MISSING), known), max_size=8))
    one_by_one = [condition.holds(value) for value in values]
    assert one_by_one == [expected(condition, value) for value in values]
    assert condition.mask(values).tolist() == one_by_one
    if values and all(isinstance(value, (int, float)) for value in values) and not text:
        for dtype in (np.float64, np.float32):
            with np.errstate(over="ignore"):
                array = np.array(values, dtype)
            assert condition.mask(array).tolist() == [condition.holds(value) for value in array]
    if values and all(type(value) is str and "\0" not in value for value in values):
        assert condition.mask(np.array(values)).tolist() == one_by_one


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64])
def test_integer_columns(dtype: Any) -> None:
    column = np.array([0, 3, 100], dtype)
    for name in ("x < 1000", "x > -1", "x != 3", "x in {3, 1e40}", "x >= 2.5", "x = 300"):
        condition = Condition.parse(name)
        assert condition is not None
        assert condition.mask(column).tolist() == [condition.holds(value) for value in column]


def test_rows_of_every_kind_of_table() -> None:
    wanted = [Condition("age", "<", 18), Condition("country", "in", ("ir", "kp"))]
    wanted.append(Condition("age", "is missing"))
    plain = {"age": [17, None, 30], "country": ["kp", "ir", None], "more": [1, 2, 3]}
    rows = [[True, True, False], [False, True, True], [False, False, False]]
    assert condition_rows(wanted, plain).tolist() == rows
    assert condition_rows(wanted, plain).T.flags.c_contiguous
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(plain)
    assert condition_rows(wanted, frame).tolist() == rows
    for dtypes in ({"age": "Int64", "country": "string"}, {"country": "category"}):
        assert condition_rows(wanted, frame.astype(dtypes)).tolist() == rows
    for name in ("pyarrow", "polars"):
        try:
            module = __import__(name)
        except ImportError:
            continue
        make = module.table if name == "pyarrow" else module.DataFrame
        assert condition_rows(wanted, make(plain)).tolist() == rows
    assert condition_rows([], plain).shape == (3, 0)


@pytest.mark.parametrize(
    "value",
    [None, math.nan, Decimal("NaN"), Decimal("sNaN"), np.float32("nan"), np.datetime64("NaT")],
)
def test_missing_values_of_every_kind(value: object) -> None:
    for name in ("age < 18", 'day > "2026"', "age != 1"):
        condition = Condition.parse(name)
        assert condition is not None
        assert not condition.holds(value)
        assert condition.mask([value]).tolist() == [False]
    assert Condition("age", "is missing").mask([value, 1]).tolist() == [True, False]


def test_times_are_texts_to_the_second_in_utc() -> None:
    west, east = (timezone(timedelta(hours=hours)) for hours in (-5, 2))
    texts = {
        datetime(2024, 2, 4, 13, 31, tzinfo=west): "2024-02-04T18:31:00",
        datetime(2024, 2, 4, 2, tzinfo=east): "2024-02-04",
        datetime(2024, 2, 4, tzinfo=east): "2024-02-03T22:00:00",
        datetime(2024, 2, 4, 0, 0, 0, 5): "2024-02-04",
        datetime(1969, 12, 31, 23, 59, 59, 999): "1969-12-31T23:59:59",
        np.datetime64("2024-02-04T00:00:00.000000005"): "2024-02-04",
        np.datetime64("2024-02-04T08:30:00.5"): "2024-02-04T08:30:00",
        np.datetime64("2024-02"): "2024-02-01",
        "2024-02-04 08:30": "2024-02-04T08:30:00",
        "2024-02-04T08": "2024-02-04T08:00:00",
        "2024-02-04 00:00:00.5": "2024-02-04",
        "2024-02-04T23:30:00-05:00": "2024-02-05T04:30:00",
        "2024-02-04 08:30:00+0200": "2024-02-04T06:30:00",
        "2024-02-04T08:30Z": "2024-02-04T08:30:00",
        "2024-02-30 08:30": "2024-02-30 08:30",
        "2024-02-04 08:30 at noon": "2024-02-04 08:30 at noon",
    }
    for value, text in texts.items():
        same = Condition("at", "=", text)
        assert same.holds(value)
        assert same.mask([value, None]).tolist() == [True, False]
        assert Column("at", [(0, same)]).reader()(value) == 1
        if isinstance(value, str):
            assert Condition("at", "=", value) == same == Condition.parse(f'at = "{value}"')
            assert parse(f'a :- at = "{value}".') == parse(f"a :- {same.name}.")
    with pytest.raises(DataError, match=r"^'at' is datetime.datetime\(1, 1, 1"):
        Condition("at", "=", "x").holds(datetime.min.replace(tzinfo=east))


@pytest.mark.parametrize("package", ["pandas", "polars", "pyarrow"])
def test_a_column_of_zoned_times_is_read_as_its_values(package: str) -> None:
    module = pytest.importorskip(package)
    times = [datetime(2024, 2, 4, hour, tzinfo=UTC) for hour in range(24)]
    make = module.table if package == "pyarrow" else module.DataFrame
    table = make({"at": [one.astimezone(timezone(timedelta(hours=-5))) for one in times]})
    for text in ("2024-02-04", "2024-02-04T05:00:00", "2024-02-04T19:00:00"):
        condition = Condition("at", "<", text)
        expected = [condition.holds(one) for one in times]
        assert condition_rows([condition], table)[:, 0].tolist() == expected


def test_what_cannot_be_evaluated_is_one_clear_line() -> None:
    age, country = Condition("age", "<", 18), Condition("country", "=", "de")
    with pytest.raises(
        DataError, match=r"^'age' is '17' .a text., but the rules compare it with nu"
    ):
        age.holds("17")
    with pytest.raises(DataError, match=r"^row 1: 'age' is '17'"):
        age.mask([3, "17"])
    with pytest.raises(DataError, match=r"^'country' is 49 .int., but .* with texts"):
        country.holds(49)
    with pytest.raises(DataError, match="'age' is True"):
        age.holds(True)
    assert age.mask([10**400, -(10**400)]).tolist() == [False, True]  # beyond floats, as 1e400 is
    with pytest.raises(DataError, match=r"^the table has no column 'age'; it has 'Age'$"):
        condition_rows([age], {"Age": [1]})
    with pytest.raises(DataError, match="'country' has 2 rows, but the first has 1"):
        condition_rows([country], {"age": [1], "country": ["de", "fr"]})
    late = Condition("day", ">", "2026-01-31")
    days = [date(2026, 2, 1), date(2026, 1, 31), None, "2027"]
    assert (
        [late.holds(day) for day in days] == late.mask(days).tolist() == [True, False, False, True]
    )
    times = [datetime(2026, 2, 1), datetime(2026, 1, 31), datetime(2026, 1, 31, 8, 30)]
    column = np.array([*times, "NaT"], "datetime64[ns]")
    assert late.mask(column).tolist() == [True, False, True, False]
    assert [late.holds(one) for one in [*times, column[2]]] == [True, False, True, True]
    with pytest.raises(DataError, match="compare it with numbers"):
        age.mask(np.array(["2026-01-01"], "datetime64[D]"))
    with pytest.raises(DataError, match="timedelta64"):
        age.mask(np.array([1], "timedelta64[D]"))
    for arguments in (("", "<", 1), ("a", "~", 1), ("a", "<", math.nan), ("a", "in", ())):
        with pytest.raises(ProgramError):
            Condition(*arguments)
