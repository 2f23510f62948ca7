"""What a file is that is no log that gpumon can read, and what to do about it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from gpumon.recording.csv.nvidia_smi import is_message
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from gpumon.recording.csv.headings import Header

LOG_INSTEAD = (
    "log with gpumon log, or with nvidia-smi"
    " --query-gpu=timestamp,index,utilization.gpu,memory.used,memory.total,power.draw"
    " --format=csv -l 1"
)
"""What to do for a log that can be read."""
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
    _text(r"<nvidia_smi_log>", "is the XML of nvidia-smi -q -x, which is one moment: {log}"),
    _text(r"^=+NVSMI LOG=+", "is the output of nvidia-smi -q, which is not a table: {log}"),
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
_PROCESS_COLUMNS = frozenset(("pid", "process_name", "used_gpu_memory [MiB]", "used_memory [MiB]"))
_ONLY_PROCESSES = (
    f"has processes and no GPUs, as nvidia-smi --query-compute-apps writes it: {LOG_INSTEAD}"
)


def other_kind(block: bytes, header: Header | None, *, processes: bool) -> str | None:
    """What a file is that cannot be read as a log, and what to do, as the rest of a sentence.

    ``None`` if it may be a log, or if nothing is known of it.

    Args:
        block: The file's beginning.
        header: Its header, if it has one.
        processes: Whether it should be the process file.
    """
    found = _encoding(block)
    if found is not None or processes:
        return found
    begin = block[:_LOOKED_AT].removeprefix(_MARK)
    if header is not None and not begin.lstrip().startswith(b"#"):
        return _without_gpus(header)
    for magic, sentence in _BINARY:
        if begin.startswith(magic):
            return sentence
    for kind in _KINDS:
        if kind.pattern.search(begin):
            return kind.sentence.format(log=LOG_INSTEAD)
    if header is not None:
        return _without_gpus(header)
    lines = [line for line in begin.decode("utf-8", "replace").splitlines() if line.strip()]
    return _of_lines(lines)


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


def _without_gpus(header: Header) -> str | None:
    """Of a file with headings, that these are not of GPUs."""
    has_values = any(
        name is not None and (" [" in name or name.startswith("temperature"))
        for name in header.names
    )
    if _PROCESS_COLUMNS.intersection(header.texts) and not has_values:
        return _ONLY_PROCESSES
    return None


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
    return None
