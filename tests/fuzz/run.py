"""Fuzz one reader, guided by coverage. Needs atheris: pip install atheris.

    python tests/fuzz/run.py csv --seconds 600

What breaks is written to `tests/fuzz/findings/`; tests/test_fuzz_findings.py reads it from then on.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]


def main() -> None:
    import atheris

    with atheris.instrument_imports(include=["latentgamma"]):
        import targets

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=sorted(targets.TARGETS))
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    corpus = Path(tempfile.mkdtemp(prefix=f"fuzz-{options.target}-"))
    with atheris.instrument_imports(include=["latentgamma"]):  # what is imported only when used
        for i, data in enumerate(targets.seeds(options.target)):
            (corpus / f"seed{i}").write_bytes(data)
            targets.check(options.target, data)
    atheris.Setup(
        [
            sys.argv[0],
            str(corpus),
            f"-max_total_time={options.seconds}",
            f"-seed={options.seed}",
            "-max_len=4096",
            "-rss_limit_mb=4096",
            "-timeout=20",
            f"-artifact_prefix={HERE / 'findings' / options.target}-",
        ],
        lambda data: targets.check(options.target, data),
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
