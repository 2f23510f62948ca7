"""A simulated machine with NVIDIA cards: what a test sets, NVML programs read a moment later."""

from __future__ import annotations

import ctypes
import difflib
import math
import mmap
import os
import shutil
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from . import layout
from .build import build
from .models import Mig, Model, Number, Wave, make_uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import TracebackType

PCIE_THROUGHPUT_SECONDS = 0.020
"""How long the driver measures for one nvmlDeviceGetPcieThroughput (nvml.h)."""

XID = 8
_PROCESS_TYPES = {
    "C": layout.COMPUTE,
    "G": layout.GRAPHICS,
    "C+G": layout.COMPUTE | layout.GRAPHICS,
    "M": layout.MPS,
}
# Where the cards of an eight-card server sit on the bus, and a gap that has room for all others.
_BUSES = (0x19, 0x3B, 0x4C, 0x5D, 0x9B, 0xBB, 0xCB, 0xDB)
_FURTHER_BUSES = range(0x5E, 0x5E + layout.CARDS - len(_BUSES))


class Spent(NamedTuple):
    """How often a function was called, and the seconds spent inside."""

    calls: int
    seconds: float


@dataclass(frozen=True)
class Owner:
    """A process on a card, as the driver tells it.

    Attributes:
        memory: bytes, or `None` if the driver cannot tell.
        type: "C", "G", "C+G" or "M" (MPS).
        sm: utilisation in %, or `None` if the process has no sample.
        sampled_us: when it was sampled; 0 lets the driver sample six times a second.
    """

    pid: int
    memory: int | None = 0
    type: str = "C"
    sm: int | None = None
    memory_util: int = 0
    encoder: int = 0
    decoder: int = 0
    jpeg: int = 0
    ofa: int = 0
    gpu_instance: int | None = None
    compute_instance: int | None = None
    sampled_us: int = 0

    def _state(self) -> layout.ProcessState:
        absent = {
            "memory": layout.NOT_AVAILABLE,
            "gpu_instance": layout.NO_INSTANCE,
            "compute_instance": layout.NO_INSTANCE,
            "sm": layout.NO_SAMPLE,
        }
        values = {
            name: absent[name] if value is None else value for name, value in vars(self).items()
        }
        del values["type"]
        return layout.ProcessState(types=_PROCESS_TYPES[self.type], **values)


class Faults:
    """What can be made to go wrong in the functions of one card, or of the system.

    Every method takes the name of an NVML function, or `None` for all of them.
    """

    def __init__(self, rows: ctypes.Array[layout.CallRow]) -> None:
        self._rows = rows

    def _chosen(self, function: str | None) -> Iterator[layout.CallRow]:
        names = layout.FUNCTIONS if function is None else (function,)
        for name in names:
            if name not in layout.FUNCTION_IDS:
                near = ", ".join(difflib.get_close_matches(name, layout.FUNCTIONS, 3))
                raise KeyError(f"the simulated driver has no {name}; near to it: {near}")
            yield self._rows[layout.FUNCTION_IDS[name]]

    def fail(self, function: str | None, code: int) -> None:
        """Makes calls return this code; 0 ends that."""
        for row in self._chosen(function):
            row.code = code

    def hang(self, function: str | None = None) -> None:
        """Makes calls block until `release`."""
        for row in self._chosen(function):
            row.hang = 1

    def release(self, function: str | None = None) -> None:
        """Lets hung calls go on."""
        for row in self._chosen(function):
            row.hang = 0

    def hanging(self, function: str) -> int:
        """Returns how many calls of a function hang now."""
        return self._rows[layout.FUNCTION_IDS[function]].hanging

    def latency(self, function: str | None, seconds: float) -> None:
        """Makes calls take this long."""
        for row in self._chosen(function):
            row.latency_us = round(seconds * 1e6)

    def unknown(self, function: str | None, probability: float) -> None:
        """Makes calls return UNKNOWN (999) at random."""
        for row in self._chosen(function):
            row.unknown = probability

    def heal(self) -> None:
        """Ends every fault of this card, and gives back the latencies of a sound one."""
        for row in self._chosen(None):
            row.code = row.latency_us = row.hang = 0
            row.unknown = 0.0
        self.latency("nvmlDeviceGetPcieThroughput", PCIE_THROUGHPUT_SECONDS)

    def calls(self) -> dict[str, Spent]:
        """Returns what was spent in each function that was called at all."""
        spent = zip(layout.FUNCTIONS, self._rows, strict=True)
        return {n: Spent(row.calls, row.nanoseconds / 1e9) for n, row in spent if row.calls}

    def times(self, function: str) -> int:
        """Returns how often a function was called."""
        return self._rows[layout.FUNCTION_IDS[function]].calls

    def reset_counters(self) -> None:
        """Counts from 0 again."""
        for row in self._chosen(None):
            row.calls = row.nanoseconds = 0


def _memory_of(owners: Iterable[Owner]) -> int:
    return sum(owner.memory or 0 for owner in owners)


class _Text:
    """A text of a card, which may be set to bytes that are no UTF-8."""

    def __set_name__(self, _owner: type[Card], name: str) -> None:
        self._name = name

    def __get__(self, card: Card, _owner: type[Card]) -> str:
        raw: bytes = getattr(card._state, self._name)
        return raw.decode(errors="surrogateescape")

    def __set__(self, card: Card, value: str | bytes) -> None:
        raw = _encode(value)
        if len(raw) >= layout.TEXT_SIZE:
            raise ValueError(f"a {self._name} has at most {layout.TEXT_SIZE - 1} bytes")
        with card._edit() as state:
            setattr(state, self._name, raw)


class Card(Faults):
    """One card of a running `Driver`.

    Each number of `layout.METRICS` is an attribute: `card.memory_used = 5 * GIB` sets it, a `Wave`
    makes it move, `None` takes it from the card (NOT_SUPPORTED); reading it gives what the driver
    says now, in NVML's units.
    """

    def __init__(self, driver: Driver, slot: int, model: Model) -> None:
        super().__init__(driver.state.rows[slot])
        self._driver = driver
        self._slot = slot
        self._state = driver.state.cards[slot]
        self._processes: tuple[Owner, ...] = ()
        self._lock = threading.Lock()
        self._listing = threading.Lock()
        self._plug_in(model)

    def _plug_in(self, model: Model) -> None:
        state, slot = self._state, self._slot
        state.incarnation += 1
        state.lost = 0
        state.growth_step = 0
        for before in (state.metrics, state.field_codes):
            ctypes.memset(before, 0, ctypes.sizeof(before))
        self.heal()
        self.reset_counters()
        self.processes = ()
        bus = (*_BUSES, *_FURTHER_BUSES)[slot]
        numbers = {
            "minor_number": slot,
            "pci_bus": bus,
            "board_id": bus << 8,
            "pcie_switch": slot // 2,
            "numa_node": slot // 4,
            **model.numbers,
        }
        for metric in layout.METRIC_IDS:
            self.set(metric, numbers.get(metric))
        has_serial = numbers.get("ecc_mode") is not None
        texts = {
            "uuid": make_uuid("GPU", model.key, slot),
            "serial": f"16509240{slot:05}" if has_serial else "",
            **model.texts,
        }
        for text, value in texts.items():
            setattr(self, text, value)
        self.set_mig(model.migs)

    @contextmanager
    def _edit(self) -> Iterator[layout.CardState]:
        """Lets no reader see half of what is written in here."""
        with self._lock:
            self._state.edits += 1
            try:
                yield self._state
            finally:
                self._state.edits += 1

    # Numbers

    def __getattr__(self, name: str) -> int | None:
        if name in layout.METRIC_IDS:
            return self.get(name)
        near = difflib.get_close_matches(name, layout.METRIC_IDS, 3)
        raise AttributeError(f"a card has no {name}; near to it: {', '.join(near)}")

    def __setattr__(self, name: str, value: object) -> None:
        if name.startswith("_") or name in layout.TEXTS or hasattr(type(self), name):
            super().__setattr__(name, value)
        elif name not in layout.METRIC_IDS:
            self.__getattr__(name)  # says what is wrong with the name
        elif value is None or isinstance(value, int | float | Wave):
            self.set(name, value)
        else:
            raise TypeError(f"{name} is a number, a Wave or None, not {value!r}")

    def get(self, metric: str) -> int | None:
        """Returns what the driver says now, or `None` if it says NOT_SUPPORTED."""
        state = self._state.metrics[layout.METRIC_IDS[metric]]
        if math.isnan(state.base):
            return None
        return math.floor(_wave_at(state, self._driver.now()) + 0.5)

    def total(self, metric: str) -> int:
        """Returns what has flowed since the start: the energy in mJ for power_usage."""
        state = self._state.metrics[layout.METRIC_IDS[metric]]
        return max(0, math.floor(_integral_at(state, self._driver.now()) + 0.5))

    def set(self, metric: str, value: Number) -> None:
        """Sets a number; what has flowed until now stays counted."""
        wave = value if isinstance(value, Wave) else Wave(math.nan if value is None else value)
        with self._edit() as card:
            state = card.metrics[layout.METRIC_IDS[metric]]
            now = self._driver.now()
            flowed = 0.0 if math.isnan(state.base) else _integral_at(state, now)
            card.metrics[layout.METRIC_IDS[metric]] = layout.MetricState(
                wave.base, wave.amplitude, wave.period, wave.phase, now, flowed
            )

    def wave(
        self, metric: str, base: float, amplitude: float, period: float, phase: float = 0.0
    ) -> None:
        """Makes a number move: `base + amplitude * sin(2 pi (t / period + phase))`."""
        self.set(metric, Wave(base, amplitude, period, phase))

    # Texts

    name, uuid = _Text(), _Text()
    serial, vbios = _Text(), _Text()
    """Empty: NOT_SUPPORTED."""

    # Where it is

    @property
    def index(self) -> int:
        """Its index in NVML's enumeration."""
        return self._driver.cards.index(self)

    @property
    def slot(self) -> int:
        """Its place in the state file, which it keeps."""
        return self._slot

    @property
    def bus_id(self) -> str:
        """As nvmlDeviceGetPciInfo_v3 spells it."""
        return f"{self.pci_domain:08X}:{self.pci_bus:02X}:{self.pci_device:02X}.0"

    # Processes

    @property
    def processes(self) -> tuple[Owner, ...]:
        """The processes on this card, at most 2048."""
        return self._processes

    @processes.setter
    def processes(self, owners: Iterable[Owner]) -> None:
        with self._listing:
            self._list(tuple(owners))

    def keep_living(self, lives: Callable[[int], bool]) -> None:
        """Drops the processes whose PIDs do not live, with the memory that they hold."""
        # The test may set another list meanwhile, which must not be lost.
        with self._listing:
            living = tuple(owner for owner in self._processes if lives(owner.pid))
            if len(living) == len(self._processes):
                return
            freed = _memory_of(self._processes) - _memory_of(living)
            self._list(living)
            used = self.get("memory_used")
            if used is not None:
                self.set("memory_used", max(0, used - freed))

    def _list(self, owners: tuple[Owner, ...]) -> None:
        states = (layout.ProcessState * len(owners))(*(owner._state() for owner in owners))
        if len(owners) > layout.PROCESSES:
            raise ValueError(f"a card has at most {layout.PROCESSES} processes")
        with self._edit() as card:
            ctypes.memmove(card.processes, states, ctypes.sizeof(states))
            card.process_count = len(owners)
        self._processes = owners

    def grow_processes(self, step: int) -> None:
        """Makes each query of a process list find it `step` longer than the one before.

        A buffer of the size just asked for is then too small (INSUFFICIENT_SIZE). A client that
        enlarges its buffer faster gets the true list. 0 ends it.
        """
        with self._edit() as card:
            card.growth_step = step
            card.growth_calls = 0

    # Health

    @property
    def lost(self) -> bool:
        """Whether the card fell off the bus: every call returns GPU_IS_LOST."""
        return bool(self._state.lost)

    @lost.setter
    def lost(self, value: bool) -> None:
        self._state.lost = int(value)

    def fail_field(self, field: int, code: int) -> None:
        """Makes one field of nvmlDeviceGetFieldValues return this code; 0 ends that."""
        self._state.field_codes[field] = code

    def event(self, kind: int, data: int = 0) -> None:
        """Hands an event to every event set that is registered for its kind."""
        with self._lock:
            written = self._state.events_written
            no_instance = layout.NO_INSTANCE
            self._state.events[written % layout.EVENTS] = layout.EventState(
                kind, data, no_instance, no_instance
            )
            self._state.events_written = written + 1

    def xid(self, number: int) -> None:
        """Reports an XID, such as 79 (fallen off the bus) or 48 (double-bit ECC error)."""
        self.event(XID, number)

    # MIG

    @property
    def mig(self) -> list[layout.MigState]:
        """The MIG instances; their memory may be set in place."""
        return [self._state.migs[i] for i in range(layout.MIGS) if self._state.migs[i].present]

    def set_mig(self, migs: Sequence[Mig | None]) -> None:
        """Puts these instances on the card, by index; handles of earlier ones become stale."""
        with self._edit() as card:
            card.mig_generation += 1
            for i in range(layout.MIGS):
                mig = migs[i] if i < len(migs) else None
                card.migs[i] = self._mig_state(mig) if mig else layout.MigState()

    def _mig_state(self, mig: Mig) -> layout.MigState:
        attributes = layout.AttributesState(
            multiprocessors=mig.multiprocessors,
            copy_engines=mig.copy_engines,
            decoders=mig.decoders,
            gpu_slices=mig.gpu_slices,
            compute_slices=mig.gpu_slices,
            memory_mib=mig.memory_total >> 20,
        )
        uuid = make_uuid("MIG", self.uuid, mig.gpu_instance, mig.compute_instance)
        return layout.MigState(
            present=1,
            gpu_instance=mig.gpu_instance,
            compute_instance=mig.compute_instance,
            memory_total=mig.memory_total,
            memory_used=mig.memory_used,
            memory_reserved=mig.memory_reserved,
            attributes=attributes,
            shares=(ctypes.c_double * layout.SHARES)(
                *(math.nan if share is None else share for share in mig.shares)
            ),
            name=_encode(f"{self.name} MIG {mig.profile}")[: layout.TEXT_SIZE - 1],
            uuid=uuid.encode(),
        )


class Driver:
    """A machine with these cards, until the end of the `with` block.

    Programs started with `env()` find its libnvidia-ml.so.1. `without` names symbols the library
    lacks, as those of older drivers do.
    """

    def __init__(
        self,
        cards: Iterable[Model] = (),
        *,
        driver_version: str = "570.124.06",
        nvml_version: str | None = None,
        cuda_version: int = 12_080,
        without: Iterable[str] = (),
    ) -> None:
        self.library = build(without)
        self._folder = Path(tempfile.mkdtemp(prefix="nvml-sim-"))
        self.state_path = self._folder / "state"
        self.state = _map_state(self.state_path)
        self.system = Faults(self.state.rows[layout.CARDS])
        self.cards: list[Card] = []
        self._start(driver_version, nvml_version or f"12.{driver_version}", cuda_version)
        for model in cards:
            self.add_card(model)

    def _start(self, driver_version: str, nvml_version: str, cuda_version: int) -> None:
        state = self.state
        state.started_ns = time.monotonic_ns()
        state.started_wall_us = time.time_ns() // 1000
        state.clock_ns = layout.CLOCK_RUNS
        state.process_limit = 950
        state.process_stride = 24
        state.driver_version = driver_version.encode()
        state.nvml_version = nvml_version.encode()
        state.cuda_version = cuda_version
        state.epoch = 1
        state.loaded = 1
        state.magic = layout.SIM_MAGIC

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Unloads the driver, frees whoever hangs in it, and removes its files."""
        self.unload()
        for faults in (self.system, *self.cards):
            faults.release()
        if os.environ.get("NVML_SIM_STATE") == str(self.state_path):
            del os.environ["NVML_SIM_STATE"]
        shutil.rmtree(self._folder)

    # How programs find it

    def env(self) -> dict[str, str]:
        """Returns the environment in which a program finds this driver."""
        path = os.environ.get("LD_LIBRARY_PATH")
        folder = str(self.library.parent)
        return {
            **os.environ,
            "LD_LIBRARY_PATH": f"{folder}:{path}" if path else folder,
            "NVML_SIM_STATE": str(self.state_path),
        }

    def open_to_all(self) -> None:
        """Let every user's programs find this driver, as the device files of a real one do."""
        self._folder.chmod(0o755)
        self.state_path.chmod(0o666)

    def attach(self) -> ctypes.CDLL:
        """Makes this driver the one that NVML clients in this very process find.

        The dynamic linker hands out a loaded library by its name, so pynvml gets this one too. It
        gets the first that was attached: use a subprocess to test one `without` some symbols.
        """
        os.environ["NVML_SIM_STATE"] = str(self.state_path)
        return ctypes.CDLL(str(self.library))

    # Time

    def now(self) -> float:
        """Returns the seconds since the start, as the waves count them."""
        frozen = self.state.clock_ns
        if frozen != layout.CLOCK_RUNS:
            return frozen * 1e-9
        return (time.monotonic_ns() - self.state.started_ns) * 1e-9

    def set_clock(self, seconds: float | None) -> None:
        """Stops the time of all waves and counters at this moment; `None` lets it run."""
        self.state.clock_ns = layout.CLOCK_RUNS if seconds is None else round(seconds * 1e9)

    # Cards

    def add_card(self, model: Model, index: int | None = None) -> Card:
        """Plugs in a card, at the end of the enumeration or at this index."""
        free = next(i for i in range(layout.CARDS) if not self.state.cards[i].present)
        card = Card(self, free, model)
        self.state.cards[free].present = 1
        self.cards.insert(len(self.cards) if index is None else index, card)
        self._enumerate()
        return card

    def remove_card(self, which: Card | int | str) -> None:
        """Takes a card out, by itself, its index or its UUID; its handles become stale.

        The handles of a lost card go on saying that it is lost.
        """
        card = self._find(which)
        card.release()
        self.cards.remove(card)
        self._enumerate()
        state = self.state.cards[card.slot]
        state.present = 0
        state.incarnation += 1

    def _find(self, which: Card | int | str) -> Card:
        if isinstance(which, Card):
            return which
        if isinstance(which, int):
            return self.cards[which]
        return next(card for card in self.cards if card.uuid == which)

    def _enumerate(self) -> None:
        """Shortens the list before its end is rewritten, for clients that read it meanwhile."""
        self.state.card_count = min(self.state.card_count, len(self.cards))
        for i, card in enumerate(self.cards):
            self.state.order[i] = card.slot
        self.state.card_count = len(self.cards)

    def value(self, card: Card | int, metric: str) -> int | None:
        """Returns what the driver says now, or `None` where it says NOT_SUPPORTED."""
        return self._find(card).get(metric)

    # Faults of the whole driver

    def fail_init(self, code: int) -> None:
        """Makes nvmlInit fail: 9 not loaded, 18 mismatch, 4 no permission; 0 ends that.

        Clients that are initialised go on; see `unload` for the other kind.
        """
        self.state.init_result = code

    def unload(self) -> None:
        """Removes the driver under its clients: all they do returns DRIVER_NOT_LOADED."""
        self.state.loaded = 0

    def reload(self) -> None:
        """Loads it again: clients from before are UNINITIALIZED until they call nvmlInit."""
        self.state.epoch += 1
        self.state.loaded = 1

    def latency(self, seconds: float) -> None:
        """Makes every call take this much longer."""
        self.state.latency_us = round(seconds * 1e6)

    def random_unknown(self, probability: float, seed: int = 0) -> None:
        """Makes calls about cards return UNKNOWN (999) at random."""
        self.state.seed = seed
        self.state.draws = 0
        self.state.unknown = probability

    def use_long_process_structs(self) -> None:
        """Behaves as early 535 drivers, whose `_v3` process entry had eight bytes more."""
        self.state.process_stride = 32

    def set_process_limit(self, most: int) -> None:
        """Sets how many processes a list can have; 950 at first, as in the real driver."""
        self.state.process_limit = most

    # Counters

    def calls(self) -> dict[str, Spent]:
        """Returns what was spent in each function, over all cards and clients."""
        sums: dict[str, Spent] = {}
        for faults in (self.system, *self.cards):
            for name, spent in faults.calls().items():
                before = sums.get(name, Spent(0, 0.0))
                sums[name] = Spent(before.calls + spent.calls, before.seconds + spent.seconds)
        return sums

    def reset_counters(self) -> None:
        """Counts from 0 again."""
        for faults in (self.system, *self.cards):
            faults.reset_counters()


def _encode(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode(errors="surrogateescape")


def _map_state(path: Path) -> layout.SimState:
    size = ctypes.sizeof(layout.SimState)
    with path.open("w+b") as file:
        file.truncate(size)
        return layout.SimState.from_buffer(mmap.mmap(file.fileno(), size))


def _wave_at(m: layout.MetricState, t: float) -> float:
    if m.amplitude == 0:
        return m.base
    return m.base + m.amplitude * math.sin(math.tau * (t / m.period + m.phase))


def _integral_at(m: layout.MetricState, t: float) -> float:
    total = m.total + m.base * (t - m.since)
    if m.amplitude == 0:
        return total
    start = math.cos(math.tau * (m.since / m.period + m.phase))
    end = math.cos(math.tau * (t / m.period + m.phase))
    return total + m.amplitude * m.period / math.tau * (start - end)
