"""An S3 on loopback for tests: moto's server, and before it a proxy that counts requests and does what networks do."""

from __future__ import annotations

import contextlib
import http.client
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY, SECRET = "AKIATESTKEY0123", "s3cr3t/Sh0uldNeverShow+AnyWhere"


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to a request: an answer with `status` and S3's `code`, a delay, the body cut after `cut` bytes, or
    the connection closed before (`drop`) or after (`lose`, the answer is lost) the store has done what was asked."""

    status: int = 0
    code: str = ""
    delay: float = 0.0
    cut: int | None = None
    drop: bool = False
    lose: bool = False


@dataclass(slots=True)
class Request:
    number: int  # counted from 0
    method: str
    path: str  # with the query
    sent: int = 0  # bytes of the answer's body


Plan = Callable[[Request], Fault | None]


@dataclass
class Proxy:
    """`plan` decides what happens to each request; `requests` says what came."""

    backend: tuple[str, int]
    plan: Plan | None = None
    requests: list[Request] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    server: Any = None
    bucket: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def clear(self) -> None:
        with self.lock:
            self.requests = []

    def note(self, method: str, path: str) -> Request:
        with self.lock:
            request = Request(len(self.requests), method, path)
            self.requests.append(request)
        return request

    @contextlib.contextmanager
    def running(self) -> Iterator[Proxy]:
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self.server = _Server(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.server.shutdown()
            self.server.server_close()
            thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that went away are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: Proxy

    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""

    def _serve(self) -> None:
        request = self.owner.note(self.command, self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = (self.owner.plan(request) if self.owner.plan else None) or Fault()
        if fault.delay:
            time.sleep(fault.delay)
        if fault.drop:
            self._hang_up()
            return
        if fault.status:
            self._refuse(fault)
            return
        connection = http.client.HTTPConnection(*self.owner.backend, timeout=60)
        try:
            headers = {k: v for k, v in self.headers.items() if k.lower() not in ("connection", "expect")}
            connection.request(self.command, self.path, body or None, headers)
            answer = connection.getresponse()
            content = answer.read()
            fields = answer.getheaders()
        finally:
            connection.close()
        if fault.lose:
            self._hang_up()
            return
        self.send_response(answer.status)
        for name, value in fields:
            if name.lower() not in ("connection", "transfer-encoding", "server", "date", "content-length"):
                self.send_header(name, value)
        length = dict((k.lower(), v) for k, v in fields).get("content-length", str(len(content)))
        self.send_header("Content-Length", length if self.command == "HEAD" else str(len(content)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if fault.cut is not None and len(content) > fault.cut:
            self.wfile.write(content[: fault.cut])
            self._hang_up()
            return
        self.wfile.write(content)
        request.sent = len(content)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _serve

    def _refuse(self, fault: Fault) -> None:
        text = f"<?xml version='1.0'?><Error><Code>{fault.code}</Code><Message>as the test asked</Message></Error>"
        content = text.encode() if self.command != "HEAD" else b""
        self.send_response(fault.status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _hang_up(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def moto() -> Iterator[tuple[str, int]]:
    """moto's server; yields its address."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield host, port
    finally:
        server.stop()


def environment(proxy: Proxy) -> dict[str, str]:
    """What a process needs to use the proxy: no other credentials, few retries, a short lease."""
    return {
        "AWS_ENDPOINT_URL": proxy.url,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_CONFIG_FILE": "/nonexistent",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_MAX_ATTEMPTS": "6",
        "FARM_LEASE_SECONDS": "1.5",
    }


def make_bucket(backend: tuple[str, int], name: str) -> None:
    connection = http.client.HTTPConnection(*backend, timeout=20)
    connection.request(
        "PUT", f"/{name}", headers={"Authorization": f"AWS4-HMAC-SHA256 Credential={KEY}/x/us-east-1/s3"}
    )
    assert connection.getresponse().status == 200
    connection.close()
