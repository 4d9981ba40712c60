"""The T steps of the sparse form on a GPU, forward and backward, in Triton.

Two ways to run the same four pieces of code. While a tile of examples is small enough, one launch
does all steps: each thread block owns a tile, and its state lives in the block's own cache. Beyond
that, every half step is a launch over (rules or atoms) × examples. Nothing is accumulated with
atomics: rules gather from atoms and atoms from rules, and parameter gradients are summed by block
and then over blocks, so the same input always gives the same bits.

Buffers hold an atom's (or rule's) examples side by side, so that gathering a literal reads one run
of memory. Errors stay inside what the certificate allows for: `exp` is good to a few roundoffs
and to one of its argument, and the sums over all atoms or rules are taken in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

#: Up to this many atoms or rules one thread block runs all steps of its tile.
_ONE_LAUNCH_UP_TO = 4096
#: How many rules or atoms such a thread block may take at a time.
_ROWS = (128, 512, 1024)


class Literals(NamedTuple):
    """Compressed rows: row r holds `index[start[r]:start[r + 1]]`, whose weights lie at `place`."""

    start: Tensor
    index: Tensor
    place: Tensor
    most: int  # the length of the longest row
    longest: dict[int, Tensor]  # and of the longest in each run of 128, 512, … rows

    def by_runs_of(self, rows: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What a kernel needs that takes so many rows at a time."""
        return self.start, self.index, self.place, self.longest[rows]


@dataclass(frozen=True)
class Structure:
    """A program's literals, seen from its rules and from its atoms.

    Where one thread block runs a whole tile, rules and atoms are numbered by the number of
    literals they gather, the most first, so that few runs of rows have to wait for a long one.
    `rule_order` and `atom_order` give the original numbers.
    """

    M: int
    R: int
    one_launch: bool
    rule_order: Tensor
    atom_order: Tensor
    body: Literals  # rule → its body atoms
    uses: Literals  # atom → the rules whose body it is in
    heads: Literals  # rule → its heads
    sources: Literals  # atom → the rules it is a head of

    @classmethod
    def of(
        cls,
        M: int,
        R: int,
        body_rule: Tensor,
        body_atom: Tensor,
        head_rule: Tensor,
        head_atom: Tensor,
    ) -> Structure:
        """The structure of (rule, atom) pairs."""
        one_launch = 0 < max(M, R) <= _ONE_LAUNCH_UP_TO
        rules, atoms = (
            torch.arange(R, device=body_rule.device),
            torch.arange(M, device=body_rule.device),
        )
        if one_launch:
            rules = torch.argsort(
                torch.bincount(body_rule, minlength=R), descending=True, stable=True
            )
            atoms = torch.argsort(
                torch.bincount(head_atom, minlength=M), descending=True, stable=True
            )
        rule_rank, atom_rank = torch.argsort(rules), torch.argsort(atoms)
        b_rule, b_atom = rule_rank[body_rule], atom_rank[body_atom]
        h_rule, h_atom = rule_rank[head_rule], atom_rank[head_atom]
        return cls(
            M,
            R,
            one_launch,
            rules.int(),
            atoms.int(),
            _rows(b_rule, b_atom, R),
            _rows(b_atom, b_rule, M),
            _rows(h_rule, h_atom, R),
            _rows(h_atom, h_rule, M),
        )


def _rows(row: Tensor, other: Tensor, count: int) -> Literals:
    order = torch.argsort(row, stable=True)
    counts = torch.bincount(row, minlength=count)
    start = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    longest = {}
    for rows in _ROWS:
        runs = torch.nn.functional.pad(counts, (0, -count % rows)).reshape(-1, rows)
        longest[rows] = (runs.amax(1) if len(runs) else counts.new_zeros(1)).int()
    most = int(counts.max()) if len(row) else 0
    return Literals(start.int(), other[order].int(), order.int(), most, longest)


class Coefficients(NamedTuple):
    """The numbers of a step in float32, contiguous."""

    body: Tensor  # (body literals,) weight over the background
    body_off: Tensor  # (R,)
    slack: Tensor  # (R,) Σ_i u_ji − b_j
    sharpness: Tensor  # (R,)
    amplitude: Tensor  # (R,)
    head: Tensor  # (head literals,)
    head_off: Tensor  # (R,)
    offset: Tensor  # (M,)
    gate: Tensor  # (1,)


# -------------------------------------------------------------------- pieces of a step


@triton.jit
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def _gathered(
    rows, live, start, index, place, weight, source, cols, ld, UNROLL, longest, ONE_MINUS
):
    """Σ over a row's literals of weight · source (or weight · (1 − source)). [rows, cols]."""
    first = tl.load(start + rows, mask=live, other=0)
    count = tl.load(start + rows + 1, mask=live, other=0) - first
    total = tl.zeros([rows.shape[0], cols.shape[0]], dtype=tl.float32)
    for p in tl.static_range(UNROLL):
        total += _literal(first, count, p, index, place, weight, source, cols, ld, ONE_MINUS)
    for p in range(UNROLL, longest):
        total += _literal(first, count, p, index, place, weight, source, cols, ld, ONE_MINUS)
    return total


@triton.jit
def _literal(first, count, p, index, place, weight, source, cols, ld, ONE_MINUS):
    here = p < count
    other = tl.load(index + first + p, mask=here, other=0)
    w = tl.load(weight + tl.load(place + first + p, mask=here, other=0), mask=here, other=0.0)
    value = tl.load(
        source + other.to(tl.int64)[:, None] * ld + cols[None, :], mask=here[:, None], other=0.0
    )
    if ONE_MINUS:
        value = 1.0 - value
    return w[:, None] * value


@triton.jit
def _share(phi, beta, BUMP):
    """g, Γ of an evidence."""
    if BUMP:
        x = beta * phi
        safe = tl.maximum(x, 1e-3)
        g = tl.where(x > 1e-3, tl.exp(-1.0 / (safe * safe)), 0.0)
    else:
        g = _sigmoid(beta * phi)
    return g, _sigmoid(phi)


@triton.jit
def _slope(phi, beta, g, gamma, BUMP):
    """∂(gΓ)/∂φ and ∂(gΓ)/∂β."""
    if BUMP:
        x = tl.maximum(beta * phi, 1e-3)
        dg = 2.0 * g / (x * x * x)
    else:
        dg = g * (1.0 - g)
    return beta * dg * gamma + g * gamma * (1.0 - gamma), dg * phi * gamma


# -------------------------------------------------------------------- all steps in one launch


@triton.jit
def _rules_of_tile(
    start, rule_order, here, missing, R, e,
    b_start, b_index, b_place, b_longest, body, body_off, slack, sharpness, ROWS, BT, UB,
):  # fmt: skip
    """Rows, their mask and original numbers, and how far their body sums are above threshold."""
    j = start + tl.arange(0, ROWS)
    rule = j < R
    own = tl.load(rule_order + j, mask=rule, other=0)
    longest = tl.load(b_longest + start // ROWS)
    lack = _gathered(j, rule, b_start, b_index, b_place, body, here, e, BT, UB, longest, True)
    lack += tl.load(body_off + own, mask=rule, other=0.0)[:, None] * missing[None, :]
    margin = tl.load(slack + own, mask=rule, other=0.0)[:, None] - lack
    tau = tl.load(sharpness + own, mask=rule, other=0.0)
    return j, rule, own, margin, tau


@triton.jit
def _atoms_of_tile(
    start, atom_order, fire, spread, M, e,
    s_start, s_index, s_place, s_longest, head, offset, ROWS, BT, US,
):  # fmt: skip
    """Rows, their mask and original numbers, and the evidence for these atoms."""
    i = start + tl.arange(0, ROWS)
    atom = i < M
    own = tl.load(atom_order + i, mask=atom, other=0)
    longest = tl.load(s_longest + start // ROWS)
    phi = _gathered(i, atom, s_start, s_index, s_place, head, fire, e, BT, US, longest, False)
    phi += spread[None, :] - tl.load(offset + own, mask=atom, other=0.0)[:, None]
    return i, atom, own, phi


@triton.jit
def _run_tile(
    state, out, kept, fire, rule_order, atom_order,
    b_start, b_index, b_place, b_longest, body, body_off, slack, sharpness, amplitude, head_off,
    s_start, s_index, s_place, s_longest, head, offset, gate,
    B, M, R, T, keep_stride,
    KEEP: tl.constexpr, BUMP: tl.constexpr, ROWS: tl.constexpr, BT: tl.constexpr,
    UB: tl.constexpr, US: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0).to(tl.int64)
    e = tl.arange(0, BT)
    example = tile * BT + e
    seen = example < B
    here = kept + tile * M * BT
    fire += tile * R * BT
    beta = tl.load(gate)
    rest = tl.zeros([ROWS, BT], tl.float32)
    for start in range(0, M, ROWS):
        i = start + tl.arange(0, ROWS)
        atom = i < M
        own = tl.load(atom_order + i, mask=atom, other=0)
        both = atom[:, None] & seen[None, :]
        s = tl.load(state + example[None, :] * M + own[:, None], mask=both, other=1.0)
        tl.store(here + i[:, None] * BT + e[None, :], s, mask=atom[:, None])
        rest += 1.0 - s
    missing = tl.sum(rest, axis=0)
    tl.debug_barrier()
    for _ in range(T):
        rest = tl.zeros([ROWS, BT], tl.float32)
        for start in range(0, R, ROWS):
            j, rule, own, margin, tau = _rules_of_tile(
                start, rule_order, here, missing, R, e,
                b_start, b_index, b_place, b_longest, body, body_off, slack, sharpness, ROWS, BT, UB,
            )  # fmt: skip
            amp = tl.load(amplitude + own, mask=rule, other=0.0)
            f = amp[:, None] * _sigmoid(tau[:, None] * margin)
            tl.store(fire + j[:, None] * BT + e[None, :], f, mask=rule[:, None])
            rest += f * tl.load(head_off + own, mask=rule, other=0.0)[:, None]
        spread = tl.sum(rest, axis=0)
        tl.debug_barrier()
        rest = tl.zeros([ROWS, BT], tl.float32)
        for start in range(0, M, ROWS):
            i, atom, own, phi = _atoms_of_tile(
                start, atom_order, fire, spread, M, e,
                s_start, s_index, s_place, s_longest, head, offset, ROWS, BT, US,
            )  # fmt: skip
            g, gamma = _share(phi, beta, BUMP)
            spot = here + i[:, None] * BT + e[None, :]
            s = tl.load(spot, mask=atom[:, None], other=1.0)
            s += (1.0 - s) * (g * gamma)
            if KEEP:
                spot += keep_stride
            tl.store(spot, s, mask=atom[:, None])
            rest += 1.0 - s
        missing = tl.sum(rest, axis=0)
        if KEEP:
            here += keep_stride
        tl.debug_barrier()
    for start in range(0, M, ROWS):
        i = start + tl.arange(0, ROWS)
        atom = i < M
        own = tl.load(atom_order + i, mask=atom, other=0)
        both = atom[:, None] & seen[None, :]
        s = tl.load(here + i[:, None] * BT + e[None, :], mask=both, other=0.0)
        tl.store(out + example[None, :] * M + own[:, None], s, mask=both)


@triton.jit
def _back_tile(
    grad, kept, fire, dphi, dmargin, d_state, rule_order, atom_order,
    b_start, b_index, b_place, b_longest, body, body_off, slack, sharpness, amplitude, head_off,
    s_start, s_index, s_place, s_longest, head, offset, gate,
    h_start, h_index, h_place, h_longest, u_start, u_index, u_place, u_longest,
    d_body, d_off, d_slack, d_tau, d_amp, d_head, d_head_off, d_theta, d_beta,
    B, M, R, T, keep_stride, body_count, head_count,
    BUMP: tl.constexpr, ONE: tl.constexpr, AROWS: tl.constexpr, RROWS: tl.constexpr, BT: tl.constexpr,
    UB: tl.constexpr, US: tl.constexpr, UH: tl.constexpr, UU: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0).to(tl.int64)
    e = tl.arange(0, BT)
    example = tile * BT + e
    seen = example < B
    fire += tile * R * BT
    dmargin += tile * R * BT
    dphi += tile * M * BT
    d_state += tile * M * BT
    beta = tl.load(gate)
    here = kept + tile * M * BT + (T - 1) * keep_stride
    for start in range(0, M, AROWS):
        i = start + tl.arange(0, AROWS)
        atom = i < M
        own = tl.load(atom_order + i, mask=atom, other=0)
        both = atom[:, None] & seen[None, :]
        G = tl.load(grad + example[None, :] * M + own[:, None], mask=both, other=0.0)
        tl.store(d_state + i[:, None] * BT + e[None, :], G, mask=atom[:, None])
    # With all rows in one run (ONE) their sums over time stay in registers.
    sum_theta = tl.zeros([AROWS], tl.float32)
    sum_beta = tl.zeros([AROWS], tl.float32)
    sum_stray = tl.zeros([RROWS], tl.float32)
    sum_amp = tl.zeros([RROWS], tl.float32)
    sum_tau = tl.zeros([RROWS], tl.float32)
    sum_slack = tl.zeros([RROWS], tl.float32)
    sum_off = tl.zeros([RROWS], tl.float32)
    sum_body0 = tl.zeros([RROWS], tl.float32)
    sum_body1 = tl.zeros([RROWS], tl.float32)
    sum_head0 = tl.zeros([RROWS], tl.float32)
    for _ in range(T):
        tl.debug_barrier()
        rest = tl.zeros([AROWS, BT], tl.float32)
        for start in range(0, M, AROWS):
            i = start + tl.arange(0, AROWS)
            s = tl.load(here + i[:, None] * BT + e[None, :], mask=(i < M)[:, None], other=1.0)
            rest += 1.0 - s
        missing = tl.sum(rest, axis=0)
        rest = tl.zeros([RROWS, BT], tl.float32)
        for start in range(0, R, RROWS):
            j, rule, own, margin, tau = _rules_of_tile(
                start, rule_order, here, missing, R, e,
                b_start, b_index, b_place, b_longest, body, body_off, slack, sharpness, RROWS, BT, UB,
            )  # fmt: skip
            amp = tl.load(amplitude + own, mask=rule, other=0.0)
            f = amp[:, None] * _sigmoid(tau[:, None] * margin)
            spot = j[:, None] * BT + e[None, :]
            tl.store(fire + spot, f, mask=rule[:, None])
            tl.store(
                dmargin + spot, margin, mask=rule[:, None]
            )  # until its gradient takes its place
            rest += f * tl.load(head_off + own, mask=rule, other=0.0)[:, None]
        spread = tl.sum(rest, axis=0)
        tl.debug_barrier()
        rest = tl.zeros([AROWS, BT], tl.float32)
        for start in range(0, M, AROWS):
            i, atom, own, phi = _atoms_of_tile(
                start, atom_order, fire, spread, M, e,
                s_start, s_index, s_place, s_longest, head, offset, AROWS, BT, US,
            )  # fmt: skip
            g, gamma = _share(phi, beta, BUMP)
            by_phi, by_beta = _slope(phi, beta, g, gamma, BUMP)
            spot = i[:, None] * BT + e[None, :]
            s = tl.load(here + spot, mask=atom[:, None], other=1.0)
            G = tl.load(d_state + spot, mask=atom[:, None], other=0.0)
            weight = G * (1.0 - s)
            dp = weight * by_phi
            tl.store(dphi + spot, dp, mask=atom[:, None])
            tl.store(d_state + spot, G * (1.0 - g * gamma), mask=atom[:, None])
            by_theta, by_gate = -tl.sum(dp, axis=1), tl.sum(weight * by_beta, axis=1)
            if ONE:
                sum_theta += by_theta
                sum_beta += by_gate
            else:
                _add(d_theta + tile * M + own, atom, by_theta)
                _add(d_beta + tile * M + own, atom, by_gate)
            rest += dp
        all_dp = tl.sum(rest, axis=0)
        tl.debug_barrier()
        rest = tl.zeros([RROWS, BT], tl.float32)
        for start in range(0, R, RROWS):
            j = start + tl.arange(0, RROWS)
            rule = j < R
            own = tl.load(rule_order + j, mask=rule, other=0)
            spot = j[:, None] * BT + e[None, :]
            f = tl.load(fire + spot, mask=rule[:, None], other=0.0)
            margin = tl.load(dmargin + spot, mask=rule[:, None], other=0.0)
            tau = tl.load(sharpness + own, mask=rule, other=0.0)
            amp = tl.load(amplitude + own, mask=rule, other=0.0)
            off = tl.load(body_off + own, mask=rule, other=0.0)
            stray = tl.load(head_off + own, mask=rule, other=0.0)
            a = _sigmoid(tau[:, None] * margin)
            longest = tl.load(h_longest + start // RROWS)
            df = _gathered(
                j, rule, h_start, h_index, h_place, head, dphi, e, BT, UH, longest, False
            )
            df += stray[:, None] * all_dp[None, :]
            dz = amp[:, None] * df * a * (1.0 - a)
            dm = tau[:, None] * dz
            tl.store(dmargin + spot, dm, mask=rule[:, None])
            rest += dm * off[:, None]
            by_stray, by_amp = tl.sum(f * all_dp[None, :], axis=1), tl.sum(a * df, axis=1)
            by_tau, by_slack = tl.sum(dz * margin, axis=1), tl.sum(dm, axis=1)
            by_off = -tl.sum(dm * missing[None, :], axis=1)
            if ONE:
                sum_stray += by_stray
                sum_amp += by_amp
                sum_tau += by_tau
                sum_slack += by_slack
                sum_off += by_off
            else:
                _add_five(
                    tile * R + own, rule, d_head_off, d_amp, d_tau, d_slack, d_off,
                    by_stray, by_amp, by_tau, by_slack, by_off,
                )  # fmt: skip
            if ONE:
                sum_head0 += _literal_sum(j, rule, 0, h_start, h_index, dphi, f, e, BT, False)
                sum_body0 -= _literal_sum(j, rule, 0, b_start, b_index, here, dm, e, BT, True)
                sum_body1 -= _literal_sum(j, rule, 1, b_start, b_index, here, dm, e, BT, True)
            _add_literals(j, rule, h_start, h_index, h_place, dphi, f, d_head + tile * head_count,
                          e, BT, 1 if ONE else 0, longest, 1.0, False)  # fmt: skip
            longest = tl.load(b_longest + start // RROWS)
            _add_literals(j, rule, b_start, b_index, b_place, here, dm, d_body + tile * body_count,
                          e, BT, 2 if ONE else 0, longest, -1.0, True)  # fmt: skip
        lost = tl.sum(rest, axis=0)
        tl.debug_barrier()
        for start in range(0, M, AROWS):
            i = start + tl.arange(0, AROWS)
            atom = i < M
            longest = tl.load(u_longest + start // AROWS)
            more = _gathered(
                i, atom, u_start, u_index, u_place, body, dmargin, e, BT, UU, longest, False
            )
            _add(d_state + i[:, None] * BT + e[None, :], atom[:, None], more + lost[None, :])
        here -= keep_stride
    if ONE:
        i = tl.arange(0, AROWS)
        atom = i < M
        own = tile * M + tl.load(atom_order + i, mask=atom, other=0)
        tl.store(d_theta + own, sum_theta, mask=atom)
        tl.store(d_beta + own, sum_beta, mask=atom)
        j = tl.arange(0, RROWS)
        rule = j < R
        _add_five(
            tile * R + tl.load(rule_order + j, mask=rule, other=0), rule,
            d_head_off, d_amp, d_tau, d_slack, d_off,
            sum_stray, sum_amp, sum_tau, sum_slack, sum_off,
        )  # fmt: skip
        _store_literal(j, rule, 0, h_start, h_place, d_head + tile * head_count, sum_head0)
        _store_literal(j, rule, 0, b_start, b_place, d_body + tile * body_count, sum_body0)
        _store_literal(j, rule, 1, b_start, b_place, d_body + tile * body_count, sum_body1)


@triton.jit
def _add_five(row, live, p1, p2, p3, p4, p5, m1, m2, m3, m4, m5):
    _add(p1 + row, live, m1)
    _add(p2 + row, live, m2)
    _add(p3 + row, live, m3)
    _add(p4 + row, live, m4)
    _add(p5 + row, live, m5)


@triton.jit
def _literal_sum(rows, live, p, start, index, source, factor, cols, ld, ONE_MINUS):
    """Σ_examples source (or 1 − source) · factor at the p-th literal of each row."""
    first = tl.load(start + rows, mask=live, other=0)
    here = p < tl.load(start + rows + 1, mask=live, other=0) - first
    other = tl.load(index + first + p, mask=here, other=0)
    value = tl.load(
        source + other.to(tl.int64)[:, None] * ld + cols[None, :], mask=here[:, None], other=0.0
    )
    if ONE_MINUS:
        value = 1.0 - value
    return tl.sum(value * factor, axis=1)


@triton.jit
def _store_literal(rows, live, p, start, place, into, total):
    first = tl.load(start + rows, mask=live, other=0)
    here = p < tl.load(start + rows + 1, mask=live, other=0) - first
    tl.store(into + tl.load(place + first + p, mask=here, other=0), total, mask=here)


@triton.jit
def _add_literals(
    rows, live, start, index, place, source, factor, into, cols, ld, begin, longest, SIGN, ONE_MINUS
):
    """into[literal] += SIGN · Σ_examples source (or 1 − source) · factor, each literal once."""
    first = tl.load(start + rows, mask=live, other=0)
    count = tl.load(start + rows + 1, mask=live, other=0) - first
    for p in range(begin, longest):
        more = _literal_sum(rows, live, p, start, index, source, factor, cols, ld, ONE_MINUS)
        here = p < count
        spot = into + tl.load(place + first + p, mask=here, other=0)
        tl.store(spot, tl.load(spot, mask=here, other=0.0) + SIGN * more, mask=here)


# -------------------------------------------------------------------- one launch a half step


@triton.jit
def _rules_half(
    s, missing, fire, margin, spread,
    b_start, b_index, b_place, body, body_off, slack, sharpness, amplitude, head_off,
    B, R, ld, RULES,
    KEEP_MARGIN: tl.constexpr, RB: tl.constexpr, BB: tl.constexpr, UB: tl.constexpr,
):  # fmt: skip
    e = tl.program_id(1) * BB + tl.arange(0, BB)
    seen = e < B
    gone = tl.load(missing + e, mask=seen, other=0.0).to(tl.float32)
    total = tl.zeros([BB], tl.float64)
    start = tl.program_id(0).to(tl.int64) * RULES
    for block in range(0, RULES, RB):
        j = start + block + tl.arange(0, RB)
        rule = j < R
        first = tl.load(b_start + j, mask=rule, other=0)
        longest = tl.max(tl.load(b_start + j + 1, mask=rule, other=0) - first, axis=0)
        lack = _gathered(j, rule, b_start, b_index, b_place, body, s, e, ld, UB, longest, True)
        off = tl.load(body_off + j, mask=rule, other=0.0)
        lack += off[:, None] * gone[None, :]
        over = tl.load(slack + j, mask=rule, other=0.0)[:, None] - lack
        tau = tl.load(sharpness + j, mask=rule, other=0.0)[:, None]
        f = tl.load(amplitude + j, mask=rule, other=0.0)[:, None] * _sigmoid(tau * over)
        both = rule[:, None] & seen[None, :]
        tl.store(fire + j[:, None] * ld + e[None, :], f, mask=both)
        if KEEP_MARGIN:
            tl.store(margin + j[:, None] * ld + e[None, :], over, mask=both)
        stray = tl.load(head_off + j, mask=rule, other=0.0)
        total += tl.sum(f * stray[:, None], axis=0).to(tl.float64)
    tl.store(spread + tl.program_id(0).to(tl.int64) * ld + e, total, mask=seen)


@triton.jit
def _atoms_half(
    s, after, fire, spread, missing,
    s_start, s_index, s_place, head, offset, gate,
    B, M, ld, ATOMS,
    BUMP: tl.constexpr, MB: tl.constexpr, BB: tl.constexpr, US: tl.constexpr,
):  # fmt: skip
    e = tl.program_id(1) * BB + tl.arange(0, BB)
    seen = e < B
    everywhere = tl.load(spread + e, mask=seen, other=0.0).to(tl.float32)
    beta = tl.load(gate)
    total = tl.zeros([BB], tl.float64)
    start = tl.program_id(0).to(tl.int64) * ATOMS
    for block in range(0, ATOMS, MB):
        i = start + block + tl.arange(0, MB)
        atom = i < M
        both = atom[:, None] & seen[None, :]
        first = tl.load(s_start + i, mask=atom, other=0)
        longest = tl.max(tl.load(s_start + i + 1, mask=atom, other=0) - first, axis=0)
        phi = _gathered(i, atom, s_start, s_index, s_place, head, fire, e, ld, US, longest, False)
        phi += everywhere[None, :] - tl.load(offset + i, mask=atom, other=0.0)[:, None]
        g, gamma = _share(phi, beta, BUMP)
        old = tl.load(s + i[:, None] * ld + e[None, :], mask=both, other=1.0)
        new = old + (1.0 - old) * (g * gamma)
        tl.store(after + i[:, None] * ld + e[None, :], new, mask=both)
        total += tl.sum(tl.where(both, 1.0 - new, 0.0), axis=0).to(tl.float64)
    tl.store(missing + tl.program_id(0).to(tl.int64) * ld + e, total, mask=seen)


@triton.jit
def _atoms_back(
    s, G, fire, spread, dphi, sums, d_theta, d_beta,
    s_start, s_index, s_place, head, offset, gate,
    B, M, ld, ATOMS,
    BUMP: tl.constexpr, MB: tl.constexpr, BB: tl.constexpr, US: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(1).to(tl.int64)
    e = column * BB + tl.arange(0, BB)
    seen = e < B
    everywhere = tl.load(spread + e, mask=seen, other=0.0).to(tl.float32)
    beta = tl.load(gate)
    total = tl.zeros([BB], tl.float64)
    start = tl.program_id(0).to(tl.int64) * ATOMS
    for block in range(0, ATOMS, MB):
        i = start + block + tl.arange(0, MB)
        atom = i < M
        both = atom[:, None] & seen[None, :]
        spot = i[:, None] * ld + e[None, :]
        first = tl.load(s_start + i, mask=atom, other=0)
        longest = tl.max(tl.load(s_start + i + 1, mask=atom, other=0) - first, axis=0)
        phi = _gathered(i, atom, s_start, s_index, s_place, head, fire, e, ld, US, longest, False)
        phi += everywhere[None, :] - tl.load(offset + i, mask=atom, other=0.0)[:, None]
        g, gamma = _share(phi, beta, BUMP)
        by_phi, by_beta = _slope(phi, beta, g, gamma, BUMP)
        old = tl.load(s + spot, mask=both, other=1.0)
        up = tl.load(G + spot, mask=both, other=0.0)
        weight = up * (1.0 - old)
        dp = tl.where(both, weight * by_phi, 0.0)
        tl.store(dphi + spot, dp, mask=both)
        tl.store(G + spot, up * (1.0 - g * gamma), mask=both)
        total += tl.sum(dp, axis=0).to(tl.float64)
        own = column * M + i
        _add(d_theta + own, atom, -tl.sum(dp, axis=1))
        _add(d_beta + own, atom, tl.sum(tl.where(both, weight * by_beta, 0.0), axis=1))
    tl.store(sums + tl.program_id(0).to(tl.int64) * ld + e, total, mask=seen)


@triton.jit
def _rules_back(
    s, missing, fire, margin, dphi, all_dphi, dmargin, lost,
    b_start, b_index, b_place, body_off, sharpness, amplitude, head_off,
    h_start, h_index, h_place, head,
    d_body, d_off, d_slack, d_tau, d_amp, d_head, d_head_off,
    B, R, ld, RULES, body_count, head_count,
    RB: tl.constexpr, BB: tl.constexpr, UH: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(1).to(tl.int64)
    e = column * BB + tl.arange(0, BB)
    seen = e < B
    gone = tl.load(missing + e, mask=seen, other=0.0).to(tl.float32)
    everywhere = tl.load(all_dphi + e, mask=seen, other=0.0).to(tl.float32)
    total = tl.zeros([BB], tl.float64)
    start = tl.program_id(0).to(tl.int64) * RULES
    for block in range(0, RULES, RB):
        j = start + block + tl.arange(0, RB)
        rule = j < R
        both = rule[:, None] & seen[None, :]
        spot = j[:, None] * ld + e[None, :]
        f = tl.load(fire + spot, mask=both, other=0.0)
        over = tl.load(margin + spot, mask=both, other=0.0)
        tau = tl.load(sharpness + j, mask=rule, other=0.0)
        amp = tl.load(amplitude + j, mask=rule, other=0.0)
        off = tl.load(body_off + j, mask=rule, other=0.0)
        stray = tl.load(head_off + j, mask=rule, other=0.0)
        a = _sigmoid(tau[:, None] * over)
        h_first = tl.load(h_start + j, mask=rule, other=0)
        h_longest = tl.max(tl.load(h_start + j + 1, mask=rule, other=0) - h_first, axis=0)
        df = _gathered(j, rule, h_start, h_index, h_place, head, dphi, e, ld, UH, h_longest, False)
        df = tl.where(both, df + stray[:, None] * everywhere[None, :], 0.0)
        dz = amp[:, None] * df * a * (1.0 - a)
        dm = tau[:, None] * dz
        tl.store(dmargin + spot, dm, mask=both)
        total += tl.sum(dm * off[:, None], axis=0).to(tl.float64)
        own = column * R + j
        _add_five(
            own, rule, d_head_off, d_amp, d_tau, d_slack, d_off,
            tl.sum(f * everywhere[None, :], axis=1),
            tl.sum(a * df, axis=1),
            tl.sum(dz * over, axis=1),
            tl.sum(dm, axis=1),
            -tl.sum(dm * gone[None, :], axis=1),
        )  # fmt: skip
        _add_literals(j, rule, h_start, h_index, h_place, dphi, f, d_head + column * head_count,
                      e, ld, 0, h_longest, 1.0, False)  # fmt: skip
        b_first = tl.load(b_start + j, mask=rule, other=0)
        b_longest = tl.max(tl.load(b_start + j + 1, mask=rule, other=0) - b_first, axis=0)
        _add_literals(j, rule, b_start, b_index, b_place, s, dm, d_body + column * body_count,
                      e, ld, 0, b_longest, -1.0, True)  # fmt: skip
    tl.store(lost + tl.program_id(0).to(tl.int64) * ld + e, total, mask=seen)


@triton.jit
def _add(spot, live, more):
    tl.store(spot, tl.load(spot, mask=live, other=0.0) + more, mask=live)


@triton.jit
def _states_back(
    G, dmargin, lost, u_start, u_index, u_place, body,
    B, M, ld, ATOMS,
    MB: tl.constexpr, BB: tl.constexpr, UU: tl.constexpr,
):  # fmt: skip
    e = tl.program_id(1).to(tl.int64) * BB + tl.arange(0, BB)
    seen = e < B
    everywhere = tl.load(lost + e, mask=seen, other=0.0).to(tl.float32)
    start = tl.program_id(0).to(tl.int64) * ATOMS
    for block in range(0, ATOMS, MB):
        i = start + block + tl.arange(0, MB)
        atom = i < M
        both = atom[:, None] & seen[None, :]
        spot = i[:, None] * ld + e[None, :]
        first = tl.load(u_start + i, mask=atom, other=0)
        longest = tl.max(tl.load(u_start + i + 1, mask=atom, other=0) - first, axis=0)
        more = _gathered(
            i, atom, u_start, u_index, u_place, body, dmargin, e, ld, UU, longest, False
        )
        tl.store(
            G + spot,
            tl.load(G + spot, mask=both, other=0.0) + more + everywhere[None, :],
            mask=both,
        )


# -------------------------------------------------------------------- launching


def _unroll(literals: Literals) -> int:
    return min(2, literals.most)


def _tile_shape(B: int) -> tuple[int, int, int]:
    """Examples a tile, rows at a time, and warps.

    A small batch wants every thread of the chip on few examples, a large one many small blocks.
    """
    return (4, 512, 16) if B <= 1024 else (8, 128, 8)


def _back_shape(structure: Structure, B: int) -> tuple[int, int, int]:
    """Atoms and rules at a time, and warps."""
    if B <= 1024:
        fitting = [
            [rows for rows in _ROWS if rows >= n] or [1024] for n in (structure.M, structure.R)
        ]
        return fitting[0][0], fitting[1][0], 16
    return 128, 128, 8


@dataclass(frozen=True)
class Kept:
    """What the forward pass leaves for the backward: every state, in the kernel's own layout."""

    states: Tensor
    steps: int
    tile: int  # examples a tile, or 0 for the layout of the launches by half steps


def run(
    structure: Structure, c: Coefficients, state: Tensor, steps: int, *, bump: bool, keep: bool
) -> tuple[Tensor, Kept | None]:
    """The state (B, M) after so many steps, and the states on the way if they are to be kept."""
    if not (structure.M and len(state)):
        return state.clone(), Kept(state, steps, 0) if keep else None
    return (_run_tiles if structure.one_launch else _run_halves)(
        structure, c, state, steps, bump, keep
    )


def back(
    structure: Structure, c: Coefficients, kept: Kept, grad: Tensor, *, bump: bool
) -> tuple[Tensor, Coefficients]:
    """The gradient of the state (B, M) and of every coefficient."""
    if not (structure.M and len(grad)) or kept.steps == 0:
        return grad.clone(), Coefficients(*(torch.zeros_like(x) for x in c))
    return (_back_tiles if kept.tile else _back_halves)(structure, c, kept, grad, bump)


def _run_tiles(
    structure: Structure, c: Coefficients, state: Tensor, steps: int, bump: bool, keep: bool
) -> tuple[Tensor, Kept | None]:
    B, (M, R) = len(state), (structure.M, structure.R)
    tile, rows, warps = _tile_shape(B)
    tiles = triton.cdiv(B, tile)
    kept = state.new_empty((steps + 1 if keep else 1, tiles, M, tile))
    fire = state.new_empty((tiles, max(1, R), tile))
    out = torch.empty_like(state)
    body, sources = structure.body, structure.sources
    _run_tile[(tiles,)](
        state, out, kept, fire, structure.rule_order, structure.atom_order,
        *body.by_runs_of(rows),
        c.body, c.body_off, c.slack, c.sharpness, c.amplitude, c.head_off,
        *sources.by_runs_of(rows), c.head, c.offset, c.gate,
        B, M, R, steps, kept.stride(0),
        KEEP=keep, BUMP=bump, ROWS=rows, BT=tile, UB=_unroll(body), US=_unroll(sources),
        num_warps=warps,
    )  # fmt: skip
    return out, Kept(kept, steps, tile) if keep else None


def _back_tiles(
    structure: Structure, c: Coefficients, kept: Kept, grad: Tensor, bump: bool
) -> tuple[Tensor, Coefficients]:
    B, (M, R), tile = len(grad), (structure.M, structure.R), kept.tile
    tiles = triton.cdiv(B, tile)
    a_rows, r_rows, warps = _back_shape(structure, B)
    fire, dmargin = (grad.new_empty((tiles, max(1, R), tile)) for _ in range(2))
    dphi, d_state = (grad.new_empty((tiles, M, tile)) for _ in range(2))
    parts = Coefficients(*(grad.new_zeros((tiles, max(1, x.numel()))) for x in c))
    parts = parts._replace(gate=grad.new_zeros((tiles, M)))
    body, sources, heads, uses = (
        structure.body, structure.sources, structure.heads, structure.uses,
    )  # fmt: skip
    _back_tile[(tiles,)](
        grad, kept.states, fire, dphi, dmargin, d_state, structure.rule_order, structure.atom_order,
        *body.by_runs_of(r_rows),
        c.body, c.body_off, c.slack, c.sharpness, c.amplitude, c.head_off,
        *sources.by_runs_of(a_rows), c.head, c.offset, c.gate,
        *heads.by_runs_of(r_rows), *uses.by_runs_of(a_rows),
        parts.body, parts.body_off, parts.slack, parts.sharpness, parts.amplitude, parts.head,
        parts.head_off, parts.offset, parts.gate,
        B, M, R, kept.steps, kept.states.stride(0), parts.body.shape[1], parts.head.shape[1],
        BUMP=bump, ONE=M <= a_rows and R <= r_rows, AROWS=a_rows, RROWS=r_rows, BT=tile,
        UB=_unroll(body), US=_unroll(sources), UH=_unroll(heads), UU=_unroll(uses),
        num_warps=warps,
    )  # fmt: skip
    by_atom = d_state.permute(0, 2, 1).reshape(tiles * tile, M)[:B]
    result = torch.empty_like(grad)
    result[:, structure.atom_order.long()] = by_atom
    return result, _summed(parts, c)


def _summed(parts: Coefficients, c: Coefficients) -> Coefficients:
    """Gradients summed over thread blocks, in the order of the blocks, in the shapes of `c`."""
    total = Coefficients(*(part.sum(0) for part in parts))
    total = total._replace(gate=total.gate.sum().reshape(1))
    return Coefficients(*(t[: x.numel()].reshape(x.shape) for t, x in zip(total, c, strict=True)))


class _Halves(NamedTuple):
    """The grids of the launches by half steps."""

    columns: int
    BB: int
    block: int
    rules: int
    atoms: int
    rule_grid: tuple[int, int]
    atom_grid: tuple[int, int]


def _halves(structure: Structure, B: int, elements: int = 2048) -> _Halves:
    BB = min(256, triton.next_power_of_2(B))
    block = max(1, elements // BB)
    columns = triton.cdiv(B, BB)

    def length(count: int) -> int:
        # Enough programs to fill the chip, few enough that their partial sums stay small.
        return block * max(1, min(16, triton.cdiv(count, block * 2048)))

    rules, atoms = length(structure.R), length(structure.M)
    return _Halves(
        columns, BB, block, rules, atoms,
        (max(1, triton.cdiv(structure.R, rules)), columns),
        (triton.cdiv(structure.M, atoms), columns),
    )  # fmt: skip


def _run_halves(
    structure: Structure, c: Coefficients, state: Tensor, steps: int, bump: bool, keep: bool
) -> tuple[Tensor, Kept | None]:
    B, (M, R) = len(state), (structure.M, structure.R)
    h = _halves(structure, B)
    kept = state.new_empty((steps + 1 if keep else 1, M, B))
    kept[0] = state.T
    fire = state.new_empty((max(1, R), B))
    missing = (1.0 - state).sum(1, dtype=torch.float64)
    spread = state.new_zeros((h.rule_grid[0], B), dtype=torch.float64)
    gone = state.new_empty((h.atom_grid[0], B), dtype=torch.float64)
    body, sources = structure.body, structure.sources
    for t in range(steps):
        now, after = kept[t if keep else 0], kept[t + 1 if keep else 0]
        _launch_rules(structure, c, h, now, missing, fire, fire, spread, keep_margin=False)
        _atoms_half[h.atom_grid](
            now, after, fire, spread.sum(0), gone,
            *sources[:3], c.head, c.offset, c.gate, B, M, B, h.atoms,
            BUMP=bump, MB=h.block, BB=h.BB, US=_unroll(sources), num_warps=8,
        )  # fmt: skip
        missing = gone.sum(0)
    return kept[-1].T.contiguous(), Kept(kept, steps, 0) if keep else None


def _launch_rules(
    structure: Structure, c: Coefficients, h: _Halves, now: Tensor, missing: Tensor, fire: Tensor,
    margin: Tensor, spread: Tensor, *, keep_margin: bool,
) -> None:  # fmt: skip
    B, R, body = now.shape[1], structure.R, structure.body
    if R:
        _rules_half[h.rule_grid](
            now, missing, fire, margin, spread,
            *body[:3], c.body, c.body_off, c.slack, c.sharpness, c.amplitude, c.head_off,
            B, R, B, h.rules,
            KEEP_MARGIN=keep_margin, RB=h.block, BB=h.BB, UB=_unroll(body), num_warps=8,
        )  # fmt: skip


def _back_halves(
    structure: Structure, c: Coefficients, kept: Kept, grad: Tensor, bump: bool
) -> tuple[Tensor, Coefficients]:
    B, (M, R) = len(grad), (structure.M, structure.R)
    h = _halves(structure, B)
    G = grad.T.contiguous()
    fire, margin, dmargin = (grad.new_empty((max(1, R), B)) for _ in range(3))
    dphi = torch.empty_like(G)
    wide = torch.float64
    spread, lost = (grad.new_zeros((h.rule_grid[0], B), dtype=wide) for _ in range(2))
    sums = grad.new_empty((h.atom_grid[0], B), dtype=wide)
    parts = Coefficients(*(grad.new_zeros((h.columns, max(1, x.numel()))) for x in c))
    parts = parts._replace(gate=grad.new_zeros((h.columns, M)))
    body, sources, heads, uses = (
        structure.body, structure.sources, structure.heads, structure.uses,
    )  # fmt: skip
    for t in reversed(range(kept.steps)):
        now = kept.states[t]
        missing = (1.0 - now).sum(0, dtype=wide)
        _launch_rules(structure, c, h, now, missing, fire, margin, spread, keep_margin=True)
        _atoms_back[h.atom_grid](
            now, G, fire, spread.sum(0), dphi, sums, parts.offset, parts.gate,
            *sources[:3], c.head, c.offset, c.gate, B, M, B, h.atoms,
            BUMP=bump, MB=h.block, BB=h.BB, US=_unroll(sources), num_warps=8,
        )  # fmt: skip
        if R:
            _rules_back[h.rule_grid](
                now, missing, fire, margin, dphi, sums.sum(0), dmargin, lost,
                *body[:3], c.body_off, c.sharpness, c.amplitude, c.head_off, *heads[:3], c.head,
                parts.body, parts.body_off, parts.slack, parts.sharpness, parts.amplitude,
                parts.head, parts.head_off,
                B, R, B, h.rules, parts.body.shape[1], parts.head.shape[1],
                RB=h.block, BB=h.BB, UH=_unroll(heads), num_warps=8,
            )  # fmt: skip
        _states_back[h.atom_grid](
            G, dmargin, lost.sum(0), *uses[:3], c.body, B, M, B, h.atoms,
            MB=h.block, BB=h.BB, UU=_unroll(uses), num_warps=8,
        )  # fmt: skip
    return G.T.contiguous(), _summed(parts, c)
