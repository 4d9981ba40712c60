"""Pictures of the results as SVG text, drawn without any library.

Colours are CSS classes, so that the page decides them, in light and in dark.
"""

from __future__ import annotations

import base64
import math
import re
import struct
import zlib
from collections.abc import Callable, Sequence
from html import escape

from latentgamma.validation.printed import GRAPHS, SIGMAS
from latentgamma.validation.results import CriticalRow, NoiseRow, Picture, WindowRow

_WIDTH, _HEIGHT = 420.0, 260.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 44.0, 12.0, 12.0, 36.0
_BLUE = (42, 120, 214)
Point = tuple[float, float]


def _svg(width: float, height: float, label: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}">'
        f"<title>{escape(label)}</title>{''.join(parts)}</svg>"
    )


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "middle") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{style}>{escape(text)}</text>'


def _line(points: Sequence[Point], kind: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" class="{kind}" fill="none"/>'


def _dot(x: float, y: float, kind: str, r: float, title: str) -> str:
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:g}" class="{kind}">'
        f"<title>{escape(title)}</title></circle>"
    )


class _Axes:
    """A frame with two scales, linear or logarithmic."""

    def __init__(self, x: Point, y: Point, *, log: bool = False) -> None:
        self._x, self._y = (_scale(*x, log), _scale(*y, log))
        self.parts: list[str] = []

    def x(self, value: float) -> float:
        return _LEFT + self._x(value) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - self._y(value) * (_HEIGHT - _TOP - _BOTTOM)

    def ticks(self, xs: Sequence[tuple[float, str]], ys: Sequence[tuple[float, str]]) -> None:
        left, bottom = _LEFT, _HEIGHT - _BOTTOM
        for value, label in ys:
            y = self.y(value)
            self.parts.append(_line([(left, y), (_WIDTH - _RIGHT, y)], "grid"))
            self.parts.append(_text(left - 6, y + 3.5, label, "tick", "end"))
        for value, label in xs:
            self.parts.append(_text(self.x(value), bottom + 15, label, "tick"))
        self.parts.append(_line([(left, bottom), (_WIDTH - _RIGHT, bottom)], "axis"))

    def label(self, text: str) -> None:
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        self.parts.append(_text(middle, _HEIGHT - 4, text, "tick"))

    def mark(self, x: float, kind: str, text: str) -> None:
        """A vertical line with a word at its foot, where curves seldom are."""
        at = self.x(x)
        self.parts.append(_line([(at, _TOP), (at, _HEIGHT - _BOTTOM)], f"{kind} dashed"))
        place = (-4, "end") if at > _LEFT + 90 else (4, "start")
        foot = _HEIGHT - _BOTTOM - 7
        self.parts.append(_text(at + place[0], foot, text, f"word {kind}-text", place[1]))


def _scale(low: float, high: float, log: bool) -> Callable[[float], float]:
    if log:
        a, b = math.log10(low), math.log10(high)
        return lambda v: min(1.0, max(0.0, (math.log10(max(v, low)) - a) / (b - a)))
    return lambda v: (v - low) / (high - low)


# -------------------------------------------------------------------- the collapse


def collapse(name: str, rows: Sequence[NoiseRow], critical: CriticalRow) -> str:
    """Accuracy against noise: ours, the paper's, and the chance that no sign changes."""
    axes = _Axes((0.9, 3.35), (0.0, 1.04))
    axes.ticks([(s, f"{s:g}") for s in SIGMAS], [(v, f"{v:g}") for v in (0, 0.25, 0.5, 0.75, 1)])
    axes.label("noise σ on the body logits")
    axes.mark(critical.predicted, "bound", f"σ_max {critical.predicted:.2f}")
    shown = [(axes.x(s), axes.y(p)) for s, p in critical.curve if s <= 3.35]
    axes.parts.append(_line(shown, "bound"))
    printed = GRAPHS[name].accuracy
    axes.parts.append(
        _line([(axes.x(s), axes.y(v)) for s, v in zip(SIGMAS, printed, strict=True)], "paper thin")
    )
    axes.parts.append(_line([(axes.x(r.sigma), axes.y(r.accuracy)) for r in rows], "ours thin"))
    for row, theirs in zip(rows, printed, strict=True):
        x = axes.x(row.sigma)
        ends = [(x, axes.y(min(row.accuracies))), (x, axes.y(max(row.accuracies)))]
        axes.parts.append(_line(ends, "ours"))
        axes.parts.append(_dot(x, axes.y(theirs), "paper hollow", 5.5, f"paper: {theirs:.3f}"))
        seen = f"σ = {row.sigma:g}: {row.accuracy:.3f}, {sum(row.certified)} of "
        seen += f"{len(row.certified)} models still proved right"
        kind = "ours solid" if all(row.certified) else "ours hollow"
        axes.parts.append(_dot(x, axes.y(row.accuracy), kind, 3.6, seen))
    label = f"{name.upper()}: accuracy against body noise. " + "; ".join(
        f"σ {row.sigma:g}: ours {row.accuracy:.3f}, paper {theirs:.3f}"
        for row, theirs in zip(rows, printed, strict=True)
    )
    return _svg(_WIDTH, _HEIGHT, label, axes.parts)


# -------------------------------------------------------------------- the leak


def leak(name: str, rows: Sequence[WindowRow]) -> str:
    """The largest underivable atom against time: the proved bound, and what was seen."""
    far = max([p[0] for row in rows for p in row.bound] + [row.promised or 0 for row in rows])
    top = 10.0 ** math.ceil(math.log10(max(far, 1e3)))
    axes = _Axes((1, top), (1e-12, 1), log=True)
    powers = range(0, round(math.log10(top)) + 1, 2 if top < 1e9 else 4)
    axes.ticks(
        [(10.0**p, _power(p)) for p in powers], [(10.0**p, _power(p)) for p in (-12, -9, -6, -3, 0)]
    )
    axes.label("steps")
    half = axes.y(0.5)
    axes.parts.append(_line([(_LEFT, half), (_WIDTH - _RIGHT, half)], "axis dashed"))
    axes.parts.append(_text(_LEFT + 4, half + 11, "½: true", "word tick", "start"))
    for row, kind in zip(rows, ("paper", "ours"), strict=True):
        axes.parts.append(_line([(axes.x(s), axes.y(v)) for s, v in row.bound], kind))
        for steps, value in row.measured:
            if value < 1e-12:
                continue  # below the frame
            seen = f"{row.constants} constants, step {steps}: {value:.2g}"
            axes.parts.append(_dot(axes.x(steps), axes.y(value), f"{kind} solid", 2.6, seen))
        if row.constants == "paper" and row.promised is not None:
            axes.mark(row.promised, "promise", "promised end")
    words = "; ".join(
        f"{row.constants} constants: proved to step {row.t_max:.4g}" for row in rows if row.t_max
    )
    return _svg(_WIDTH, _HEIGHT, f"{name.upper()}: leak against steps. {words}", axes.parts)


def _power(exponent: int) -> str:
    signs = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    return "1" if exponent == 0 else "10" + str(exponent).translate(signs)


# -------------------------------------------------------------------- a run


def heat_map(picture: Picture) -> str:
    """A run as a picture: a column per step, a row per atom, in the order they come true."""
    steps, atoms = len(picture.states), len(picture.atoms)
    crossing = crossings(picture)
    order = sorted(range(atoms), key=lambda i: (crossing[i] < 0, crossing[i], i))
    pixels = [[row[i] for row in picture.states] for i in order]  # (M, T + 1)
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    image = base64.b64encode(_png(pixels)).decode()
    parts = [
        f'<rect x="{_LEFT}" y="{_TOP}" width="{width}" height="{height}" class="ground"/>',
        f'<image x="{_LEFT}" y="{_TOP}" width="{width}" height="{height}" '
        f'preserveAspectRatio="none" class="pixels" href="data:image/png;base64,{image}"/>',
    ]
    for step in range(0, steps, 6):
        x = _LEFT + (step + 0.5) / steps * width
        parts.append(_text(x, _HEIGHT - _BOTTOM + 15, str(step), "tick"))
    parts.append(_text(_LEFT + width / 2, _HEIGHT - 4, "step", "tick"))
    parts.append(_text(_LEFT - 6, _TOP + 9, "1", "tick", "end"))
    parts.append(_text(_LEFT - 6, _TOP + height, str(atoms), "tick", "end"))
    derived = sum(at >= 0 for at in crossing)
    label = (
        f"{picture.graph.upper()}: {len(picture.facts)} fact(s) derive {derived} of {atoms} atoms "
        f"in {max(crossing)} steps"
    )
    return _svg(_WIDTH, _HEIGHT, label, parts)


def crossings(picture: Picture) -> list[int]:
    """The first step at which each atom is above one half, −1 where it never is."""
    return [
        next((t for t, row in enumerate(picture.states) if row[i] > 50), -1)
        for i in range(len(picture.atoms))
    ]


def _png(percent: Sequence[Sequence[int]]) -> bytes:
    """A picture of numbers from 0 to 100: one colour, as opaque as the number says."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(
            ">I", zlib.crc32(kind + data)
        )  # fmt: skip

    height, width = len(percent), len(percent[0])
    lines = b"".join(b"\0" + bytes(row) for row in percent)
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            chunk(b"PLTE", bytes(_BLUE) * 101),
            chunk(b"tRNS", bytes(round(2.55 * value) for value in range(101))),
            chunk(b"IDAT", zlib.compress(lines, 9)),
            chunk(b"IEND", b""),
        )
    )


# -------------------------------------------------------------------- a program


def program_map(picture: Picture) -> str:
    """A program as a map: a line for every chain of atoms, from left to right by rank."""
    level = _levels(picture)
    lane = _lanes(picture.atoms)
    lanes = max(lane) + 1
    apart = min(22.0, max(6.0, 340.0 / lanes))
    width, margin = 840.0, 12.0
    height = 2 * margin + apart * max(1, lanes - 1)
    wide = (width - 2 * margin) / max(1, *level)

    def place(i: int) -> Point:
        return margin + wide * level[i], margin + apart * lane[i]

    along, across = [], []
    for heads, body in zip(picture.heads, picture.bodies, strict=True):
        for head in heads:
            for atom in body:
                (x, y), (u, v) = place(atom), place(head)
                if lane[atom] == lane[head] and level[head] == level[atom] + 1:
                    along.append(f"M{x:.1f} {y:.1f}H{u:.1f}")
                else:
                    bend = (u - x) / 2 if y != v else 0.0
                    lift = 0.0 if y != v else -0.7 * apart
                    across.append(
                        f"M{x:.1f} {y:.1f}C{x + bend:.1f} {y + lift:.1f} "
                        f"{u - bend:.1f} {v + lift:.1f} {u:.1f} {v:.1f}"
                    )
    crossing, facts = crossings(picture), set(picture.facts)
    radius = min(5.0, 0.36 * apart)
    dots = []
    for i, name in enumerate(picture.atoms):
        x, y = place(i)
        kind = "atom fact" if i in facts else "atom true" if crossing[i] >= 0 else "atom"
        dots.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" class="{kind}" '
            f'data-t="{crossing[i]}"><title>{escape(name)}</title></circle>'
        )
    parts = [
        f'<path d="{"".join(across)}" class="across"/>',
        f'<path d="{"".join(along)}" class="along"/>',
        *dots,
    ]
    label = f"{picture.graph.upper()}: {len(picture.atoms)} atoms, {len(picture.heads)} rules"
    return _svg(width, height, label, parts)


def _levels(picture: Picture) -> list[int]:
    """The longest way from the roots to each atom; rules that close a circle count once."""
    level = [0] * len(picture.atoms)
    for _ in range(len(level)):
        before = list(level)
        for heads, body in zip(picture.heads, picture.bodies, strict=True):
            above = 1 + max((level[i] for i in body), default=-1)
            for head in heads:
                level[head] = min(len(level), max(level[head], above))
        if level == before:
            break
    return level


def _lanes(atoms: Sequence[str]) -> list[int]:
    """One lane for all atoms that differ in their number alone, kin lanes side by side."""
    keys = [re.sub(r"\d+$", "", name) for name in atoms]
    kin: dict[str, list[str]] = {}
    for key in dict.fromkeys(keys):
        kin.setdefault(key.split("_", 1)[0], []).append(key)
    order = {key: i for i, key in enumerate(key for group in kin.values() for key in group)}
    return [order[key] for key in keys]
