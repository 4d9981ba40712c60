"""One run of clingo's grounder, its output as flat arrays.

Clingo hands over a ground rule at a time. The callbacks here are written against its C
interface: the observers of its Python module make two lists for each rule, which takes longer
than grounding it.

A child process runs this file as a script (see `clingo.py`), so it imports nothing of the package.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import sys
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

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
    #: The predicates that occur, as (name, arity).
    signatures: list[tuple[str, int]] = field(default_factory=list)
    #: What clingo remarked.
    messages: list[str] = field(default_factory=list)
    #: Which limit stopped it: "rules" or "seconds".
    stopped: str = ""
    #: Whether clingo refused the text; the messages say why.
    refused: bool = False
    #: Why there is no output at all.
    failed: str = ""


def ground_here(
    texts: Sequence[str], *, max_rules: int, max_seconds: float, complete: bool = False
) -> Output:
    """Return what clingo's grounder makes of these texts, in this process.

    The limits are checked whenever clingo hands over a rule. A join that yields no rule for a long
    time cannot be stopped.

    Args:
        texts: parts of one program.
        max_rules: stop beyond this many ground rules.
        max_seconds: stop after so long.
        complete: keep the bodies of rules whose heads are true whatever the open facts are.
    """
    import clingo

    output = Output()
    options = ["--preserve-facts=all"] if complete else []
    control = clingo.Control(options, logger=lambda _, said: output.messages.append(said))
    _ffi, _lib = _c_interface()
    failures: list[BaseException] = []
    observer = _observer(output, max_rules, time.monotonic() + max_seconds, failures)
    if not _lib.clingo_control_register_observer(control._rep, observer[0], True, _ffi.NULL):
        output.failed = (
            "this version of clingo does not show its ground rules; use clingo 5.7 or 5.8"
        )
        return output
    try:
        for text in texts:
            control.add("base", [], text)
        control.ground([("base", [])])
    except RuntimeError:
        if failures:  # Ctrl-C in a callback, which clingo knows as an error only
            raise failures[0] from None
        output.refused = not output.stopped
        return output
    output.signatures = [
        (name, arity) for name, arity, positive in control.symbolic_atoms.signatures if positive
    ]
    return output


def main() -> None:
    """Ground what the standard input asks for; the fields of the output go to the standard output."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is for the parent, which ends this process
    request = pickle.load(sys.stdin.buffer)
    threading.Thread(
        target=_watch, args=(os.getppid(), request["max_seconds"]), daemon=True
    ).start()
    output = ground_here(**request)
    pickle.dump(vars(output), sys.stdout.buffer, pickle.HIGHEST_PROTOCOL)
    sys.stdout.flush()


def _watch(parent: int, max_seconds: float) -> None:
    """End this process if its parent has ended, or has not ended it long after the limit."""
    deadline = time.monotonic() + max_seconds + 60
    while os.getppid() == parent and time.monotonic() < deadline:
        time.sleep(0.5)
    os._exit(1)


def _c_interface() -> tuple[Any, Any]:
    """Return the interface of clingo's Python module to its library."""
    internal: Any = importlib.import_module("clingo._internal")
    return internal._ffi, internal._lib


def _observer(
    output: Output, max_rules: int, deadline: float, failures: list[BaseException]
) -> tuple[Any, ...]:
    """Return the callbacks that fill the output; keep them for as long as clingo runs."""
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

    def weight_rule(*_: Any) -> bool:  # aggregates over open facts are refused before
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

    def failed(_: Any, error: BaseException, __: Any) -> None:
        failures.append(error)

    def callback(arguments: str, function: Callable[..., bool]) -> Any:
        return _ffi.callback(f"bool({arguments}, void *)", function, onerror=failed)

    observer = _ffi.new("clingo_ground_program_observer_t *")
    literals = "uint32_t const *, size_t, int32_t const *, size_t"
    weights = "uint32_t const *, size_t, int32_t, clingo_weighted_literal_t const *, size_t"
    observer.rule = kept_rule = callback(f"bool, {literals}", rule)
    observer.weight_rule = kept_weight = callback(f"bool, {weights}", weight_rule)
    observer.output_atom = kept_output = callback("clingo_symbol_t, uint32_t", output_atom)
    observer.external = kept_external = callback("uint32_t, clingo_external_type_t", external)
    return observer, kept_rule, kept_weight, kept_output, kept_external


if __name__ == "__main__":
    main()
