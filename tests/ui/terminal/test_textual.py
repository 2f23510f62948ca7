"""What gpumon uses of Textual beyond its public interface: a new version is tried with this first.

Textual may change these names in any version, so ``pyproject.toml`` accepts only those versions
that the tests of the terminal pass on.
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from types import ModuleType

import pytest
import textual
from textual import _styles_cache, _xterm_parser, app, dom, driver, message_pump, screen, widget
from textual.drivers import _writer_thread, linux_driver
from textual.widgets import _toast

import gpumon
from gpumon.ui.dialogs.confirm import ConfirmDialog
from gpumon.ui.terminal.driver import LenientParser, TerminalDriver

_OLD_KEYS = "keys typed before a dialog is shown confirm it"
USED: dict[str, tuple[type | ModuleType, str]] = {
    "BRACKETED_PASTE_END": (_xterm_parser, "a paste whose end is lost blocks all keys"),
    "BRACKETED_PASTE_START": (_xterm_parser, "a paste whose end is lost blocks all keys"),
    "StylesCache": (_styles_cache, "closed dialogs stay in memory"),
    "ToastRack": (_toast, "cells are drawn over a toast"),
    "XTermParser": (_xterm_parser, "invalid input of the terminal ends the program"),
    "_auto_restart": (linux_driver.LinuxDriver, "the terminal is not restored before Ctrl+Z"),
    "_batch_count": (app.App, _OLD_KEYS),
    "_bindings": (dom.DOMNode, "a key that has no effect does not say why"),
    "_close_messages_no_wait": (app.App, "it does not end when a resource is exhausted"),
    "_compositor": (screen.Screen, _OLD_KEYS),
    "_compositor_refresh": (screen.Screen, _OLD_KEYS),
    "_debug": (driver.Driver, "keys are not read"),
    "_dirty_widgets": (screen.Screen, _OLD_KEYS),
    "_disable_mouse_support": (linux_driver.LinuxDriver, "the shell gets mouse reports"),
    "_driver": (app.App, "each frame is drawn by Textual, for several times the bytes"),
    "_file": (linux_driver.LinuxDriver, _OLD_KEYS),
    "_in_band_window_resize": (
        linux_driver.LinuxDriver,
        "the size is that of before the last change",
    ),
    "_key_thread": (linux_driver.LinuxDriver, "after SIGSTOP two threads read keys"),
    "_layout_required": (widget.Widget, _OLD_KEYS),
    "_loop": (linux_driver.LinuxDriver, "Ctrl+Z has no effect"),
    "_message_queue": (message_pump.MessagePump, _OLD_KEYS),
    "_mouse_pixels": (linux_driver.LinuxDriver, "the shell gets mouse reports"),
    "_must_signal_resume": (linux_driver.LinuxDriver, "nothing is drawn after Ctrl+Z and fg"),
    "_pending_message": (message_pump.MessagePump, _OLD_KEYS),
    "_queue": (_writer_thread.WriterThread, "a slow line delays keys"),
    "_refresh_layout": (screen.Screen, _OLD_KEYS),
    "_repaint_required": (widget.Widget, _OLD_KEYS),
    "_sequence_to_key_events": (_xterm_parser.XTermParser, "an invalid key ends the program"),
    "_sigcont_application": (linux_driver.LinuxDriver, "after SIGSTOP two threads read keys"),
    "_sigtstp_application": (linux_driver.LinuxDriver, "Ctrl+Z stops without a shell"),
    "_timeout_time": (_xterm_parser.XTermParser, "Escape has no effect until the next key"),
    "_types": (textual, "the screen does not start"),
    "_writer_thread": (linux_driver.LinuxDriver, "a slow line delays keys"),
}
"""Each name, where Textual has it, and what a user would notice without it."""


@pytest.mark.slow
@pytest.mark.parametrize("name", USED)
def test_what_is_used_of_it_is_there(name: str) -> None:
    place, broken = USED[name]
    classes = inspect.getmro(place)[:-1] if isinstance(place, type) else ()
    # What only an instance has is in the text of its class.
    there = hasattr(place, name) or any(f"self.{name}" in inspect.getsource(one) for one in classes)
    assert there, f"Textual has no {place.__name__}.{name} any more: {broken}"


@pytest.mark.slow
def test_nothing_else_of_it_is_used() -> None:
    used, defined = set[str](), set[str]()
    for path in Path(gpumon.__file__).parent.joinpath("ui").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                defined.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                defined.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                defined.add(node.attr)
            elif isinstance(node, ast.Attribute) and _is_private(node.attr):
                used.add(node.attr)
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr":
                name = node.args[1]
                if isinstance(name, ast.Constant) and _is_private(name.value):
                    used.add(str(name.value))
            elif isinstance(node, ast.ImportFrom) and "textual" in (node.module or ""):
                inside = "._" in (node.module or "")
                used |= {one.name for one in node.names if inside or _is_private(one.name)}
    overridden = {
        name
        for ours in (TerminalDriver, LenientParser, ConfirmDialog)
        for name, value in vars(ours).items()
        if inspect.isfunction(value) and _is_private(name) and hasattr(ours.__bases__[0], name)
    }
    assert (used - defined - {"_exit"}) | overridden <= set(USED)


def _is_private(name: object) -> bool:
    return str(name).startswith("_") and not str(name).startswith("__")
