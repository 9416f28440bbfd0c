"""The page of a run that is still going, served to a browser on this machine, which keeps it up to date.

The server reads run folders and nothing else: its three answers are made in memory, no address is a path of a file.
It answers the browser alone that asked for it by this machine's name or number, so that a page from elsewhere cannot
read along under a name of its own that was made to point here (DNS rebinding,
https://owasp.org/www-community/attacks/DNS_Rebinding).
"""

import contextlib
import errno
import ipaddress
import json
import re
import secrets
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any

from lingraft.errors import RunFolderError, ServingError
from lingraft.report.blocks import Figures, nothing, section
from lingraft.report.escaping import Html, element
from lingraft.report.frame import Content, compose_page
from lingraft.report.moments import Moment, WatchedRun, moments_block
from lingraft.report.page import content_of
from lingraft.report.reading import distinct_names, is_run_folder, read_record
from lingraft.version import __version__

__all__ = ["LivePage", "LiveServer", "open_server"]

_SHORTEST_SECONDS = 3.0
_SHARE_OF_A_CORE = 0.05
_PATIENCE_SECONDS = 30
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\s:\[\]]+))(?::\d+)?")


class LivePage:
    """The page on runs as it stands, made again where their folders have changed, but not often.

    Training wants the processor too: making the page takes at most a twentieth of one core.

    Args:
        folders: run folders; those that are not there yet are waited for.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self.server = secrets.token_hex(8)
        self._runs = [WatchedRun(folder) for folder in folders]
        self._lock = threading.Lock()
        self._signature: Any = None
        self._count = 0
        self._made: Content | None = None
        self._not_before = 0.0

    def html(self) -> str:
        """Return the whole page."""
        content, version = self._content()
        moments = self._moments()
        live = element(
            "div",
            element("div", moments_block(moments), id="moments"),
            element("p", id="told", role="status"),
            id="live",
            data_server=self.server,
            data_version=version,
        )
        return compose_page(content, live=Html(live + "\n"))

    def state(self) -> dict[str, Any]:
        """Return where the runs stand, and the version of the content; it costs little."""
        moments = self._moments()
        with self._lock:
            version = self._version()
        return {
            "server": self.server,
            "version": version,
            "moments": moments_block(moments),
            "told": " ".join(map(_told, moments)),
            "title": _window_title(moments),
            "ended": all(moment.state == "finished" for moment in moments),
        }

    def content(self) -> dict[str, Any]:
        """Return what the page says now, for a page that is open."""
        content, version = self._content()
        return {
            "version": version,
            "header": content.header,
            "contents": content.contents,
            "sections": content.sections,
            "figures": content.figures.specifications,
        }

    def _moments(self) -> list[Moment]:
        moments = [run.moment() for run in self._runs]
        if len(moments) == 1:
            return moments
        names = distinct_names([run.folder for run in self._runs])
        return [replace(moment, name=name) for moment, name in zip(moments, names, strict=True)]

    def _version(self) -> str:
        signature = [run.signature() for run in self._runs]
        if signature != self._signature and time.monotonic() >= self._not_before:
            self._signature, self._made = signature, None
            self._count += 1
        return f"{self.server}-{self._count}"

    def _content(self) -> tuple[Content, str]:
        with self._lock:
            version = self._version()
            if self._made is None:
                began = time.monotonic()
                self._made = _content_of([run.folder for run in self._runs])
                took = time.monotonic() - began
                self._not_before = time.monotonic() + max(_SHORTEST_SECONDS, took / _SHARE_OF_A_CORE)
            return self._made, version


def _content_of(folders: Sequence[Path]) -> Content:
    there = [folder for folder in folders if is_run_folder(folder)]
    if there:
        return content_of([read_record(folder) for folder in there])
    listed = ", ".join(distinct_names(folders))
    told = nothing("Nothing has been measured yet. This page fills by itself.")
    return Content(
        f"lingraft report: {listed}",
        element("h1", listed),
        element("ul", element("li", element("a", "Summary", href="#summary"))),
        section("summary", "Summary", told),
        Figures(),
    )


def _told(moment: Moment) -> str:
    """What a screen reader says, once for each part of a run."""
    at = f", stage {moment.stage}" if moment.stage else f", {moment.doing}" if moment.doing else ""
    return f"{moment.name}: {moment.state}{at}."


def _window_title(moments: Sequence[Moment]) -> str:
    names = ", ".join(moment.name for moment in moments)
    done = sum(moment.tokens for moment in moments)
    whole = sum(moment.total_tokens for moment in moments)
    ended = all(moment.state == "finished" for moment in moments)
    share = "✓ " if ended else f"{100 * done // whole} % · " if whole else ""
    return f"{share}lingraft report: {names}"


class LiveServer(ThreadingHTTPServer):
    """Serves a :class:`LivePage` until it is closed; a context manager, as its base is.

    Attributes:
        page: what is served.
        url: where it is.
    """

    daemon_threads = True

    def __init__(self, page: LivePage, host: str, port: int) -> None:
        self.page = page
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Answers)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.server_address[1]}/"
        self.names = {"localhost", host.lower()}

    def server_bind(self) -> None:
        """Bind without asking the network for this machine's name, which can take long."""
        TCPServer.server_bind(self)

    def _tell_error(self, request: Any, client_address: Any) -> None:
        """Let browsers hang up; anything else is shown."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    # The base class calls it so.
    handle_error = _tell_error

    def is_called(self, host: str | None) -> bool:
        """Return whether a Host header names this machine: a number, localhost, or the name it was bound to."""
        found = _HOST.fullmatch((host or "").strip().lower())
        name = (found[1] or found[2]) if found else ""
        if name in self.names:
            return True
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(name)
            return True
        return False


class _Answers(BaseHTTPRequestHandler):
    server: LiveServer
    timeout = _PATIENCE_SECONDS

    def version_string(self) -> str:
        return f"lingraft/{__version__}"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: a browser asks every two seconds."""

    def _answer(self) -> None:
        if not self.server.is_called(self.headers.get("Host")):
            self._refuse(421, "This page is served under this machine's own name and number only.")
            return
        page = self.server.page
        made = {"/": page.html, "/state.json": page.state, "/content.json": page.content}.get(self.path.split("?")[0])
        if made is None:
            self._refuse(404, "There is nothing here; the page is at /")
            return
        try:
            found = made()
        except OSError:
            # A folder was put in place of another just while it was read: the next time it is whole.
            self._refuse(503, "The run folder changed while it was read; ask again.")
            return
        if isinstance(found, str):
            self._send(200, found, "text/html; charset=utf-8")
        else:
            self._send(200, json.dumps(found, ensure_ascii=True, allow_nan=False), "application/json")

    do_GET = do_HEAD = _answer  # noqa: N815 - http.server names them so

    def _refuse_method(self) -> None:
        self._refuse(405, "Only GET and HEAD are answered here.")

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = _refuse_method  # noqa: N815

    def _refuse(self, status: int, why: str) -> None:
        self._send(status, f"{why}\n", "text/plain; charset=utf-8")

    def _send(self, status: int, text: str, kind: str) -> None:
        body = text.encode()
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "Content-Security-Policy": "frame-ancestors 'none'",
            "Cross-Origin-Resource-Policy": "same-origin",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        } | ({"Allow": "GET, HEAD"} if status == 405 else {})
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def open_server(folders: Sequence[Path], host: str = "127.0.0.1", port: int = 8321) -> LiveServer:
    """Return a server of the page on runs, bound and not yet serving: call ``serve_forever`` in a ``with`` statement.

    Args:
        folders: run folders; those that are not there yet are waited for.
        host: the address to listen at; ``127.0.0.1`` is heard on this machine alone.
        port: the port; 0 means any that is free.

    Raises:
        RunFolderError: no folder was given, or one is a file.
        ServingError: the address cannot be had: the port is in use, or is not for us, or no such host is here.
    """
    if not folders:
        raise RunFolderError("a report needs at least one run folder")
    for folder in folders:
        if folder.exists() and not folder.is_dir():
            raise RunFolderError(f"{folder} is a file, not a run folder")
    try:
        return LiveServer(LivePage(folders), host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ServingError(
                f"--port: {port} on {host} is in use; name another, or --port 0 for any that is free"
            ) from error
        raise ServingError(f"--host {host}, --port {port}: cannot be listened at: {error.strerror}") from error
