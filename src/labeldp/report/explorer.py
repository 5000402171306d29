"""The explorer: a page on this machine where epsilon, classes and prior can be dragged, and what becomes of labels is seen.

>>> facts = compute_facts(Settings(epsilon=1.0, n_classes=2, sharpness=0.0))
>>> round(facts["mechanisms"][0]["accuracy"], 4), round(facts["mechanisms"][0]["gain_bound"], 4)
(0.7311, 0.2311)
>>> with Explorer(port=0) as explorer:
...     explorer.url.startswith("http://127.0.0.1:")
True

The numbers are computed by the mechanisms themselves (`compute_facts`); no data is read. The prior is geometric: class
j + 1 is e^-sharpness times as likely as class j. ClusterRR's channel depends on a noisy histogram, so it is the mean over
`CLUSTERS` simulated clusters of labels in the prior's proportions.

Design notes. The server listens on loopback only, has four addresses, serves no files and keeps nothing but the answers
that it computed. A page of some other site may name this server by a host of its own that resolves to loopback (DNS
rebinding), so a request must name loopback as its host. The policy in the headers lets the page ask this server alone.

Every program on this machine can connect, and some are slow, silent or rude. One thread serves all connections, one
request each. A request has `PATIENCE` seconds from the connection to its last byte, and as long to take the answer; it has
`LONGEST` bytes at most, and no body is read. At most `MOST_OPEN` connections are open: one more closes the one that has
waited longest, so the silent cannot keep out those who ask. What is not a request is answered 400, and whoever
disconnects is forgotten without a word. `python benchmarks/explorer.py` measures it.
"""

from __future__ import annotations

import asyncio
import functools
import json
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from http import HTTPStatus
from importlib import resources
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs

import numpy as np

from labeldp.arrays import Floats
from labeldp.errors import Described, LabelDPError, invalid
from labeldp.guarantee import advantage_bound
from labeldp.mechanisms import ClusterRR, RandomizedResponse, RRTopK, RRWithPrior
from labeldp.release import SensitiveLabels, privatize
from labeldp.report.page import style_sheet
from labeldp.validate import check_integer, check_real

OWNER = "explorer"

#: Simulated clusters behind ClusterRR's mean channel: its mean accuracy is then known to about 0.01.
CLUSTERS = 40
#: The noise of that simulation: the same at each position, so that dragging a slider moves smoothly. No one's labels.
SEED = 20
LOOPBACK = "127.0.0.1"
HOSTS = frozenset({LOOPBACK, "localhost", "[::1]"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
#: Seconds for a request to come in whole, and for its answer to be taken.
PATIENCE = 10.0
#: Bytes of a request, its headers included; those of a browser are below 2,000.
LONGEST = 16_384
#: Connections at a time; a browser opens six. Far below the usual limit of 1,024 open files.
MOST_OPEN = 256
#: Answers that are kept: the sliders go back and forth. Each is a few kilobytes.
MOST_KEPT = 512
WHOLE, REAL = ("n_classes", "cluster_size", "k"), ("epsilon", "sharpness")


# ------------------------------------------------------------------------------------------------------ the numbers


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where the sliders stand; values outside the bounds of the page are refused.

    Parameters
    ----------
    epsilon : float
        The privacy of each label, in [0.1, 10].
    n_classes : int
        From 2 to 12.
    sharpness : float
        How fast the prior falls from class to class, in [0, 5]; 0 is a uniform prior.
    cluster_size : int
        Labels in a cluster of ClusterRR, from 10 to 5000.
    k : int
        Candidates of RRTop-k, from 1 to 12; more than there are classes means all of them.
    """

    epsilon: float = 1.0
    n_classes: int = 5
    sharpness: float = 0.7
    cluster_size: int = 200
    k: int = 2

    def __post_init__(self) -> None:
        for name, low, high in (("epsilon", 0.1, 10.0), ("sharpness", 0.0, 5.0)):
            value = check_real(OWNER, name, getattr(self, name))
            if not low <= value <= high:
                raise invalid(OWNER, name, f"be in [{low:g}, {high:g}]", got=value)
            object.__setattr__(self, name, value)
        check_integer(OWNER, "n_classes", self.n_classes, least=2, most=12)
        check_integer(OWNER, "cluster_size", self.cluster_size, least=10, most=5000)
        # k above the number of classes means all of them: the two sliders move independently.
        object.__setattr__(self, "k", min(check_integer(OWNER, "k", self.k, least=1, most=12), self.n_classes))

    @property
    def prior(self) -> Floats:
        """The believed probability of each class, the likeliest first."""
        weight = np.exp(-self.sharpness * np.arange(self.n_classes))
        answer: Floats = weight / weight.sum()
        return answer


def compute_facts(settings: Settings) -> dict[str, Any]:
    """Return everything that the page shows at these settings, as plain JSON values.

    For each of four mechanisms at the same epsilon: its matrix, the labels that can come out, how often each label is
    flipped, how many labels stay right, and how often an attacker who knows prior and channel guesses right.
    """
    prior = settings.prior
    top, best = RRTopK(settings.epsilon, k=settings.k), RRWithPrior(settings.epsilon)
    plain = RandomizedResponse(settings.epsilon, n_classes=settings.n_classes)
    matrices = {
        "RR": plain.channel().matrix(),
        "RRTop-k": top.channel(prior).matrix(),
        "RRWithPrior": best.channel(prior).matrix(),
        "ClusterRR": _mean_cluster_matrix(settings),
    }
    trust = {"RR": plain, "RRTop-k": top, "RRWithPrior": best, "ClusterRR": ClusterRR(settings.epsilon)}
    return {
        "settings": asdict(settings),
        "prior": prior.tolist(),
        "two_label_bound": advantage_bound(settings.epsilon),
        "mechanisms": [
            {
                "name": name,
                "trusts": trust[name].guarantee.trust.words,
                **_describe_channel(matrix, prior, settings.epsilon),
            }
            for name, matrix in matrices.items()
        ],
    }


def _describe_channel(matrix: Floats, prior: Floats, epsilon: float) -> dict[str, Any]:
    """Return what a channel does under a prior, and what a Bayesian attacker gains from its output.

    Her best guess after output o is argmax_y p_y T[y, o], right with probability sum_o max_y p_y T[y, o].
    """
    after = float((prior[:, None] * matrix).max(axis=0).sum())
    before = float(prior.max())
    return {
        "matrix": matrix.tolist(),
        "candidates": np.flatnonzero(matrix.max(axis=0) > 0).tolist(),
        "flips": (1.0 - np.diagonal(matrix)).tolist(),
        "accuracy": float(prior @ np.diagonal(matrix)),
        "guess": after,
        "guess_before": before,
        "gain": max(0.0, after - before),  # no release can lower it; rounding can
        "gain_bound": (1.0 - before) * advantage_bound(epsilon),
    }


def _mean_cluster_matrix(settings: Settings) -> Floats:
    """Return the mean channel of ClusterRR over simulated clusters of this size."""
    edges = np.rint(np.cumsum(settings.prior) * settings.cluster_size)
    one = np.searchsorted(edges, np.arange(settings.cluster_size), side="right")
    labels = np.tile(np.minimum(one, settings.n_classes - 1), CLUSTERS)
    groups = np.repeat(np.arange(CLUSTERS), settings.cluster_size)
    mechanism = ClusterRR(settings.epsilon)
    boxed = SensitiveLabels(labels, n_classes=settings.n_classes)
    channel = privatize(boxed, mechanism, groups=groups, rng=SEED).channel
    firsts = range(0, len(labels), settings.cluster_size)
    answer: Floats = np.mean([channel.matrix(first) for first in firsts], axis=0)
    return answer


# ------------------------------------------------------------------------------------------------------ the server


class Explorer:
    """The server on a port of loopback (0 takes a free one).

    As a context it answers in a thread until the block ends; `run` answers in this thread until interrupted. A port that
    is taken is refused with a `LabelDPError`.
    """

    def __init__(self, *, port: int = 0) -> None:
        number = check_integer(OWNER, "port", port, least=0, most=65535)
        try:
            self._socket = socket.create_server((LOOPBACK, number), backlog=MOST_OPEN)
        except OSError as error:
            fix = "Choose another, or 0 for a free one."
            raise invalid(OWNER, "port", "be free", got=number, fix=fix) from error
        self._port: int = self._socket.getsockname()[1]
        #: Those who are talked to, by when they came.
        self._talks: dict[asyncio.Task[Any], None] = {}

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{LOOPBACK}:{self._port}/"

    def run(self) -> None:
        """Answer until interrupted."""
        asyncio.run(self._serve(asyncio.Event()))

    def __enter__(self) -> Explorer:  # noqa: PYI034 - typing.Self came with Python 3.11
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run_loop, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run_loop(self) -> None:
        try:
            self._loop.run_until_complete(self._serve(self._stop))
        finally:
            self._loop.close()

    async def _serve(self, stop: asyncio.Event) -> None:
        """Answer until `stop` is set or this is cancelled, and leave no connection open."""
        asyncio.get_running_loop().set_exception_handler(_say_nothing)
        server = await asyncio.start_server(self._talk, sock=self._socket, limit=LONGEST, backlog=MOST_OPEN)
        try:
            await stop.wait()
        finally:
            server.close()
            left = list(self._talks)
            for talk in left:
                talk.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hear one request and answer it; whoever takes too long is cut off."""
        talk = asyncio.current_task()
        assert talk is not None
        if len(self._talks) >= MOST_OPEN:
            next(iter(self._talks)).cancel()
        self._talks[talk] = None
        try:
            writer.transport.set_write_buffer_limits(0)  # so that draining means: all was taken
            writer.write(_respond(await asyncio.wait_for(_hear(reader), PATIENCE)))
            await asyncio.wait_for(writer.drain(), PATIENCE)
        except (OSError, EOFError, asyncio.TimeoutError):  # gone, gone in the middle, too slow
            writer.transport.abort()
        except asyncio.CancelledError:  # others wait, or the server stops: this task ends either way
            writer.transport.abort()
        finally:
            self._talks.pop(talk, None)
            writer.close()


def serve(*, port: int = 0, ready: Callable[[str], None] | None = None) -> None:
    """Serve the explorer until interrupted (KeyboardInterrupt goes to the caller); `ready` is told the address first."""
    explorer = Explorer(port=port)
    if ready is not None:
        ready(explorer.url)
    explorer.run()


def _say_nothing(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A connection that breaks is not news to the owner of the terminal."""


async def _hear(reader: asyncio.StreamReader) -> bytes | None:
    """Return the request up to the empty line that ends its headers, or None if it is too long."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return None


#: A request line: what is asked of this server by name. An address with a host is for proxies, and this is none.
_REQUEST = re.compile(r"([A-Z]+) (/[!-~]*) HTTP/1\.[01]")
_HEADER = re.compile(r"([!#-'*+.0-9A-Z^-z|~-]+):[ \t]*([ -~\t\x80-\xff]*)")


def _respond(request: bytes | None) -> bytes:
    """Return the answer to the bytes of a request, whatever they are."""
    if request is None:
        return _answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "text/plain", "This request is too long.")
    first, *lines = request.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    asked, headers = _REQUEST.fullmatch(first), [_HEADER.fullmatch(line) for line in lines]
    hosts = [found[2].strip() for found in headers if found is not None and found[1].lower() == "host"]
    if asked is None or None in headers or len(hosts) > 1:
        return _answer(HTTPStatus.BAD_REQUEST, "text/plain", "This is not a request.")
    if not hosts or _drop_port(hosts[0]) not in HOSTS:
        return _answer(HTTPStatus.FORBIDDEN, "text/plain", "This server answers on loopback only.")
    if asked[1] != "GET":
        return _answer(HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", "Only GET is answered.")
    path, _, query = asked[2].partition("?")
    if path == "/facts":
        return _answer_facts(query)
    if path not in _PAGES:
        return _answer(HTTPStatus.NOT_FOUND, "text/plain", "There is nothing here.")
    kind, read = _PAGES[path]
    return _answer(HTTPStatus.OK, kind, read())


def _answer_facts(query: str) -> bytes:
    try:
        body = _facts_text(_read_settings(query))
    except LabelDPError as error:
        return _answer(HTTPStatus.BAD_REQUEST, "application/json", json.dumps({"error": str(error)}))
    return _answer(HTTPStatus.OK, "application/json", body)


@functools.lru_cache(maxsize=MOST_KEPT)
def _facts_text(settings: Settings) -> str:
    """Return the facts as JSON; they are a function of the settings, the simulated clusters included."""
    return json.dumps(compute_facts(settings), allow_nan=False)


def _drop_port(host: str) -> str:
    """Return the host that a request names, without its port."""
    return host if host.endswith("]") else host.rpartition(":")[0] or host


def _answer(status: HTTPStatus, kind: str, text: str) -> bytes:
    """Return a whole answer, after which the connection closes."""
    body = text.encode("utf-8")
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}",
        "Server: labeldp",
        f"Content-Type: {kind}; charset=utf-8",
        f"Content-Length: {len(body)}",
        f"Content-Security-Policy: {POLICY}",
        "X-Content-Type-Options: nosniff",
        "Cache-Control: no-store",
        "Referrer-Policy: no-referrer",
        *(["Allow: GET"] if status is HTTPStatus.METHOD_NOT_ALLOWED else []),
        "Connection: close",
    )
    return "\r\n".join((*head, "", "")).encode("latin-1") + body


def _read_settings(query: str) -> Settings:
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


def _asset_reader(name: str) -> Callable[[], str]:
    """Return a function that reads a file of the folder `assets`."""
    return functools.cache(lambda: (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8"))


_PAGES: dict[str, tuple[str, Callable[[], str]]] = {
    "/": ("text/html", _asset_reader("page.html")),
    "/app.js": ("text/javascript", _asset_reader("app.js")),
    "/style.css": ("text/css", functools.cache(lambda: style_sheet() + _asset_reader("explorer.css")())),
}
