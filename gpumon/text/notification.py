"""The control sequences by which a terminal alerts its user, also over ssh.

Most terminals know only some of the sequences for a notification, and a terminal that knows several
would show it more than once. So one sequence is chosen. No terminal confirms it, and most terminals
without notifications ignore it.

* OSC 99 has a title and a text: kitty (https://sw.kovidgoyal.net/kitty/desktop-notifications/).
* OSC 777 has both, too: urxvt with its extension, foot (``man foot-ctlseqs``), WezTerm
  (https://wezterm.org/config/lua/config/notification_handling.html), Ghostty, Warp, VTE with the
  patch of Fedora, and Windows Terminal (https://github.com/microsoft/terminal/pull/20012).
* OSC 9 has only a text: iTerm2 (https://iterm2.com/documentation-escape-codes.html), and the others
  that are not known here. ConEmu takes a number and a semicolon at its begin for other commands.

tmux passes a wrapped sequence on only with ``allow-passthrough on``. Its ``TERM`` and
``TERM_PROGRAM`` are its own, but the other variables are those of the terminal in which its server
was started.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from gpumon.text.formatting import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BELL = "\a"
_MOST_OF_TITLE = 100
_MOST_OF_TEXT = 400
_SCREEN_BYTES = 240
"""GNU screen keeps only some hundred bytes of a wrapped sequence, old versions 256."""
_KITTY = frozenset({"xterm-kitty", "kitty"})
_WITH_777 = ("rxvt", "foot", "xterm-ghostty", "ghostty", "wezterm", "warpterminal")
"""How ``TERM`` or ``TERM_PROGRAM`` begins, in small letters."""
_VARIABLES_WITH_777 = ("VTE_VERSION", "WEZTERM_PANE", "GHOSTTY_RESOURCES_DIR", "WT_SESSION")


def notification(title: str, text: str, environment: Mapping[str, str]) -> str:
    """The sequence that makes the terminal show a notification.

    Args:
        title: What it is about; made safe here, as the text is.
        text: What to show.
        environment: The environment, which identifies the terminal.
    """
    sequence = _sequence(_safe(title, _MOST_OF_TITLE), _safe(text, _MOST_OF_TEXT), environment)
    if "TMUX" in environment:
        doubled = sequence.replace("\x1b", "\x1b\x1b")
        return f"\x1bPtmux;{doubled}\x1b\\"
    if "STY" in environment:
        return "".join(f"\x1bP{piece}\x1b\\" for piece in _pieces(sequence))
    return sequence


def _sequence(title: str, text: str, environment: Mapping[str, str]) -> str:
    """The sequence for the terminal itself.

    It ends with BEL, not with ST, which would end the wrapper of GNU screen.
    """
    names = [environment.get(name, "").lower() for name in ("TERM_PROGRAM", "TERM")]
    if "KITTY_WINDOW_ID" in environment or not _KITTY.isdisjoint(names):
        # A notification replaces the one before with the same identifier.
        number = f"{zlib.crc32(f'{title};{text}'.encode()):08x}"
        return f"\x1b]99;i=gpumon-{number}:d=0;{title}\a\x1b]99;i=gpumon-{number}:p=body;{text}\a"
    knows_777 = any(name.startswith(_WITH_777) for name in names) or any(
        name in environment for name in _VARIABLES_WITH_777
    )
    if knows_777:
        return f"\x1b]777;notify;{title};{text}\a"
    return f"\x1b]9;{title}: {text}\a"


def _safe(text: str, most: int) -> str:
    # A semicolon separates the parts of these sequences.
    return shortened(printable(text).replace(";", ","), most)


def _pieces(sequence: str) -> Iterator[str]:
    """The sequence in pieces of at most ``_SCREEN_BYTES``, which screen passes on one by one."""
    piece, size = "", 0
    for character in sequence:
        width = len(character.encode())
        if size + width > _SCREEN_BYTES:
            yield piece
            piece, size = "", 0
        piece += character
        size += width
    yield piece
