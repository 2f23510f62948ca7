"""A channel that is declared wrongly fails at import, with a sentence that says what to do."""

from __future__ import annotations

import types

import pytest

from gpumon.alerts.channels.channel import Channel, channels_by_name

_FILE = "gpumon/alerts/channels/channel.py"


def declare(*, without: str = "", **more: object) -> type[Channel]:
    content = {
        "__module__": __name__,
        "__annotations__": {"path": "str"},
        "name": "file",
        "about": "a file",
        "example_value": '"/path"',
        "keys": ("mode",),
        "send": lambda _, __: None,
        "reopen": lambda _: None,
        "_open": 0,
        **more,
    }
    content.pop(without, None)
    file = types.new_class("File", (Channel,), {}, lambda namespace: namespace.update(content))
    (channel,) = channels_by_name(file).values()
    return channel


def test_a_channel_declares_what_is_required_and_has_fields_and_methods_of_its_own() -> None:
    assert declare().example() == '{ file = "/path" }'
    assert declare(without="example_value", takes_table=False).example() == '"file"'


@pytest.mark.parametrize("without", ["name", "about", "example_value", "send"])
def test_a_channel_that_lacks_something_fails_at_once(without: str) -> None:
    with pytest.raises(TypeError, match=f"^File lacks {without}: {_FILE} describes it$"):
        declare(without=without)


@pytest.mark.parametrize("wrong", ["keyz", "need_terminal"])
def test_an_unknown_attribute_fails_at_once(wrong: str) -> None:
    with pytest.raises(TypeError, match=f"^File has {wrong}, which is unknown: {_FILE}"):
        declare(without="", **{wrong: True})


def test_keys_in_one_text_fail_at_once() -> None:
    with pytest.raises(TypeError, match=r'^File.keys must be a tuple, such as \("mode",\)$'):
        declare(keys="mode")
