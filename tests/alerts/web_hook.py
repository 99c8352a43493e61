"""A real web hook in this process, with or without TLS, with configurable answers."""

from __future__ import annotations

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import trustme


class WebHook:
    """Keeps every document that it takes. `answers` are given first, one after the other; then it says 200.

    It has its port from the beginning. Until it is entered, connections are refused.
    """

    def __init__(self, certificate: trustme.LeafCert | None = None) -> None:
        self.taken: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.asked: list[str] = []
        """The Idempotency-Key of every request, also of those that were not taken."""
        self.answers: list[int] = []
        self.body_bytes = 0
        """So many bytes of an answer are promised, and never come."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler(), bind_and_activate=False)
        self._server.server_bind()
        self._scheme = "http"
        if certificate is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            certificate.configure_cert(context)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self._scheme = "https"
        self.port: int = self._server.server_address[1]

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}/hooks/secret"

    def __enter__(self) -> WebHook:
        self._server.server_activate()
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(hook) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                key = self.headers["Idempotency-Key"]
                hook.asked.append(key)
                status = hook.answers.pop(0) if hook.answers else 200
                if status == 200:
                    hook.taken.append(document)
                    hook.keys.append(key)
                self.send_response(status)
                if status in (301, 302, 307):
                    self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.send_header("Content-Length", str(hook.body_bytes))
                self.end_headers()
                if hook.body_bytes:
                    self.wfile.flush()
                    self.rfile.read(1)  # Until the other side has gone.

            def log_message(self, *_: object) -> None:
                pass

        return Handler
