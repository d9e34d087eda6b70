"""Asks a served model for translations, over gRPC or over TensorFlow Serving's REST API.

In shapes, B is the number of texts in a request and n is the number of hypotheses per text.
"""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from t2t_repro.data.vocabularies.text_rules import is_empty, refuse_surrogates
from t2t_repro.errors import UserError, refuse_single_string
from t2t_repro.serving.transports import Cause, Grpc, Rest, Servable, Transport, TransportError, printable

GRPC_PORT, REST_PORT = 8500, 8501
"""TensorFlow Serving's default ports for gRPC and for the REST API."""
MAX_PORT = 65535
MAX_PAUSE = 30.0
"""Maximum pause before a request is repeated, in seconds."""

SIGNATURE_INPUTS = {"inputs": "string"}
"""Names and types of the inputs of every signature that the client can use."""


class RequestError(UserError):
    """Raised if one request fails. Requests with other texts may succeed."""


@dataclass(frozen=True)
class Answer:
    """The model's outputs for one text. An empty text has no outputs."""

    outputs: tuple[str, ...]
    """Hypotheses (candidate translations), best first. The signature serving_default gives only one."""
    scores: tuple[float, ...]
    """Score of each hypothesis: its log-probability in nats, divided by the length penalty."""

    @property
    def text(self) -> str:
        """The best output, or "" if the text has no outputs."""
        return self.outputs[0] if self.outputs else ""


EMPTY = Answer((), ())


class Client(contextlib.AbstractContextManager):
    """A connection to one served model. Use it in a `with` block, or call `close`.

    Args:
        server: host, or host:port.
        servable_name: the model's name on the server.
        rest: True for TensorFlow Serving's REST API, False for gRPC.
        signature_name: serving_default, or nbest for n hypotheses per text.
        version: version of the model; None for the latest.
        timeout_secs: maximum duration of a request, in seconds.
        retries: maximum number of times that a request is repeated while the server is unavailable.
        first_pause: seconds before the first repetition. Each later pause is twice as long, up to `MAX_PAUSE`.
        tell: function that is called with a message before the first repetition.

    Raises:
        UserError: `server` does not have the form host or host:port, or the port is above `MAX_PORT`.
    """

    def __init__(
        self,
        server: str,
        servable_name: str,
        *,
        rest: bool = False,
        signature_name: str = "serving_default",
        version: int | None = None,
        timeout_secs: float = 10.0,
        retries: int = 4,
        first_pause: float = 0.5,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        port = REST_PORT if rest else GRPC_PORT
        match = re.fullmatch(r"(?:[\w.-]+|\[[\w:.%]+\])(?::(\d{1,5}))?", server, re.ASCII)
        if not match or int(match[1] or port) > MAX_PORT:
            raise UserError(f"--server={server}: give host:port, e.g. localhost:{port}")
        self._server = server if re.search(r":\d+$", server) else f"{server}:{port}"
        self._servable, self._signature = Servable(servable_name, version), signature_name
        self._timeout_secs, self._tell = timeout_secs, tell
        self._pauses = [min(first_pause * 2**number, MAX_PAUSE) for number in range(retries)]
        self._transport: Transport = (Rest if rest else Grpc)(self._server, timeout_secs)

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self._transport.close()

    def translate(self, texts: Sequence[str]) -> list[Answer]:
        """Sends one request and returns an answer for each text, in order. Empty texts are not sent.

        Args:
            texts: the texts to translate, each without a line break.

        Raises:
            RequestError: this request failed, e.g. by a timeout. Another request may succeed.
            UserError: the server cannot be reached, the server does not have the model or the signature, the signature
                does not have the inputs and outputs of t2t-exporter's models, `texts` is a str, or a text has a lone
                surrogate, which UTF-8 cannot encode.
        """
        refuse_single_string(texts=texts)
        numbers = [number for number, text in enumerate(texts) if not is_empty(text)]
        answers = [EMPTY] * len(texts)
        if numbers:
            sources = [texts[number] for number in numbers]
            for source in sources:
                refuse_surrogates(source)
            try:
                outputs = self._retry(lambda: self._transport.predict(self._servable, self._signature, sources))
            except TransportError as error:
                raise self._user_error(error) from None
            for number, answer in zip(numbers, self._answers(outputs, len(numbers)), strict=True):
                answers[number] = answer
        return answers

    def _retry(self, call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Returns the result of `call`. While the server is unavailable, repeats `call` at most `retries` times."""
        for number, pause in enumerate(self._pauses):
            try:
                return call()
            except TransportError as error:
                if error.cause is not Cause.UNAVAILABLE:
                    raise
                if number == 0:
                    self._tell(f"{self._server}: {error.detail}; trying again for {sum(self._pauses):g} s")
            time.sleep(pause)
        return call()

    def _answers(self, outputs: Mapping[str, Any], count: int) -> list[Answer]:
        """Converts the model's "outputs" and "scores", both [B] or both [B, n], into B answers. Checks all types."""
        texts, scores = outputs.get("outputs"), outputs.get("scores")
        answers: list[Answer | None] = [None]
        if isinstance(texts, list) and isinstance(scores, list) and len(texts) == len(scores) == count:
            answers = [_answer(_row(text), _row(score)) for text, score in zip(texts, scores, strict=True)]
        valid = [answer for answer in answers if answer is not None]
        if len(valid) != count:
            raise UserError(
                f"signature {self._signature!r} of model {self._servable.name!r} on {self._server} does not give "
                "outputs (string) and scores (float); give --servable_name of a model that t2t-exporter wrote"
            )
        return valid

    def _user_error(self, error: TransportError) -> UserError:
        """Converts a transport's error into an error that tells the user why the request failed and what to do."""
        if error.cause is Cause.UNAVAILABLE:
            return UserError(
                f"{self._server}: not available ({error.detail}); check that a server runs there and is ready, or "
                f"correct --server (TensorFlow Serving's ports are {GRPC_PORT} for gRPC and {REST_PORT} for --rest)"
            )
        if error.cause is Cause.TIMEOUT:
            return RequestError(
                f"no answer from {self._server} within {self._timeout_secs:g} s; raise --timeout_secs, lower "
                "--batch_size, or check the server"
            )
        mismatch = self._mismatch() if error.cause in (Cause.REFUSED, Cause.NOT_FOUND) else None
        return mismatch or RequestError(f"{self._server}: {error.detail}; see the server's log")

    def _mismatch(self) -> UserError | None:
        """Returns an error if the server lacks the model or the signature, or its inputs are not `SIGNATURE_INPUTS`."""
        model = self._servable.name
        try:
            signatures = self._transport.metadata(self._servable).signatures
        except TransportError as error:
            return self._unknown_model() if error.cause is Cause.NOT_FOUND else None
        names = sorted(name for name, inputs in signatures.items() if inputs == SIGNATURE_INPUTS)
        usable = printable(" or ".join(names))
        cure = f"--signature_name={usable}" if usable else "--servable_name of a model that t2t-exporter wrote"
        inputs = signatures.get(self._signature)
        if inputs is None:
            existing = printable(", ".join(sorted(signatures))) or "none"
            return UserError(
                f"model {model!r} on {self._server} has no signature {self._signature!r}; there are: {existing}; "
                f"give {cure}"
            )
        if inputs != SIGNATURE_INPUTS:
            types = printable(", ".join(f"{field} ({dtype})" for field, dtype in sorted(inputs.items()))) or "nothing"
            return UserError(
                f"signature {self._signature!r} of model {model!r} on {self._server} takes {types}, but the client "
                f"sends inputs (string); give {cure}"
            )
        return None

    def _unknown_model(self) -> UserError:
        """Returns the error for a model, or a version of a model, that the server does not have."""
        name, version = self._servable
        if version is not None:
            with contextlib.suppress(TransportError):
                latest = self._transport.metadata(Servable(name, None)).version
                return UserError(
                    f"model {name!r} on {self._server} has no version {version}; give --servable_version={latest}, "
                    "the latest, or omit the flag"
                )
        return UserError(
            f"{self._server} serves no model {name!r}; give --servable_name the server's --model_name, or the name in "
            "its models.config"
        )


def _answer(texts: list, scores: list) -> Answer | None:
    """Returns the Answer for one text, with the hypotheses `texts` and their `scores`, or None if they are invalid."""
    try:
        pairs = list(zip(map(_text, texts), map(_score, scores), strict=True))
    except (ValueError, OverflowError):
        return None
    # If a text has fewer than n hypotheses, the model adds empty hypotheses with score -inf. Drop them.
    hypotheses = [(text, score) for text, score in pairs if score != -math.inf]
    return Answer(tuple(text for text, _ in hypotheses), tuple(score for _, score in hypotheses)) if pairs else None


def _text(value: object) -> str:
    """Returns `value`. Raises ValueError if it is not a string, or a string that UTF-8 cannot encode."""
    if not isinstance(value, str):
        raise ValueError
    value.encode("utf-8")  # UnicodeEncodeError is a ValueError
    return value


def _score(value: object) -> float:
    """Returns a score, which may be NaN if the model has diverged. Raises ValueError if `value` cannot be a score.

    Raises OverflowError if `value` is an integer that is too large for a float.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or value == math.inf:
        raise ValueError
    return float(value)


def _row(value: object) -> list:
    return value if isinstance(value, list) else [value]
