"""Tests the server's requests, its headers, and what it refuses."""

import re
import socket
import time
from threading import Thread
from typing import Any
from urllib.request import urlopen

import pytest
from flask.testing import FlaskClient

from t2t_repro.errors import UserError
from t2t_repro.insights import server
from t2t_repro.insights.answers import ExploredModel
from t2t_repro.insights.server import address, create_app, listen, trusted_hosts

pytestmark = pytest.mark.usefixtures("no_graphs")
QUESTION = {"model": "0", "source": "the cat", "beam_size": "2", "alpha": "0.6", "num_best": "1"}
ATTENTION = {"model": "0", "source": "the cat", "target_ids": "5,1", "kind": "cross"}


@pytest.fixture
def client(explored: list[ExploredModel]) -> FlaskClient:
    return create_app(explored).test_client()


def get(client: FlaskClient, path: str, **query: str) -> Any:
    """Returns the answer to a request, which must succeed."""
    response = client.get(path, query_string=query)
    assert response.status_code == 200, response.text
    return response.json


def refusal(client: FlaskClient, path: str, query: dict[str, str]) -> str:
    """Returns the error of a request, which must be refused with status 400 and one line."""
    response = client.get(path, query_string=query)
    assert response.status_code == 400, response.text
    assert response.json and list(response.json) == ["error"] and "\n" not in response.json["error"]
    return str(response.json["error"])


def test_the_page_has_only_files_of_this_server(client: FlaskClient) -> None:
    page = client.get("/")
    assert (page.status_code, page.mimetype) == (200, "text/html")
    links = re.findall(r'(?:href|src)="([^"#]+)"', page.text)
    assert len(links) > 2
    types = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
    for link in links:
        file = client.get(f"/{link}")
        assert (file.status_code, file.mimetype) == (200, types[link.rpartition(".")[2]])
    assert not re.search(
        r"<script(?![^>]* src=)|\son\w+=|\sstyle=", page.text
    )  # the browser would refuse them


def test_a_request_reaches_its_model(
    client: FlaskClient, explored: list[ExploredModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert get(client, "/api/models")["models"] == [model.describe() for model in explored]
    for method in ("translate", "attention"):
        monkeypatch.setattr(
            ExploredModel, method, lambda model, *arguments: {"call": [model.name, *arguments]}
        )
    assert get(client, "/api/translate", **QUESTION) == {"call": ["a", "the cat", 2, 0.6, 1]}
    assert get(client, "/api/attention", **ATTENTION | {"model": "1"}) == {
        "call": ["b", "the cat", [5, 1], "cross"]
    }


@pytest.mark.parametrize(
    ("path", "changes", "message"),
    [
        ("translate", {"model": "2"}, "model=2: give a whole number from 0 to 1"),
        ("translate", {"beam_size": "0"}, "beam_size=0: give a whole number from 1 to 32"),
        ("translate", {"beam_size": "9" * 5000}, "beam_size=99999"),
        ("translate", {"alpha": "nan"}, "alpha=nan: give a number from 0 to 5"),
        ("translate", {"num_best": "3"}, "num_best=3: give a whole number from 1 to 2"),
        (
            "translate",
            {"source": "x" * 1001},
            "the source has 1,001 characters; shorten it to 1,000",
        ),
        ("translate", {"source": "ö" * 50}, "the source has 102 tokens; shorten it to 100"),
        (
            "translate",
            {"source": "ö" * 20, "model": "1"},
            "the source has 42 tokens, but this model at most 30",
        ),
        ("attention", {"source": ""}, "the source is empty"),
        ("attention", {"target_ids": "5,"}, "give ids from 1, separated by commas"),
        ("attention", {"target_ids": "0"}, "give ids from 1 to 289"),
        ("attention", {"target_ids": "5,290"}, "give ids from 1 to 289"),
        ("attention", {"target_ids": "5" + ",5" * 1000}, "target_ids has 1001 ids; give 1 to 500"),
        ("attention", {"kind": "self"}, "unknown kind of attention 'self'"),
        ("attention", {"model": "1"}, "model 'copier' has no attention; use another model"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_wrong_parameters_are_refused(
    client: FlaskClient, path: str, changes: dict[str, str], message: str
) -> None:
    query = QUESTION if path == "translate" else ATTENTION
    error = refusal(client, f"/api/{path}", query | changes)
    assert message in error and len(error) < 200


def test_every_parameter_is_needed(client: FlaskClient) -> None:
    for path, query in (("/api/translate", QUESTION), ("/api/attention", ATTENTION)):
        for name in query:
            rest = {key: value for key, value in query.items() if key != name}
            assert refusal(client, path, rest) == f"{name} is missing; add it to the address"


def test_other_addresses_and_methods(client: FlaskClient) -> None:
    response = client.get("/api/nothing")
    assert response.status_code == 404 and response.json and "Not Found" in response.json["error"]
    assert client.post("/api/models").status_code == 405


def test_all_answers_have_the_headers_that_protect_the_page(client: FlaskClient) -> None:
    for path in ("/", "/api/models", "/api/translate", "/nothing"):
        headers = client.get(path).headers
        assert headers["Content-Security-Policy"].startswith("default-src 'self';")
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"


def test_a_failure_in_the_server_is_one_line(
    client: FlaskClient, explored: list[ExploredModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(ExploredModel, "translate", fail)
    response = client.get("/api/translate", query_string=QUESTION)
    assert (response.status_code, response.json) == (
        500,
        {"error": "the server failed; its terminal shows why"},
    )


def test_other_names_of_the_server_are_refused(explored: list[ExploredModel]) -> None:
    with listen("localhost", 0) as listener:
        port = listener.getsockname()[1]
        assert address(listener) == f"http://127.0.0.1:{port}/"
        client = create_app(explored, trusted_hosts(listener, "localhost")).test_client()
    for host in (f"127.0.0.1:{port}", f"localhost:{port}"):
        assert client.get("/api/models", headers={"Host": host}).status_code == 200
    for host in (
        "evil.example",
        f"evil.example:{port}",
        "localhost",
        f"localhost:{port + 1}",
        "",
        "[::1",
        "\u0661",
    ):
        response = client.get("/api/models", headers={"Host": host})
        assert response.status_code == 400, host
    assert response.json and f"open http://127.0.0.1:{port}/" in response.json["error"]


def test_pages_of_other_sites_may_link_to_the_page_but_not_ask(client: FlaskClient) -> None:
    own = (
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "http://localhost"},
    )
    others = (
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://localhost:81"},
    )
    for headers in (*own, *others):
        statuses = [client.get(path, headers=headers).status_code for path in ("/", "/api/models")]
        assert statuses == [200, 200 if headers in own else 400], headers


def test_slow_clients_are_closed_and_others_served(
    explored: list[ExploredModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("MAX_CONNECTIONS", 6), ("MAX_WAITING", 3)):
        monkeypatch.setattr(server, name, value)
    listener = listen("127.0.0.1", 0)
    Thread(target=server.serve, args=(explored, listener, "127.0.0.1"), daemon=True).start()
    clients = [socket.create_connection(listener.getsockname()) for _ in range(9)]
    with urlopen(f"{address(listener)}api/models", timeout=5) as response:
        assert response.status == 200
    clients[-1].sendall(b"GET ")  # still connected
    monkeypatch.setattr(server, "SECONDS", 0.1)
    with pytest.raises(OSError):
        for _ in range(200):
            clients[-1].sendall(b"x")
            time.sleep(0.02)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_other_addresses() -> None:
    with listen("::1", 0) as listener:
        port = listener.getsockname()[1]
        assert address(listener) == f"http://[::1]:{port}/" and f"[::1]:{port}" in trusted_hosts(
            listener, "::1"
        )
    with listen("0.0.0.0", 0) as listener:  # in a network, the server has any name
        assert trusted_hosts(listener, "0.0.0.0") == []
    with pytest.raises(
        UserError, match=r"--host=no\.such\.host\.invalid --port=0: .*; give another --port"
    ):
        listen("no.such.host.invalid", 0)
