"""The loops of a sum-product pass and of its gradient.

`value` has one row per node and one column per example. Every operation is on whole rows, so the
same loops run with numpy and, compiled, as vector instructions.
"""

from __future__ import annotations

import numpy as np

from latentgamma._logic.compilation import Cells


def run_pass(
    inputs: int,
    rule_ptr: Cells,
    body_ptr: Cells,
    body: Cells,
    independent: Cells,
    value: Cells,
) -> None:
    """Fill the rows of the derived nodes of `value`, whose input rows are given."""
    product = np.empty(value.shape[1])
    for n in range(len(independent)):
        total = value[inputs + n]
        total[:] = 0.0
        for j in range(rule_ptr[n], rule_ptr[n + 1]):
            product[:] = 1.0
            for p in range(body_ptr[j], body_ptr[j + 1]):
                product *= value[body[p]]
            if independent[n]:
                product *= 1.0 - total  # no difference of numbers near 1 for a small result
            total += product


def run_gradient(
    inputs: int,
    rule_ptr: Cells,
    body_ptr: Cells,
    body: Cells,
    independent: Cells,
    value: Cells,
    grad: Cells,
) -> None:
    """Add to the rows of `grad`, which come with the gradient of the outputs."""
    examples = value.shape[1]
    widest, most = 1, 1
    for j in range(len(body_ptr) - 1):
        widest = max(widest, body_ptr[j + 1] - body_ptr[j])
    for n in range(len(independent)):
        if independent[n]:
            most = max(most, rule_ptr[n + 1] - rule_ptr[n])
    before = np.empty((widest, examples))  # products of the atoms before each one of a body
    none = np.empty((most, examples))  # 1 - body, for each body of a node
    others = np.empty((most, examples))  # products of 1 - body over the other bodies
    after = np.empty(examples)
    product = np.empty(examples)
    for n in range(len(independent) - 1, -1, -1):
        first, last = rule_ptr[n], rule_ptr[n + 1]
        if independent[n]:
            after[:] = 1.0
            for j in range(first, last):
                product[:] = 1.0
                for p in range(body_ptr[j], body_ptr[j + 1]):
                    product *= value[body[p]]
                none[j - first] = 1.0 - product
                others[j - first] = after
                after *= none[j - first]
            after[:] = 1.0
            for j in range(last - 1, first - 1, -1):
                others[j - first] *= after
                after *= none[j - first]
        for j in range(first, last):
            start, stop = body_ptr[j], body_ptr[j + 1]
            after[:] = grad[inputs + n]
            if independent[n]:
                after *= others[j - first]
            product[:] = 1.0
            for p in range(start, stop):
                before[p - start] = product
                product *= value[body[p]]
            for p in range(stop - 1, start - 1, -1):
                grad[body[p]] += after * before[p - start]
                after *= value[body[p]]
