"""HTTP requests to an untrusted server: each has one deadline, and its answer has a maximum size."""

from __future__ import annotations

import math
import socket
import time
from http.client import HTTPConnection, HTTPResponse, IncompleteRead
from typing import Any

MAX_ANSWER_BYTES = 64 << 20
"""Maximum size of an answer. The answer to 1,000 texts has about 1 MB."""


INCOMPLETE = "its answer is incomplete"


class TooLargeError(Exception):
    """An answer has more than `MAX_ANSWER_BYTES`."""


class DeadlineConnection(HTTPConnection):
    """An HTTP connection that stays open between requests. It follows no redirects and uses no proxy.

    Args:
        server: host:port.
    """

    def __init__(self, server: str) -> None:
        super().__init__(server)
        self._deadline = math.inf

    def connect(self) -> None:
        """Connects to the first address of the host that accepts the connection."""
        failure = OSError("the host has no address")
        addresses = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, address in addresses:
            try:
                self.sock = new_socket = _DeadlineSocket(family, kind, protocol)
                new_socket.deadline = self._deadline
                new_socket.connect(address)
                new_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return
            except OSError as error:
                failure = error
                self.close()
        raise failure

    def exchange(self, method: str, path: str, body: bytes | None, deadline: float) -> tuple[int, bytes]:
        """Sends a request and returns the answer's status and body.

        Args:
            deadline: value of time.monotonic() after which this method raises TimeoutError. Connecting, sending and
                receiving all count. The deadline does not interrupt the look-up of the host's name.

        Raises:
            OSError: the server cannot be reached, or the connection ended before the answer.
            HTTPException: the answer is not HTTP.
            TooLargeError: the answer is too large.
        """
        self._deadline = deadline
        if isinstance(self.sock, _DeadlineSocket):
            self.sock.deadline = deadline
        self.request(method, path, body, {"Content-Type": "application/json"})
        # An unread answer would keep the socket open even if the connection is closed, so this block closes the answer.
        with self.getresponse() as response:
            return response.status, _read_body(response)


class _DeadlineSocket(socket.socket):
    """A socket whose operations raise TimeoutError after a deadline. A normal timeout limits only one operation."""

    deadline = math.inf

    def connect(self, address: Any) -> None:
        self._limit()
        super().connect(address)

    def sendall(self, *arguments: Any) -> None:
        self._limit()
        super().sendall(*arguments)

    def recv_into(self, *arguments: Any) -> int:
        self._limit()
        return super().recv_into(*arguments)

    def _limit(self) -> None:
        seconds = self.deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        self.settimeout(seconds if seconds < math.inf else None)


def _read_body(response: HTTPResponse) -> bytes:
    """Returns an answer's body. The server's Content-Length and chunk sizes never decide how much memory is used."""
    body, buffer = bytearray(), bytearray(1 << 16)
    try:
        while count := response.readinto(buffer):
            body += buffer[:count]
            if len(body) > MAX_ANSWER_BYTES:
                raise TooLargeError
    except IncompleteRead:
        raise OSError(INCOMPLETE) from None
    if response.length:
        raise OSError(INCOMPLETE)
    return bytes(body)
