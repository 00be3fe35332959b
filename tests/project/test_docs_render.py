"""The documentation as a reader sees it: built, opened in a browser, and found to be all there.

Every page must load without an error and without a word to any other host: who reads the docs of a checkout may be
offline, and a page that is looked at should tell nobody.
"""

import http.server
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import parse_qs, urlencode

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.needs("chromium")]

# The browser enforces the policy, and the watcher writes what it refused and what broke into the page, where it can be
# read after rendering. A policy does not cover connections that are only opened in advance; those are looked up.
POLICY = "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:"
WATCHER = b"""<script>
    const note = (what) => document.documentElement.setAttribute(
        "data-trouble", (document.documentElement.getAttribute("data-trouble") || "") + what + "\\n");
    addEventListener("securitypolicyviolation", (event) => note("asked for " + event.blockedURI));
    addEventListener("error", (event) => note("broke: " + (event.message || event.target.outerHTML)), true);
    addEventListener("unhandledrejection", (event) => note("broke: " + event.reason));
</script>"""
# Pages in frames, so that one browser does for many of them. They are read a second after the last has been loaded, for
# what was refused is told later; on the browser's own virtual time that takes no longer than what is still to be fetched.
BESIDE = 12
FRAMED = """<!doctype html><title>frames</title><body>{frames}<script>
    addEventListener("load", () => setTimeout(() => {{
        const pages = [...document.querySelectorAll("iframe")].map(
            (frame) => [frame.dataset.name, frame.contentDocument.documentElement.outerHTML]);
        document.body.textContent = "pages " + btoa(unescape(encodeURIComponent(JSON.stringify(pages)))) + " end";
    }}, 1000));
</script>"""
AHEAD = {"preconnect", "dns-prefetch", "preload", "prefetch", "modulepreload"}


@dataclass
class Page(HTMLParser):
    """What is looked at in a page: its title, its first heading, what it connects to ahead, and the watcher's notes."""

    title: str = ""
    heading: str = ""
    trouble: list[str] = field(default_factory=list)
    _inside: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    @classmethod
    def read(cls, text: str) -> "Page":
        page = cls()
        page.feed(text)
        page.close()
        return page

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "html":
            self.trouble += (given.get("data-trouble") or "").splitlines()
        if tag == "link" and AHEAD & set((given.get("rel") or "").split()):
            target = given.get("href") or ""
            if re.match(r"(https?:)?//", target):
                self.trouble.append(f"asked for {target}")
        # Icons drawn in SVG have titles too.
        if tag in {"title", "h1", "svg"}:
            self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if self._inside == ["title"]:
            self.title += data
        elif self._inside == ["h1"]:
            self.heading += data


class Watched(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, with the policy on everything and the watcher in every page."""

    def do_GET(self) -> None:
        if self.path.startswith("/frames?"):
            names = parse_qs(self.path.partition("?")[2], keep_blank_values=True)["name"]
            frames = "".join(
                f'<iframe src="/{name}" data-name="{name}" width=1200 height=900></iframe>' for name in names
            )
            self._send(FRAMED.format(frames=frames).encode())
            return
        path = Path(self.translate_path(self.path))
        if path.is_dir():
            path /= "index.html"
        if path.suffix != ".html" or not path.is_file():
            super().do_GET()
            return
        self._send(re.sub(rb"<head[^>]*>", lambda head: head[0] + WATCHER, path.read_bytes(), count=1))

    def _send(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", POLICY)
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing; the test tells what it found."""


@pytest.fixture(scope="module")
def look(chromium: str) -> Callable[[Path, Iterable[str]], dict[str, Page]]:
    """Open addresses within a folder in the browser; return each as it stands when it has been rendered."""

    def render(url: str) -> dict[str, Page]:
        # A folder of the test's own would be removed while the last of the browser's processes still writes to it.
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            done = subprocess.run(
                [
                    chromium,
                    "--headless",
                    "--no-sandbox",
                    "--disable-gpu",
                    "--disable-quic",
                    "--no-first-run",
                    "--disable-background-networking",
                    "--disable-component-update",
                    "--disable-sync",
                    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                    f"--user-data-dir={profile}",
                    "--virtual-time-budget=5000",
                    "--dump-dom",
                    url,
                ],
                # Without a bus to look for, it does not wait for one.
                env={**os.environ, "HOME": profile, "DBUS_SESSION_BUS_ADDRESS": "disabled:"},
                capture_output=True,
                text=True,
                timeout=200,
                check=False,
            )
        assert done.returncode == 0, done.stderr
        sent = re.search("pages ([A-Za-z0-9+/=]*) end", done.stdout)
        assert sent, done.stdout
        return {name: Page.read(text) for name, text in json.loads(b64decode(sent[1]))}

    def look(folder: Path, addresses: Iterable[str]) -> dict[str, Page]:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Watched, directory=str(folder)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with server, ThreadPoolExecutor(os.cpu_count()) as browsers:
            names = list(addresses)
            some = [
                urlencode({"name": names[first : first + BESIDE]}, doseq=True) for first in range(0, len(names), BESIDE)
            ]
            pages = browsers.map(render, [f"http://127.0.0.1:{server.server_port}/frames?{these}" for these in some])
            found = {name: page for part in pages for name, page in part.items()}
            server.shutdown()
        assert list(found) == names
        return found

    return look


@pytest.fixture(scope="module")
def site(checkout: Callable[[Path], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation, built from a copy of the checkout: pages may quote any file of it."""
    folder = checkout(tmp_path_factory.mktemp("docs") / "checkout")
    built = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--clean", "--strict"],
        cwd=folder,
        env={**os.environ, "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout
    return folder / "site"


@pytest.mark.full
@pytest.mark.needs("zensical")
def test_every_page_is_rendered_and_asks_no_other_host(
    site: Path, look: Callable[[Path, Iterable[str]], dict[str, Page]]
) -> None:
    pages = look(site, addresses(site))

    assert "" in pages
    assert {name: page.trouble for name, page in pages.items() if page.trouble} == {}
    assert [name for name, page in pages.items() if not page.title.strip() or not page.heading.strip()] == []


def addresses(site: Path) -> Iterator[str]:
    """Name every page, as it is linked to; the one for addresses that do not exist is laid out for its own host."""
    for path in sorted(site.rglob("*.html")):
        if path != site / "404.html":
            yield path.relative_to(site).as_posix().removesuffix("index.html")


@pytest.mark.parametrize(
    ("body", "trouble"),
    [
        ("<script>fetch('https://example.com/a.json')</script>", "asked for https://example.com/a.json"),
        ("<img src='http://192.0.2.1/a.png'>", "asked for http://192.0.2.1/a.png"),
        ("<style>@import url('//example.com/a.css');</style>", "asked for http://example.com/a.css"),
        ("<link rel='preconnect' href='https://example.com'>", "asked for https://example.com"),
        ("<script>nothing.at.all</script>", "broke: Uncaught ReferenceError: nothing is not defined"),
        ("<img src='missing.png'>", 'broke: <img src="missing.png">'),
    ],
)
def test_trouble_is_noticed(
    tmp_path: Path, look: Callable[[Path, Iterable[str]], dict[str, Page]], body: str, trouble: str
) -> None:
    (tmp_path / "index.html").write_text(
        f"<!doctype html><head><title>A page</title></head><body><h1>A <b>heading</b></h1>{body}</body>",
        encoding="utf-8",
    )
    page = look(tmp_path, [""])[""]

    assert (page.title, page.heading) == ("A page", "A heading")
    assert trouble in page.trouble
