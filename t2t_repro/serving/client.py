"""Asks a served model for translations, over gRPC or over TensorFlow Serving's REST API.

In shapes, B is the number of texts in a request and n is the number of hypotheses per text.
"""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from t2t_repro.data.vocabularies.text_rules import is_empty
from t2t_repro.errors import UserError, refuse_single_string
from t2t_repro.serving.transports import Grpc, Rest, Signature, Transport, TransportError

GRPC_PORT, REST_PORT = 8500, 8501
"""TensorFlow Serving's default ports for gRPC and for the REST API."""
FIRST_PAUSE, MAX_PAUSE = 0.5, 30.0
"""Seconds before the first repetition of a request. Each later pause is twice as long, up to the maximum."""
TEMPORARY = ("UNAVAILABLE", "DEADLINE_EXCEEDED")
"""Errors after which a request is repeated."""
CURES = {
    "UNAVAILABLE": f"check that a server is ready at --server (ports: {GRPC_PORT} for gRPC, {REST_PORT} for --rest)",
    "DEADLINE_EXCEEDED": "no answer within --timeout_secs: raise it, lower --batch_size, or check the server",
    "NOT_FOUND": "correct --servable_name or --servable_version",
}
"""What the user can do about an error, by its name in gRPC."""
OTHER_CURE = "check --signature_name, or see the server's log"


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
        retries: maximum number of times that a request is repeated while the server is unavailable or too slow.
        tell: function that is called with a message before the first repetition.

    Raises:
        UserError: `server` does not have the form host or host:port.
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
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        port = REST_PORT if rest else GRPC_PORT
        if not re.fullmatch(r"([\w.-]+|\[[\w:.%]+\])(:\d{1,5})?", server, re.ASCII):
            raise UserError(f"--server={server}: give host:port, e.g. localhost:{port}")
        self._server = server if re.search(r":\d+$", server) else f"{server}:{port}"
        self._signature = Signature(servable_name, signature_name, version)
        self._tell = tell
        self._pauses = [min(FIRST_PAUSE * 2**number, MAX_PAUSE) for number in range(retries)]
        self._transport: Transport = (Rest if rest else Grpc)(self._server, self._signature, timeout_secs)

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
            UserError: the server cannot be reached or answers with an error, the signature does not have the outputs of
                t2t-exporter's models, or `texts` is a str.
        """
        refuse_single_string(texts=texts)
        sources = [text for text in texts if not is_empty(text)]
        answers = iter(self._ask(sources) if sources else ())
        return [EMPTY if is_empty(text) else next(answers) for text in texts]

    def _ask(self, sources: Sequence[str]) -> list[Answer]:
        try:
            outputs, scores = self._predict(sources)
        except TransportError as error:
            raise UserError(f"{self._server}: {error.detail}; {CURES.get(error.code, OTHER_CURE)}") from None
        with contextlib.suppress(TypeError, ValueError):
            if isinstance(outputs, list) and len(outputs) == len(sources):
                return [_answer(*rows) for rows in zip(outputs, scores, strict=True)]
        raise UserError(
            f"{self._server}: signature {self._signature.name!r} of model {self._signature.model!r} does not give "
            "outputs (string) and scores (float); give --servable_name of a model that t2t-exporter wrote"
        )

    def _predict(self, sources: Sequence[str]) -> tuple[Any, Any]:
        """Sends a request. Repeats it after temporary errors.

        gRPC could repeat requests itself, but at most four times, and its timeout would include the pauses.
        """
        for number, pause in enumerate(self._pauses):
            try:
                return self._transport.predict(sources)
            except TransportError as error:
                if error.code not in TEMPORARY:
                    raise
                if number == 0:
                    self._tell(f"{self._server}: {error.detail}; trying again up to {len(self._pauses)} times")
            time.sleep(pause)
        return self._transport.predict(sources)


def _answer(texts: Any, scores: Any) -> Answer:
    """Returns the Answer for one text, whose hypotheses are `texts` and `scores`, or a single hypothesis.

    Raises ValueError or TypeError if a text is not a string, a score is not a float, or their numbers differ.
    """
    if not isinstance(texts, list):
        texts, scores = [texts], [scores]
    pairs = list(zip(texts, scores, strict=True))
    if not pairs or not all(isinstance(text, str) and isinstance(score, float) for text, score in pairs):
        raise ValueError
    # If a text has fewer than n hypotheses, the model adds empty hypotheses with score -inf. Drop them.
    kept = [(text, score) for text, score in pairs if score != -math.inf]
    return Answer(tuple(text for text, _ in kept), tuple(score for _, score in kept))
