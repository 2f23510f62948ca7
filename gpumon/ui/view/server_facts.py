"""What an inference server is, and what it reports, on the pages of a process and of a job."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gpumon.serving import ENGINES
from gpumon.text.formatting import UNKNOWN, number, per_second
from gpumon.ui.view.page_layout import Fact, Section, Side, fact_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpumon.model.processes import GpuProcess, ProcessId
    from gpumon.model.serving import InferenceServer, ServerLoad

_LINES = 2
"""The most of a text that the server, or who started it, chooses."""


def server_sections(processes: Iterable[GpuProcess]) -> Iterator[Section]:
    """A section for each inference server that these processes belong to."""
    engines: dict[ProcessId | None, GpuProcess] = {}
    for process in processes:
        # All have the same load, as soon as it is known.
        before = engines.get(process.server_id)
        if before is None or before.load is None:
            engines[process.server_id] = process
    for process in engines.values():
        if process.place is not None and (server := process.place.server) is not None:
            facts = (*_server_facts(server, process), *_load_facts(server, process.load))
            yield Section("Server", partial(fact_rows, facts), Side.RIGHT)


def _server_facts(server: InferenceServer, process: GpuProcess) -> Iterator[Fact]:
    engine = ENGINES.get(server.engine)
    name = server.engine if engine is None else engine.name
    is_other = process.server_id != process.id
    yield Fact("server", name, note=f"process {server.pid}" if is_other else "")
    yield Fact("model", server.model or UNKNOWN, lines=_LINES)
    if server.memory_setting is None:
        return
    if server.memory_value is not None:
        yield Fact("memory", f"{server.memory_setting} {server.memory_value}", lines=_LINES)
        return
    default = "" if engine is None else engine.memory_default
    note = f"not set: {default or 'its default'}"
    if server.has_config_file:
        note = "not set, unless in its configuration file"
    yield Fact("memory", server.memory_setting, note=note)


def _load_facts(server: InferenceServer, load: ServerLoad | None) -> Iterator[Fact]:
    engine = ENGINES.get(server.engine)
    if load is not None and load.problem is not None:
        yield Fact("requests", f"not known: {load.problem}", "state.note", lines=_LINES)
    elif engine is not None and engine.metrics is None:
        yield Fact("requests", f"{engine.name} does not report them", "dim")
    elif load is None:
        yield Fact("requests", "not known", "dim", "gpumon queries only your own servers")
    else:
        yield from _request_facts(load)
    if load is not None and load.models and load.models != (server.model,):
        yield Fact("serves", ", ".join(load.models), lines=_LINES)


def _request_facts(load: ServerLoad) -> Iterator[Fact]:
    yield Fact(
        "requests",
        f"{number(load.running)} running, {number(load.waiting)} waiting",
        note=f"{per_second(load.requests)} finished a second",
    )
    yield Fact(
        "tokens",
        f"{per_second(load.tokens)} a second",
        note=f"prompts {per_second(load.prompt_tokens)} a second",
    )
    yield Fact("KV cache", number(load.kv_cache, " % in use"))
