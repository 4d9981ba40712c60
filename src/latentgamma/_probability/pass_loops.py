"""The compiled loops of a sum-product pass and of its gradient.

`value` has one row per node and one column per example: every inner loop runs along the
examples, which are contiguous, and becomes vector instructions.
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
    examples = value.shape[1]
    product = np.empty(examples)
    for n in range(len(independent)):
        total = value[inputs + n]
        total[:] = 1.0 if independent[n] else 0.0
        for j in range(rule_ptr[n], rule_ptr[n + 1]):
            product[:] = 1.0
            for p in range(body_ptr[j], body_ptr[j + 1]):
                for e in range(examples):
                    product[e] *= value[body[p], e]
            if independent[n]:
                for e in range(examples):
                    total[e] *= 1.0 - product[e]
            else:
                for e in range(examples):
                    total[e] += product[e]
        if independent[n]:
            for e in range(examples):
                total[e] = 1.0 - total[e]


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
    others = np.empty((most, examples))  # products of 1 - body over the other bodies
    after = np.empty(examples)
    product = np.empty(examples)
    for n in range(len(independent) - 1, -1, -1):
        first, last = rule_ptr[n], rule_ptr[n + 1]
        if independent[n]:
            after[:] = 1.0
            for j in range(first, last):
                others[j - first] = after
                product[:] = 1.0
                for p in range(body_ptr[j], body_ptr[j + 1]):
                    for e in range(examples):
                        product[e] *= value[body[p], e]
                for e in range(examples):
                    after[e] *= 1.0 - product[e]
            after[:] = 1.0
            for j in range(last - 1, first - 1, -1):
                product[:] = 1.0
                for p in range(body_ptr[j], body_ptr[j + 1]):
                    for e in range(examples):
                        product[e] *= value[body[p], e]
                for e in range(examples):
                    others[j - first, e] *= after[e]
                    after[e] *= 1.0 - product[e]
        for j in range(first, last):
            start, stop = body_ptr[j], body_ptr[j + 1]
            if independent[n]:
                for e in range(examples):
                    after[e] = grad[inputs + n, e] * others[j - first, e]
            else:
                after[:] = grad[inputs + n]
            product[:] = 1.0
            for p in range(start, stop):
                before[p - start] = product
                if p + 1 < stop:
                    for e in range(examples):
                        product[e] *= value[body[p], e]
            for p in range(stop - 1, start - 1, -1):
                for e in range(examples):
                    grad[body[p], e] += after[e] * before[p - start, e]
                    after[e] *= value[body[p], e]
