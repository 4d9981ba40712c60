"""The work of a search, which is counted, and the time limit of the whole call.

Phases of a search end at a number of rows, so that a run and its repetition end at the same place.
The clock only ends what would take longer than the time limit, and then the result says so.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable

#: Rows that take as long as the rest of the work for one body.
ROWS_OF_A_BODY = 10_000
#: Rows that are looked at in about a second.
ROWS_OF_A_SECOND = 100_000_000


class OutOfBudget(Exception):  # noqa: N818 - never leaves the package
    """The work or the time of a phase is used up; what it found so far counts."""


class Budget:
    """The work and the time of a call; `part` returns that of a phase.

    Attributes:
        timed_out: whether the time limit ended a phase that had more to do.
    """

    def __init__(
        self,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
        work_limit: float | None = None,
    ) -> None:
        self._clock, self._start = clock, clock()
        self._end = self._start + seconds
        self._most = math.inf if work_limit is None else float(work_limit)
        self._planned = min(self._most, seconds * ROWS_OF_A_SECOND)
        self._call = self._whole = self  # count the work of all phases, and keep `timed_out`
        self._work = 0
        self.timed_out = False

    def part(
        self, *, rows: float = math.inf, fraction: float = 1.0, optional: bool = False
    ) -> Budget:
        """Return the budget of a phase: `rows` more rows, and a fraction of the time left.

        An optional phase has a `timed_out` of its own.
        """
        phase = copy.copy(self)
        if optional:
            phase._whole, phase.timed_out = phase, False
        phase._most = min(self._most, self.work + rows)
        if math.isfinite(self._most):
            phase._most = min(phase._most, self.work + fraction * self.rows_left)
        phase._planned = self.work + fraction * max(0, self._planned - self.work)
        if math.isfinite(self._end):
            now = self._clock()
            phase._end = now + fraction * (self._end - now)
        return phase

    @property
    def work(self) -> int:
        """The rows that the call has looked at."""
        return self._call._work

    @property
    def rows_left(self) -> float:
        """The rows that this phase may still look at."""
        return max(0, self._most - self.work)

    @property
    def planned_rows(self) -> float:
        """The rows that this phase is likely to reach, by its work limit and its time."""
        return max(0, min(self._planned - self.work, self.rows_left))

    @property
    def seconds(self) -> float:
        """The seconds since the start of the call."""
        return self._clock() - self._start

    @property
    def over(self) -> bool:
        """Whether the work or the time of this phase is used up."""
        return self.work >= self._most or self._clock() >= self._end

    def stops(self) -> bool:
        """Return whether a phase that has more to do ends here; whether by its time is kept."""
        if self.work >= self._most:
            return True
        return self.stops_by_time()

    def stops_by_time(self) -> bool:
        """Return whether the time of a phase that has more to do is used up."""
        up = self._clock() >= self._end
        self._whole.timed_out |= up
        return up

    def count(self, rows: float) -> None:
        """Count work that was done."""
        self._call._work += int(rows)

    def reserve(self, rows: float) -> None:
        """Count work that is done at once, however long it takes.

        Raises:
            OutOfBudget: it is more than is left, by the work limit or as far as the time tells.
        """
        if rows > self.planned_rows:
            self._whole.timed_out |= rows <= self.rows_left
            raise OutOfBudget
        self.spend(rows)

    def spend(self, rows: float) -> None:
        """Count work that is about to be done.

        Raises:
            OutOfBudget: the work or the time of this phase is used up.
        """
        if self.stops():
            raise OutOfBudget
        self.count(rows)
