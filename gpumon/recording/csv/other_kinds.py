"""What a file is that is no log that gpumon can read, and what to do about it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from gpumon.recording.csv.headings import cells_of
from gpumon.recording.csv.nvidia_smi import is_message
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.recording.csv.headings import Header

LOG_INSTEAD = (
    "log with gpumon log, or with nvidia-smi"
    " --query-gpu=timestamp,index,utilization.gpu,memory.used,memory.total,power.draw"
    " --format=csv -l 1"
)
"""What to do for a log that can be read."""
_GPUMON = "log with gpumon log"
"""The same for GPUs that are not NVIDIA's."""
_MARK = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_PAIRED = 16
_LOOKED_AT = 2**14
"""Bytes of the beginning that show what a file is."""
_MESSAGE_CHARACTERS = 120


class _Kind(NamedTuple):
    """A kind of file, by what its beginning matches."""

    pattern: re.Pattern[bytes]
    sentence: str


def _text(pattern: str, sentence: str) -> _Kind:
    return _Kind(re.compile(pattern.encode(), re.MULTILINE), sentence)


_BINARY: tuple[tuple[bytes, str], ...] = (
    (b"\x1f\x8b", "is compressed with gzip: give it a name that ends in .csv.gz"),
    (b"\x28\xb5\x2f\xfd", "is compressed with zstd: give it a name that ends in .csv.zst"),
    (b"PK\x03\x04", "is a spreadsheet or a zip archive: save it as CSV, or unpack it"),
    (b"\xd0\xcf\x11\xe0", "is a spreadsheet: save it as CSV"),
    (b"BZh", "is compressed with bzip2: unpack it with bunzip2"),
    (b"\xfd7zXZ", "is compressed with xz: unpack it with unxz"),
    (b"PAR1", "is a Parquet file: convert it to CSV"),
    (b"SQLite format 3", "is a database: export the table to CSV"),
    (b"%PDF", "is a PDF document: take the file that was printed into it"),
)
_KINDS: tuple[_Kind, ...] = (
    _text(
        r"(?i)\A\s*#\s*(date[,\s]+)?(time[,\s]+)?gpu\b[^\n]*\bpid\b",
        "is the output of nvidia-smi pmon, which has no dates and no memory of GPUs: {log}",
    ),
    _text(
        r"(?i)\A\s*#\s*(date[,\s]+)?(time[,\s]+)?gpu\b(?=[^\n]*\b(pwr|gtemp|sm|mem|fb|pclk)\b)",
        "is the output of nvidia-smi dmon, which has other columns and often no dates: {log}",
    ),
    _text(
        r"\A\s*#\s*Entity\b",
        "is the output of dcgmi dmon, which has no dates: {log}",
    ),
    _text(
        r"^\s*GPU0\s[^\n]*\bAffinity\b",
        "is the matrix of nvidia-smi topo, which has no values: {log}",
    ),
    _text(r"<nvidia_smi_log>", "is the XML of nvidia-smi -q -x, which is one moment: {log}"),
    _text(
        r"^=+NVSMI LOG=+|^ *(Driver Version|Attached GPUs|Product Name|Gpu|Power Draw)\s* : ",
        "is the output of nvidia-smi -q, which is not a table: {log}",
    ),
    _text(
        r"ROCm System Management Interface|\A(device|card),[^\n]*\n(card\d+|system),",
        "is the output of rocm-smi, which has no times: {gpumon}",
    ),
    _text(
        r"\A\s*gpu,[^\n]*\b(gfx|umc_activity|socket_power|hotspot_temperature|vram_used)\b",
        "is the output of amd-smi without times: {gpumon}",
    ),
    _text(r"\bGR3D_FREQ \d+%", "is the output of tegrastats: {gpumon}"),
    _text(r"\A00, [^\n]*\bHardware monitoring log\b", "is a log of MSI Afterburner: {gpumon}"),
    _text(
        r"^\s*\|[^\n]*NVIDIA-SMI[^\n]*Driver Version",
        "is the table that nvidia-smi prints to be read by people: {log}",
    ),
    _text(r"\A(\x1b|Script started on )", "is a recording of a terminal: {log}"),
    _text(
        r"^\s*\[\d+\]\s[^\n|]*\|[^\n]*('|°|\xb0|\xc2\xb0)?C[^\n]*\|[^\n]*\d\s*/\s*\d+\s*MB",
        "is the output of gpustat, whose text is for people: {log}",
    ),
    _text(r"NVITOP", "is the output of nvitop, which is made for a terminal: {log}"),
    _text(r"\A\s*nvidia_smi,[^\n ]*[ ][^\n]*=", "is the line protocol of telegraf: {log}"),
    _text(r"^# (HELP|TYPE) ", "is a page of metrics for Prometheus: {log}"),
    _text(r"(?i)\A\s*(<!doctype html|<html)", "is a web page: save the file itself, not its page"),
    _text(r'\A\s*\{[^\0]{0,400}"query_time"', "is the JSON of gpustat, which is one moment: {log}"),
    _text(r'\A\s*\[[^\0]{0,400}"device_name"', "is the JSON of nvtop, which is one moment: {log}"),
    _text(
        r'\A\s*\{[^\0]{0,400}"schema":\s*"gpumon\.',
        "is JSON that gpumon wrote, which is one moment or a report: {log}",
    ),
    _text(r"\A\s*<\?xml", "is XML: {log}"),
    _text(r"\A\s*GPU \d+: [^\n]*\(UUID: ", "is the list of nvidia-smi -L: {log}"),
)
_VALUE = re.compile(
    r"-?\d+(\.\d+)?( (%|MiB|W|MHz|C))?|P\d\d?|0x[0-9a-fA-F]+|\[.*\]|N/A|GPU-[0-9a-f-]+"
    r"|[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d|(En|Dis)abled|(Not )?Active"
)
_LEADING_TIME = re.compile(
    rb"^\[?([A-Z][a-z]{2} [ \d]\d|\d{4}-\d\d-\d\d)[T ]\d\d:\d\d:\d\d([.,]\d+)?"
    rb"(Z|[+-]\d\d:?\d\d)?\]?[ \t]",
    re.MULTILINE,
)
"""What programs such as ``ts`` write before each line."""
_ONE_GPU = re.compile(r"(?i)(gpu|cuda|device)([ ._:/#]*|\W{0,6})\d{1,2}(?![\d-])")
"""The number of a GPU in a heading."""
_DMON_ROW = re.compile(r"(\s+(\d+|-)){6,}\s*")
_MOST_SHOWN = 3
_PROCESS_COLUMNS = frozenset(("pid", "process_name", "used_gpu_memory [MiB]", "used_memory [MiB]"))
_PROCESS_KEYS = frozenset(("pid", "processid", "processname", "gpuprocessid"))
"""Headings, without the marks between words, of what identifies a process."""
_OF_GPU = ("temperature.", "power.", "clocks.", "memory.total")
"""How columns begin that only a GPU has."""
_UTILIZATION = "utilization.gpu"
"""Only nvidia-smi's own name of it is never a process's."""
_ONLY_PROCESSES = (
    "has processes and no GPUs, as nvidia-smi --query-compute-apps and --query-accounted-apps write"
    f" it: {LOG_INSTEAD}"
)


def other_kind(block: bytes, header: Header | None, *, processes: bool) -> str | None:
    """What a file is that cannot be read as a log, and what to do, as the rest of a sentence.

    ``None`` if it may be a log, or if nothing is known of it.

    Args:
        block: The file's beginning.
        header: Its header, if it has one.
        processes: Whether it should be the process file.
    """
    for magic, sentence in _BINARY:
        if block.startswith(magic):
            return sentence
    found = _encoding(block)
    if found is not None or processes:
        return found
    begin = block[:_LOOKED_AT].removeprefix(_MARK)
    if header is not None and not begin.lstrip().startswith(b"#"):
        return _of_headings(header, block)
    bare = _bare(begin)
    for kind in _KINDS:
        if kind.pattern.search(begin) or kind.pattern.search(bare):
            return kind.sentence.format(log=LOG_INSTEAD, gpumon=_GPUMON)
    if header is not None:
        return _of_headings(header, block)
    lines = [line for line in begin.decode("utf-8", "replace").splitlines() if line.strip()]
    return _of_lines(lines)


def _bare(begin: bytes) -> bytes:
    """The lines without a time before each of them, and without messages before the first."""
    lines = _LEADING_TIME.sub(b"", begin).split(b"\n")
    for number, line in enumerate(lines):
        if line.strip() and not is_message(line.decode("utf-8", "replace")):
            return b"\n".join(lines[number:])
    return b""


def _encoding(block: bytes) -> str | None:
    # In UTF-16 every other byte of Latin letters is 0.
    begin = block[:_PAIRED]
    is_paired = len(begin) == _PAIRED and any(
        not any(begin[at::2]) and all(begin[1 - at :: 2]) for at in (0, 1)
    )
    if block.startswith(_UTF_16) or is_paired:
        return (
            "is in UTF-16, as a redirection in Windows PowerShell writes it: convert it with"
            " iconv -f UTF-16 -t UTF-8"
        )
    first, _, rest = block[:_LOOKED_AT].partition(b"\r")
    if b"\n" not in block[:_LOOKED_AT] and first.strip() and rest.strip(b"\r"):
        return "has lines that end in a carriage return alone: convert it with tr '\\r' '\\n'"
    return None


def _of_headings(header: Header, block: bytes) -> str | None:
    """Of a file with headings, that its rows are not of GPUs."""
    words = ["".join(filter(str.isalnum, text.lower().partition("[")[0])) for text in header.texts]
    places = [place for place, word in enumerate(words) if word in _PROCESS_KEYS]
    if not places:
        return None
    is_of_gpu = any(text.startswith(_UTILIZATION) for text in header.texts) or any(
        name.startswith(_OF_GPU) for name in header.places
    )
    # Otherwise the memory and the utilisation are the process's own, whatever they are called.
    if header.key is None or not is_of_gpu or _are_of_processes(header, block, header.key, places):
        return _ONLY_PROCESSES
    return None


def _are_of_processes(header: Header, block: bytes, key: int, places: Sequence[int]) -> bool:
    """Whether a GPU has rows of several processes, and not those of its job or of its logger."""
    last: dict[str, tuple[str, tuple[str, ...]]] = {}
    seen: set[tuple[str, tuple[str, ...]]] = set()
    for line in block.split(b"\n")[:-1]:
        cells = header.split(line)
        if len(cells) != header.width or header.is_same(cells):
            continue
        gpu, at = cells[key].strip(), cells[header.time]
        process = tuple(cells[place].strip() for place in places)
        before, other = last.get(gpu, ("", process))
        if not any(process):
            # The GPU had none.
            continue
        if process != other and (at == before or (gpu, process) in seen):
            return True
        last[gpu] = at, process
        seen.add((gpu, process))
    return False


def _of_lines(lines: list[str]) -> str | None:
    if lines and all(map(is_message, lines)):
        said = printable(lines[0].strip()[:_MESSAGE_CHARACTERS])
        return f"has a message of nvidia-smi and no rows ({said!r}): {LOG_INSTEAD}"
    if not lines:
        return None
    for delimiter in (",", ";", "\t"):
        cells = [cell.strip() for cell in lines[0].split(delimiter)]
        if len(_PROCESS_COLUMNS.intersection(cells)) > 1:
            return _ONLY_PROCESSES
        values = sum(_VALUE.fullmatch(cell) is not None for cell in cells)
        if len(cells) > 2 and 2 * values >= len(cells):
            return (
                "has rows and no headings, as with noheader: expected headings such as"
                " timestamp,index,utilization.gpu [%] in line 1, so write there what was queried"
            )
    if all(map(_DMON_ROW.fullmatch, lines[:_PAIRED])):
        return f"has numbers and no headings, perhaps rows of nvidia-smi dmon: {LOG_INSTEAD}"
    return _of_columns(lines[0])


def _of_columns(heading: str) -> str | None:
    """Of headings that have the number of a GPU in them, as Weights & Biases and nvitop write."""
    if heading.lstrip()[:1] in ("{", "["):
        return None
    cells = next(
        (found for sign in (",", ";", "\t") if len(found := cells_of(heading.encode(), sign)) > 1),
        [],
    )
    named = [cell.strip() for cell in cells if _ONE_GPU.search(cell)]
    if not named:
        return None
    shown = ", ".join(printable(cell[:_MESSAGE_CHARACTERS]) for cell in named[:_MOST_SHOWN])
    more = ", …" if len(named) > _MOST_SHOWN else ""
    return (
        f"has columns of single GPUs ({shown}{more}): write a row for each GPU and time, with"
        f" headings such as timestamp,index,utilization.gpu [%],memory.used [MiB], or {_GPUMON}"
    )
