"""No array of a program can be written to, however the program was made and used."""

import copy
import gc
import multiprocessing
import pickle
import types

import numpy as np
import pytest

import latentgamma as lg
from latentgamma import generators
from latentgamma.program.files import SUFFIXES
from random_programs import random_program
from reference import PATHS, path

NEGATION = "d :- c, not b. b :- a. c :- not a. e :- d, not f. e."
DATALOG = "#external edge(1..3,1..3). path(X,Y) :- edge(X,Y). path(X,Z) :- path(X,Y), edge(Y,Z)."


def arrays_of(value):
    """Every numpy array that can be reached from a value, through any object but code."""
    found, seen, waiting = [], set(), [value]
    code = type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, code):
            continue
        seen.add(id(one))
        if isinstance(one, np.ndarray):
            found.append(one)
            waiting.append(one.base)
        waiting += gc.get_referents(one)
    return found


def assert_read_only(program):
    arrays = arrays_of(program)
    assert arrays
    assert not any(array.flags.writeable for array in arrays)


def use(program):
    """Fill every cache of a program."""
    for name in dir(program):
        if program.definite or name != "body_indices":
            getattr(program, name)
    for stratum in program.strata:
        assert_read_only([stratum, stratum.derived])
        if not program.definite:
            use(stratum.program)
    if program.definite:
        lg.logic.depth_bound(program)
    for kind in PATHS:
        with path(kind):
            lg.closure(program, {0})
            lg.closures(program, [{0}, set()])
    lg.derivation(program, {0}, program.atoms[0])
    lg.certify(lg.oracle(program), program)


def same(program):
    return program


MADE = {
    "parse": lambda tmp: lg.parse("b :- a. c :- a, b. c."),
    "negation": lambda tmp: lg.parse(NEGATION),
    "ground": lambda tmp: lg.datalog.ground(DATALOG),
    "ground with negation": lambda tmp: lg.datalog.ground(DATALOG + " far :- not path(1,3)."),
    "from_rules": lambda tmp: lg.Program.from_rules([("b", ["a"]), ("c", [])]),
    "from_arrays": lambda tmp: lg.Program.from_arrays([0, 2, 3], [1, 0, 2], [2, 3]),
    "generated": lambda tmp: random_program(np.random.default_rng(0), 20, 60, body=3),
    "paper": lambda tmp: generators.g1(),
    "stratum": lambda tmp: lg.parse(NEGATION).strata[1].program,
    "no rules": lambda tmp: lg.Program.from_rules([], atoms=["a"]),
}
for suffix in SUFFIXES:
    MADE[suffix] = lambda tmp, suffix=suffix: reread(tmp / f"program{suffix}")

COPIES = [
    same,
    copy.copy,
    copy.deepcopy,
    *(lambda p, n=n: pickle.loads(pickle.dumps(p, n)) for n in (0, 2, pickle.HIGHEST_PROTOCOL)),
]


def reread(file):
    lg.save(lg.parse("c :- a, b. d :- c. d :- a."), file)
    return lg.load(file)


@pytest.mark.quick_first
@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_no_array_of_a_program_can_be_written_to(make, tmp_path):
    for duplicate in COPIES:
        program = duplicate(make(tmp_path))
        assert_read_only(program)
        if program.R < 1_000:
            use(program)
            assert_read_only(program)
            assert_read_only(duplicate(program))
            assert duplicate(program) == program


@pytest.mark.slow
def test_nor_of_one_that_came_from_another_process():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for text in ("b :- a. c :- b.", NEGATION):
            (program,) = pool.map(same, [lg.parse(text)])
            use(program)
            assert_read_only(program)
            assert program == lg.parse(text)


def test_arrays_given_to_a_program_do_not_change_it():
    given = np.array([0, 1, 2]), np.array([0, 1], np.int32), np.array([1, 2], np.int32)
    program = lg.Program.from_arrays(*given)
    text = str(program)
    for array in given:
        array[:] = 0
    assert str(program) == text
