"""What the process table says while it has no line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.model.snapshot import GpuStatus, Unknown
from gpumon.text.formatting import cell_width, fit, printable
from gpumon.ui.view.header_footer import has_no_lists, is_from_metrics
from gpumon.ui.view.key_names import keycap

if TYPE_CHECKING:
    from gpumon.model.snapshot import Snapshot
    from gpumon.ui.view.process_filter import ProcessFilter


def empty_table_text(snapshot: Snapshot, narrowing: ProcessFilter, width: int) -> str:
    """Why the table is empty, and the key that changes it.

    Args:
        snapshot: The snapshot with all processes.
        narrowing: The conditions that no process meets, if there are processes.
        width: Cells; the text of a filter is cut first.
    """
    if is_from_metrics(snapshot):
        return "Prometheus has no processes: only the host itself knows them · gpumon --hosts"
    if has_no_lists(snapshot):
        return "This log does not record who was on the GPUs."
    if snapshot.processes:
        return _no_match(snapshot, narrowing, width)
    reasons = {gpu.unknown.get("processes") for gpu in snapshot.gpus}
    denied = [
        gpu
        for gpu in snapshot.gpus
        if gpu.status is GpuStatus.NO_PERMISSION
        or gpu.unknown.get("processes") is Unknown.NO_PERMISSION
    ]
    if len(denied) == len(snapshot.gpus):
        return "no permission to list the processes · `gpumon doctor` shows what to do"
    if snapshot.processes_at is None:
        return "the processes have not been read yet"
    if reasons != {None}:
        return "no process is listed, but the list of a GPU is unknown"
    if snapshot.host.in_container:
        return "no process of this container is on a GPU; those outside are not listed here"
    return "no process is on a GPU"


def _no_match(snapshot: Snapshot, narrowing: ProcessFilter, width: int) -> str:
    """The conditions that no process meets, and the key that drops them."""
    clear = keycap("clear")
    text = "" if narrowing.filter is None else narrowing.filter.text
    if narrowing.user is not None and narrowing == type(narrowing)(user=narrowing.user):
        return f"no process of {printable(narrowing.user)}: start gpumon without --user to see all"
    everybody = "all" if narrowing.user is None else f"all of {printable(narrowing.user)}"
    if narrowing == type(narrowing)(user=narrowing.user, mine=narrowing.mine):
        count = len(snapshot.processes)
        what = "the 1 process is not yours" if count == 1 else f"none of {count} processes is yours"
        return f"{what} · {keycap('mine')} shows {everybody}"
    kinds = {"C": "compute process", "G": "graphics process", None: "process"}
    owner = "yours" if narrowing.mine else printable(narrowing.only_user or "")
    what = f"no {kinds[narrowing.kind]}{' of ' if owner else ''}{owner}"
    what += "" if narrowing.gpu is None else " on this GPU"
    end = f" · {clear} shows {everybody}"
    if not text:
        return what + end
    what += " matches "
    room = max(1, width - cell_width(what) - cell_width(end))
    shown = printable(text)
    return what + (shown if cell_width(shown) <= room else fit(shown, room).rstrip()) + end
