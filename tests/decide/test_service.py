"""The service: decisions over HTTP, limits, and hostile requests."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import latentgamma as lg
from latentgamma.errors import ArgumentError

jsonschema = pytest.importorskip("jsonschema")
httpx = pytest.importorskip("httpx")
uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

TEXT = (
    "% @rule R1: Art. 1\nok :- age >= 18, not banned. banned :- 2 { p; q; country = xx }. :- ok, p."
)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A service that runs in a thread of this process, as uvicorn runs it."""
    application = lg.decide.application(
        lg.Decider(TEXT, "ok"), max_bytes=20_000, max_requests=50, seconds=5
    )
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application, log_level="critical"))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


def test_decisions_over_http(address: str) -> None:
    decider = lg.Decider(TEXT, "ok")
    requests = [{"age": 30, "p": True}, {"age": 3}, {"age": 30, "p": True, "country": "xx"}, {}]
    with httpx.Client(base_url=address) as client:
        for request in requests:
            assert client.post("/decide", json=request).json() == decider(request).to_dict()
            explained = client.post("/explain", json=request).json()
            assert explained == json.loads(decider(request).to_json(proof=True, missing=True))
        found = client.post("/decide", json=[*requests, {"agee": 1}, 3]).json()
        assert found[:4] == [decider(request).to_dict() for request in requests]
        assert "did you mean 'age'" in found[4]["error"]
        assert found[5] == {"error": "a request is a JSON object, not a number"}
        health = client.get("/healthz").json()
        assert health["status"] == "ok"
        assert health["digest"] == decider.digest
        described = client.get("/openapi.json").json()
        assert set(described["paths"]) == {"/decide", "/explain", "/healthz"}
        assert described["components"]["schemas"]["Request"]["properties"]["age"] == {
            "type": ["number", "null"]
        }
        # What the service takes, its description allows.
        schema = described["components"]["schemas"]["Request"]
        for request in ({"age": 1, "p": 0.3, "q": " No "}, {"age": 1, "p": 1}):
            jsonschema.validate(request, schema)
            assert client.post("/decide", json=request).status_code == 200
        for request in ({"p": 1.5}, {"p": "perhaps"}):
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate(request, schema)
            assert client.post("/decide", json=request).status_code == 400
        replies = described["paths"]["/decide"]["post"]["responses"]["200"]["content"]
        jsonschema.validate(
            found, replies["application/json"]["schema"] | {"components": described["components"]}
        )


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [
        ("POST", "/decide", b"", 400),
        ("POST", "/decide", b"{", 400),
        ("POST", "/decide", b"\xff\xfe", 400),
        ("POST", "/decide", b"3", 400),
        ("POST", "/decide", b'{"age": "17"}', 400),
        ("POST", "/decide", b'{"age": 1, "age": 2}', 400),
        ("POST", "/decide", b'{"\\ud800": 1}', 400),
        ("POST", "/decide", b'{"country": "\\ud800"}', 200),
        ("POST", "/decide", b'{"age": NaN}', 200),
        ("POST", "/decide", b'{"age": ' + b"9" * 5000 + b"}", 400),
        ("POST", "/decide", b'{"age": ' + b"9" * 400 + b"}", 200),
        ("POST", "/decide", b'{"age": 1e999}', 200),
        # From Python 3.13 on, json reads this: a list with one request, which is refused in it.
        ("POST", "/decide", b"[" * 9000 + b"]" * 9000, 400 if sys.version_info < (3, 13) else 200),
        ("POST", "/decide", b'{"age":' * 2400 + b"1" + b"}" * 2400, 400),
        ("POST", "/decide", b" " * 30_000, 413),
        ("POST", "/explain", b"[" + b"{}," * 60 + b"{}]", 413),
        ("POST", "/explain", b'{"__class__": "x", "__import__": "os"}', 400),
        ("GET", "/decide", b"", 405),
        ("POST", "/nowhere", b"{}", 404),
        ("GET", "/../../etc/passwd", b"", 404),
    ],
)
def test_hostile_requests_get_an_error_in_json(
    address: str, method: str, path: str, content: bytes, status: int
) -> None:
    reply = httpx.request(method, address + path, content=content)
    assert reply.status_code == status
    if status != 200:
        assert set(reply.json()) == {"error"}
        assert "Traceback" not in reply.text
    assert httpx.get(f"{address}/healthz").status_code == 200


@pytest.mark.parametrize("path", ["/decide", "/explain"])
def test_a_connection_that_closes_during_the_body_is_a_bad_request(path: str) -> None:
    application = lg.decide.application(lg.Decider(TEXT, "ok"))
    received = iter(
        [
            {"type": "http.request", "body": b'{"age"', "more_body": True},
            {"type": "http.disconnect"},
        ]
    )
    sent: list[Any] = []

    async def receive() -> Any:
        return next(received)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b""}
    asyncio.run(application(scope, receive, send))  # an exception would be a traceback in the log
    assert sent[0]["status"] == 400
    assert set(json.loads(sent[1]["body"])) == {"error"}


def _random_body(rng: random.Random) -> bytes:
    values: list[Any] = [
        None,
        True,
        False,
        3,
        -1e308,
        "x",
        "xx",
        [],
        {},
        "'; drop",
        "\ud800",
        10**30,
    ]
    names = ["age", "country", "p", "q", "agee", "", "banned", "ok", "age >= 18"]
    body = json.dumps({rng.choice(names): rng.choice(values) for _ in range(rng.randint(0, 4))})
    data = bytearray(body.encode())
    for _ in range(rng.choice([0, 0, 0, 1, 3])):
        if data:
            data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def _hammer(address: str, seed: int, count: int, statuses: set[int]) -> None:
    rng = random.Random(seed)
    with httpx.Client(base_url=address) as client:
        for _ in range(count):
            path = "/explain" if rng.random() < 0.05 else "/decide"
            reply = client.post(path, content=_random_body(rng))
            statuses.add(reply.status_code)
            assert isinstance(reply.json(), (dict, list))


@pytest.mark.parametrize("count", [150, pytest.param(1500, marks=pytest.mark.slow)])
def test_random_requests_of_several_clients(address: str, count: int) -> None:
    statuses: set[int] = set()
    threads = [
        threading.Thread(target=_hammer, args=(address, seed, count // 4, statuses))
        for seed in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == {200, 400}
    assert httpx.get(f"{address}/healthz").json()["status"] == "ok"


def test_a_long_sum_over_uncertain_facts_is_given_up_and_delays_nobody() -> None:
    names = [f"f{n}" for n in range(20)]
    decider = lg.Decider(f"a :- 10 {{ {'; '.join(names)} }}.", "a")
    application = lg.decide.application(decider, seconds=0.5)
    body = json.dumps([dict.fromkeys(names, 0.5)] * 200)  # of about half a second each

    async def both() -> tuple[Any, Any, bool]:
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            long = asyncio.create_task(client.post("/decide", content=body))
            await asyncio.sleep(0.1)
            health = await client.get("/healthz")
            waiting = not long.done()
            return await long, health, waiting

    before = threading.active_count()
    long, health, waiting = asyncio.run(both())
    assert waiting
    assert health.status_code == 200
    assert long.status_code == 503
    assert long.json() == {"error": "the decision takes longer than 0.5 s"}
    for _ in range(200):  # the thread ends after the request at hand, not after all of them
        if threading.active_count() <= before:
            break
        time.sleep(0.1)
    assert threading.active_count() <= before


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"age":\n x}', "not valid JSON: expecting value at line 2, column 2"),
        (b'{"age":', "not valid JSON: expecting value at column 8"),
        (b'{"age": ' + b"9" * 5000 + b"}", "not valid JSON: a number has too many digits"),
        (b'{"age": "\xff"}', "not valid JSON: it is not UTF-8"),
        (b"null", "a request is a JSON object, not null"),
        (b"[[]]", "a request is a JSON object, not a list"),
        (b'["x"]', "a request is a JSON object, not a text"),
    ],
)
def test_errors_are_in_the_words_of_json(address: str, content: bytes, problem: str) -> None:
    found = httpx.post(f"{address}/decide", content=content).json()
    assert (found[0] if isinstance(found, list) else found) == {"error": problem}


def test_wrong_limits() -> None:
    decider = lg.Decider(TEXT, "ok")
    for wrong in ({"max_bytes": 0}, {"max_requests": "x"}, {"seconds": 0}):
        with pytest.raises(ArgumentError):
            lg.decide.application(decider, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="takes a Decider"):
        lg.decide.application(lg.parse(TEXT))  # type: ignore[arg-type]


def test_the_address_takes_connections_before_it_is_printed() -> None:
    from latentgamma.cli.decide import _bound

    with _bound("127.0.0.1", 0) as listening:
        socket.create_connection(listening.getsockname()).close()


@pytest.mark.slow
def test_the_command_serves_on_a_free_port(tmp_path: Path) -> None:
    (tmp_path / "policy.lp").write_text(TEXT)
    command = [sys.executable, "-m", "latentgamma", "serve", str(tmp_path / "policy.lp")]
    command += ["--question", "ok", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        address = line.split()[1].removesuffix("/decide")
        reply = httpx.post(f"{address}/decide", json={"age": 30}, timeout=60)
        assert reply.json()["answers"] == {"ok": True}
        process.terminate()
        assert process.wait(20) is not None


def test_an_empty_address_is_not_every_address() -> None:
    from latentgamma.cli.commands import UsageError
    from latentgamma.cli.decide import _bound

    with pytest.raises(UsageError, match="--host is empty; name an address, such as 127"):
        _bound("", 0)


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2])
def test_the_service_stops_while_a_client_sends_its_body(tmp_path: Path, times: int) -> None:
    (tmp_path / "policy.lp").write_text(TEXT)
    command = [sys.executable, "-m", "latentgamma", "serve", str(tmp_path / "policy.lp")]
    command += ["--question", "ok", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        port = int(process.stderr.readline().split(":")[3].split("/")[0])
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"POST /decide HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
            assert httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=60).status_code == 200
            process.send_signal(signal.SIGINT)
            if times == 2:  # which does not wait for the client
                time.sleep(0.5)
                process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
            if times == 1:
                assert client.recv(12) == b"HTTP/1.1 503"
        assert "Traceback" not in process.stderr.read()
