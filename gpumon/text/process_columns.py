"""The columns of the table of processes."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from gpumon.model.metrics import PROCESS_METRIC, PROCESS_METRICS, Unit
from gpumon.model.process_states import HALTED
from gpumon.model.thresholds import DEFAULTS
from gpumon.text.command_lines import command_line, fit_command
from gpumon.text.formatting import (
    UNKNOWN,
    cell_width,
    duration,
    fit,
    gpu_list,
    memory_size,
    mig_name,
    number,
    per_second,
    printable,
)
from gpumon.text.table import PLAIN, Column, Marks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpumon.model.processes import GpuProcess, ProcessId
    from gpumon.model.serving import ServerLoad
    from gpumon.text.cells import Field

DeviceKey: TypeAlias = "str | tuple[str, tuple[int | None, int | None] | None]"
"""UUID of a GPU, alone or with the (GPU instance, compute instance) of a MIG device."""

MigIndices: TypeAlias = "Mapping[DeviceKey, int]"
"""The index of each MIG device."""

LEAST_COMMAND, AMPLE_COMMAND = 18, 50
"""Cells of the command at least, and those from which other columns may be wider."""
_LEAST_MODEL = 8
"""Cells of a server's model at least, after the title of a worker of it."""
_LEAST_AFTER_STATE = 7
"""Cells of the command at least after an unusual process state."""


class IdleTime(Protocol):
    """For how long a process has been idle."""

    @property
    def since(self) -> float:
        """When it began, as far as that was seen."""

    @property
    def seconds(self) -> float:
        """Its length until now."""

    @property
    def start_observed(self) -> bool:
        """Whether it was seen to begin; else it is at least so long."""


class RowContext(NamedTuple):
    """What a row needs besides its process."""

    # The time that ages are computed from: that of the snapshot, or of one shortly before.
    now: float
    # Returns a process's idle interval; ``None`` if it is not idle or this is unknown.
    idle: Callable[[ProcessId], IdleTime | None] = lambda _: None
    idle_after: float = DEFAULTS.idle_after  # Idle time in seconds before the table shows it.
    host_memory: int | None = None  # Memory of the host in bytes; ``None`` if it is unknown.
    mig: MigIndices = MappingProxyType({})  # The indices of MIG devices, from ``mig_indices``.

    def idle_seconds(self, process: ProcessId) -> float | None:
        """How long a process has been idle; ``None`` if it is not, or this is unknown."""
        interval = self.idle(process)
        return None if interval is None else interval.seconds


class ProcessItem(Struct, gc=False):
    """A process as the columns see it. Thousands are made each second while they are sorted."""

    process: GpuProcess
    context: RowContext
    marks: Marks = PLAIN


_Text: TypeAlias = "Callable[[ProcessItem], str]"


def devices(process: GpuProcess, mig: MigIndices) -> str:
    """A process's GPUs: ``0,1``; ``0:3`` for MIG device 3 of GPU 0; ``0-7`` for a range."""
    if len(process.uses) == 1 and process.uses[0].instance is None:
        return str(process.uses[0].gpu_index)
    if all(use.instance is None for use in process.uses):
        return gpu_list(process.gpu_indices)
    names = dict.fromkeys(
        str(use.gpu_index)
        if use.instance is None
        else mig_name(use.gpu_index, mig.get((use.gpu_uuid, use.instance)))
        for use in process.uses
    )
    return ",".join(sorted(names))


_UNIT_TEXT: dict[Unit, Callable[[Any], str]] = {
    Unit.BYTES: memory_size,
    Unit.PERCENT: number,
    Unit.SECONDS: duration,
    Unit.PER_SECOND: per_second,
}


def _value(key: str) -> Callable[[ProcessItem], Any]:
    """The value of a metric."""
    read = PROCESS_METRIC[key].read
    return lambda item: read(item.process, item.context.now)


def _text(key: str, *, of_place: bool = False) -> _Text:
    """The value of a metric, in the form that fits its unit.

    Args:
        key: The metric.
        of_place: Whether it is blank without a value, unless the place of the process is unknown.
    """
    read, unit = PROCESS_METRIC[key].read, PROCESS_METRIC[key].unit
    text_of = _UNIT_TEXT.get(unit, lambda value: printable(str(value)))

    def text(item: ProcessItem) -> str:
        value = read(item.process, item.context.now)
        if value is None:
            return "" if of_place and item.process.place is not None else UNKNOWN
        return text_of(value)

    return text


def _on_gpu(text: _Text) -> _Text:
    """Blank for a process on no GPU, such as a shell in the tree."""
    return lambda item: text(item) if item.process.uses else ""


def _of_server(key: str) -> _Text:
    """A value that its inference server reports; blank for a process without one."""
    text = _on_gpu(_text(key))

    def text_of(item: ProcessItem) -> str:
        place = item.process.place
        return "" if place is not None and place.server is None else text(item)

    return text_of


def load_texts(load: ServerLoad) -> dict[str, str]:
    """The texts of the columns of inference servers, for several of them together."""
    texts = {}
    for metric in PROCESS_METRICS:
        if metric.in_load:
            value = getattr(load, metric.key)
            text_of = _UNIT_TEXT.get(metric.unit, str)
            texts[metric.key] = UNKNOWN if value is None else text_of(value)
    return texts


def _idle(item: ProcessItem) -> str:
    process, context = item.process, item.context
    if process.resting is None:
        return UNKNOWN
    interval = context.idle(process.id)
    if interval is None or interval.seconds < context.idle_after:
        return ""
    return f"{'' if interval.start_observed else '≥'}{duration(interval.seconds)}"


def _host_share(item: ProcessItem) -> str:
    rss, whole = item.process.rss, item.context.host_memory
    return UNKNOWN if rss is None or not whole else f"{100 * rss / whole:.1f}"


def _command(item: ProcessItem, width: int) -> Sequence[Field]:
    """The tree glyphs, an unusual process state, the command, and what it serves."""
    process, marks, room = item.process, item.marks, width
    fields: list[Field] = []
    if marks.branch:
        # A deep tree leaves a third of the width to the command.
        branch = marks.branch[-max(2, room * 2 // 3) :]
        fields.append((branch, "rule"))
        room -= cell_width(branch)
    # The command of one that was never seen says that it has ended.
    state = HALTED.get(process.state or "") if process.visible else None
    if state is not None and room > cell_width(state.word) + _LEAST_AFTER_STATE:
        fields.append((f"{state.word} ", "state.warning"))
        room -= cell_width(state.word) + 1
    room = max(0, room)
    model = "" if marks.shift else _served_model(process)
    taken = cell_width(command_line(process)) + 1 if model else 0
    if not model or room - taken < _LEAST_MODEL:
        return [*fields, (fit_command(process, room, marks.shift), "")]
    command, rest = fit_command(process, taken), room - taken
    return [*fields, (command, ""), (fit(model, rest), "dim")]


def _served_model(process: GpuProcess) -> str:
    """The model of a worker of an inference server, whose title says nothing of it."""
    server = None if process.place is None else process.place.server
    if server is None or process.server_id == process.id or server.short_model is None:
        return ""
    model = printable(server.short_model)
    return "" if model in command_line(process) else model


def _where(item: ProcessItem, width: int) -> Sequence[Field]:
    """Where it runs; without the kind if that leaves no room for the name: ``88123.batch``."""
    text = _WHERE(item)
    if cell_width(text) > width:
        text = text.partition(" ")[2] or text
    return ((fit(text, width), "dim"),)


_WHERE = _text("where", of_place=True)


def _column(key: str, width: int, keep: int, letter: str = "", **other: Any) -> Column[ProcessItem]:
    """A column with the heading, the meaning, the value and the text of its metric."""
    metric = PROCESS_METRIC[key]
    facts: dict[str, Any] = {
        "label": metric.label,
        "name": metric.label,
        "about": metric.about,
        "value": _value(key),
        "text": _text(key),
        **other,
    }
    return Column(key=key, width=width, keep=keep, letter=letter, **facts)


_LEFT: dict[str, Any] = {"left": True, "descends": False}


def _of_place(key: str, width: int, keep: int, letter: str, **other: Any) -> Column[ProcessItem]:
    # Unknown says nothing either: so are all of them until they have been looked up.
    vacant = ("", UNKNOWN)
    look: dict[str, Any] = {"text": _text(key, of_place=True), "style": "dim", "vacant": vacant}
    return _column(key, width, keep, letter, least=0, most=28, **look, **_LEFT, **other)


def _server_column(
    key: str, width: int, keep: int, letter: str = "", **other: Any
) -> Column[ProcessItem]:
    # Most machines have no server: blank and unknown texts do not show the column.
    vacant = other.pop("vacant", ("", UNKNOWN))
    return _column(key, width, keep, letter, text=_of_server(key), vacant=vacant, **other)


PROCESS_COLUMNS: tuple[Column[ProcessItem], ...] = (
    _column(
        *("gpu", 7, 90, "G"),
        # A sign, as in the list of GPUs.
        label="#",
        value=lambda item: item.process.gpu_indices,
        text=_on_gpu(lambda item: devices(item.process, item.context.mig)),
        descends=False,
        least=1,
        most=16,
    ),
    _column("pid", 8, 95, "P", style="dim", descends=False, least=0, grows=True),
    _column("user", 9, 80, "U", style="user", **_LEFT, least=0, most=16),
    # A letter beside the PID.
    _column("type", 3, 42, "Y", style="dim", **_LEFT, least=1, short="T", vacant=("", "C")),
    _column("memory_used", 6, 100, "M", text=_on_gpu(_text("memory_used")), style="strong"),
    _column("sm", 3, 70, "S", text=_on_gpu(_text("sm"))),
    _column("memory_activity", 5, 33, "B", text=_on_gpu(_text("memory_activity")), shown=False),
    Column(
        *("idle", "IDLE", 7),
        "How long it has held memory and run nothing, or served nobody; ≥ is at least.",
        lambda item: item.context.idle_seconds(item.process.id),
        _on_gpu(_idle),
        style="state.note",
        name="IDLE",
        keep=45,
        letter="I",
        least=6,
        vacant=("",),
    ),
    _server_column("running", 4, 24, shown=False),
    # Nothing waits most of the time.
    _server_column("waiting", 4, 37, least=1, vacant=("", UNKNOWN, "0")),
    _server_column("requests", 5, 23, shown=False),
    _server_column("tokens", 5, 38, "Q", least=1),
    _server_column("kv_cache", 3, 22, shown=False),
    # Machines with hundreds of cores need five digits.
    _column("cpu", 5, 40, "C", least=4, grows=True),
    _column("rss", 6, 30, "R", least=5, grows=True),
    Column(
        *("host_memory", "RAM%", 5),
        "Host memory it keeps resident, as a share of the host's memory.",
        _value("rss"),
        _host_share,
        name="RAM%",
        keep=32,
        letter="V",
        shown=False,
    ),
    _column("age", 7, 50, "A", style="dim", least=6, grows=True),
    _column("state", 2, 5, "E", style="dim", **_LEFT, shown=False),
    _of_place("where", 10, 35, "W", draw=_where),
    _of_place("container", 14, 6, "O", shown=False),
    _of_place("job", 10, 7, "J", shown=False),
    _column(
        *("command", 0, 100, "N"),
        value=lambda item: command_line(item.process),
        draw=_command,
        **_LEFT,
    ),
)
"""All columns in their default order; the command is always the last."""
