"""Fuzz one reader, guided by coverage. Needs atheris: pip install atheris.

    python tests/fuzz/fuzz_readers.py csv --seconds 600

What breaks is written to `tests/fuzz/findings/`; tests/program/test_fuzz_findings.py reads it from then on.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]


#: The readers.
READERS = ["program", "learning", "operator.files", "datalog", "paper.report", "paper.results"]


def main() -> None:
    import atheris

    include = [f"latentgamma.{name}" for name in READERS]
    with atheris.instrument_imports(include=include):
        import targets

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=sorted(targets.TARGETS))
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    corpus = Path(tempfile.mkdtemp(prefix=f"fuzz-{options.target}-"))
    # Some modules are imported only when they are used.
    with atheris.instrument_imports(include=include):
        seeds = targets.seeds(options.target)
        for i, data in enumerate(seeds):
            (corpus / f"seed{i}").write_bytes(data)
            targets.check(options.target, data)
    atheris.Setup(
        [
            sys.argv[0],
            str(corpus),
            f"-max_total_time={options.seconds}",
            f"-seed={options.seed}",
            f"-max_len={max(4096, 2 * max(map(len, seeds)))}",  # a seed must fit
            "-rss_limit_mb=4096",
            "-timeout=20",
            f"-artifact_prefix={HERE / 'findings' / options.target}-",
        ],
        lambda data: targets.check(options.target, data),
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
