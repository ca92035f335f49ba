"""A proxy before a store that refuses, delays, cuts or repeats requests, each as a test chooses.

It passes on what it gets, the header ``Host`` included, so that signatures stay right.
"""

import http.client
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

LINE = 64 << 10  # bytes that are passed on at once where a connection is slow
HOP_BY_HOP = ("connection", "transfer-encoding", "content-length")
ANSWER_S = 60.0


@dataclass(frozen=True)
class Request:
    """A request as it came: its bytes are read."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def kind(self) -> str:
        """Return the kind of a request: get, head, list, put, create, copy, part, delete or another."""
        query = self.target.partition("?")[2]
        if self.method == "PUT":
            if "if-none-match" in self.headers:
                return "create"
            if "x-amz-copy-source" in self.headers:
                return "copy"
            return "part" if "partNumber=" in query else "put"
        if self.method == "POST":
            if "delete" in query:
                return "delete"
            return "complete" if "uploadId=" in query else "begin"
        return "list" if "list-type=" in query else self.method.lower()


@dataclass(frozen=True)
class Fault:
    """A fault of a request: its parts happen in this order; by default the request is passed on.

    ``wait_s`` seconds pass. A ``status`` is the answer, with ``content`` or an error of S3 with ``code``, and the store
    hears of nothing. ``cut``: the connection is
    reset before the store hears of it; ``lost``: after the store has acted, instead of the answer; ``late_s``: the
    connection is reset, and the store acts so many seconds later. ``rate``: the answer comes at so many bytes a second.
    ``short``: half of the answer comes. ``without`` are headers that are taken out.
    """

    wait_s: float = 0.0
    status: int = 0
    code: str = ""
    content: bytes = b""
    retry_after: str = ""
    cut: bool = False
    lost: bool = False
    late_s: float | None = None
    rate: int = 0
    short: bool = False
    without: tuple[str, ...] = ()


def slow_down() -> Fault:
    """The store throttles."""
    return Fault(status=503, code="SlowDown")


NOTHING = Fault()
FAULTS = {
    "cut": Fault(cut=True),
    "answer lost": Fault(lost=True),
    "carried out late": Fault(late_s=1.0),
    "answer in part": Fault(short=True),
    "throttled": slow_down(),
    "failed": Fault(status=500, code="InternalError"),
    "slow": Fault(wait_s=0.2, rate=100_000),
}


class InTurn:
    """Lets ``faults`` happen in turn to the requests of each of ``kinds``, with ``between`` sound ones after each."""

    def __init__(self, faults: Sequence[Fault], kinds: Sequence[str], between: int = 1) -> None:
        self._faults = faults
        self._kinds = kinds
        self._turn = between + 1
        self._seen: Counter[str] = Counter()

    def __call__(self, request: Request) -> Fault:
        if request.kind not in self._kinds:
            return NOTHING
        number, sound = divmod(self._seen[request.kind], self._turn)
        self._seen[request.kind] += 1
        return NOTHING if sound else self._faults[number % len(self._faults)]


class StoreProxy(ThreadingHTTPServer):
    """Stands before ``port`` of 127.0.0.1; ``fault`` says what happens to a request. A context manager.

    ``asked`` counts requests by kind, ``happened`` faults by kind, both as they came.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = port
        self.fault: Callable[[Request], Fault] = lambda request: NOTHING
        self.asked: Counter[str] = Counter()
        self.happened: Counter[str] = Counter()
        self.requests: list[Request] = []
        """What came since ``recording`` was set."""
        self.recording = False
        self._guard = threading.Lock()
        self._open: set[socket.socket] = set()
        self._late: list[threading.Thread] = []
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)

    @property
    def endpoint(self) -> str:
        """URL of the service through the proxy."""
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.cut()
        for late in self._late:
            late.join()
        self.server_close()

    def cut(self) -> None:
        """Reset every open connection."""
        with self._guard:
            connections = list(self._open)
        for connection in connections:
            _reset(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that are killed cut their connections."""

    def judge(self, request: Request) -> Fault:
        """Return what happens to a request, and count it."""
        with self._guard:
            self.asked[request.kind] += 1
            if self.recording:
                self.requests.append(request)
            fault = self.fault(request)
            if fault != NOTHING:
                self.happened[request.kind] += 1
            return fault

    def pass_on(self, request: Request, without: tuple[str, ...] = ()) -> tuple[http.client.HTTPResponse, bytes]:
        """Send a request to the store and return its whole answer. Raises OSError or HTTPException."""
        connection = http.client.HTTPConnection("127.0.0.1", self.target, timeout=ANSWER_S)
        try:
            connection.putrequest(request.method, request.target, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers.items():
                if name not in without and name not in HOP_BY_HOP:
                    connection.putheader(name, value)
            if request.body or request.method in ("PUT", "POST"):
                connection.putheader("content-length", str(len(request.body)))
            connection.endheaders(request.body)
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()

    def pass_on_late(self, request: Request, seconds: float) -> None:
        """Send a request later, and drop the answer."""

        def send() -> None:
            time.sleep(seconds)
            try:
                self.pass_on(request)
            except (OSError, http.client.HTTPException):
                pass  # the store was away

        thread = threading.Thread(target=send, daemon=True)
        self._late.append(thread)
        thread.start()


class _Handler(BaseHTTPRequestHandler):
    server: StoreProxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def setup(self) -> None:
        super().setup()
        with self.server._guard:
            self.server._open.add(self.connection)

    def finish(self) -> None:
        with self.server._guard:
            self.server._open.discard(self.connection)
        try:
            super().finish()
        except OSError:
            pass  # cut

    def _answer_request(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", 0)))
        if len(body) < int(headers.get("content-length", 0)):
            self.close_connection = True
            return  # cut while it came
        request = Request(self.command, self.path, headers, body)
        fault = self.server.judge(request)
        if fault.wait_s:
            time.sleep(fault.wait_s)
        if fault.status:
            self._refuse(fault)
        elif fault.cut:
            self._cut()
        elif fault.late_s is not None:
            self.server.pass_on_late(request, fault.late_s)
            self._cut()
        else:
            try:
                answer, content = self.server.pass_on(request, fault.without)
            except (OSError, http.client.HTTPException):
                self._cut()  # the store is away
                return
            if fault.lost:
                self._cut()
            else:
                self._give(request, answer, content, fault)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self._answer_request
        raise AttributeError(name)

    def _refuse(self, fault: Fault) -> None:
        error = f"<Error><Code>{fault.code}</Code><Message>As the test wants it.</Message></Error>"
        content = fault.content or error.encode()
        self.send_response(fault.status)
        if fault.retry_after:
            self.send_header("retry-after", fault.retry_after)
        self.send_header("content-length", str(0 if self.command == "HEAD" else len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _give(self, request: Request, answer: http.client.HTTPResponse, content: bytes, fault: Fault) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        # That of a HEAD is the size of the object.
        self.send_header("content-length", str(answer.getheader("content-length") or len(content)))
        self.end_headers()
        if fault.short:
            self.wfile.write(content[: len(content) // 2])
            self._cut()
            return
        step = min(LINE, fault.rate) if fault.rate else max(1, len(content))
        for start in range(0, len(content), step):
            self.wfile.write(content[start : start + step])
            if fault.rate:
                time.sleep(step / fault.rate)

    def _cut(self) -> None:
        self.close_connection = True
        _reset(self.connection)


def _reset(connection: socket.socket) -> None:
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # closed already
