"""Grounding with limits: small programs in this process, others in a child that can be ended."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from latentgamma._errors import ProgramError
from latentgamma.datalog import clingo_run
from latentgamma.datalog.clingo_run import Output, ground_here

# The child looks at the clock between two rules, and its message says how far it got: it has this
# many seconds more than the limit before it is killed.
_GRACE = 0.5
_LONGEST_WAIT = 1e6  # seconds; more than the clocks of some systems take is an error


class GroundingFailed(Exception):  # noqa: N818 - never leaves the package, which adds the place
    """Clingo refused the text; the messages say why."""

    def __init__(self, messages: Sequence[str]) -> None:
        self.messages = messages
        super().__init__("".join(messages))


class DivisionCrash(ProgramError):  # noqa: N818 - never leaves the package, as above
    """A division that does not fit in 32 bits has ended clingo's process."""


def run_clingo(
    texts: Sequence[str],
    *,
    max_rules: int,
    max_seconds: float,
    complete: bool = False,
    small: int = 0,
) -> Output:
    """What clingo's grounder makes of these texts.

    Clingo cannot be interrupted while it joins, and a thread that still runs it when Python exits
    ends the process with a segmentation fault. So only what is known to be small runs here.

    Args:
        texts: parts of one program.
        max_rules: stop with a ProgramError beyond so many ground rules.
        max_seconds: stop with a ProgramError after so long.
        complete: keep the bodies of rules whose heads are true whatever the open facts are.
        small: how many ground rules may be made in this process before a child takes over.
    """
    output = None
    if small or not sys.executable:
        here = min(max_rules, small) if sys.executable else max_rules
        output = ground_here(texts, max_rules=here, max_seconds=max_seconds, complete=complete)
    if output is None or (output.stopped == "rules" and len(output.heads) < max_rules):
        output = _ground_in_child(texts, max_rules, max_seconds, complete)
    if output.failed:
        raise ProgramError(output.failed)
    if output.stopped:
        raise ProgramError(_too_much(output, max_rules, max_seconds))
    if output.refused:
        raise GroundingFailed(output.messages)
    return output


def _ground_in_child(
    texts: Sequence[str], max_rules: int, max_seconds: float, complete: bool
) -> Output:
    """What a child process makes of the texts. It is ended at the limit, and on Ctrl-C."""
    start = (
        f"import sys, runpy; sys.path[:] = {sys.path!r}; "
        f"runpy.run_path({str(Path(clingo_run.__file__))!r}, run_name='__main__')"
    )
    request = {
        "texts": list(texts),
        "max_rules": max_rules,
        "max_seconds": max_seconds,
        "complete": complete,
    }
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", start],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        data, said = child.communicate(
            pickle.dumps(request), timeout=min(max_seconds, _LONGEST_WAIT) + _GRACE
        )
    except subprocess.TimeoutExpired:
        return Output(stopped="seconds")
    finally:
        child.kill()
        child.wait()
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream is not None:
                stream.close()
    if child.returncode == -signal.SIGFPE:
        raise DivisionCrash(
            "a division here is 2147483648, which does not fit in 32 bits: -2147483648 divided by -1"
        )
    if child.returncode:
        raise ProgramError(_crash(child.returncode, said.decode(errors="replace")))
    return Output(**pickle.loads(data))


def _crash(status: int, said: str) -> str:
    last = said.strip().rpartition("\n")[2]
    reason = f"signal {-status}" if status < 0 else f"exit status {status}"
    return f"clingo's process ended with {reason}{': ' * bool(last)}{last}; is there enough memory?"


def _too_much(output: Output, max_rules: int, max_seconds: float) -> str:
    limit = (
        f"max_rules={max_rules:,}" if output.stopped == "rules" else f"max_seconds={max_seconds:g}"
    )
    if not output.heads:  # the child was killed
        return (
            f"grounding was stopped by {limit} in the middle of a join. A rule whose atoms share no "
            "variables joins all of them with all: split it, or raise the limit"
        )
    last = next(reversed(output.facts), None) or next(reversed(output.names.values()), None)
    shown = f", the last of them for {last}" if last else ""
    return (
        f"grounding was stopped by {limit} after {len(output.heads):,} ground rules{shown}. Rules "
        "such as 'n(X+1) :- n(X)' have no end: bound the variable ('X < 100'); or raise the limit"
    )
