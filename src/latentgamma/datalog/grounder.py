"""One run of clingo's grounder, its output as flat arrays.

Clingo hands over a ground rule at a time. The callbacks here are written against its C
interface: the observers of its Python module make two lists for each rule, which takes longer
than grounding it.
"""

from __future__ import annotations

import importlib
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from latentgamma._errors import ProgramError

# How many rules go by between two looks at the clock.
_LOOK = 4096


@dataclass(eq=False)
class Output:
    """The ground rules. Atoms are numbers from 1 on; a negated one is below 0 in a body."""

    heads: array[int] = field(default_factory=lambda: array("i"))
    sizes: array[int] = field(default_factory=lambda: array("i"))
    bodies: array[int] = field(default_factory=lambda: array("i"))
    #: The name of each atom that is not simply true.
    names: dict[int, str] = field(default_factory=dict)
    #: The names of atoms that are true whatever the open facts are.
    facts: list[str] = field(default_factory=list)
    #: The atoms that are given when asking.
    externals: array[int] = field(default_factory=lambda: array("i"))
    #: Whether some rule counts or weighs atoms that are not known beforehand.
    weighted: bool = False
    #: The predicates that occur, as (name, arity).
    signatures: list[tuple[str, int]] = field(default_factory=list)
    #: What clingo remarked.
    messages: list[str] = field(default_factory=list)
    #: Why it was stopped.
    stopped: str = ""


class GroundingFailed(Exception):  # noqa: N818 - never leaves the package, which adds the place
    """Clingo refused the text; the messages say why."""

    def __init__(self, messages: Sequence[str]) -> None:
        self.messages = messages
        super().__init__("".join(messages))


def run_clingo(
    texts: Sequence[str],
    *,
    max_rules: int,
    max_seconds: float,
    complete: bool = False,
) -> Output:
    """What clingo's grounder makes of these texts.

    Args:
        texts: parts of one program.
        max_rules: stop with a ProgramError beyond so many ground rules.
        max_seconds: stop with a ProgramError after so long.
        complete: keep the bodies of rules whose heads are true whatever the open facts are.
    """
    import clingo

    output = Output()
    options = ["--preserve-facts=all"] if complete else []
    control = clingo.Control(options, logger=lambda _, said: output.messages.append(said))
    _ffi, _lib = _c_interface()
    observer = _observer(output, max_rules, time.monotonic() + max_seconds)
    if not _lib.clingo_control_register_observer(control._rep, observer[0], True, _ffi.NULL):
        raise ProgramError(
            "this version of clingo does not show its ground rules; use clingo 5.7 or 5.8"
        )
    failures: list[BaseException] = []

    def work(callbacks: tuple[Any, ...]) -> None:
        # The callbacks are an argument so that they live as long as clingo runs.
        try:
            for text in texts:
                control.add("base", [], text)
            control.ground([("base", [])])
        except BaseException as error:
            failures.append(error)

    # In a thread, so that the time limit and Ctrl-C also hold while clingo joins in silence. Clingo
    # cannot be interrupted there: after the limit the thread goes on to the end of that join, where
    # a callback stops it.
    thread = threading.Thread(target=work, args=(observer,), name="latentgamma-clingo", daemon=True)
    thread.start()
    try:
        thread.join(max_seconds)
    except BaseException:
        output.stopped = "interrupted"
        raise
    if thread.is_alive():
        output.stopped = "seconds"
    if output.stopped:
        raise ProgramError(_too_much(output, max_rules, max_seconds))
    if failures:
        if isinstance(failures[0], RuntimeError):
            raise GroundingFailed(output.messages)
        raise failures[0]
    output.signatures = [
        (name, arity) for name, arity, positive in control.symbolic_atoms.signatures if positive
    ]
    return output


def _c_interface() -> tuple[Any, Any]:
    """The interface of clingo's Python module to its library."""
    internal: Any = importlib.import_module("clingo._internal")
    return internal._ffi, internal._lib


def _too_much(output: Output, max_rules: int, max_seconds: float) -> str:
    reached = f"{len(output.heads):,} ground rules"
    limit = (
        f"max_rules={max_rules:,}" if output.stopped == "rules" else f"max_seconds={max_seconds:g}"
    )
    last = next(reversed(output.facts), None) or next(reversed(output.names.values()), None)
    shown = f", the last of them for {last}" if last else ""
    return (
        f"grounding was stopped by {limit} after {reached}{shown}. Rules such as 'n(X+1) :- n(X)' "
        "have no end: bound the variable ('X < 100'); or raise the limit"
    )


def _observer(output: Output, max_rules: int, deadline: float) -> tuple[Any, ...]:
    """The callbacks that fill the output; keep what comes back for as long as clingo runs."""
    _ffi, _lib = _c_interface()
    heads, sizes, bodies = output.heads.append, output.sizes.append, output.bodies.frombytes
    names, facts, externals = output.names, output.facts.append, output.externals.append
    buffer, string = _ffi.buffer, _ffi.string
    to_string: Callable[..., bool] = _lib.clingo_symbol_to_string
    size = _ffi.new("size_t *")
    room = [_ffi.new("char[]", 1 << 12), 1 << 12]
    seen = 0

    def rule(_: bool, head: Any, head_size: int, body: Any, body_size: int, __: Any) -> bool:
        nonlocal seen
        seen += 1
        if seen > max_rules:
            output.stopped = "rules"
        elif seen % _LOOK == 0 and time.monotonic() > deadline:
            output.stopped = "seconds"
        if output.stopped:
            return False
        heads(head[0] if head_size == 1 else 0)
        sizes(body_size)
        if body_size:
            bodies(buffer(body, 4 * body_size))
        return True

    def weight_rule(*_: Any) -> bool:
        output.weighted = True
        return True

    def output_atom(symbol: int, atom: int, _: Any) -> bool:
        if not to_string(symbol, room[0], room[1]):
            _lib.clingo_symbol_to_string_size(symbol, size)
            room[:] = [_ffi.new("char[]", size[0]), size[0]]
            to_string(symbol, room[0], room[1])
        name = string(room[0]).decode()
        if atom:
            names[atom] = name
        else:
            facts(name)
        return True

    def external(atom: int, _: int, __: Any) -> bool:
        externals(atom)
        return True

    observer = _ffi.new("clingo_ground_program_observer_t *")
    literals = "uint32_t const *, size_t, int32_t const *, size_t"
    weights = "uint32_t const *, size_t, int32_t, clingo_weighted_literal_t const *, size_t"
    observer.rule = kept_rule = _ffi.callback(f"bool(bool, {literals}, void *)", rule)
    observer.weight_rule = kept_weight = _ffi.callback(
        f"bool(bool, {weights}, void *)", weight_rule
    )
    observer.output_atom = kept_output = _ffi.callback(
        "bool(clingo_symbol_t, uint32_t, void *)", output_atom
    )
    observer.external = kept_external = _ffi.callback(
        "bool(uint32_t, clingo_external_type_t, void *)", external
    )
    return observer, kept_rule, kept_weight, kept_output, kept_external
