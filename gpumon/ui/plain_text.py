"""Makes Textual show every text as it is.

Textual reads the texts of its widgets as markup: ``[a=``, in a filter, a name or an error, ends the
program. gpumon writes no markup, so none is read, whatever the widget and whoever wrote the text.
"""

from __future__ import annotations

from textual.content import Content


def read_no_markup() -> None:
    """Make a text of every text that Textual would read as markup."""
    Content.from_markup = _as_it_is  # type: ignore[assignment,method-assign]  # there is no setting for it


def _as_it_is(text: str | Content, **_: object) -> Content:
    return text if isinstance(text, Content) else Content(text)
