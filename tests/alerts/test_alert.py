"""How tables ``[[alerts]]`` are read, and the errors for invalid ones."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.alerts.alert import KEY_NAMES, Alert, ReadAlerts, read_alerts, template
from gpumon.alerts.channels.apprise import Apprise
from gpumon.alerts.channels.channel import Channel, channels_by_name
from gpumon.alerts.channels.command import Command
from gpumon.alerts.channels.terminal import Bell, Desktop
from gpumon.alerts.channels.webhook import Webhook
from gpumon.cli.config import effective
from gpumon.config import load
from gpumon.config.settings import AlertTable
from tests.command import write_config

Read = Callable[..., ReadAlerts]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads the alerts of a configuration with this text."""

    def read_text(text: str, **options: bool) -> ReadAlerts:
        loaded = load(write_config(tmp_path, text))
        assert loaded.errors == ()
        return read_alerts(loaded.settings.alerts, **options)

    return read_text


def errors_of(found: ReadAlerts) -> list[str]:
    """The complaints, the file by its name alone."""
    return [error.sentence[error.sentence.index("config.toml") :] for error in found.errors]


def test_every_key_is_read(read: Read, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("Bearer s3cret\n")
    secrets = f'header_files = {{ Authorization = "{tmp_path}/secret" }}'
    found = read(
        f"""
[[alerts]]
name = "all"
when = "idle>2h and mem>10G"
for = "10m"
cooldown = 60
do = [
    "bell", "desktop", {{ command = ["mail", "-s", "it is so", "ann"] }},
    {{ webhook = "https://ntfy.sh/x", format = "ntfy", headers = {{ A = "b" }}, {secrets} }},
    {{ apprise = "mailto://x" }},
]
ended = true
commands = true
[[alerts]]
when = "xid"
[[alerts]]
when = "hot"
"""
    )
    assert errors_of(found) == []
    headers = (("A", "b"), ("Authorization", "Bearer s3cret"))
    assert found.alerts[0] == Alert(
        name="all",
        when="idle>2h and mem>10G",
        channels=(
            Bell(),
            Desktop(),
            Command(("mail", "-s", "it is so", "ann")),
            Webhook("https://ntfy.sh/x", "ntfy", headers),
            Apprise("mailto://x"),
        ),
        for_seconds=600,
        cooldown=60,
        ended=True,
        commands=True,
    )
    assert [(alert.name, alert.cooldown) for alert in found.alerts[1:]] == [
        ("xid", 1800),
        ("hot", 21600),
    ]


def test_every_mistake_is_reported_with_its_line_and_the_default_applies(read: Read) -> None:
    found = read(
        """[[alerts]]
when = "hot"
for = "soon"
cooldown = -1
ended = "yes"
coldown = 3
name = ""

[[alerts]]
when = "hott"
[[alerts]]
name = "x"
[[alerts]]
name = "hot"
when = "lost"
"""
    )
    errors = errors_of(found)
    expected = [
        "config.toml, line 6: unknown key coldown of an alert (did you mean cooldown?).",
        "config.toml, line 7: name cannot be '': give a text on one line.",
        "config.toml, line 3: for cannot be 'soon': give seconds, or a time such as",
        "config.toml, line 4: cooldown cannot be -1: give seconds, or a time such as",
        "config.toml, line 5: ended cannot be 'yes': give true or false.",
        "config.toml, line 10: when cannot be 'hott': no state \"hott\": did you mean hot?",
        'config.toml, line 11: an alert needs a when, such as when = "hot".',
        "config.toml, line 14: two alerts have the name 'hot': rename one of them.",
    ]
    assert len(errors) == len(expected)
    for sentence, start in zip(errors, expected, strict=True):
        assert sentence.startswith(start)
    assert found.alerts == (Alert(name="hot", when="hot"),)


@pytest.mark.parametrize(
    ("channel", "what"),
    [
        ('"bel"', "(did you mean bell?)"),
        ("3", 'give "bell", "desktop", { command'),
        ('{ webhok = "https://x" }', "(did you mean webhook?)"),
        *(
            (f'{{ webhook = "{url}" }}', "a webhook is a URL with http:// or https://")
            for url in ("ftp://x", "https://x:99999", "https:///x", "https://x:0", "https://x/a b")
        ),
        ('{ webhook = "https://x/a\\r\\nb" }', "a webhook is a URL with http:// or https://"),
        ('{ webhook = "https://x", format = "slak" }', "(did you mean slack?)"),
        (
            '{ webhook = "https://x", headrs = {} }',
            "unknown key headrs of a webhook (did you mean headers",
        ),
        ('{ webhook = "https://x", headers = { "a b" = "c" } }', "headers is a table of texts"),
        ('{ webhook = "https://x", headers = { A = "b\\nC: d" } }', "headers is a table of texts"),
        (
            '{ webhook = "https://x", header_files = { A = "none" } }',
            "/gpumon/none cannot be read: No such",
        ),
        ('{ webhook = "https://x", header_files = { A = "/dev/null" } }', "is not a regular file"),
        ('{ command = "mail ann" }', "a command is a list, such as"),
        ("{ command = [] }", "a command is a list, such as"),
        ('{ command = ["x"], format = "ntfy" }', "unknown key format of a command"),
        ('{ command = ["x"], webhook = "https://x" }', 'give "bell", "desktop", { command'),
        ('{ apprise = "x" }', "apprise takes a URL"),
    ],
)
def test_an_invalid_channel_is_left_out(read: Read, channel: str, what: str) -> None:
    found = read(f'[[alerts]]\nwhen = "hot"\ndo = ["bell", {channel}]\n')
    (sentence,) = errors_of(found)
    assert sentence.startswith("config.toml, line 3: do cannot have ")
    assert what in sentence
    assert found.alerts[0].channels == (Bell(),)


@pytest.mark.parametrize(
    ("channel", "shown"),
    [
        (
            '{ webhook = "https://hooks.example/T0/s3cret", form = "slack" }',
            '{ webhook = "…", form = "…" }',
        ),
        ('{ webhook = "http://u:s3cret@/x" }', '{ webhook = "…" }'),
        ('{ webhook = "https://x", headers = { A = "s3cret\\n" } }', '{ webhook = "…", headers'),
        ('{ command = "curl -u u:s3cret x" }', '{ command = "…" }'),
        ('"http://u:s3cret@h/x"', "'…'"),
        ('["http://u:s3cret@h/x"]', "'…'"),
        ('"bel"', "'bel'"),
    ],
)
def test_an_error_about_a_channel_shows_no_values_of_it(
    read: Read, channel: str, shown: str
) -> None:
    (sentence,) = errors_of(read(f'[[alerts]]\nwhen = "hot"\ndo = [{channel}]\n'))
    assert sentence.startswith(f"config.toml, line 3: do cannot have {shown}")
    assert "s3cret" not in sentence


def test_without_a_terminal_only_the_other_channels_are_left(read: Read) -> None:
    found = read(
        '[[alerts]]\nwhen = "hot"\ndo = ["bell", "desktop", { command = ["true"] }]\n',
        terminal=False,
    )
    assert len(errors_of(found)) == 2
    assert found.alerts[0].channels == (Command(("true",)),)


@pytest.mark.parametrize("text", ["alerts = 3", "[alerts]\nwhen = 'hot'", "alerts = [1]"])
def test_what_is_no_list_of_tables_is_said(tmp_path: Path, text: str) -> None:
    loaded = load(write_config(tmp_path, text))
    (error,) = loaded.errors
    assert error.what == "alerts is a list of tables: write [[alerts]] on a line alone for each."
    assert loaded.settings.alerts == ()


def test_of_too_many_alerts_the_first_hundred_count(read: Read) -> None:
    text = "".join(f'[[alerts]]\nwhen = "hot"\nname = "{number}"\n' for number in range(101))
    found = read(text)
    assert len(found.alerts) == 100
    assert errors_of(found) == ["config.toml, line 301: only the first 100 alerts count."]


_values = st.recursive(
    st.one_of(
        *(st.text(max_size=8), st.integers(), st.floats(), st.booleans(), st.datetimes()),
        st.sampled_from(["hot", "bell", "webhook", "command", "https://x", "10m"]),
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["command", "webhook", "apprise", "format", "headers", "x"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from([*KEY_NAMES, "x"]), _values))
def test_any_value_is_read_or_reported(values: dict[str, object]) -> None:
    places = dict.fromkeys(values, "config.toml, line 2")
    found = read_alerts([AlertTable(values, "config.toml, line 1", places)])
    assert len(found.alerts) == 1 or found.errors


def test_the_template_has_a_valid_alert(read: Read) -> None:
    table = template().partition("#[[alerts]]\n")[2]
    lines = [line[1:] for line in table.splitlines() if not line.startswith("# ")]
    found = read("\n".join(["[[alerts]]", *lines]))
    assert errors_of(found) == []
    assert len(found.alerts) == 1
    assert tuple(msgspec.toml.decode("\n".join(lines))) == KEY_NAMES


def test_the_alerts_in_force_are_shown_with_their_lines(tmp_path: Path) -> None:
    text = '[[alerts]]\nwhen = "hot"\n[[alerts]]\nwhen = "lost"\nended = true\n'
    shown = effective(load(write_config(tmp_path, text)))
    assert [line.split() for line in shown.partition("[[alerts]]")[2].splitlines() if line] == [
        *(["when", "=", '"hot"', "#", "the", "file,", "line", "2"], ["[[alerts]]"]),
        ["when", "=", '"lost"', "#", "the", "file,", "line", "4"],
        ["ended", "=", "true", "#", "the", "file,", "line", "5"],
    ]


# A channel that is declared wrongly fails at import


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
