import functools
import hashlib
import http.server
import io
import tarfile
import threading
import zipfile

import pytest
from muster_core import Fail
from muster_core.fetch import bring, fetch, public, shown, unpack

CONTENT = bytes(range(256)) * 4000


class Server(http.server.SimpleHTTPRequestHandler):
    breaks = 0  # answers that end in the middle
    asked = []

    def log_message(self, *args):
        pass

    def do_GET(self):
        Server.asked.append(self.headers.get("Range"))
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/whole")
            self.end_headers()
            return
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", "file:///etc/passwd")
            self.end_headers()
            return
        if self.path == "/no":
            return self.send_error(404)
        begin = int((self.headers.get("Range") or "bytes=0-")[6:-1])
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(CONTENT) - begin))
        self.end_headers()
        if Server.breaks:
            Server.breaks -= 1
            self.wfile.write(CONTENT[begin : begin + 200_000])
            return None
        self.wfile.write(CONTENT[begin:])
        return None


@pytest.fixture
def base(monkeypatch):
    monkeypatch.setenv("MUSTER_ALLOW_PRIVATE", "1")
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    Server.breaks, Server.asked = 0, []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Server))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_download_goes_on_where_it_broke(base, tmp_path):
    Server.breaks = 2
    path = fetch(f"{base}/moved", tmp_path / "x", "data", sha256=hashlib.sha256(CONTENT).hexdigest())
    assert path.read_bytes() == CONTENT
    assert [r for r in Server.asked if r] == ["bytes=200000-"] * 2 + ["bytes=400000-"] * 2  # each is asked of /moved, then of /whole
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_what_is_there_with_its_checksum_is_not_fetched_again(base, tmp_path):
    (tmp_path / "x").write_bytes(CONTENT)
    fetch(f"{base}/whole", tmp_path / "x", "data", sha256=hashlib.sha256(CONTENT).hexdigest())
    assert Server.asked == []


@pytest.mark.parametrize(
    ("path", "options", "reason", "want"),
    [
        ("/no", {}, "bad_input", "cannot be fetched: the server responds with 404"),
        ("/away", {}, "bad_input", "file:///etc/passwd is not an http or https URL"),
        ("/whole", {"most": 1000}, "bad_input", "the limit of 1000 B"),
        ("/whole", {"sha256": "0" * 64}, "bad_input", "returns a file with the SHA-256"),
    ],
)
def test_download_errors_are_reported(base, tmp_path, path, options, reason, want):
    with pytest.raises(Fail) as e:
        fetch(base + path, tmp_path / "x", "data", **options)
    assert e.value.reason == reason and want in str(e.value)
    assert list(tmp_path.iterdir()) == []


def test_one_that_always_breaks_is_given_up(base, tmp_path):
    Server.breaks = 4
    with pytest.raises(Fail, match="the connection broke") as e:
        fetch(f"{base}/whole", tmp_path / "x", "data", most=2_000_000)
    assert e.value.reason == "dependency"


def test_private_addresses_are_for_owners_to_allow(base, tmp_path, monkeypatch):
    monkeypatch.delenv("MUSTER_ALLOW_PRIVATE")
    monkeypatch.setenv("http_proxy", base)  # of the job, which would lead there all the same
    with pytest.raises(Fail, match="127.0.0.1, which is not public: allow it on the worker with --allow-private-addresses"):
        fetch(f"{base}/whole", tmp_path / "x", "data")
    with pytest.raises(Fail, match="which is not public"):
        fetch(f"http://localhost:{base.rpartition(':')[2]}/whole", tmp_path / "x", "data")
    assert Server.asked == []


def test_a_proxy_is_used_where_private_addresses_are_allowed(base, tmp_path, monkeypatch):
    monkeypatch.setenv("http_proxy", base)
    monkeypatch.delenv("no_proxy", raising=False)
    assert fetch("http://muster.invalid/whole", tmp_path / "x", "data").read_bytes() == CONTENT


def test_public():
    for private in (
        "10.1.2.3",
        "127.0.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "::1",
        "fe80::1%eth0",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
        "2002:a00:1::",
        "224.0.0.1",
        "0.0.0.0",
    ):
        assert not public(private), private
    assert public("93.184.216.34") and public("2606:4700::1111")


def test_urls_are_shown_without_their_secrets():
    assert shown("https://me:secret@example.org/a/b?token=1") == "https://example.org/a/b"


def test_a_path_that_is_not_there_names_what_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.csv").write_text("a")
    with pytest.raises(Fail, match=r"tarin.csv is not in the task's folder: add it with files or inputs, or give a URL \(it has train.csv\)"):
        bring("tarin.csv", "dataset")


def archive(kind, name, link=False):
    raw = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(raw, "w") as z:
            z.writestr(name, CONTENT)
        return raw.getvalue()
    with tarfile.open(fileobj=raw, mode="w:gz") as t:
        entry = tarfile.TarInfo(name)
        if link:
            entry.type, entry.linkname = tarfile.SYMTYPE, "/etc"
        entry.size = 0 if link else len(CONTENT)
        t.addfile(entry, io.BytesIO(CONTENT))
    return raw.getvalue()


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_archives_stay_in_their_folder(tmp_path, kind):
    path = tmp_path / "a"
    for name in ("../evil", "/evil", "a/../../evil", "..\\evil", "C:/evil"):
        path.write_bytes(archive(kind, name))
        with pytest.raises(Fail, match="is outside"):
            unpack(path, tmp_path / "to", "data")
    path.write_bytes(archive(kind, "a/b"))
    assert (unpack(path, tmp_path / "to", "data") / "a" / "b").read_bytes() == CONTENT
    with pytest.raises(Fail, match="is larger than"):
        unpack(path, tmp_path / "to", "data", most=1000)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(Fail, match="cannot be unpacked"):
        unpack(path, tmp_path / "to", "data")
    assert not (tmp_path.parent / "evil").exists()


def test_links_of_an_archive_are_left_out(tmp_path, capsys):
    (tmp_path / "a").write_bytes(archive("tar", "link", link=True))
    assert list(unpack(tmp_path / "a", tmp_path / "to", "data").iterdir()) == []
    assert "link is a link" in capsys.readouterr().out


def test_the_workers_own_server_is_reached_for_signed_urls_only(base, monkeypatch, tmp_path):
    monkeypatch.delenv("MUSTER_ALLOW_PRIVATE")
    monkeypatch.setenv("MUSTER_SERVER_URL", base)
    assert fetch(f"{base}/whole?expires=1&signature=x", tmp_path / "x", "data").read_bytes() == CONTENT
    other = base.replace("127.0.0.1", "localhost")
    for url in (f"{base}/whole", f"{other}/whole?signature=x", f"{base}/whole?unsigned=signature"):
        with pytest.raises(Fail, match="not public"):
            fetch(url, tmp_path / "y", "data")


def test_headers_stay_with_the_server_that_they_are_for(base, tmp_path):
    seen = []

    class Other(Server):
        def do_GET(self):
            seen.append((self.path, self.headers.get("Authorization")))
            if self.path == "/elsewhere":
                self.send_response(302)
                self.send_header("Location", f"http://localhost:{self.server.server_port}/whole")
                self.end_headers()
                return None
            return super().do_GET()

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        for path in ("/moved", "/elsewhere"):
            fetch(url + path, tmp_path / "x", "data", headers={"Authorization": "Bearer k"})
        assert seen == [("/moved", "Bearer k"), ("/whole", "Bearer k"), ("/elsewhere", "Bearer k"), ("/whole", None)]
        with pytest.raises(Fail, match="headers are not valid"):
            fetch(url, tmp_path / "x", "data", headers={"X": "a\nb"})
    finally:
        server.shutdown()
        server.server_close()
