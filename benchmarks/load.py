"""Loading a text of rules, beside clingo parsing and grounding the same text."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

# The resource module would count the memory of the process that started this one, too.
_PEAK = """
import re, resource

def peak_mb():
    try:
        with open("/proc/self/status") as file:
            return int(re.search(r"VmHWM:\\s*(\\d+)", file.read())[1]) / 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
"""

_OURS = """
import json, sys, time
import latentgamma as lg
lg.parse("a.")
times = []
for _ in range(int(sys.argv[2])):
    program = None
    start = time.perf_counter()
    program = lg.load(sys.argv[1])
    times.append(time.perf_counter() - start)
print(json.dumps({"seconds": min(times), "peak_mb": peak_mb(), "rules": program.R}))
"""

_CLINGO = """
import json, sys, time
import clingo
start = time.perf_counter()
control = clingo.Control(logger=lambda code, message: None)
control.load(sys.argv[1])
control.ground([("base", [])])
seconds = time.perf_counter() - start
peak = peak_mb()
control.solve()
rules = int(control.statistics["problem"]["lp"]["rules"])
print(json.dumps({"seconds": seconds, "peak_mb": peak, "rules": rules}))
"""


def load_cases(rules: int, *, body: int = 3, seed: int = 0) -> list[dict[str, object]]:
    """Rows of name, seconds, peak_mb and ratio: clingo's seconds by ours, for the same text.

    There are as many atoms as rules. Names are words (a123456), and again terms (a(123456)),
    which suit clingo better. A tenth of the atoms are #external and every body atom comes
    before its head, so that clingo keeps all rules, and both must find the same number.
    """
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        for form, pattern in (("words", "a{}"), ("terms", "a({})")):
            path = Path(folder) / f"{form}.lp"
            path.write_text(rule_text(rules, body, pattern, seed))
            ours, peer = _run(_OURS, path, 3), _run(_CLINGO, path)
            if not ours["rules"] == peer["rules"] == rules:
                raise SystemExit(f"{form}: {rules} rules, but {ours=} and {peer=}")
            ratio = peer["seconds"] / ours["seconds"]
            rows.append(_row(f"latentgamma load, {form}", ours, ratio))
            rows.append(_row(f"clingo load + ground, {form}", peer))
    return rows


def rows() -> list[dict[str, object]]:
    """A million rules with bodies of three."""
    return load_cases(1_000_000)


def rule_text(rules: int, body: int, pattern: str, seed: int) -> str:
    """A text of that many rules over as many atoms, in random order."""
    generator = np.random.default_rng(seed)
    roots = max(1, rules // 10)
    names = [pattern.format(i) for i in range(rules)]
    heads = np.concatenate([np.arange(roots, rules), generator.integers(roots, rules, roots)])
    bodies = (generator.random((rules, body)) * heads[:, None]).astype(np.int64)
    order = generator.permutation(rules)
    lines = [f"#external {name}." for name in names[:roots]]
    for head, atoms in zip(heads[order].tolist(), bodies[order].tolist(), strict=True):
        lines.append(f"{names[head]} :- {', '.join([names[i] for i in atoms])}.")
    return "\n".join(lines) + "\n"


def _run(code: str, *arguments: object) -> dict[str, float]:
    """What a fresh interpreter prints, so that each peak of memory is its own."""
    done = subprocess.run(
        [sys.executable, "-c", _PEAK + code, *map(str, arguments)],
        check=True,
        capture_output=True,
        text=True,
    )
    result: dict[str, float] = json.loads(done.stdout)
    return result


def _row(name: str, result: dict[str, float], ratio: float | None = None) -> dict[str, object]:
    return {
        "name": name,
        "seconds": round(result["seconds"], 4),
        "peak_mb": round(result["peak_mb"], 1),
        "ratio": None if ratio is None else round(ratio, 1),
    }


if __name__ == "__main__":
    for row in load_cases(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000):
        print(row)
