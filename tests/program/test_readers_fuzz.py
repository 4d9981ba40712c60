"""Whatever the bytes, a reader gives a program or an error of this library."""

from __future__ import annotations

import gzip
import json
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentgamma import Program
from latentgamma.datalog.grounding import GroundingWarning
from latentgamma.datalog.programs import read
from latentgamma.errors import LatentGammaError
from latentgamma.program import rule_text
from latentgamma.program.files import SUFFIXES, dumps

PROGRAMS = [
    Program.from_rules(
        [
            ("bird", ["penguin"]),
            (["animal", "swims(x, y)"], ["bird", "edge(a,b)", "it's"]),
            ("größe", []),
            ('p(f(a),3,"x y")', ["bird", "bird"]),
        ]
    ),
    Program.from_rules([("x1", ["x2", "x3"]), (["x2", "x3"], ["x1"])], ["x3", "x2", "x1", "x4"]),
]
TEXTS = {suffix: [dumps(program, suffix).encode() for program in PROGRAMS] for suffix in SUFFIXES}
INSERTS = st.one_of(
    st.binary(max_size=3),
    st.sampled_from(
        b"/* */ %* *% :- <- => -> , . .. ' \" \\ ( ) [ ] { } 0 -1 99 c p null 1e999 not X \\u0000 "
        b"#external heads \xef\xbb\xbf \xff \0 \r".split(b" ")
    ),
)


@st.composite
def mutations(draw: st.DrawFn, texts: list[bytes]) -> bytes:
    data = draw(st.sampled_from(texts))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.sampled_from([0, 0, 1, 2, 5, 20])))
        moved = draw(st.one_of(INSERTS, st.just(data[start:end] * 2)))
        data = data[:start] + moved + data[end:]
    return data


def read_or_refused(data: bytes, suffix: str) -> Program | None:
    problem = ""
    with warnings.catch_warnings():
        # A name that became a variable makes rules of which a part may never hold.
        warnings.simplefilter("ignore", GroundingWarning)
        try:
            program = read(data, suffix)
        except LatentGammaError as error:
            program, problem = None, str(error)
    assert len(problem) < 2000
    assert isinstance(program, Program) or problem
    return program


def read_token_by_token(data: bytes) -> Program | None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rule_text, "_plain_rule", lambda text, at: None)
        return read_or_refused(data, ".lp")


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_mutated_texts(suffix: str, data: st.DataObject) -> None:
    mutant = data.draw(mutations(TEXTS[suffix]))
    program = read_or_refused(mutant, suffix)
    if suffix == ".lp":
        assert read_token_by_token(mutant) == program
    if program is not None:  # what was read can be written, and comes back
        assert read(dumps(program, ".lp").encode()) == program
        if program.definite:
            assert read(dumps(program, ".cnf").encode(), ".cnf") == program


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
@given(data=st.one_of(st.binary(max_size=80), st.text(max_size=40).map(str.encode)))
@settings(max_examples=100, deadline=None)
def test_arbitrary_bytes(suffix: str, data: bytes) -> None:
    program = read_or_refused(data, suffix)
    if suffix == ".lp":
        assert read_token_by_token(data) == program


@given(st.one_of(st.binary(max_size=80), mutations([gzip.compress(t) for t in TEXTS[".lp"]])))
@settings(max_examples=100, deadline=None)
def test_compressed_data(data: bytes) -> None:
    read_or_refused(data, ".lp.gz")


@pytest.mark.slow
@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.sampled_from(["head", "body", "rules", "atoms", "latentgamma", "kind", "x"]),
                inner,
                max_size=4,
            ),
        ),
        max_leaves=15,
    )
)
@settings(max_examples=120, deadline=None)
def test_arbitrary_json_values(value: object) -> None:
    read_or_refused(json.dumps(value).encode(), ".json")


def test_a_name_that_becomes_a_variable_is_read_with_a_warning() -> None:
    text = b"bird :- edge(Aa,b)."
    with pytest.warns(GroundingWarning, match="never holds"):
        read(text, ".dl")
    assert read_or_refused(text, ".dl") is not None
