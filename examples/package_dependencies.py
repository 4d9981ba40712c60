"""Package dependencies: what an installation needs, what a removal breaks, and why.

It reads this machine's own packages (`dpkg-query`), or the excerpt in packages.csv.
"""

import csv
import re
import subprocess
from pathlib import Path

import latentgamma as lg

RULES = """
needs(P,Q) :- depends(P,Q).
needs(P,R) :- depends(P,Q), needs(Q,R).
broken(P) :- needs(P,Q), removed(Q).
works(P) :- package(P), not removed(P), not broken(P).
package(P) :- depends(P,Q).
package(Q) :- depends(P,Q).
#external removed(P) : package(P).
"""


def installed() -> list[tuple[str, str]]:
    """Pairs of a package and one that it depends on; the first of several alternatives."""
    command = ["dpkg-query", "-W", "-f", "${Package}\\t${Pre-Depends}, ${Depends}\\n"]
    try:
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        lines = ""
    pairs = set()
    for line in lines.splitlines():
        package, _, depends = line.partition("\t")
        for alternative in filter(None, (part.strip() for part in depends.split(","))):
            pairs.add((package, re.split(r"[\s(:|]", alternative)[0]))
    return sorted(pairs)


depends = installed()[:400]
if not depends:
    with open(Path(__file__).with_name("packages.csv"), newline="") as file:
        depends = [(row["package"], row["depends"]) for row in csv.DictReader(file)]
program = lg.datalog.ground(RULES, facts={"depends": depends})
print(f"{len(depends):,} dependencies, {program.M:,} atoms, {program.R:,} rules")

# Which packages would the removal of each single package break? One fact set for each.
removals = [name for name in lg.datalog.inputs(program) if name.startswith("removed(")]
works = [i for i, name in enumerate(program.atoms) if name.startswith("works(")]
left = lg.closures(program, [[removal] for removal in removals])[:, works].sum(axis=1)
worst = left.argmin()
print(f"{removals[worst]} leaves {left[worst]} of {len(works)} packages")

# Why does the first package that breaks not work any more, and what would help?
closed = lg.closure(program, [removals[worst]])
lost = next(n for n in program.atoms if n.startswith("works(") and n not in closed)
print(lg.why_not(program, [removals[worst]], lost))
broken = next(name for name in closed if name.startswith("broken("))
print(lg.derivation(program, [removals[worst]], broken))
