"""An HTTP proxy in front of a real S3 server that fails requests as told."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

Plan = Callable[[str, str, int], str | None]


class FlakyProxy:
    """`plan(method, path, number)` says what to do with a request: None, a status code, "reset", "cut"
    (the body ends early) or "lose" (the server is asked, its answer is lost)."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.plan: Plan = lambda method, path, number: None
        self.requests: list[tuple[str, str]] = []
        self.lock = threading.Lock()


@contextmanager
def flaky_proxy(target: str) -> Iterator[FlakyProxy]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            with proxy.lock:
                proxy.requests.append((self.command, self.path))
                number = len(proxy.requests)
            action = proxy.plan(self.command, self.path, number)
            if action == "reset":
                self.reset()
            elif action is not None and action.isdigit():
                self.answer(int(action), {}, b"")
            else:
                status, headers, data = self.forward(body)
                if action == "lose":
                    self.reset()
                elif action == "cut":
                    self.answer(status, headers, data, sent=data[: len(data) // 2])
                    self.reset()
                else:
                    self.answer(status, headers, data)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any  # noqa: N815

        def forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
            connection = http.client.HTTPConnection(urlsplit(target).netloc, timeout=30)
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body or None)
            response = connection.getresponse()
            data = response.read()
            headers = {n: v for n, v in response.getheaders() if n.lower() not in ("connection", "date", "server")}
            connection.close()
            return response.status, headers, data

        def answer(self, status: int, headers: dict[str, str], data: bytes, sent: bytes | None = None) -> None:
            self.send_response(status)
            if self.command != "HEAD":
                headers = {n: v for n, v in headers.items() if n.lower() not in ("content-length", "transfer-encoding")}
                headers["content-length"] = str(len(data))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data if sent is None else sent)

        def reset(self) -> None:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()

        def finish(self) -> None:
            with suppress(OSError, ValueError):
                super().finish()

        def log_message(self, *_: object) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None: ...

    server = Server(("127.0.0.1", 0), Handler)
    proxy = FlakyProxy(server.server_port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
