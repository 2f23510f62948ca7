"""Who is let in: the token in the address, and the names under which a browser may know the server.

Every web page can make a browser send requests to ``localhost``, and its own host name can resolve
to this machine (DNS rebinding). The token keeps such pages out; ``Host`` and ``Origin`` are checked
too, so that a token that became known is of no use to them.
"""

from __future__ import annotations

import hmac
import re
import secrets
from ipaddress import ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_TOKEN_BYTES = 24
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([\w.-]+))(?::[0-9]{1,5})?", re.ASCII)
_WRONG_HOST = "gpumon serve is not known by this name: open the address that it printed."
_WRONG_TOKEN = "The address lacks the token: use the whole address that gpumon serve printed."  # noqa: S105 - a sentence
_WRONG_ORIGIN = "Another page requested this one: open the address that gpumon serve printed."


class Access:
    """The token of one run of the server, and the names of the server.

    Args:
        names: The names of the server besides its addresses: an address as ``Host`` is always
            right, because DNS rebinding needs a name.

    Attributes:
        token: The token, for the address that is printed.
    """

    def __init__(self, names: Collection[str]) -> None:
        self.token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._names = {name.lower() for name in names}

    def refusal(self, path: str, host: str | None, origin: str | None) -> str | None:
        """Why a request is refused, as a sentence; ``None`` if it is not.

        Args:
            path: The path, which begins with the token.
            host: The header ``Host``.
            origin: The header ``Origin``; browsers send none when a page is opened.
        """
        if not self._is_ours(host):
            return _WRONG_HOST
        given = path.split("/", 2)[1] if path.startswith("/") else ""
        # Takes the same time for every wrong token.
        if not hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode()):
            return _WRONG_TOKEN
        if origin is not None and not is_same(origin, host):
            return _WRONG_ORIGIN
        return None

    def _is_ours(self, host: str | None) -> bool:
        found = _HOST.fullmatch(host or "")
        if found is None:
            return False
        name = (found[1] or found[2]).lower()
        return name in self._names or _is_address(name)


def is_same(origin: str | None, host: str | None) -> bool:
    """Whether an ``Origin`` is the page of this server under this ``Host``."""
    # https where a proxy in front of the server adds TLS.
    return host is not None and origin in {f"http://{host}", f"https://{host}"}


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
