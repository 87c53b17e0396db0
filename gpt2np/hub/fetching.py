"""One file over HTTP, whole or not at all.

The bytes go to ``<name>.part``. A cut is resumed, a passing fault is tried again, and only a file
that has every length and digest known of it gets its name: what has its name is whole.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import re
import sys
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from pathlib import Path
from time import monotonic, sleep, time
from typing import TYPE_CHECKING, TypeVar

from gpt2np.errors import DownloadError
from gpt2np.files import lock_holder, rename, tell_of_no_locks, try_lock
from gpt2np.streams import say

if TYPE_CHECKING:
    import requests

TIMEOUT = (10.0, 30.0)  # seconds to connect, and seconds without a byte
TRIES = 5  # in a row, without a step forward
STEP = 1 << 20  # bytes gained that count as a step forward
FIRST_WAIT = 0.5  # seconds; doubled at each try
LONGEST_WAIT = 60.0  # also for a server that asks for more
CHUNK = 1 << 16  # bytes read at a time at most
RATE = 1000  # bytes a second that a server must send ...
PERIOD = 60.0  # ... over so many seconds
UNTOLD = 8 << 30  # the most bytes of a file whose length is not told: GPT-2 XL's has 6.4 billion

_STRONG = re.compile(r'"[!-~]*"')  # an ETag that may stand in If-Range

T = TypeVar("T")

# What the exceptions under requests' own mean to a user.
_FAULTS = {
    "NameResolutionError": "the server's name cannot be resolved (no network?)",
    "NewConnectionError": "the server cannot be reached",
    "ConnectTimeoutError": "the server cannot be reached in time",
    "ReadTimeoutError": "the server went silent",
    "ProtocolError": "the connection was cut",
    "ProxyError": "the proxy does not let it through",
    "SSLError": "TLS failed (a proxy that opens it? REQUESTS_CA_BUNDLE names its CA)",
}


class NotFoundError(DownloadError):
    """The server has no such file."""


class _PassingError(Exception):
    """What may be gone at the next try: what happened, what to do, seconds the server asks for."""

    def __init__(self, what: str, todo: str, wait: float = 0.0) -> None:
        super().__init__(what)
        self.todo, self.wait = todo, wait


def fetch(
    url: str,
    target: Path,
    *,
    token: str | None = None,
    pinned: str | None = None,
    progress: bool = True,
) -> None:
    """Fetch a file, unless it is there already.

    Parameters
    ----------
    url : str
        Where it is; http or https.
    target : Path
        What it is to be called, in a folder that exists. The caller keeps others away (`locked`).
    token : str, optional
        Sent as a bearer token to the host of `url`, and to no other that it redirects to.
    pinned : str, optional
        A digest known beforehand, ``"sha256:<hex>"`` or ``"md5:<hex>"``, which the file must
        have besides those that the server tells.
    progress : bool
        Draw a bar on stderr, if that is a terminal.

    Raises
    ------
    NotFoundError
        The server has no such file.
    DownloadError
        It could not be fetched whole; what came is kept in ``<name>.part`` and resumed next time.
    """
    if target.exists():
        return
    part = target.with_name(f"{target.name}.part")
    with writing(part):
        _persist(url, lambda: _attempt(url, part, token, pinned, progress), part)
        rename(part, target)
        _etag_note(part).unlink(missing_ok=True)


def commit_of(url: str, token: str | None = None) -> str:
    """Return the commit (40 hex digits) that a file's URL on the hub stands for just now.

    Raises
    ------
    DownloadError
        The file cannot be had, or the server does not tell the commit.
    """

    def ask() -> str:
        # GET, not HEAD: a storage host that a hub redirects to may have signed for GET alone.
        with _answer(url, token, {}) as response:
            commit = _hub_headers(response).get("X-Repo-Commit", "")
        if not re.fullmatch("[0-9a-f]{40}", commit):
            raise DownloadError(
                f"{shown(url)}: the answer names no commit, so the server is not a Hugging Face "
                "hub or a mirror of it; check HF_ENDPOINT"
            )
        return commit

    return _persist(url, ask)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the file system refuses in the body into a DownloadError about `path`."""
    try:
        yield
    except DownloadError:
        raise
    except OSError as error:
        raise DownloadError(
            f"cannot write {error.filename or path}: {error.strerror or error}; make room or give "
            "permission there, or set GPT2NP_HOME to another folder"
        ) from error


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path`; the system lets go of it when its holder ends, however it ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as file:
        held = try_lock(file.fileno())
        if held is None:
            tell_of_no_locks(path.parent, "fetch a model only once there")
        elif not held:
            _say(f"waiting for another process that holds {path}: {lock_holder(file.fileno())}")
            while try_lock(file.fileno()) is False:
                sleep(0.1)
        yield


def _persist(url: str, attempt: Callable[[], T], part: Path | None = None) -> T:
    """Attempt until it succeeds, fails for good, or no step forward came in TRIES tries."""
    tries, reached = 0, _size(part)
    while True:
        try:
            return attempt()
        except _PassingError as fault:
            if _size(part) >= reached + STEP:
                tries, reached = 0, _size(part)
            tries += 1
            if tries == TRIES:
                kept = f" ({_size(part):,} bytes are kept for the next time)" if _size(part) else ""
                raise DownloadError(
                    f"{shown(url)}: {fault}, {TRIES} times in a row; {fault.todo}{kept}"
                ) from fault
            # Jitter, so that many clients of a failing server do not come back all at once.
            wait = max(fault.wait, FIRST_WAIT * 2 ** (tries - 1) * random.uniform(0.5, 1.5))
            wait = min(wait, LONGEST_WAIT)
            _say(f"{shown(url)}: {fault}; trying again in {wait:.1f} s")
            sleep(wait)


def _attempt(url: str, part: Path, token: str | None, pinned: str | None, progress: bool) -> None:
    """Bring `part` to its full length and check it, going on from what is there."""
    start = _size(part)
    headers = {"Range": f"bytes={start}-"} if start else {}
    if start and (etag := _noted_etag(part)):
        headers["If-Range"] = etag
    with _answer(url, token, headers) as response:
        status, content_range = response.status_code, response.headers.get("Content-Range", "")
        length, digests = _expected(response, pinned)
        if length is None and not digests:
            raise DownloadError(
                f"{shown(url)}: the server tells neither length nor digest, so that a part could "
                "pass for the whole; check HF_ENDPOINT and the proxy"
            )
        if status == 206 and not content_range.startswith(f"bytes {start}-"):
            part.unlink(missing_ok=True)
            raise _PassingError(
                "the server sent another part than was asked for", "try again later"
            )
        if status == 200:  # the whole file, asked for or not
            start = 0
        went_on = False
        if status != 416:  # 416: there is nothing beyond what `part` has
            went_on = _write(url, response, part, start=start, length=length, progress=progress)
    if went_on and not digests:
        part.unlink()
        raise DownloadError(
            f"{shown(url)}: the server went on after the {length or UNTOLD:,} bytes that the file "
            "has; check HF_ENDPOINT and the proxy"
        )
    _verify(url, part, length, digests, resumed=start > 0)


@contextmanager
def _answer(url: str, token: str | None, headers: dict[str, str]) -> Iterator[requests.Response]:
    """Open the answer to a GET; whatever fails, here or while its body is read, gets a name."""
    import requests

    if any(
        os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE")
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    ):
        raise DownloadError(
            f"{shown(url)} is needed, but HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set; unset it"
        )

    def sign(request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {token}"
        return request

    try:
        with requests.get(
            url,
            headers={"Accept-Encoding": "identity", **headers},
            auth=sign if token else None,  # a header would give way to an entry in .netrc
            timeout=TIMEOUT,
            stream=True,
        ) as response:
            _refuse(response, url, token)
            yield response
    except requests.TooManyRedirects as error:
        raise DownloadError(
            f"{shown(url)}: the server redirects in circles; check HF_ENDPOINT and the proxy"
        ) from error
    except (
        requests.ConnectionError,
        requests.Timeout,
        requests.exceptions.ChunkedEncodingError,
    ) as error:
        cause = error.args[0] if error.args else error
        kind = type(getattr(cause, "reason", cause)).__name__
        raise _PassingError(
            _FAULTS.get(kind, f"the connection failed ({kind})"),
            "check the network, HTTPS_PROXY and HF_ENDPOINT, and try again",
        ) from error
    except (requests.RequestException, ValueError) as error:  # ValueError: a redirect to no URL
        raise DownloadError(
            f"{shown(url)}: this address, or one that it redirects to, cannot be used "
            f"({type(error).__name__}); check HF_ENDPOINT"
        ) from error


def _refuse(response: requests.Response, url: str, token: str | None) -> None:
    """Raise unless the answer brings (a part of) the file as it is."""
    status, name = response.status_code, shown(url)
    if status in (401, 403):
        raise DownloadError(
            f"{name}: access refused ({status}); check the model's name (a hub answers so for one "
            "that does not exist, too), "
            + (
                "and that the token may read it"
                if token
                else "or set HF_TOKEN to a token that may read it"
            )
        )
    if status == 404:
        raise NotFoundError(
            f"{name}: no such file (404); check the model's name and revision, "
            "or the path if a folder was meant"
        )
    if status == 429:
        raise _PassingError(
            "too many requests (429)",
            "wait some minutes; a token in HF_TOKEN raises the limit",
            _retry_after(response),
        )
    if status == 408 or status >= 500:
        raise _PassingError(
            f"the server is in trouble ({status})",
            "try again later, or set HF_ENDPOINT to a mirror",
            _retry_after(response),
        )
    if status == 416 and "Range" in response.request.headers:
        return
    if status not in (200, 206):
        raise DownloadError(f"{name}: unexpected answer ({status}); check HF_ENDPOINT")
    if "html" in response.headers.get("Content-Type", ""):
        raise _web_page(url)
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise DownloadError(
            f"{name}: came compressed, against the request; check the proxy and HF_ENDPOINT"
        )


def _web_page(url: str) -> DownloadError:
    return DownloadError(
        f"{shown(url)}: a web page came in place of the file; if the network has a login page, "
        "log in with a browser, else check the proxy and HF_ENDPOINT"
    )


def _retry_after(response: requests.Response) -> float:
    """Return the seconds that the server asks to wait, told as a number or a date; else 0."""
    value = response.headers.get("Retry-After", "")
    if re.fullmatch(r"\d{1,9}", value):
        return float(value)
    try:
        return parsedate_to_datetime(value).timestamp() - time()
    except (ValueError, TypeError, OverflowError):
        return 0.0


def _hub_headers(response: requests.Response) -> Mapping[str, str]:
    """Return the headers in which the hub describes a file, before it redirects to storage."""
    for answer in (*response.history, response):
        if "X-Repo-Commit" in answer.headers:
            return answer.headers
    return {}


def _expected(response: requests.Response, pinned: str | None) -> tuple[int | None, list[str]]:
    """Return the length and the digests that the whole file must have, as far as they are told."""
    hub, headers, fresh = _hub_headers(response), response.headers, response.status_code == 200
    length = (
        hub.get("X-Linked-Size")
        or headers.get("Content-Range", "").rpartition("/")[2]
        or (fresh and headers.get("Content-Length"))
        or ""
    )
    digests = [pinned] if pinned else []
    # The hub's ETag of a large file is its sha256, of another one git's name for the content.
    etag = (hub.get("X-Linked-Etag") or hub.get("ETag") or "").removeprefix("W/").strip('"')
    if re.fullmatch("[0-9a-f]{64}", etag):
        digests.append(f"sha256:{etag}")
    elif re.fullmatch("[0-9a-f]{40}", etag):
        digests.append(f"git:{etag}")
    # Azure, where OpenAI's files are, tells the md5 of the whole: in another header for a part.
    md5 = headers.get("x-ms-blob-content-md5") or (fresh and headers.get("Content-MD5")) or ""
    with suppress(Base64Error):
        digests += [f"md5:{b64decode(md5, validate=True).hex()}"] if md5 else []
    return (int(length) if re.fullmatch(r"\d{1,18}", length) else None), digests


def _write(
    url: str,
    response: requests.Response,
    part: Path,
    *,
    start: int,
    length: int | None,
    progress: bool,
) -> bool:
    """Write the body into `part` from `start` on, and to the disk; whether it went on beyond its
    length."""
    from tqdm import tqdm

    pieces = _pieces(response)
    first = next(pieces, b"")
    if start == 0 and first[:64].lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(
        (b"<!doctype", b"<html")
    ):
        raise _web_page(url)
    left = (UNTOLD if length is None else length) - start
    with (
        open(part, "ab" if start else "wb") as file,
        tqdm(
            desc=part.stem,
            total=length,
            initial=start,
            unit="B",
            unit_scale=True,
            disable=not (progress and sys.stderr is not None and sys.stderr.isatty()),
        ) as bar,
    ):
        if start == 0:  # noted after the old content went, lest it pass for the new one's
            _note_etag(part, response.headers.get("ETag", ""))
        for piece in itertools.chain([first], pieces):
            file.write(piece[:left])
            bar.update(len(piece[:left]))
            left -= len(piece)
            if left < 0:
                break
        file.flush()
        os.fsync(file.fileno())
    return left < 0


def _pieces(response: requests.Response) -> Iterator[bytes]:
    """Give the body as it comes, and up if hardly anything does."""
    # urllib3's, which requests itself turns into its own where it reads
    from requests.exceptions import BaseHTTPError, ConnectionError  # type: ignore[attr-defined]

    # What there is, without waiting for more: so a server that trickles is noticed.
    read = getattr(response.raw, "read1", response.raw.read)  # before urllib3 2: as good as it gets
    began, got = monotonic(), 0
    while True:
        try:
            piece: bytes = read(CHUNK)
        except BaseHTTPError as error:
            raise ConnectionError(error) from error
        if not piece:
            return
        yield piece
        got += len(piece)
        if monotonic() - began >= PERIOD:
            if got < RATE * PERIOD:
                raise _PassingError(
                    f"the server sends less than {RATE:,} bytes a second",
                    "try again later: it goes on from there",
                )
            began, got = monotonic(), 0


def _verify(url: str, part: Path, length: int | None, digests: list[str], resumed: bool) -> None:
    """Raise unless `part` is the whole file; delete it if it cannot become that."""
    size = _size(part)
    if length is not None and size < length:
        raise _PassingError(
            f"the connection was cut at {size:,} of {length:,} bytes",
            "try again: it goes on from there",
        )
    wrong = [f"{size:,} bytes, not {length:,}"] if length is not None and size > length else []
    wrong += [
        f"{kind} {found}, not {expected}"
        for kind, expected in (digest.split(":") for digest in digests)
        if (found := _digest(part, kind)) != expected
    ]
    if wrong:
        part.unlink()
        if resumed:  # the old part may have been of another file: once more, from the beginning
            raise _PassingError(f"the resumed file was wrong ({wrong[0]})", "try again later")
        raise DownloadError(
            f"{shown(url)}: wrong content ({wrong[0]}), deleted; try again, and if it stays so, "
            "distrust the server: check HF_ENDPOINT and the proxy"
        )


def _digest(path: Path, kind: str) -> str:
    """Return the digest of a file in hex; "git" is the sha1 by which git names a file's content."""
    digest = hashlib.new("sha1" if kind == "git" else kind, usedforsecurity=kind == "sha256")
    if kind == "git":
        digest.update(b"blob %d\0" % _size(path))
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _etag_note(part: Path) -> Path:
    """Return the file that tells which version of a file `part` is a part of."""
    return part.with_name(f"{part.name}.etag")


def _note_etag(part: Path, etag: str) -> None:
    if _STRONG.fullmatch(etag):
        _etag_note(part).write_bytes(etag.encode("ascii"))
    else:
        _etag_note(part).unlink(missing_ok=True)


def _noted_etag(part: Path) -> str | None:
    """Give the ETag that was noted; a note that is none is thrown away."""
    with suppress(FileNotFoundError, ValueError):
        etag = _etag_note(part).read_text(encoding="ascii")
        if _STRONG.fullmatch(etag):
            return etag
    _etag_note(part).unlink(missing_ok=True)
    return None


def _size(path: Path | None) -> int:
    return path.stat().st_size if path and path.exists() else 0


def shown(url: str) -> str:
    """Return a URL without the user and password that may stand in it."""
    return re.sub("//[^/@]*@", "//", url)


def _say(text: str) -> None:
    say(f"gpt2np: {text}")
