"""An HTTP service that decides requests: an ASGI application on Starlette."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

from latentgamma._arguments import real_number, whole_number
from latentgamma._version import __version__
from latentgamma.decide.columns import is_uncertain
from latentgamma.decide.decider import SCHEMA, Decider
from latentgamma.decide.requests import json_kind, parse_json
from latentgamma.errors import ArgumentError, DataError, LatentGammaError, optional_package

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

#: Explanations and probabilities that are computed at the same time.
_THREADS = 4


def application(
    decider: Decider, *, max_bytes: int = 1 << 20, max_requests: int = 1000, seconds: float = 10.0
) -> Starlette:
    """Return an ASGI application that answers requests with decisions.

    `POST /decide` takes a request as a JSON object, or a list of them, and returns decisions as
    `lg.decide.SCHEMA` describes them; `POST /explain` adds proofs and smallest changes. `GET
    /healthz` says that the service runs and the digest of its program, and `GET /openapi.json`
    describes all of this. A bad request gives a JSON object with an `error`.

    >>> from latentgamma import Decider
    >>> service = application(Decider("minor :- age < 18.", "minor"))
    >>> [route.path for route in service.routes]
    ['/decide', '/explain', '/healthz', '/openapi.json']

    Args:
        decider: what decides.
        max_bytes: the size of the largest body that is read.
        max_requests: the length of the longest list of requests.
        seconds: the time after which an explanation is given up, and a decision on uncertain facts.

    Raises:
        MissingPackageError: if Starlette is not installed.
        ArgumentError: if a limit is not a number from 1 on.
    """
    with optional_package("the service needs Starlette", "serve"):
        import anyio
        from starlette.applications import Starlette
        from starlette.exceptions import HTTPException
        from starlette.requests import ClientDisconnect
        from starlette.responses import Response
        from starlette.routing import Route
    if not isinstance(decider, Decider):
        raise ArgumentError(f"application takes a Decider, not {type(decider).__name__}")
    whole_number("max_bytes", max_bytes, 1)
    whole_number("max_requests", max_requests, 1)
    real_number("seconds", seconds, "a number of seconds above 0", lambda x: 0 < x < 1e9)
    limiter: list[Any] = []
    facts = frozenset(decider.facts)

    def reply(values: Any, status: int = 200) -> Response:
        # Escapes instead of letters beyond ASCII: a name may have half a surrogate pair.
        return Response(json.dumps(values).encode(), status, media_type="application/json")

    async def body_of(request: Request) -> bytes:
        data = bytearray()
        try:
            async for part in request.stream():
                data += part
                if len(data) > max_bytes:
                    raise HTTPException(413, f"the body is larger than {max_bytes:,} bytes")
        except ClientDisconnect:  # nobody reads the reply, but the log has no traceback
            raise HTTPException(
                400, "the connection was closed before the end of the body"
            ) from None
        return bytes(data)

    async def decide(request: Request) -> Response:
        return await answer(request, explain=False)

    async def explain(request: Request) -> Response:
        return await answer(request, explain=True)

    async def answer(request: Request, *, explain: bool) -> Response:
        data = await body_of(request)
        try:
            found = parse_json(data)
        except DataError as error:
            return reply({"error": str(error)}, 400)
        several = found if isinstance(found, list) else [found]
        if len(several) > max_requests:
            raise HTTPException(413, f"{len(several):,} requests are more than {max_requests:,}")
        if not explain and not any(_has_uncertain(facts, one) for one in several):
            return reply(*_decided(decider, found, explain=False))
        if not limiter:
            limiter.append(anyio.CapacityLimiter(_THREADS))
        stop = threading.Event()
        try:
            with anyio.move_on_after(seconds):
                answered = await anyio.to_thread.run_sync(
                    lambda: _decided(decider, found, explain=explain, stop=stop),
                    abandon_on_cancel=True,
                    limiter=limiter[0],
                )
                return reply(*answered)
        finally:
            stop.set()  # a thread that is given up ends after the request at hand
        what = "the explanation" if explain else "the decision"
        raise HTTPException(503, f"{what} takes longer than {seconds:g} s")

    async def health(request: Request) -> Response:
        return reply({"status": "ok", "version": __version__, "digest": decider.digest})

    async def description(request: Request) -> Response:
        return reply(_openapi(decider))

    async def refused(request: Request, error: Exception) -> Response:
        status = getattr(error, "status_code", 500)
        detail = str(getattr(error, "detail", "")) or "the service failed"
        return reply({"error": detail if status != 500 else "the service failed"}, status)

    return Starlette(
        routes=[
            Route("/decide", decide, methods=["POST"]),
            Route("/explain", explain, methods=["POST"]),
            Route("/healthz", health, methods=["GET"]),
            Route("/openapi.json", description, methods=["GET"]),
        ],
        exception_handlers={HTTPException: refused, 500: refused},
    )


def _has_uncertain(facts: frozenset[str], request: Any) -> bool:
    """Return whether a request gives facts with probabilities, which can take long to sum over."""
    return isinstance(request, dict) and any(
        name in facts and is_uncertain(value) for name, value in request.items()
    )


def _decided(
    decider: Decider, found: Any, *, explain: bool, stop: threading.Event | None = None
) -> tuple[Any, int]:
    """Return the reply to a request or a list of them, and its status."""

    def one(request: Any) -> dict[str, Any]:
        if not isinstance(request, dict):
            raise DataError(f"a request is a JSON object, not {json_kind(request)}")
        return decider(request).to_dict(proof=explain, missing=explain)

    if not isinstance(found, list):
        try:
            return one(found), 200
        except LatentGammaError as error:
            return {"error": str(error)}, 400
    replies = []
    for request in found:
        if stop is not None and stop.is_set():
            break
        try:
            replies.append(one(request))
        except LatentGammaError as error:
            replies.append({"error": str(error)})
    return replies, 200


def _openapi(decider: Decider) -> dict[str, Any]:
    """Return the description of the service in the form of OpenAPI."""
    properties: dict[str, Any] = {}
    for name, column in decider.columns.items():
        kinds = {True: ["string", "boolean", "null"], False: ["number", "null"]}
        properties[name] = {"type": kinds[column.text]} if column.text is not None else {}
    for name in decider.facts:
        properties[name] = {
            "description": "true, false, yes, no, or a probability",
            "type": ["boolean", "number", "string", "null"],
            "pattern": r"^\s*([Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]|[Yy][Ee][Ss]|[Nn][Oo])\s*$",
            "minimum": 0,
            "maximum": 1,
        }
    request = {
        "description": "more names are ignored if all that the rules need are there",
        "type": "object",
        "properties": properties,
    }
    decision = {key: value for key, value in SCHEMA.items() if key != "$schema"}
    failed = {
        "type": "object",
        "required": ["error"],
        "properties": {"error": {"type": "string"}},
    }

    def content(schema: dict[str, Any]) -> dict[str, Any]:
        return {"content": {"application/json": {"schema": schema}}}

    one, decided, error = (
        {"$ref": f"#/components/schemas/{name}"} for name in ("Request", "Decision", "Failed")
    )
    requests = {"oneOf": [one, {"type": "array", "items": one}]}
    # In a list, the error of a bad request is in the place of its decision.
    replies = {"oneOf": [decided, {"type": "array", "items": {"oneOf": [decided, error]}}]}

    def operation(summary: str) -> dict[str, Any]:
        wrong = {"description": "a bad request", **content(error)}
        return {
            "post": {
                "summary": summary,
                "requestBody": {"required": True, **content(requests)},
                "responses": {
                    "200": {"description": "the decision", **content(replies)},
                    "400": wrong,
                    "413": wrong,
                    "503": {**wrong, "description": "the answer takes too long"},
                },
            }
        }

    return {
        "openapi": "3.1.0",
        "info": {"title": "LatentGamma decisions", "version": __version__},
        "paths": {
            "/decide": operation("Decide a request, or a list of them"),
            "/explain": operation("The same with proofs and smallest changes"),
            "/healthz": {
                "get": {
                    "summary": "Whether the service runs, and the digest of its program",
                    "responses": {"200": {"description": "it runs", **content({"type": "object"})}},
                }
            },
        },
        "components": {"schemas": {"Request": request, "Decision": decision, "Failed": failed}},
    }
