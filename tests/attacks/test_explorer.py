"""The explorer and those who mean it harm: any program on the machine may connect to it, and say whatever it likes.

On the commit before, each silent connection held a thread, for ever, and its end printed a traceback (60 for 60); `GET http://[::1` and `GET //[::1` printed a traceback and got no answer. Now one thread serves all, the
silent are cut off, what is no request is answered 400, and the terminal of the owner stays empty.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from labeldp.report import explorer as chapter
from labeldp.report.explorer import Explorer

SILENT = 300
PAGE = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def server(capfd: pytest.CaptureFixture[str]) -> Iterator[Explorer]:
    """A running explorer, which must have written nothing to the terminal by its end."""
    with Explorer() as running:
        yield running
    written = capfd.readouterr()
    assert (written.out, written.err) == ("", "")


def connect(server: Explorer, words: bytes = b"") -> socket.socket:
    """Connect and say something; a test that waits for an answer in vain ends with an error."""
    other = socket.create_connection(("127.0.0.1", urlsplit(server.url).port or 0), timeout=60.0)
    other.sendall(words)
    return other


def hear(other: socket.socket) -> bytes:
    """Return all that is answered until the server closes the connection."""
    parts = []
    with other:
        try:
            while part := other.recv(65536):
                parts.append(part)
        except ConnectionResetError:
            pass
    return b"".join(parts)


def status(server: Explorer, words: bytes) -> int | None:
    """Return the status with which words are answered, or None for no answer."""
    line = hear(connect(server, words)).split(b"\r\n")[0].split()
    return int(line[1]) if line else None


def test_silent_connections_hold_no_threads_and_keep_nobody_out(server: Explorer):
    assert status(server, PAGE) == 200
    threads = threading.active_count()
    silent = [connect(server, b"GET / HT") for _ in range(SILENT)]
    assert status(server, PAGE) == 200  # asked after all of them, and heard
    assert threading.active_count() <= threads
    for one in silent:  # and they leave as rudely as a connection can be left
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()
    assert status(server, PAGE) == 200


def test_those_who_wait_longest_go_first(server: Explorer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(chapter, "MOST_OPEN", 3)
    silent = [connect(server, b"GET / HT") for _ in range(4)]
    assert hear(silent[0]) == b""  # cut off, long before its time is over
    silent[3].sendall(PAGE[8:])
    assert hear(silent[3]).startswith(b"HTTP/1.1 200 ")
    for one in silent[1:3]:
        one.close()


def test_a_request_in_drops_is_cut_off(server: Explorer, monkeypatch: pytest.MonkeyPatch):
    """The time is for the whole request: a byte now and then does not prolong it."""
    monkeypatch.setattr(chapter, "PATIENCE", 0.05)
    assert hear(connect(server, b"GET / HTTP/1.1\r\nHost: loc")) == b""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (b"GET http://[::1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET //[::1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"GET /%2e%2e/page.html HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"GET / HTTP/1.1\r\n\r\n", 403),
        (b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b"\xff\xfe\x00\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", 431),
        (b"GET /facts?epsilon=%ff%00&k=" + b"9" * 6_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /facts?" + b"k=2&" * 3_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
    ],
)
def test_what_is_no_request_is_answered_and_not_printed(server: Explorer, words: bytes, code: int):
    assert status(server, words) == code
    assert status(server, PAGE) == 200
