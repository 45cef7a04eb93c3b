"""Input files of a task: paths in its folder, and URLs.

    path = bring(given["dataset"], "dataset")

A download is written under a temporary name and renamed when it is complete. It only connects to public addresses,
unless the worker's owner allows others (MUSTER_ALLOW_PRIVATE=1, as with network: allowlist), and for signed URLs of artifacts to the
worker's own server (MUSTER_SERVER_URL). Only in the first case it uses a proxy of the task's environment: a proxy can
reach private addresses, and a job may name any proxy.
"""

import gzip
import hashlib
import http.client
import ipaddress
import os
import re
import shutil
import socket
import ssl
import tarfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Iterator, Mapping, Optional, Union

from ._task import Fail, log, report

GIB = 1 << 30
_TRIES = 4
_REDIRECTS = 5
_PATIENCE = 60.0  # seconds without a byte
_CHUNK = 1 << 20

# Addresses that ipaddress calls global but that lead to other networks: forms of IPv6 that contain an IPv4 address.
_CARRIERS = [ipaddress.ip_network(n) for n in ("64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16")]


class Unreachable(Fail):
    """A download failed for a reason that is not the user's: another address may have the same."""

    def __init__(self, message: str) -> None:
        super().__init__("dependency", message)


def is_url(where: str) -> bool:
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", where) is not None


def bring(
    where: str, field: str, to: "Optional[Path]" = None, most: int = 100 * GIB, headers: "Optional[Mapping[str, str]]" = None, patience: float = _PATIENCE
) -> Path:
    """The file or folder that a field of the input names: a path in the task's folder, or a URL that is downloaded to the folder `to`."""
    if is_url(where):
        name = PurePosixPath(urllib.parse.unquote(urllib.parse.urlsplit(where).path)).name or "download"
        return fetch(where, (to or Path("downloads")) / re.sub(r"[^\w.-]", "_", name)[-100:], field, most=most, headers=headers, patience=patience)
    path = Path(where)
    if not path.exists():
        raise Fail("bad_input", f"{field}: {where} is not in the task's folder: add it with files or inputs, or give a URL{_near(path)}")
    return path


def _near(path: Path) -> str:
    try:
        there = sorted(p.name for p in path.parent.iterdir() if not p.name.startswith("."))
    except OSError:
        return ""
    more = ", …" if len(there) > 8 else ""
    return f" ({'it' if path.parent == Path('.') else path.parent} has {', '.join(there[:8])}{more})" if there else ""


def fetch(
    url: str, to: Path, field: str, sha256: str = "", most: int = 100 * GIB, headers: "Optional[Mapping[str, str]]" = None, patience: float = _PATIENCE
) -> Path:
    """Download a URL to a file, with progress. An existing file is used if it has the checksum.

    The headers are not sent to other servers that it redirects to. Ends after `patience` seconds without a byte.
    Resumes after a broken connection, at most four times. Raises Fail with bad_input for an error or
    an unexpected content, Unreachable if the server does not answer.
    """
    if sha256 and to.is_file() and digest(to) == sha256.lower():
        return to
    to.parent.mkdir(parents=True, exist_ok=True)
    part = to.with_name(f".{to.name}.{os.getpid()}.part")
    try:
        for n in range(_TRIES):
            try:
                _download(url, part, field, most, headers or {}, patience)
                break
            except (OSError, http.client.HTTPException) as e:
                if getattr(e, "filename", None) is not None or getattr(e, "errno", None) == 28:
                    raise  # the disk's, not the net's
                hopeless = isinstance(_cause(e), ssl.SSLCertVerificationError) or n and isinstance(_cause(e), socket.gaierror)
                if n + 1 == _TRIES or hopeless:
                    raise Unreachable(f"{field}: {shown(url)} cannot be fetched: {_said(e)}") from e
                log(f"{shown(url)}: {_said(e)}: trying again")
                time.sleep(2**n)
        got = digest(part) if sha256 else ""
        if got != sha256.lower():
            raise Fail("bad_input", f"{field}: {shown(url)} returns a file with the SHA-256 {got}, not {sha256.lower()}: it is damaged or another one")
        os.replace(part, to)
    finally:
        part.unlink(missing_ok=True)
    return to


def _download(url: str, part: Path, field: str, most: int, headers: "Mapping[str, str]", patience: float) -> None:
    have = part.stat().st_size if part.exists() else 0
    with _opened(url, have, field, headers, patience) as answer:
        if have and answer.status != 206:
            have = 0  # it gives all again
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length and length.isdigit() else 0
        if total > most:
            raise Fail("bad_input", f"{field}: {shown(url)} is {size(total)}, which exceeds the limit of {size(most)}")
        reported_at = time.monotonic()
        with open(part, "ab" if have else "wb") as f:
            while chunk := answer.read(_CHUNK):
                f.write(chunk)
                have += len(chunk)
                if have > most:
                    raise Fail("bad_input", f"{field}: {shown(url)} is larger than the limit of {size(most)}")
                if time.monotonic() - reported_at > 1:
                    reported_at = time.monotonic()
                    report(step=f"fetching {part.name[1:].rsplit('.', 2)[0]}: {size(have)}{' of ' + size(total) if total else ''}")
        if total and have < total:
            raise http.client.IncompleteRead(b"", total - have)


def _opened(url: str, have: int, field: str, headers: "Mapping[str, str]", patience: float) -> Any:
    first = _origin(url)
    for _ in range(_REDIRECTS + 1):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Fail("bad_input", f"{field}: {shown(url)} is not an http or https URL")
        request = urllib.request.Request(url, headers={"User-Agent": "muster", "Accept-Encoding": "identity"})
        if have:
            request.add_header("Range", f"bytes={have}-")
        for name, value in headers.items() if _origin(url) == first else ():
            request.add_header(name, value)
        try:
            return _opener(url, parts.hostname, field).open(request, timeout=patience)
        except ValueError as e:  # before anything was sent
            raise Fail("bad_input", f"{field}: the headers are not valid: {e}") from None
        except urllib.error.HTTPError as e:
            e.close()
            if e.code in (301, 302, 303, 307, 308) and (where := e.headers.get("Location")):
                url = urllib.parse.urljoin(url, where)
                continue
            if e.code == 416:  # the partial file does not belong to it
                have = 0
                continue
            if e.code >= 500 or e.code in (408, 425, 429):
                raise http.client.HTTPException(f"the server answers {e.code} {e.reason}") from None
            raise Fail("bad_input", f"{field}: {shown(url)} cannot be fetched: the server responds with {e.code} {e.reason}") from None
    raise Fail("bad_input", f"{field}: {shown(url)} cannot be fetched: it redirects more than {_REDIRECTS} times")


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def _origin(url: str) -> "tuple[str, Optional[str], Optional[int]]":
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _opener(url: str, host: str, field: str) -> urllib.request.OpenerDirector:
    if os.environ.get("MUSTER_ALLOW_PRIVATE") == "1":
        return urllib.request.build_opener(_Stay)
    if _origin(url) == _origin(os.environ.get("MUSTER_SERVER_URL", "")) and "signature" in urllib.parse.parse_qs(urllib.parse.urlsplit(url).query):
        return urllib.request.build_opener(urllib.request.ProxyHandler({}), _Stay)

    def connect(address: "tuple[str, int]", *rest: Any) -> socket.socket:
        # The address that was looked at is the one that is connected to, whatever the name leads to next.
        last: Optional[OSError] = None
        for found in socket.getaddrinfo(*address, 0, socket.SOCK_STREAM):
            ip = str(found[4][0])
            if not public(ip):
                raise Fail("bad_input", f"{field}: {host} has the address {ip}, which is not public: allow it on the worker with --allow-private-addresses")
            try:
                return socket.create_connection((ip, address[1]), *rest)
            except OSError as e:
                last = e
        raise last or OSError(f"{host} has no address")

    class Plain(urllib.request.HTTPHandler):
        def http_open(self, req: urllib.request.Request) -> Any:
            return self.do_open(made, req)

    class Secure(urllib.request.HTTPSHandler):
        def https_open(self, req: urllib.request.Request) -> Any:
            return self.do_open(secured, req, context=ssl.create_default_context())

    def made(*args: Any, **options: Any) -> http.client.HTTPConnection:
        return _through(http.client.HTTPConnection(*args, **options), connect)

    def secured(*args: Any, **options: Any) -> http.client.HTTPConnection:
        return _through(http.client.HTTPSConnection(*args, **options), connect)

    return urllib.request.build_opener(urllib.request.ProxyHandler({}), Plain, Secure, _Stay)


def _through(connection: http.client.HTTPConnection, connect: Any) -> http.client.HTTPConnection:
    connection._create_connection = connect  # type: ignore[attr-defined]
    return connection


def public(address: str) -> bool:
    """Whether an IP address is one of the open internet."""
    ip = ipaddress.ip_address(address.split("%")[0])
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return ip.is_global and not ip.is_multicast and not any(ip in n for n in _CARRIERS)


def shown(url: str) -> str:
    """A URL without what may be secret in it."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _cause(e: BaseException) -> BaseException:
    return e.reason if isinstance(e, urllib.error.URLError) and isinstance(e.reason, BaseException) else e


def _said(e: BaseException) -> str:
    cause = _cause(e)
    if isinstance(cause, TimeoutError):
        return "no answer in time"
    if isinstance(cause, http.client.IncompleteRead):
        return "the connection broke"
    return (getattr(cause, "strerror", None) or str(cause) or type(cause).__name__).rstrip(".")


def digest(path: "Union[str, Path]") -> str:
    """The SHA-256 of a file, in hex."""
    h = hashlib.sha256()
    with open(path, "rb") as f:
        while chunk := f.read(_CHUNK):
            h.update(chunk)
    return h.hexdigest()


def size(n: float) -> str:
    """A number of bytes for people, such as 1.5 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if n < 1024 or unit == "TiB":
            return f"{n:.0f} {unit}" if unit == "B" or n >= 100 else f"{n:.1f} {unit}"
        n /= 1024
    raise AssertionError


def is_archive(path: Path) -> bool:
    return path.is_file() and (zipfile.is_zipfile(path) or re.search(r"\.(zip|tar|tgz|tar\.(gz|bz2|xz))$", path.name.lower()) is not None)


def unpack(path: Path, to: Path, field: str, most: int = 100 * GIB) -> Path:
    """Unpack a zip or tar archive into a new folder: files and folders only, none outside of it, not more than most bytes in all."""
    if to.exists():
        shutil.rmtree(to)
    to.mkdir(parents=True)
    total = 0
    try:
        for name, source in _members(path):
            inside = PurePosixPath(name.replace("\\", "/"))
            if inside.is_absolute() or ".." in inside.parts or ":" in inside.parts[0]:
                raise Fail("bad_input", f"{field}: {path.name} holds {name!r}, which is outside of its folder")
            target = to.joinpath(*inside.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            with source, open(target, "wb") as f:
                while chunk := source.read(_CHUNK):
                    total += len(chunk)
                    if total > most:
                        raise Fail("bad_input", f"{field}: {path.name} is larger than {size(most)}")
                    f.write(chunk)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, gzip.BadGzipFile, NotImplementedError, RuntimeError) as e:
        raise Fail("bad_input", f"{field}: {path.name} cannot be unpacked: {e or 'it is truncated'}") from e
    except Exception as e:
        if type(e).__name__ in ("error", "LZMAError"):  # zlib's and lzma's
            raise Fail("bad_input", f"{field}: {path.name} cannot be unpacked: {e}") from e
        raise
    return to


def _members(path: Path) -> "Iterator[tuple[str, BinaryIO]]":
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as z:
            for member in z.infolist():
                if not member.is_dir():
                    yield member.filename, z.open(member)  # type: ignore[misc]
        return
    with tarfile.open(path) as t:
        for entry in t:
            if entry.isfile() and (source := t.extractfile(entry)):
                yield entry.name, source  # type: ignore[misc]
            elif not entry.isdir():
                log(f"{path.name}: {entry.name} is a link or a device and is left out")
