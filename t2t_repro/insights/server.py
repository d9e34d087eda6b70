"""The server of the page: Flask maps addresses to answers, and waitress reads requests and runs
them in threads.

All requests are GETs that hold the whole question. The server stores nothing between two requests.
"""

import contextlib
import ipaddress
import socket
import time
from collections.abc import Sequence
from typing import Any, TypeVar

from flask import Flask, Response, request
from waitress.channel import HTTPChannel
from waitress.server import TcpWSGIServer
from werkzeug.exceptions import HTTPException

from t2t_repro.errors import UserError, shortened
from t2t_repro.insights.answers import LIMITS, ExploredModel

Number = TypeVar("Number", int, float)

HEADERS = {
    # The page may load only its own files, and runs no script inside HTML. Other pages cannot embed
    # it.
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",  # the page's address holds the user's text
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
MAX_HEADER_BYTES = 32 * 1024
"""Maximum size of a request's address and headers. Each of a source's characters takes up to 12
bytes in an address.
"""
THREADS = 4
"""Number of requests that are answered at the same time. Others wait."""
MAX_CONNECTIONS = 100
"""Maximum number of open connections. A browser opens up to six."""
MAX_WAITING = 50
"""Maximum number of open connections that wait for their client."""
SECONDS = 30
"""Seconds in which a client must send its whole request, and after which an answer that nobody
reads is dropped.
"""
HTTP_PORT = 80
"""The port that browsers omit in the Host header."""


def create_app(models: Sequence[ExploredModel], trusted_hosts: Sequence[str] = ()) -> Flask:
    """Returns the application that answers the page's requests.

    It accepts the values `trusted_hosts` of a request's Host header; empty for all values.
    """
    app = Flask(__name__, static_folder="page", static_url_path="")
    app.json.sort_keys = False  # type: ignore[attr-defined]

    def model() -> ExploredModel:
        return models[number("model", int, 0, len(models) - 1)]

    @app.before_request
    def check_origin() -> None:
        host = request.headers.get("Host", "")
        site = request.headers.get("Sec-Fetch-Site", "")
        # Flask's TRUSTED_HOSTS would compare names for us, but it does not know IPv6 addresses.
        if trusted_hosts and host not in trusted_hosts:
            raise UserError(
                f"{shortened(host)} is not this server's name; open http://{trusted_hosts[0]}/"
            )
        # Other sites may have links to the page, but may not ask the model. Programs other than
        # browsers send nothing.
        is_foreign_site = site not in ("", "none", "same-origin")
        is_foreign_origin = request.origin not in (None, request.host_url[:-1])
        if (is_foreign_site or is_foreign_origin) and request.path.startswith("/api/"):
            raise UserError(f"a page of another site asks; open {request.host_url}")

    @app.get("/")
    def index() -> Response:
        return app.send_static_file("index.html")

    @app.get("/api/models")
    def describe() -> dict[str, Any]:
        return {"models": [model.describe() for model in models], "limits": LIMITS}

    @app.get("/api/translate")
    def translate() -> dict[str, Any]:
        beam_size = number("beam_size", int, 1, LIMITS["beam_size"])
        alpha = number("alpha", float, 0, LIMITS["alpha"])
        num_best = number("num_best", int, 1, beam_size)
        return model().translate(text("source"), beam_size, alpha, num_best)

    @app.get("/api/attention")
    def attention() -> dict[str, Any]:
        return model().attention(text("source"), ids("target_ids"), text("kind"))

    @app.after_request
    def add_headers(response: Response) -> Response:
        response.headers.update(HEADERS)
        return response

    @app.errorhandler(UserError)
    def refuse(error: UserError) -> tuple[dict[str, str], int]:
        return {"error": str(error)}, 400

    @app.errorhandler(HTTPException)
    def refuse_request(error: HTTPException) -> tuple[dict[str, str], int]:
        if error.code == 500:  # Flask has printed the traceback
            return {"error": "the server failed; its terminal shows why"}, 500
        return {"error": f"{error.name}: {error.description}"}, error.code or 500

    return app


def text(name: str) -> str:
    if name not in request.args:
        raise UserError(f"{name} is missing; add it to the address")
    return request.args[name]


def number(name: str, kind: type[Number], lowest: float, highest: float) -> Number:
    """Returns a parameter of the request as a number in a range."""
    with contextlib.suppress(ValueError):
        value = kind(text(name))
        if lowest <= value <= highest:  # false for NaN
            return value
    rule = "number" if kind is float else "whole number"
    raise UserError(f"{name}={shortened(text(name))}: give a {rule} from {lowest:g} to {highest:g}")


def ids(name: str) -> list[int]:
    """Returns a parameter of the request, ids separated by commas."""
    try:
        return [int(part) for part in text(name).split(",")]
    except ValueError:
        raise UserError(
            f"{name}={shortened(text(name))}: give ids from 1, separated by commas"
        ) from None


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that accepts connections at a host and port; 0 stands for a free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise UserError(
            f"--host={host} --port={port}: {error.strerror}; give another --port, 0 for a free "
            "one, or another --host"
        ) from None


def address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def trusted_hosts(listener: socket.socket, host: str) -> list[str]:
    """Returns the Host headers of browsers on this machine if the server has a loopback address;
    else [].

    Other headers are refused: with DNS, a page on the internet can give its own name the address
    127.0.0.1. It could then read the answers of a server that accepts this name.
    """
    bound, port = listener.getsockname()[:2]
    if not ipaddress.ip_address(bound).is_loopback:
        return []
    names = [f"[{name}]" if ":" in name else name for name in (bound, host, "localhost")]
    hosts = [f"{name}:{port}" for name in names]
    return hosts + names if port == HTTP_PORT else hosts


class Connection(HTTPChannel):
    """A connection that waits for its client since `creation_time`: to send a whole request, or to
    read the answer.
    """

    def service(self) -> None:
        super().service()
        self.creation_time = time.time()


class PageServer(TcpWSGIServer):
    """A server whose slow clients cannot keep others from being served."""

    channel_class = Connection

    def maintenance(self, now: float) -> None:
        """Closes the connections that wait too long, and the oldest ones if more than `MAX_WAITING`
        wait.
        """
        super().maintenance(now)
        waiting = [
            connection for connection in self.active_channels.values() if not connection.requests
        ]
        waiting.sort(key=lambda connection: connection.creation_time)
        for index, connection in enumerate(waiting):
            is_late = connection.creation_time < now - SECONDS and not connection.total_outbufs_len
            if is_late or index < len(waiting) - MAX_WAITING:
                connection.will_close = True


def serve(models: Sequence[ExploredModel], listener: socket.socket, host: str) -> None:
    """Answers requests at the socket that `listen` returned for --host, until Ctrl-C."""
    PageServer(
        create_app(models, trusted_hosts(listener, host)),
        _sock=listener,
        bind_socket=False,
        sockinfo=(listener.family, listener.type, 0, None),
        threads=THREADS,
        connection_limit=MAX_CONNECTIONS,
        channel_timeout=SECONDS,
        cleanup_interval=0,
        max_request_header_size=MAX_HEADER_BYTES,
        max_request_body_size=1,
        ident=None,
    ).run()
