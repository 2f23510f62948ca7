"""``gpumon.snapshot()``: the GPUs of this machine and their processes at one moment."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from gpumon.api.local import open_machine, selection_of
from gpumon.model.processes import GpuProcess, GpuUse, ProcessId
from gpumon.model.snapshot import Gpu, Host
from gpumon.model.snapshot import Snapshot as ModelSnapshot
from gpumon.text.formatting import counted

if TYPE_CHECKING:
    import pandas

    from gpumon.api.local import Gpus


class Snapshot(ModelSnapshot, frozen=True, gc=False):
    """The state of one machine at one moment; see ``gpumon.model.snapshot`` for what is in it.

    ``str()`` of it is the table of ``gpumon snapshot``; a notebook shows a table, too.
    """

    @classmethod
    def of(cls, snapshot: ModelSnapshot) -> Snapshot:
        """The same snapshot with the methods of this class."""
        return cls(*[getattr(snapshot, field) for field in snapshot.__struct_fields__])

    def to_dict(self) -> dict[str, Any]:
        """The object that ``gpumon snapshot --format json`` prints; ``docs/snapshot.md``."""
        import json

        from gpumon.export.as_json import to_json

        # As text and back, so that it has JSON's types only.
        told: dict[str, Any] = json.loads(to_json(self))
        return told

    def to_pandas(self, *, processes: bool = False) -> pandas.DataFrame:
        """A row for each GPU, or for each process and GPU; unknown values are ``<NA>``.

        The columns are the keys of ``to_dict`` with the units in their names; what is not one
        value, such as the MIG devices of a GPU, is left out.

        Args:
            processes: Rows for processes. Their columns that start with ``gpu_`` and those of GPU
                memory and use are of the one GPU.

        Raises:
            ImportError: pandas is not installed.
        """
        import pandas

        # A snapshot without rows has the same columns.
        (example,) = _rows(_EXAMPLE, processes=processes)
        columns = [key for key, value in example.items() if not isinstance(value, (list, dict))]
        frame = pandas.DataFrame(_rows(self, processes=processes), columns=columns)
        frame = frame.convert_dtypes()
        return frame.where(frame.notna(), pandas.NA)

    def _repr_html_(self) -> str:
        from gpumon.api.notebook import html

        return html(self)

    def __repr__(self) -> str:
        gpus, processes = counted(len(self.gpus), "GPU"), len(self.processes)
        return (
            f"<gpumon.Snapshot of {self.host.name!r} at {self.time:.3f}: {gpus}, "
            f"{counted(processes, 'process', 'es')}>"
        )

    def __str__(self) -> str:
        import io

        from gpumon.findings import DEFAULTS
        from gpumon.text.charset import substitute
        from gpumon.ui.view.snapshot_table import table

        if self.trouble is not None:
            return f"{self.trouble.sentence} {self.trouble.advice}"
        text = table(self, self.processes, (), io.StringIO(), DEFAULTS).rstrip("\n")
        try:
            # What a terminal cannot show has a substitute, as everywhere.
            text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
        except UnicodeEncodeError:
            text = substitute(text)
        return text


def _rows(snapshot: Snapshot, *, processes: bool) -> list[dict[str, Any]]:
    told = snapshot.to_dict()
    if not processes:
        gpus: list[dict[str, Any]] = told["gpus"]
        return gpus
    return [{**process, **use} for process in told["processes"] for use in process["uses"]]


_EXAMPLE = Snapshot(
    0.0,
    Host(""),
    (Gpu(0, "", fan_speeds=(), clock_event_reasons=0),),
    (GpuProcess(ProcessId(0, None), "C", (GpuUse("", 0),)),),
)


def snapshot(gpus: Gpus = None, *, demo: bool = False) -> Snapshot:
    """The GPUs of this machine and their processes now.

    Takes some 50 ms with a driver that is loaded, and seconds where it wakes GPUs. Returns within
    11 seconds also if the driver hangs. May be called on any thread, and in a running event loop.

    Args:
        gpus: Only these: ``"0,2-3"``, 0, ``["GPU-1a2b", 3]``; ``None`` for all.
        demo: The simulated machine of ``gpumon --demo``.

    Raises:
        GpuError: There is no driver or no such GPU, or the driver does not answer.
        ValueError: ``gpus`` cannot be read.
    """
    from gpumon.sampling.enrichment import Lookup
    from gpumon.sampling.gpu_sampler import take_one

    machine = open_machine(selection_of(gpus), demo=demo)
    lookup = Lookup.of(machine)
    return Snapshot.of(lookup.look_once(take_one(machine.source)))
