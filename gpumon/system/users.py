"""Names of users."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=4096)
def user_name(uid: int, nameless: str = "") -> str:
    """Name of a user as it is, not safe to print. May wait for the network.

    Without a name it is the number, after ``nameless``.
    """
    # There is none on a system that is not a Unix.
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"{nameless}{uid}"
