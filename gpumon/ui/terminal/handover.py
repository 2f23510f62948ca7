"""Lets Textual take over a terminal that already shows the dashboard.

Entering the alternate screen a second time would clear it, and the settings that Textual finds are
not those to restore at the end. A driver class, which is a public extension point of Textual,
handles both. Which sequence it writes and where it keeps the settings are private:
``pyproject.toml`` has the versions that are accepted, and ``tests/e2e/test_first_picture.py``
checks that nothing flashes and everything is restored. Without a first picture this driver behaves
like its base class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textual.driver import Driver

    from gpumon.ui.terminal.first_picture import FirstPicture

_ALTERNATE_SCREEN = "\x1b[?1049h"


def driver_after(picture: FirstPicture) -> type[Driver]:
    """A driver that continues from this picture."""
    from gpumon.ui.terminal.driver import TerminalDriver

    class Successor(TerminalDriver):
        _entered = False

        def start_application_mode(self) -> None:
            attributes = picture.hand_over()
            self._entered = attributes is not None
            super().start_application_mode()
            if attributes is not None:
                self.attrs_before = attributes

        def write(self, data: str) -> None:
            if self._entered and data == _ALTERNATE_SCREEN:
                self._entered = False
                return
            super().write(data)

    return Successor
