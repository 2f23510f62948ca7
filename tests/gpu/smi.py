"""Asks nvidia-smi. Every call ends within a time."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from typing import TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SECONDS = 10.0
"""Within these a call ends; the real program takes up to 2 s without persistence mode."""

_MOST_REFUSALS = 20
_FIELD = re.compile(r'"([^"]+)"(?: or "[^"]+")*')
_REFUSED = re.compile(r'Field "([^"]+)" is not a valid field to query')
_LISTS = ("processes", "supported_clocks", "mig_devices", "accounted_processes")
"""Elements that list things, whose paths say nothing about which."""

_APP_FIELDS = ("gpu_uuid", "pid", "used_gpu_memory")


class SmiError(Exception):
    """nvidia-smi gave no answer, for the reason in the text: one sentence."""


class HungError(SmiError):
    """nvidia-smi did not end in time."""


class RefusedError(SmiError):
    def __init__(self, field: str) -> None:
        super().__init__(f"nvidia-smi does not know the field {field}")
        self.field = field  # Its name.


class Queried(NamedTuple):
    """What ``--query-gpu`` gave."""

    gpus: list[dict[str, str]]  # For each GPU field -> text, without units.
    refused: list[str]  # The fields that were listed but refused.


class App(NamedTuple):
    """A process on a GPU, as nvidia-smi lists it. ``None``: it does not know."""

    gpu: str  # UUID in ``--query-compute-apps`` and the XML, index in ``pmon``.
    pid: int
    memory: int | None  # MiB.
    sm: int | None = None  # Percent of the time in which its kernels ran.


class Document(NamedTuple):
    """A GPU of ``nvidia-smi -q -x``."""

    elements: dict[str, str]  # Path -> text, without what lists things.
    apps: list[App]  # Its processes.


def ask(*arguments: str, seconds: float = SECONDS) -> str:
    """What nvidia-smi prints.

    Raises:
        SmiError: It is not there, does not end within so many seconds, or fails.
    """
    try:
        process = subprocess.Popen(
            ["nvidia-smi", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise SmiError(f"nvidia-smi cannot be run: {error.strerror}") from None
    with process:
        try:
            text, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            _end(process)
            raise HungError(f"nvidia-smi did not end within {seconds:g} s") from None
    if process.returncode:
        refused = _REFUSED.search(text)
        if refused is not None:
            raise RefusedError(refused[1])
        words = text.strip().splitlines() or ["no output"]
        raise SmiError(f"nvidia-smi ended with status {process.returncode}: {words[0]}")
    return text


def _end(process: subprocess.Popen[str]) -> None:
    """Kill it with its children, which hold the pipe too."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def fields(seconds: float = SECONDS) -> list[str]:
    """The fields of ``--help-query-gpu``, each by its first name."""
    lines = ask("--help-query-gpu", seconds=seconds).splitlines()
    found = [match[1] for line in lines if (match := _FIELD.fullmatch(line.strip()))]
    if not found:
        raise SmiError("nvidia-smi --help-query-gpu lists no field")
    return found


def query(names: Sequence[str], seconds: float = SECONDS) -> Queried:
    """One ``--query-gpu`` of all fields; again without those that it refuses."""
    asked, refused = list(names), list[str]()
    while asked:
        try:
            text = ask(
                f"--query-gpu={','.join(asked)}", "--format=csv,noheader,nounits", seconds=seconds
            )
        except RefusedError as error:
            if error.field not in asked or len(refused) >= _MOST_REFUSALS:
                raise
            asked.remove(error.field)
            refused.append(error.field)
            continue
        return Queried([_row(asked, line) for line in text.splitlines() if line], refused)
    raise SmiError("nvidia-smi refuses all fields")


def documents(seconds: float = SECONDS) -> list[Document]:
    """The GPUs of ``-q -x``, in nvidia-smi's order."""
    text = ask("-q", "-x", seconds=seconds)
    try:
        root = ElementTree.fromstring(text)  # noqa: S314 - of nvidia-smi, no stranger's
    except ElementTree.ParseError as error:
        raise SmiError(f"nvidia-smi -q -x is no XML: {error}") from None
    return [_document(gpu) for gpu in root.findall("gpu")]


def compute_apps(seconds: float = SECONDS) -> list[App]:
    text = ask(
        f"--query-compute-apps={','.join(_APP_FIELDS)}",
        "--format=csv,noheader,nounits",
        seconds=seconds,
    )
    rows = [_row(_APP_FIELDS, line) for line in text.splitlines() if line.strip()]
    return [
        App(row["gpu_uuid"], int(row["pid"]), _number(row["used_gpu_memory"]))
        for row in rows
        if row["pid"].isdigit()
    ]


def pmon(seconds: float = SECONDS) -> list[App]:
    """The processes of ``pmon``, with memory and SM utilization; ``-`` is unknown."""
    lines = ask("pmon", "-c", "1", "-s", "um", seconds=seconds).splitlines()
    heading = next((line.lstrip("# ").split() for line in lines if line.startswith("#")), None)
    if heading is None or not {"gpu", "pid", "fb", "sm"} <= set(heading):
        raise SmiError("nvidia-smi pmon has no columns gpu, pid, sm and fb")
    rows = [
        dict(zip(heading, line.split(), strict=False)) for line in lines if not line.startswith("#")
    ]
    return [
        App(row["gpu"], int(row["pid"]), _number(row["fb"]), _number(row["sm"]))
        for row in rows
        if row.get("pid", "").isdigit()
    ]


def _row(names: Sequence[str], line: str) -> dict[str, str]:
    cells = [cell.strip() for cell in line.split(",")]
    surplus = len(cells) - len(names)
    if surplus > 0 and "name" in names:
        # Only a product's name may have commas, which nvidia-smi does not quote.
        at = list(names).index("name")
        cells[at : at + surplus + 1] = [", ".join(cells[at : at + surplus + 1])]
    row = dict(zip(names, cells, strict=False))
    is_shifted = surplus > 0 and not row.get("uuid", "GPU-").startswith("GPU-")
    if len(cells) != len(names) or is_shifted:
        cells_and_fields = f"{len(names) + surplus} cells for {len(names)} fields"
        raise SmiError(f"nvidia-smi wrote {cells_and_fields}: {line[:80]}")
    return row


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _document(gpu: ElementTree.Element) -> Document:
    uuid = gpu.findtext("uuid") or ""
    apps = [
        App(uuid, int(pid), _number((app.findtext("used_memory") or "").removesuffix(" MiB")))
        for app in gpu.findall("processes/process_info")
        if (pid := app.findtext("pid") or "").isdigit()
    ]
    return Document(dict(_leaves(gpu, "")), apps)


def _leaves(parent: ElementTree.Element, path: str) -> Iterator[tuple[str, str]]:
    for child in parent:
        if child.tag in _LISTS:
            continue
        if len(child):
            yield from _leaves(child, f"{path}{child.tag}/")
        else:
            yield f"{path}{child.tag}", (child.text or "").strip()
