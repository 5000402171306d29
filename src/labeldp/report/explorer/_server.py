"""The explorer's server: loopback only, four addresses, no files, no state.

>>> with Explorer(port=0) as explorer:
...     explorer.url.startswith("http://127.0.0.1:")
True

Design notes. A page of some other site may name this server by a host of its own that resolves to loopback (DNS
rebinding), so a request must name loopback as its host. The policy in the headers lets the page ask this server alone.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from labeldp._validate import check_integer
from labeldp.errors import Described, LabelDPError, invalid
from labeldp.report._style import style_sheet
from labeldp.report.explorer._facts import OWNER, Settings, explored

LOOPBACK = "127.0.0.1"
HOSTS = frozenset({LOOPBACK, "localhost", "[::1]"})
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
WHOLE, REAL = ("n_classes", "cluster_size", "k"), ("epsilon", "sharpness")


class Explorer:
    """The server on a port of loopback (0 takes a free one); as a context, it runs in a thread."""

    def __init__(self, *, port: int = 0) -> None:
        number = check_integer(OWNER, "port", port, least=0, most=65535)
        try:
            self._server = ThreadingHTTPServer((LOOPBACK, number), _Handler)
        except OSError as error:
            fix = "Choose another, or 0 for a free one."
            raise invalid(OWNER, "port", "be free", got=number, fix=fix) from error
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{LOOPBACK}:{self._server.server_address[1]}/"

    def run(self) -> None:
        """Answer until interrupted."""
        try:
            self._server.serve_forever()
        finally:
            self._server.server_close()

    def __enter__(self) -> Explorer:  # noqa: PYI034 - typing.Self came with Python 3.11
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()  # seconds until it stops
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


def serve(*, port: int = 0, ready: Callable[[str], None] | None = None) -> None:
    """Serve until interrupted; `ready` is told the address first."""
    explorer = Explorer(port=port)
    if ready is not None:
        ready(explorer.url)
    explorer.run()


class _Handler(BaseHTTPRequestHandler):
    """Answers GET for the page, its script, its style and the numbers."""

    server_version = "labeldp"
    sys_version = ""

    def do_GET(self) -> None:
        if self._host() not in HOSTS:
            self._send(HTTPStatus.FORBIDDEN, "text/plain", "This server answers on loopback only.")
            return
        address = urlsplit(self.path)
        if address.path == "/facts":
            self._facts(address.query)
        elif address.path in _PAGES:
            kind, content = _PAGES[address.path]
            self._send(HTTPStatus.OK, kind, content())
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", "There is nothing here.")

    def _facts(self, query: str) -> None:
        try:
            body = json.dumps(explored(_settings(query)), allow_nan=False)
        except LabelDPError as error:
            self._send(HTTPStatus.BAD_REQUEST, "application/json", json.dumps({"error": str(error)}))
        else:
            self._send(HTTPStatus.OK, "application/json", body)

    def _host(self) -> str:
        """Return the host that the request names, without its port."""
        host = self.headers.get("Host", "")
        return host if host.endswith("]") else host.rpartition(":")[0] or host

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode("utf-8")
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is http.server's
        """Say nothing: each move of a slider is a request."""


def _settings(query: str) -> Settings:
    """Return the settings that a query names; an unknown name or a word for a number is refused."""
    given = {name: values[-1] for name, values in parse_qs(query).items()}
    unknown = sorted(set(given) - {*WHOLE, *REAL})
    if unknown:
        raise invalid(OWNER, unknown[0], f"be one of {', '.join((*REAL, *WHOLE))}", got=Described("another name"))
    try:
        numbers: dict[str, Any] = {name: (int if name in WHOLE else float)(text) for name, text in given.items()}
    except ValueError as error:
        raise invalid(OWNER, "query", "hold numbers", got=Described(query)) from error
    return Settings(**numbers)


def _file(name: str) -> Callable[[], str]:
    return lambda: resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


_PAGES: dict[str, tuple[str, Callable[[], str]]] = {
    "/": ("text/html", _file("page.html")),
    "/app.js": ("text/javascript", _file("app.js")),
    "/style.css": ("text/css", lambda: style_sheet() + _file("explorer.css")()),
}
