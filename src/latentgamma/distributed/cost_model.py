"""`plan`: what a sharded model needs of each device, before it is made.

The terms are counted from the tensors that `SparseRules` and the two sharded forms make in a step
with float32 states: indices and weights have eight bytes, parameters and states four. The terms of
the backward pass are rounded from a record of torch's allocations. `python benchmarks/run.py
distributed` compares them with measurements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from latentgamma._arguments import real_number
from latentgamma._text import byte_size

#: Bytes of an index and of a weight, and of a parameter and of a value of a state.
_WIDE, _NARROW = 8, 4


@dataclass(frozen=True)
class ShardingPlan:
    """What each device needs. Sizes are in bytes.

    Attributes:
        devices: the number of devices.
        atoms: whether atoms are divided too.
        held: the indices and the parameters.
        memory: the most that is in use while a batch runs, `held` included.
        training_memory: the most while a batch of one step is trained on, gradients included, and
            an optimiser's own state not. Each further step keeps one more state.
        communication: what each device sends for one step.
        training_communication: what it sends for one step forward and backward.
        touched: what is read and written in memory for one step.
    """

    devices: int
    atoms: bool
    held: float
    memory: float
    training_memory: float
    communication: float
    training_communication: float
    touched: float

    def seconds(self, *, memory_bandwidth: float, link_bandwidth: float) -> float:
        """Return a lower bound for the time of a step, from the bandwidths of memory and link.

        >>> step = plan(M=10**6, R=10**7, k=2, B=64, devices=8)
        >>> round(step.seconds(memory_bandwidth=3e12, link_bandwidth=4e11), 4)
        0.004
        """
        for name, value in (
            ("memory_bandwidth", memory_bandwidth),
            ("link_bandwidth", link_bandwidth),
        ):
            real_number(name, value, "a positive number of bytes a second", lambda x: x > 0)
        return self.touched / memory_bandwidth + self.communication / link_bandwidth

    def __str__(self) -> str:
        divided = "rules and atoms" if self.atoms else "rules"
        return (
            f"{divided} over {self.devices} devices: {byte_size(self.memory)} each "
            f"({byte_size(self.training_memory)} in training), sends {byte_size(self.communication)} a step "
            f"({byte_size(self.training_communication)} in training)"
        )


def plan(
    M: int, R: int, k: float, B: int = 1, devices: int = 1, *, atoms: bool = False
) -> ShardingPlan:
    """Return the memory of each device and what it sends in a step, for a sharded model.

    It is a computed estimate: rules have one head, and atoms are used evenly.

    >>> print(plan(M=10**6, R=3 * 10**7, k=2, B=1, devices=4))
    rules over 4 devices: 1.33 GB each (2.16 GB in training), sends 6 MB a step (18 MB in training)

    Args:
        M: the number of atoms.
        R: the number of rules.
        k: the mean number of atoms in a body.
        B: the number of examples in a batch.
        devices: over how many devices the rules are divided.
        atoms: whether the atoms are divided too.

    Raises:
        ArgumentError: a number is out of its range.
    """
    for name, value, least in (
        ("M", M, 1),
        ("R", R, 0),
        ("k", k, 0),
        ("B", B, 1),
        ("devices", devices, 1),
    ):
        real_number(name, value, f"a number from {least} on", partial(_within, least))
    rules = R / devices
    literals = rules * k
    own = M / devices if atoms else M
    # Atoms that the rules of a device use, if they are drawn evenly from all.
    used = [M * -math.expm1(-count / M) if atoms else 0.0 for count in (literals, rules)]
    indices = _WIDE * (2 * literals + 2 * rules + rules + 2 * sum(used))
    parameters = _NARROW * (literals + rules + 5 * rules + own)
    # Weights of literals and heads and three numbers of each rule; sharpness and amplitude.
    weights = _WIDE * (literals + 4 * rules) + _NARROW * 2 * rules
    match = _NARROW * (rules + literals + B * (rules + 2 * literals + own + 2 * used[0]))
    route = _NARROW * B * (3 * rules + 2 * own + 2 * used[1])
    update = _NARROW * B * 5 * own
    state = _NARROW * B * own
    held = indices + parameters
    backward = (
        28 * literals
        + 98 * rules
        + max(
            B * (13 * literals + 19 * rules) + 2 * _NARROW * B * used[0],
            # The sum over devices has a copy of what it sends.
            B * ((34 if atoms or devices == 1 else 42) * own + 4 * literals),
        )
    )
    if atoms:
        sent = _NARROW * B * sum(used) * (devices - 1) / devices
    else:  # a ring: each device sends almost everything twice
        sent = _NARROW * B * M * 2 * (devices - 1) / devices
    # Indices and weights once, values of literals three times, those of rules and atoms ten times.
    touched = indices + weights + _NARROW * B * (3 * (literals + rules) + 10 * (rules + own))
    return ShardingPlan(
        devices=devices,
        atoms=atoms,
        held=held,
        memory=held + weights + state + max(match, route, update),
        training_memory=held + state + backward,
        communication=sent,
        training_communication=3 * sent,
        touched=touched,
    )


def _within(least: int, x: float) -> bool:
    return least <= x < math.inf
