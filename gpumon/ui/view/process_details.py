"""The sections of a process's page that need its details: GPUs, family and environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.host.details import is_secret
from gpumon.makers.visible_devices import visible_devices_of
from gpumon.model.makers import Maker, first_maker, makers_of
from gpumon.model.process_states import HALTED
from gpumon.text.cells import Field, Row, fill
from gpumon.text.formatting import UNKNOWN, cell_width, counted, fit, gib, gibibytes, printable
from gpumon.ui.view.key_names import is_refused, keycap
from gpumon.ui.view.page_layout import Fact, fact_rows, text_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpumon.host.process_host import Details, RelatedProcess
    from gpumon.model.processes import CgroupMemory
    from gpumon.model.snapshot import Snapshot

HIDDEN = "••••••"
"""Replaces a value that looks like a secret; constant, so that it does not reveal the length."""

_LEAST_LABEL = 22
_COUNTED_INSIDE = (
    "numbers of GPUs inside its container; their numbers on the machine are not known here"
)
_DEEPEST = 12
"""The deepest level of the family that is indented."""
_MOST_DESCENDANTS = 40
_PID, _USER = 8, 9
_MOST_NAME = 30
_MOST_LINES = 6
"""Maximum number of lines of a variable of the environment."""


def cgroup_memory_facts(memory: CgroupMemory | None) -> list[Fact]:
    """Host memory of its job or container against the limit, if that is known."""
    if memory is None:
        return []
    used = gibibytes(memory.used)
    value = (
        f"{used} {gib()}, no limit"
        if memory.limit is None
        else f"{used} of {gibibytes(memory.limit)} {gib()}"
    )
    return [Fact("cgroup memory", value, note="host memory, with cached files")]


def visible_gpu_rows(details: Details, snapshot: Snapshot | None, width: int) -> list[Row]:
    """The GPUs that its environment makes visible, and the device files that it holds open."""
    makers = (() if snapshot is None else makers_of(snapshot.gpus)) or (first_maker(),)
    facts: list[Fact] = []
    for maker in makers:
        if details.environment is None:
            facts.append(Fact(maker.main_variable, UNKNOWN, note="its environment was not read"))
        else:
            facts += _visible_facts(details, dict(details.environment), snapshot, maker)
    if details.devices is None:
        facts.append(Fact("holds open", UNKNOWN, note="its open files were not read"))
    else:
        facts.append(Fact("holds open", " ".join(details.devices) or "no device file of a GPU"))
    longest = max(len(fact.label) for fact in facts)
    return fact_rows(facts, width, max(_LEAST_LABEL, longest + 2))


def _visible_facts(
    details: Details, environment: Mapping[str, str], snapshot: Snapshot | None, maker: Maker
) -> list[Fact]:
    """The variables of a maker, and the GPUs that they select."""
    visible = environment.get(maker.main_variable)
    facts = [Fact(name, *_setting(environment.get(name))) for name in maker.variables]
    if snapshot is None:
        return facts
    contained = details.place is not None and details.place.container is not None
    by_index = visible is None or not visible.startswith(("GPU-", "MIG-"))
    if contained and not snapshot.host.in_container and by_index and visible != "":
        return [*facts, Fact("which means", _COUNTED_INSIDE, "state.note")]
    meaning = visible_devices_of(maker).visible(environment, snapshot.gpus)
    style = "" if meaning.certain else "state.note"
    return [*facts, Fact("which means", meaning.sentence, style, meaning.why)]


def _setting(value: str | None) -> tuple[str, str]:
    """The text and style of a variable's value."""
    if value is None:
        return "not set", "dim"
    return (value, "") if value else ("empty", "dim")


def family_rows(details: Details, width: int) -> list[Row]:
    """Its ancestors, the process itself, and its descendants, each below its parent."""
    family = {relative.id.pid: relative for relative in details.family}
    itself = family.get(details.id.pid)
    if itself is None:
        return []
    chain = [itself]
    while chain[-1].parent in family and family[chain[-1].parent] not in chain:
        chain.append(family[chain[-1].parent])
    chain.reverse()
    rows = [
        _family_row(relative, level, relative is itself, width)
        for level, relative in enumerate(chain)
    ]
    descendants = _descendants(details.family, itself)
    for level, relative in descendants[:_MOST_DESCENDANTS]:
        rows.append(_family_row(relative, len(chain) - 1 + level, False, width))
    hidden = len(descendants) - _MOST_DESCENDANTS
    if hidden > 0:
        rows += text_rows(f"… and {hidden} more", width, "dim")
    return rows


def _descendants(
    family: Sequence[RelatedProcess], root: RelatedProcess
) -> list[tuple[int, RelatedProcess]]:
    """Descendants with their generation: depth first, siblings by PID."""
    children: dict[int, list[RelatedProcess]] = {}
    for relative in sorted(family, key=lambda process: process.id.pid, reverse=True):
        children.setdefault(relative.parent, []).append(relative)
    found: list[tuple[int, RelatedProcess]] = []
    waiting = [(1, child) for child in children.pop(root.id.pid, [])]
    while waiting:
        level, relative = waiting.pop()
        found.append((level, relative))
        waiting += [(level + 1, child) for child in children.pop(relative.id.pid, [])]
    return found


def _family_row(relative: RelatedProcess, level: int, itself: bool, width: int) -> Row:
    program = relative.command[0].rpartition("/")[2] if relative.command else f"[{relative.name}]"
    command = printable(" ".join((program, *relative.command[1:])))
    indent = "  " * min(level, _DEEPEST)
    state = f"  {HALTED[relative.state].named}" if relative.state in HALTED else ""
    room = max(0, width - _PID - _USER - 3 - cell_width(state))
    text = f"{indent}{command}"
    fields: list[Field] = [
        (f"{relative.id.pid:>{_PID}} ", "dim"),
        (fit(printable(relative.user or UNKNOWN), _USER) + " ", "user"),
        (text if cell_width(text) <= room else fit(text, room), "strong" if itself else ""),
        (state, "state.warning"),
    ]
    return fill(fields, width)


def environment_title(details: Details, revealed: bool) -> str:
    """The heading, with the number of hidden values and the key that shows them."""
    if details.environment is None:
        return "Environment"
    secrets = sum(is_secret(name, value) for name, value in details.environment)
    if not secrets:
        return "Environment"
    if revealed:
        return f"Environment, secrets shown: {keycap('secrets')} hides them"
    values = counted(secrets, "value")
    shows = "" if is_refused("secrets") else f": {keycap('secrets')} shows all"
    return f"Environment, {values} hidden{shows}"


def environment_rows(details: Details, revealed: bool, width: int) -> list[Row]:
    """Its variables by name; values that look like secrets are hidden unless ``revealed``."""
    if details.environment is None:
        why = [reason for reason in details.unreadable if "environment" in reason]
        return text_rows(" ".join(why) or "It was not read.", width, "dim")
    if not details.environment:
        return text_rows("Empty.", width, "dim")
    longest = max(len(name) for name, _ in details.environment)
    facts = []
    for name, value in sorted(details.environment):
        hidden = is_secret(name, value) and not revealed
        shown = HIDDEN if hidden else value
        facts.append(Fact(name, shown, "dim" if hidden else "", lines=_MOST_LINES))
    return fact_rows(facts, width, min(_MOST_NAME, longest + 2, width // 2))
