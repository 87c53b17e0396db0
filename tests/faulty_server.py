"""An HTTP server on 127.0.0.1 that can do wrong whatever a hub, a mirror or a network does wrong.

`FaultyServer` serves ``files`` honestly: ranges, ETags, If-Range, redirects. ``fail(name, ...)``
queues faults for the next requests of a file of that name; each is a function that gives the whole
answer. ``seen`` holds every request. `publish` lays a model out as the Hugging Face hub does: small
files come from the hub itself, large ones from a storage server that it redirects to.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote, urlsplit


@dataclass
class File:
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    location: str | None = None  # where to redirect to


@dataclass
class Request:
    path: str
    headers: dict[str, str]  # names in lower case

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultyServer

    def do_GET(self) -> None:
        path = urlsplit(self.path).path  # through a proxy, the request line holds a whole URL
        request = Request(path, {k.lower(): v for k, v in self.headers.items()})
        with self.server.lock:
            self.server.seen.append(request)
            faults = self.server.faults[request.name]
            fault = faults.pop(0) if faults else honest
        file = self.server.files.get(path)
        if file is None:
            self.answer(404, b"not here")
        else:
            fault(self, file)

    def answer(
        self,
        status: int,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        length: int | None = None,
    ) -> None:
        """Send an answer; with a `length` that is not the body's, hang up after the body."""
        self.send_response(status)
        headers = {"Content-Type": "application/octet-stream", **(headers or {})}
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = length is not None

    def start(self, file: File) -> int:
        """Return where the requested range starts; 0 if the file is no longer the one asked for."""
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if match and self.headers.get("If-Range", tag(file)) == tag(file):
            return int(match[1])
        return 0

    def log_message(self, *args: Any) -> None:
        pass


class FaultyServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, File] = {}
        self.faults: defaultdict[str, list[Fault]] = defaultdict(list)
        self.seen: list[Request] = []
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def fail(self, name: str, *faults: Fault) -> None:
        self.faults[name] += faults

    def requests_of(self, name: str) -> list[Request]:
        return [request for request in self.seen if request.name == name]

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):  # a client may well hang up
            super().handle_error(request, client_address)


@contextmanager
def serving(server: FaultyServer) -> Iterator[FaultyServer]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def publish(
    hub: FaultyServer,
    storage: FaultyServer,
    repo: str,
    commit: str,
    files: Mapping[str, bytes],
    *,
    revisions: Iterable[str] = ("main",),
) -> None:
    """Let `hub` hold a model, with its *.safetensors and *.bin in `storage`."""
    for name, body in files.items():
        headers = {"x-repo-commit": commit}
        location = None
        if name.endswith((".safetensors", ".bin")):
            sha256 = hashlib.sha256(body).hexdigest()
            headers |= {"x-linked-etag": f'"{sha256}"', "x-linked-size": str(len(body))}
            location = f"{storage.url}/storage/{commit}/{name}"
            storage.files[f"/storage/{commit}/{name}"] = File(body, {"ETag": f'"s-{sha256[:8]}"'})
        else:
            git = hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()
            headers |= {"ETag": f'W/"{git}"'}
        for revision in (commit, *(quote(revision, safe="") for revision in revisions)):
            hub.files[f"/{repo}/resolve/{revision}/{name}"] = File(body, headers, location)


def tag(file: File) -> str | None:
    return file.headers.get("ETag")


# Answers: one that is right, and the faults.

Fault = Callable[[Handler, File], None]


def honest(handler: Handler, file: File) -> None:
    size, start = len(file.body), handler.start(file)
    if file.location:
        handler.answer(302, b"moved", {**file.headers, "Location": file.location})
    elif start == 0:
        handler.answer(200, file.body, file.headers)
    elif start < size:
        content_range = {"Content-Range": f"bytes {start}-{size - 1}/{size}"}
        handler.answer(206, file.body[start:], {**file.headers, **content_range})
    else:
        content_range = {"Content-Range": f"bytes */{size}", "Content-Type": "text/html"}
        handler.answer(416, b"<html>", {**file.headers, **content_range})


def status(code: int, **headers: str) -> Fault:
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler, file: handler.answer(code, b"trouble", headers)


def cut(after: int) -> Fault:
    """Hang up after so many bytes of what was asked for."""

    def fault(handler: Handler, file: File) -> None:
        size, start = len(file.body), handler.start(file)
        headers = dict(file.headers)
        if start:
            headers["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
        handler.answer(
            206 if start else 200, file.body[start : start + after], headers, length=size - start
        )

    return fault


def trickle(chunk: int, pause: float) -> Fault:
    """Send the file slowly."""

    def fault(handler: Handler, file: File) -> None:
        handler.answer(200, b"", file.headers, length=len(file.body))
        for start in range(0, len(file.body), chunk):
            handler.wfile.write(file.body[start : start + chunk])
            time.sleep(pause)

    return fault


def short(missing: int) -> Fault:
    """Send less than the whole, and a Content-Length that agrees with that."""
    return lambda handler, file: handler.answer(200, file.body[:-missing], file.headers)


def ignore_range(handler: Handler, file: File) -> None:
    handler.answer(200, file.body, file.headers)


def wrong_range(handler: Handler, file: File) -> None:
    """Send as much as was asked for, but from the start of the file."""
    size, count = len(file.body), len(file.body) - handler.start(file)
    content_range = {"Content-Range": f"bytes 0-{count - 1}/{size}"}
    handler.answer(206, file.body[:count], {**file.headers, **content_range})


def corrupt(handler: Handler, file: File) -> None:
    body = bytearray(file.body)
    body[len(body) // 2] ^= 1
    honest(handler, File(bytes(body), file.headers))


def web_page(content_type: str) -> Fault:
    page = b"\r\n<!DOCTYPE html><html>Welcome to the hotel</html>"
    return lambda handler, file: handler.answer(200, page, {"Content-Type": content_type})


def redirect(location: str) -> Fault:
    return lambda handler, file: handler.answer(302, b"", {"Location": location})


def circle(handler: Handler, file: File) -> None:
    handler.server.fail(PurePosixPath(handler.path).name, circle)
    handler.answer(302, b"", {"Location": handler.path})


def hang_up(handler: Handler, file: File) -> None:
    handler.close_connection = True


def silent(seconds: float) -> Fault:
    def fault(handler: Handler, file: File) -> None:
        time.sleep(seconds)
        handler.close_connection = True

    return fault


def without_length(handler: Handler, file: File) -> None:
    """End the body by hanging up, as HTTP/1.0 does."""
    handler.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n" + file.body)
    handler.close_connection = True


def endless(status: int, *, told: bool = True) -> Fault:
    """Go on after the file's end for as long as anybody reads."""

    def fault(handler: Handler, file: File) -> None:
        size, start = len(file.body), handler.start(file)
        head = [f"HTTP/1.0 {status} OK", *(f"{k}: {v}" for k, v in file.headers.items())]
        if told and status == 206:
            head.append(f"Content-Range: bytes {start}-{size - 1}/{size}")
        elif told:
            head.append(f"x-linked-size: {size}\r\nx-repo-commit: {'0' * 40}")
        handler.wfile.write("\r\n".join([*head, "", ""]).encode() + file.body[start:])
        with suppress(ConnectionError):
            while True:
                handler.wfile.write(bytes(100_000))

    return fault


def compressed(handler: Handler, file: File) -> None:
    handler.answer(200, gzip.compress(file.body), {**file.headers, "Content-Encoding": "gzip"})
