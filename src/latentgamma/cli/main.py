"""Entry point of the command line: runs a command and turns exceptions into exit codes.

Exit codes: 0 success; 1 the claim asked about does not hold; 2 bad input or a failure, with a
message on the standard error; 130 interrupted; 141 the output is no longer read.

Everything else is imported inside the functions, so that Ctrl-C during an import is handled too.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # importing typing would take longer than the rest of this module
if TYPE_CHECKING:
    from collections.abc import Container, Sequence
    from typing import NoReturn

#: The exit codes that shells use: 128 and the number of SIGINT or of SIGPIPE.
INTERRUPTED, BROKEN_PIPE = 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. No exception leaves this function."""
    options: set[str] = set()  # those of the command, once it is known
    try:
        return _run(argv, options)
    except BaseException as error:
        return _exit_code(error, options)


def script() -> NoReturn:
    """Run `main` and end the process; the console script and `python -m latentgamma` call it."""
    try:
        code = main()
        import signal

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # what is left is to exit
    except KeyboardInterrupt:  # a second Ctrl-C, while the first was handled
        code = INTERRUPTED
    if code == INTERRUPTED:
        os._exit(code)  # sys.exit might end in death by SIGINT, or in a message of some library
    sys.exit(code)


def import_torch() -> None:
    """Import torch; meanwhile Ctrl-C ends the process at once."""
    try:
        _import_whole("torch")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        from latentgamma.errors import MissingPackageError

        raise MissingPackageError("this command needs PyTorch", "torch") from None


def _import_whole(name: str) -> None:
    """Import a module; meanwhile Ctrl-C ends the process at once.

    A KeyboardInterrupt inside the compiled code that runs during an import would abort the process
    (torch), or become another exception (numpy).
    """
    import signal
    import threading

    if (
        sys.modules.get(name) is not None
        or threading.current_thread() is not threading.main_thread()
    ):
        return
    before = signal.signal(signal.SIGINT, lambda *_: os._exit(_fail("interrupted", INTERRUPTED)))
    try:
        __import__(name)
    finally:
        signal.signal(signal.SIGINT, before)


def _run(argv: Sequence[str] | None, options: set[str]) -> int:
    _prepare_streams()
    _import_whole("latentgamma.cli.arguments")  # and numpy with it
    import warnings

    from latentgamma.cli.arguments import parse_arguments
    from latentgamma.cli.console import announced_compilation, write_output

    with warnings.catch_warnings():
        if not sys.warnoptions:
            warnings.simplefilter("ignore")
        args = parse_arguments(argv)
        options.update(vars(args))
        with announced_compilation():
            code: int = args.run(args)
    write_output()
    return code


def _prepare_streams() -> None:
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:  # closed: the next file to be opened would become the standard stream
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        from latentgamma.cli.console import ClosedOutput

        sys.stdout = ClosedOutput()
    elif hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # names may not fit the encoding


# ---- Failures


def _exit_code(error: BaseException, options: Container[str]) -> int:
    """Print what went wrong, and return the exit code for it."""
    if _is_interrupt(error):
        return _fail("interrupted", INTERRUPTED)
    if isinstance(error, SystemExit):  # --help and --version
        return error.code if isinstance(error.code, int) else 0
    if isinstance(error, BrokenPipeError):
        _discard_output()
        return BROKEN_PIPE
    from latentgamma.cli.commands import UsageError
    from latentgamma.errors import CertificateError, LatentGammaError

    if isinstance(error, CertificateError):
        return _fail(str(error), 1)
    if isinstance(error, (UsageError, LatentGammaError, ImportError)):
        return _fail(with_options(str(error), options), 2)
    if isinstance(error, MemoryError):
        return _fail("there is not enough memory for this", 2)
    if isinstance(error, OSError):
        _discard_output()
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return _fail(f"{where}{error.strerror or error}", 2)
    if os.environ.get("LATENTGAMMA_TRACEBACK"):
        import traceback

        return _fail("".join(traceback.format_exception(error)), 2)
    return _fail(
        f"internal error, please report it: {type(error).__name__}: {error} "
        f"(LATENTGAMMA_TRACEBACK=1 shows where)",
        2,
    )


def _is_interrupt(error: BaseException | None) -> bool:
    """Return whether this is a KeyboardInterrupt, or was raised because of one by an import."""
    seen = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def with_options(message: str, options: Container[str]) -> str:
    """Return the message of a library function, with options in place of keyword arguments.

    A keyword argument stays as it is where the command has no such option.

    >>> with_options('labels contradict; pass noise="auto" or refine=True', ["noise", "refine"])
    'labels contradict; pass --noise auto or --refine'
    """
    import re

    renamed = {"forbidden": "forbid"}

    def option(found: re.Match[str]) -> str:
        name = renamed.get(found[1], found[1])
        if name not in options:
            return found[0]
        name, value = name.replace("_", "-"), found[2].strip("\"'")
        return f"--{name}" if value in ("", "True") else f"--{name} {value}"

    keywords = (
        "form|gate|dtype|gradient|depth|horizon|kind|label|heads|bodies|forbidden|max_body|noise|method|"
        "known|refine|seed|holdout|device|checkpoint|max_rules|max_seconds|steps"
    )
    message = re.sub(rf"\b({keywords})=(\"\w+\"|'\w+'|[\w.]+\b|)", option, message)
    return re.sub(r"\b(max_body)\b()", option, message)


def _fail(message: str, code: int) -> int:
    if sys.stderr is not None:
        try:
            sys.stderr.write(f"latentgamma: {message}\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            pass
    return code


def _discard_output() -> None:
    """Drop what cannot be written, so that the end of the process does not try again."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        import contextlib

        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
