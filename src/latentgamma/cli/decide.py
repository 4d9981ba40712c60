"""The commands `decide` and `serve`: decisions on the requests of a file, and over HTTP."""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import latentgamma as lg
from latentgamma._atomic_write import atomic_write
from latentgamma._progress import ProgressBar
from latentgamma._text import quantity
from latentgamma.cli.commands import UsageError, check_outputs, read_program
from latentgamma.cli.console import Screen, print_message, write_output
from latentgamma.decide.requests import count_requests, read_requests
from latentgamma.errors import DataError

# Errors that are printed.
_MOST_ERRORS = 20
# Connections that the service keeps open; more are refused.
_CONNECTIONS = 200
# How long requests that are being answered may take after Ctrl-C.
_LAST_SECONDS = 3


def decide(args: argparse.Namespace) -> int:
    """Write a decision for each request; return 0, or 2 if some requests are bad."""
    check_outputs({"-o": args.output}, {"RULES": args.rules, "REQUESTS": args.requests})
    decider = _decider(args)
    requests = read_requests(decider, args.requests, id_column=args.id)
    bad, yes = 0, Counter[str]()
    total = count_requests(args.requests)
    with _writer(args.output) as write, ProgressBar() as bar:
        values: dict[str, Any]
        number = -1  # as rows of a table are counted in Python, from 0
        for number, request in enumerate(requests):
            values = {"request": number}
            if args.id is not None:
                plain = request.id is None or isinstance(request.id, (str, int))
                values["id"] = request.id if plain else str(request.id)
            try:
                decision = request.decide(decider)
                with request.errors_with_place():
                    values |= decision.to_dict(proof=args.proof, missing=args.missing)
            except DataError as error:
                if args.stop:
                    raise
                bad += 1
                values["error"] = str(error)
                if bad <= _MOST_ERRORS:
                    print_message(str(error))
            else:
                yes.update(name for name, answer in decision.answers.items() if answer)
            write(f"{json.dumps(values)}\n")
            bar("requests", number + 1, total)
    if args.json and args.output:
        Screen().json({"requests": number + 1, "bad": bad, "output": args.output})
    elif args.output:
        answers = ", ".join(f"{name}: {yes[name]:,} yes" for name in decider.questions)
        print_message(f"{quantity(number + 1 - bad, 'decision')} in {args.output} ({answers})")
    if bad:
        print_message(f"{quantity(bad, 'request')} of {number + 1:,} could not be decided")
    return 2 if bad else 0


def serve(args: argparse.Namespace) -> int:
    """Answer requests over HTTP until Ctrl-C."""
    decider = _decider(args)
    application = lg.decide.application(
        decider, max_bytes=args.max_bytes, max_requests=args.max_requests, seconds=args.seconds
    )
    import uvicorn

    async def served(scope: Any, receive: Any, send: Any) -> None:
        try:
            await application(scope, receive, send)
        except asyncio.CancelledError:  # the service stops; uvicorn would log a traceback
            await _send_stopped(send)

    server = uvicorn.Server(
        uvicorn.Config(
            served,
            host=args.host,
            port=args.port,
            log_level="warning",
            lifespan="off",  # a second Ctrl-C would end its task with a traceback
            limit_concurrency=_CONNECTIONS,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=_LAST_SECONDS,
        )
    )
    with closing(_bound(args.host, args.port)) as listening:
        port = listening.getsockname()[1]
        print_message(f"http://{args.host}:{port}/decide (Ctrl-C to stop)")
        server.run([listening])
    return 0


async def _send_stopped(send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    """Answer a request that is not finished when the service stops."""
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": b'{"error": "the service stops"}'})


def _bound(host: str, port: int) -> socket.socket:
    """Return a socket that listens at the address; port 0 is any free one."""
    if not host:  # which would be all addresses of the machine
        raise UsageError("--host is empty; name an address, such as 127.0.0.1, or 0.0.0.0 for all")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen()  # who connects as soon as the address is printed is not refused
    except (OSError, OverflowError) as error:
        found.close()
        raise UsageError(f"cannot listen on {host}:{port}: {error}") from None
    return found


def _decider(args: argparse.Namespace) -> lg.Decider:
    questions = [name.strip() for name in args.question]
    program = read_program(args)
    if not questions:
        raise UsageError("--question names an atom to decide, such as --question approve")
    return lg.Decider(program, questions, unknown="ignore" if args.ignore_unknown else "refuse")


@contextmanager
def _writer(path: str | None) -> Iterator[Callable[[str], object]]:
    """Yield the function that writes a line to a file, or to the standard output."""
    if path is None:
        yield write_output
        return
    with atomic_write(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        yield file.write
