"""Asks an inference server what it does: one GET, bounded in time and size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.http.connection import HttpConnection, HttpError, HttpRequest
from gpumon.http.listening import authority
from gpumon.serving.metrics_text import AnswerError, read_loaded_models, read_metrics

if TYPE_CHECKING:
    from gpumon.http.connection import HttpAnswer
    from gpumon.serving.engines import Engine
    from gpumon.serving.metrics_text import ServerReadings

PATIENCE = 1.0
"""Seconds that an answer may take."""
MOST_BYTES = 2**20
_NEEDS_KEY = (401, 403)
_NOT_THERE = (404, 405, 501)
"""llama-server answers 501 without ``--metrics``."""


def ask(engine: Engine, address: str, port: int, token: str | None = None) -> ServerReadings:
    """What a server reports now. Redirections are not followed, and no proxy is used.

    Args:
        engine: What kind of server it is.
        address: Its IP address.
        port: Its port.
        token: The API key that it gets.

    Raises:
        AnswerError: It reports nothing; the message says why.
    """
    if engine.metrics_path is None:
        raise AnswerError(f"{engine.name} reports no metrics")
    headers = {"Host": authority(address, port), "User-Agent": "gpumon", "Accept": "text/plain"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    connection = HttpConnection(address, port, None, PATIENCE, authority="")
    try:
        answer = connection.ask(HttpRequest("GET", engine.metrics_path, headers), MOST_BYTES)
    except HttpError as error:
        raise AnswerError(str(error)) from None
    finally:
        connection.close()
    _check(answer, engine, has_token=token is not None)
    text = answer.body.decode("utf-8", "replace")
    return read_loaded_models(text) if engine.metrics is None else read_metrics(text, engine)


def _check(answer: HttpAnswer, engine: Engine, *, has_token: bool) -> None:
    """Whether an answer can be read.

    Raises:
        AnswerError: It cannot.
    """
    status = answer.status
    if status in _NEEDS_KEY:
        raise AnswerError("it refuses the key" if has_token else "it needs a key")
    if status in _NOT_THERE:
        option = engine.metrics_option
        hint = f": start it with {option}" if option is not None else ""
        raise AnswerError(f"its metrics are off{hint}")
    if 300 <= status < 400:
        raise AnswerError("it answers with a redirection, which is not followed")
    if not answer.is_success:
        raise AnswerError(f"it answers with the status {status}")
    if not answer.is_whole:
        raise AnswerError(f"its answer is larger than {MOST_BYTES // 2**20} MiB")
