"""What a visit found that differs from what it should be, a sentence for each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gpumon.model.snapshot import GPU_METRIC
from gpumon.text.formatting import printable
from tests.bench.rows import whole_rows
from tests.driver import MIB
from tests.gpu import compare, latency, screen
from tests.gpu.agreement import BY_SMI, Verdict
from tests.gpu.anonymous import NAMES_A_MACHINE
from tests.gpu.ending import Ended, Endings, OutOfMemory
from tests.gpu.folder import whole_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gpumon.model.metrics import Metric
    from tests.gpu.compare import Difference
    from tests.gpu.facts import Facts
    from tests.gpu.folder import Folder
    from tests.gpu.visit import Outcome

FACTS, PYTEST, COMPARED, ENDING = "facts.json", "pytest.txt", "compare.csv", "ending.json"

_LOADS: Mapping[str, str] = {
    "tensor": "under load",
    "copy": "under copies",
    "tiny": "under tiny kernels",
    "sleep": "with memory held",
}
_SOURCES: Mapping[str, str] = {
    "query-gpu": "nvidia-smi --query-gpu",
    "xml": "nvidia-smi -q -x",
    "compute-apps": "nvidia-smi --query-compute-apps",
    "pmon": "nvidia-smi pmon",
    "gpm": "the known load",
}


class EndedProcess(msgspec.Struct):
    """A process, as ``gpumon end`` reports it (docs/end.md)."""

    pid: int
    outcome: str
    sentence: str | None = None


class End(msgspec.Struct):
    """The JSON object of ``gpumon end``, as far as it is reported."""

    processes: list[EndedProcess] = []


class Group(NamedTuple):
    """What differs in one respect."""

    heading: str  # Short.
    sentences: Sequence[str] = ()  # Each says one difference.
    unknown: str = ""  # Why some or all is not known; empty: all is.

    def lines(self) -> list[str]:
        """As Markdown."""
        said = [f"- {sentence(text)}" for text in self.sentences]
        if self.unknown:
            said.append(f"- {sentence(f'Not known: {self.unknown}')}")
        return ["", f"### {self.heading}", "", *(said or ["Nothing differs."])]


def groups(folder: Folder, facts: Facts | None, rows: Sequence[compare.Row] | None) -> list[Group]:
    """All that differs; ``None`` for a file that cannot be read."""
    return [
        *_compared(folder, rows),
        _tests(folder),
        _steps(folder, facts),
        _ended(folder),
        _refused(folder),
        _screens(folder),
    ]


def sentence(text: str) -> str:
    """A text that somebody may have written over several lines, as a sentence."""
    words = printable(" ".join(text.split()))
    return words if words.endswith((".", "!", "?")) else f"{words}."


# Values


def _compared(folder: Folder, rows: Sequence[compare.Row] | None) -> list[Group]:
    """What gpumon and nvidia-smi say, in three groups."""
    found: list[Difference] | None = None
    if rows:
        found = folder.read(COMPARED, lambda _: compare.differences(rows))
    else:
        folder.has_nothing(COMPARED)
    return [
        _compared_group(heading, [(row.source, row.name) for row in rows or ()], found, is_part)
        if found is not None
        else Group(heading, unknown=folder.remarks[COMPARED])
        for heading, is_part in (
            ("Values beside nvidia-smi", _is_value),
            ("Processes beside nvidia-smi", _is_process),
            ("Known loads", _is_load),
        )
    ]


def _compared_group(
    heading: str,
    rows: Iterable[tuple[str, str]],
    found: Iterable[Difference],
    is_part: Callable[[str, str], bool],
) -> Group:
    sentences = [_difference(one) for one in found if is_part(one.source, one.name)]
    there = any(is_part(*row) for row in rows)
    return Group(heading, sentences, "" if there else "nothing was compared")


def _is_load(source: str, _: str) -> bool:
    return source == "gpm"


def _is_process(source: str, name: str) -> bool:
    of_process = name.startswith(("memory of ", "SM utilization of "))
    return of_process or source in {"compute-apps", "pmon"}


def _is_value(source: str, name: str) -> bool:
    return not (_is_load(source, name) or _is_process(source, name))


def _difference(found: Difference) -> str:
    rounds = f"in {found.rounds} of {found.of} rounds " if found.of > 1 else ""
    when = f"{rounds}{_LOADS.get(found.load, found.load)}".strip()
    return f"{_both(found)}, {when}" if when else _both(found)


def _both(found: Difference) -> str:
    """Whose value it is, and the values of both sides."""
    source = _SOURCES.get(found.source, found.source)
    if found.verdict == Verdict.FAILED.value:
        return f"{found.name or source}: {found.nvidia_smi}"
    if found.source == "gpm":
        return _outside(found)
    whose = found.name if found.source == "query-gpu" else f"{found.name} in {source}"
    if (not found.gpumon and not found.nvidia_smi) or NAMES_A_MACHINE.search(found.name):
        return f"{whose}: {found.verdict}, values left out"
    metric = BY_SMI.get(found.name) or GPU_METRIC.get(found.name)
    theirs = found.nvidia_smi
    return f"{whose}: gpumon {_ours(found, metric)}, nvidia-smi {_with_unit(theirs, metric)}"


def _outside(found: Difference) -> str:
    """A value of GPM's, and the bound or DCGM's value."""
    if found.name.endswith(", DCGM"):
        name = found.name.removesuffix(", DCGM")
        return f"{name}: gpumon {_ours(found, None)}, DCGM {found.nvidia_smi}"
    bound, _, why = found.nvidia_smi.partition(": ")
    return f"{found.name}: {found.gpumon} where {bound} is expected ({why})"


def _ours(found: Difference, metric: Metric | None) -> str:
    """Gpumon's value in the unit that nvidia-smi writes."""
    if not found.gpumon:
        return "unknown"
    if metric is None and found.name.startswith("memory of "):
        metric = GPU_METRIC["memory_used"]
    return " to ".join(_converted(text, metric) for text in found.gpumon.split(".."))


def _converted(text: str, metric: Metric | None) -> str:
    if metric is None or metric.unit.per_csv == 1 or not _is_number(text):
        return text or "unknown"
    return f"{float(text) / metric.unit.per_csv:g} {metric.unit.csv}"


def _with_unit(text: str, metric: Metric | None) -> str:
    bare = metric is not None and metric.unit.per_csv != 1 and _is_number(text)
    return f"{text} {metric.unit.csv}" if bare and metric is not None else text or "nothing"


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d+)?(e[+-]?\d+)?", text) is not None


# The other steps


def _tests(folder: Folder) -> Group:
    heading = "Tests on the card"
    found = folder.read(PYTEST, lambda path: printed(whole_text(path).splitlines()))
    if found is None:
        return Group(heading, unknown=folder.remarks[PYTEST])
    sentences = [_failure(name, said) for name, said in found.failed.items()]
    if not found.total:
        return Group(heading, sentences, "pytest did not come to its end")
    return Group(heading, sentences, "" if " passed" in found.total or sentences else found.total)


def _failure(name: str, said: str) -> str:
    if NAMES_A_MACHINE.search(name):
        return f"{name}: failed, values left out"
    line = said.replace("`", "'")
    return f"{name}: `{line}`" if line else f"{name}: failed"


def _steps(folder: Folder, facts: Facts | None) -> Group:
    heading = "Steps of the visit"
    if facts is None or not facts.steps:
        return Group(heading, unknown=folder.remarks.get(FACTS, f"{FACTS} has no steps"))
    return Group(heading, [_step(step) for step in facts.steps if step.outcome != "done"])


def _step(step: Outcome) -> str:
    file = f" ({step.file})" if step.file else ""
    outcome = f"was {step.outcome}" if step.outcome in {"cut", "not begun"} else step.outcome
    after = f" after {step.seconds:.0f} s" if step.seconds else ""
    said = f": {step.said}" if step.said else ""
    return f"{step.name}{file} {outcome or 'has no outcome'}{after}{said}"


def _ended(folder: Folder) -> Group:
    heading = "Ends of processes"
    ending = folder.read(ENDING, lambda path: msgspec.json.decode(path.read_bytes(), type=Endings))
    if ending is None:
        return Group(heading, unknown=folder.remarks[ENDING])
    memory = ending.out_of_memory
    untried = [
        f"{case.name} ({case.said or 'no reason'})" for case in ending.cases if not case.tried
    ]
    if not memory.tried:
        untried.append(f"out of memory ({memory.said or 'no reason'})")
    sentences = [
        *(f"{case.name}: {text}" for case in ending.cases if case.tried for text in _case(case)),
        *(f"out of memory: {text}" for text in _out_of_memory(memory)),
    ]
    return Group(heading, sentences, f"not tried: {'; '.join(untried)}" if untried else "")


def _case(case: Ended) -> list[str]:
    """What went otherwise than it should with a process that was to be ended."""
    odd = [case.said] if case.said else []
    if case.seen_ms is None:
        return ["gpumon did not see it", *odd]
    if case.memory_used_bytes is None:
        odd.append("gpumon does not know its memory")
    return [*odd, *_end(case.end), *_memory(case)]


def _end(answer: object) -> list[str]:
    """What went otherwise by the JSON object of ``gpumon end``."""
    try:
        processes = msgspec.convert(answer, End).processes
    except msgspec.ValidationError:
        processes = []
    if not processes:
        return ["gpumon end reported no process"]
    return [
        f"process {one.pid} {one.outcome}, {one.sentence or 'no reason'}"
        for one in processes
        if one.outcome not in {"ended", "gone"}
    ]


def _memory(case: Ended) -> list[str]:
    if case.memory_back_ms is not None and not case.memory_missing_bytes:
        return []
    if case.memory_missing_bytes is None:
        return ["whether its memory came back is not known"]
    if case.memory_missing_bytes:
        return [f"{case.memory_missing_bytes / MIB:.0f} MiB of its memory did not come back"]
    return ["when its memory came back is not known"]


def _out_of_memory(found: OutOfMemory) -> list[str]:
    """What went otherwise than it should once there was no memory."""
    if not found.tried:
        return []
    return [
        *([found.said] if found.said else []),
        *([] if found.error else ["no run failed for want of memory"]),
        *([] if found.holder_seen else ["gpumon did not see who held the memory"]),
        *([] if found.refused_select else ["gpumon select chose the GPU without free memory"]),
        *([] if found.worked_after else ["the run had no memory after the holder's end either"]),
    ]


def _refused(folder: Folder) -> Group:
    heading = "Refused to an ordinary user, not to root"
    rows = folder.read(latency.FILE, whole_rows)
    if rows is None:
        return Group(heading, unknown=folder.remarks[latency.FILE])
    refused = {user: _permissions(rows, user) for user in ("root", "ordinary")}
    compared = any(row["user"] == "root" and row["function"] for row in rows)
    names = [name for name in refused["ordinary"] if compared and name not in refused["root"]]
    sentences = [f"{name}: {refused['ordinary'][name]}" for name in names]
    return Group(heading, sentences, "; ".join(_unmeasured(rows)))


def _unmeasured(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Which users' runs are not in ``latency.csv``, and why if it says so."""
    measured = {(row["user"], row["load"]) for row in rows if row["function"]}
    reasons = {(row["user"], row["load"]): row["refused"] for row in rows if not row["function"]}
    loads = list(dict.fromkeys(row["load"] for row in rows)) or ["idle"]
    return [
        f"{user}, {_LOADS.get(load, load)}: {reason}"
        for user in ("root", "ordinary")
        for load in loads
        if (user, load) not in measured
        for reason in [reasons.get((user, load)) or reasons.get(("", load)) or "not measured"]
    ]


def _permissions(rows: Iterable[Mapping[str, str]], user: str) -> dict[str, str]:
    """What was refused to a user for want of permission -> how often, as the file says it."""
    return {
        row["function"]: row["refused"]
        for row in rows
        if row["user"] == user and row["function"] and "permission" in row["refused"].lower()
    }


def _screens(folder: Folder) -> Group:
    heading = "Screens"
    text = folder.read(screen.FILE, whole_text)
    if text is None:
        return Group(heading, unknown=folder.remarks[screen.FILE])
    programs, *pages = text.split("\n## ")
    unmeasured = re.findall(r"^\| (.+?) \| (not measured: .+?) \|", programs, re.MULTILINE)
    said = [f"{name}: {why}" for name, why in unmeasured]
    there = {title: body.strip() for title, _, body in (page.partition("\n") for page in pages)}
    said += [f"{name}: {body}" for name, body in there.items() if body.startswith("Not shown: ")]
    absent = [page.name for page in screen.PAGES if not there.get(page.name)]
    return Group(heading, said, f"not in the file: {', '.join(absent)}" if absent else "")


# What pytest printed

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_TITLE = re.compile(r"_+ (?:ERROR at (?:setup|teardown) of )?(\S.*?) _+")
_ERROR = re.compile(r"E {3,}(\S.*)")
_DETAIL = re.compile(r"(Left|Right) contains|At index")
"""Begins the line that has what pytest left out of the first one."""
_SUMMARY = re.compile(r"(?:FAILED|ERROR) \S+?::(.+?)(?: - (.*))?")
_PROGRESS = re.compile(r"\S+?::(.+?) (?:FAILED|ERROR)\b.*")
_TOTAL = re.compile(r"=*\s*((?:no tests ran|\d+ [a-z]+(?:, \d+ [a-z]+)*) in [\d.]+s)\b.*")


class Printed(NamedTuple):
    """What pytest printed."""

    failed: dict[str, str]  # Name of a test -> its assertion's line; empty: there is none.
    total: str  # ``2 failed, 5 passed in 3.10s``; empty: pytest did not come to its end.


def printed(lines: Iterable[str]) -> Printed:
    failed: dict[str, str] = {}
    total, title = "", None
    for line in (_COLOUR.sub("", line).rstrip() for line in lines):
        if (found := _TITLE.fullmatch(line)) is not None and found[1].strip("_ "):
            title = found[1]
            failed.setdefault(title, "")
        elif title is not None and (found := _ERROR.fullmatch(line)) is not None:
            failed[title] = _with(failed[title], found[1])
        elif (found := _SUMMARY.fullmatch(line)) is not None:
            title = None
            name = _name(found[1])
            failed[name] = failed.get(name) or found[2] or ""
        elif (found := _PROGRESS.fullmatch(line)) is not None:
            failed.setdefault(_name(found[1]), "")
        elif (found := _TOTAL.fullmatch(line)) is not None:
            total = found[1]
    return Printed(failed, total)


def _with(known: str, line: str) -> str:
    """The first line of an error, with the detail that a later one has."""
    if not known:
        return line
    more = _DETAIL.match(line) and not _DETAIL.search(known)
    return f"{known}; {line}" if more else known


def _name(test: str) -> str:
    """The name of a test in its title: ``TestClass.test_it[a::b]``."""
    before, bracket, parameters = test.partition("[")
    return before.replace("::", ".") + bracket + parameters
