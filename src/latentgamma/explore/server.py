"""Serves one page on this machine until it is interrupted."""

from __future__ import annotations

import hmac
import secrets
import webbrowser
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from latentgamma._arguments import whole_number


def serve(
    page: str,
    *,
    port: int = 0,
    open_browser: bool = True,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve a page on the loopback interface until Ctrl-C.

    The address holds a random token; requests without it, and requests that name another host,
    are refused.

    >>> import latentgamma as lg
    >>> page = lg.explore.render(lg.parse("bird :- penguin."))
    >>> lg.explore.serve(page, ready=print)  # doctest: +SKIP
    http://127.0.0.1:34567/?token=Jm0fJ3mJ0pUq5y5S0eVb3A

    Args:
        page: The HTML text.
        port: The port; by default any free one.
        open_browser: Whether to open the page in the default browser.
        ready: Called with the address once the server accepts requests.

    Raises:
        OSError: The port is in use.
        ArgumentError: The port is not a number from 0 to 65535.
    """
    whole_number("port", port, 0, 65535)
    with new_server(page, port) as server:
        if ready is not None:
            ready(server.address)
        if open_browser:
            webbrowser.open(server.address)
        server.serve_forever()


class PageServer(ThreadingHTTPServer):
    """A server of one page."""

    daemon_threads = True
    address: str


def new_server(page: str, port: int = 0) -> PageServer:
    """Return a server that is bound but does not run yet."""
    token = secrets.token_urlsafe(16)
    content = page.encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            given = parse_qs(url.query).get("token", [""])[0]
            host = self.headers.get("Host", "")
            if host not in {f"127.0.0.1:{number}", f"localhost:{number}"}:
                self._send(HTTPStatus.FORBIDDEN, b"another host")
            elif url.path != "/" or not hmac.compare_digest(given.encode(), token.encode()):
                self._send(HTTPStatus.NOT_FOUND, b"not found")
            else:
                self._send(HTTPStatus.OK, content)

        def _send(self, status: HTTPStatus, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("Referrer-Policy", "no-referrer")
            self.send_header("X-Frame-Options", "DENY")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Log nothing: the address contains the token."""

    server = PageServer(("127.0.0.1", port), Handler)
    number = server.server_address[1]
    server.address = f"http://127.0.0.1:{number}/?token={token}"
    return server
