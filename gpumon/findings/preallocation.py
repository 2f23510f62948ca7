"""Inference servers and frameworks that reserve a GPU's memory when they start, needed or not.

A hint needs both a command, word or variable that names the program, and the share of the GPU's
memory that it reserves. Sources: for servers ``gpumon.serving.engines``; for JAX docs.jax.dev, "GPU
memory allocation"; for TensorFlow "Limiting GPU memory growth" of tensorflow.org/guide/gpu, and
``MinSystemMemory`` in its ``gpu_device.cc``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from gpumon.findings.rule import Words
from gpumon.findings.servers import RequestsWait
from gpumon.serving import ENGINES, Engine
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpumon.host.process_host import Details
    from gpumon.model.processes import GpuProcess, Workload
    from gpumon.model.serving import InferenceServer, ServerLoad
    from gpumon.model.snapshot import Gpu

JAX_FRACTION = 0.75
"""The share of a GPU's memory, unless ``_JAX_FRACTIONS`` set another one."""
TENSORFLOW_LEAST = 0.85
"""TensorFlow leaves 300 MiB or a twentieth of the memory that is free when it starts; other
processes may hold a little of the rest."""

_JAX_NAMES = re.compile(r"(?<![a-z0-9])(jax|jaxlib|flax|maxtext)(?![a-z0-9])")
_TENSORFLOW_NAMES = re.compile(r"(?<![a-z0-9])(tensorflow|keras|tf[12]?_|tf[12](?![0-9]))")
_JAX_FRACTIONS = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
_JAX_PREALLOCATE, _JAX_ALLOCATOR = "XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_ALLOCATOR"
_JAX_SETTINGS = (*_JAX_FRACTIONS, _JAX_PREALLOCATE, _JAX_ALLOCATOR)
_TENSORFLOW_GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
_SHARE_SLACK = 0.05
_SERVER_SLACK, _SERVER_LEAST, _CACHE_LEAST = 0.15, 0.6, 0.1
"""Shares of a GPU: what activations take of a server's share or beside it; what a server has at
least whose share only itself knows; and a cache that is worth a hint."""
_CONTEXT_BYTES = 2**30
"""Memory in addition to the share: the CUDA context and the libraries' own memory."""


def preallocation(
    process: GpuProcess, details: Details | None, gpus: Sequence[Gpu]
) -> Words | None:
    """What a process seems to have reserved in advance; ``None`` without evidence.

    Settings inside the program cannot be read; only the share shows them.
    """
    environment = dict(details.environment or ()) if details is not None else {}
    texts = _texts(process, details)
    shares = list(_shares(process, gpus))
    place = _place(process, details)
    if place is not None and place.server is not None:
        return _of_server(place.server, process.load, shares)
    return _of_jax(texts, environment, shares) or _of_tensorflow(texts, environment, shares)


class _Share(NamedTuple):
    """What a process has of one GPU."""

    gpu_index: int
    part: float
    total: int
    """Bytes of the GPU."""

    def __str__(self) -> str:
        return f"{100 * self.part:.0f} % of GPU {self.gpu_index}"


def _shares(process: GpuProcess, gpus: Sequence[Gpu]) -> Iterator[_Share]:
    """The share of each GPU that has memory of its own and is not in MIG mode."""
    totals = {gpu.uuid: gpu.memory_total for gpu in gpus if not gpu.memory_unified}
    for use in process.uses:
        total = totals.get(use.gpu_uuid)
        if total and use.memory_used is not None and use.instance is None:
            yield _Share(use.gpu_index, use.memory_used / total, total)


def _texts(process: GpuProcess, details: Details | None) -> str:
    """Texts that may name a framework: command, program and the environment's name."""
    texts = list(process.command)
    if details is not None:
        texts += [*details.command, details.executable or ""]
    place = _place(process, details)
    if place is not None:
        texts.append(place.environment or "")
    return " ".join(texts).lower()


def _place(process: GpuProcess, details: Details | None) -> Workload | None:
    return process.place if details is None or details.place is None else details.place


def _of_server(
    server: InferenceServer, load: ServerLoad | None, shares: Sequence[_Share]
) -> Words | None:
    engine = ENGINES.get(server.engine)
    if engine is None or server.memory_setting is None:
        return None
    kv_cache = None if load is None else load.kv_cache
    if kv_cache is not None and kv_cache >= RequestsWait.full_percent:
        # It needs this memory.
        return None
    fraction = engine.memory_share
    if server.memory_value is not None:
        value = printable(server.memory_value)
        setting, fraction = f"{server.memory_setting} is {value}", _fraction(value)
        if fraction is None:
            return None
    elif server.has_config_file:
        return None
    else:
        setting = f"{server.memory_setting} is not set, its default is {engine.memory_default}"
    for share in shares:
        if not _fits(engine, fraction, share):
            continue
        sentence = (
            f"much of this memory may be unused: {engine.name} reserves it at start, however few "
            f"requests come, and holds {share}; {setting}"
        )
        evidence = [f"holds {share}", f"its command is that of {engine.name}", setting]
        if kv_cache is not None:
            evidence.append(f"KV cache {kv_cache:.0f} % used")
        return Words(sentence, f"preallocated by {engine.name}", "prealloc.", tuple(evidence))
    return None


def _fits(engine: Engine, fraction: float | None, share: _Share) -> bool:
    """Whether a share of a GPU looks like memory that this setting reserved."""
    if fraction is None:
        return share.part >= _SERVER_LEAST
    if share.part < fraction - _SERVER_SLACK:
        return False
    if engine.memory_is_of_free:
        # Without the model, which is there in any case: p = m + f (1 - m).
        rest = 1 - fraction
        cache = fraction * (1 - share.part) / rest if rest else share.part
        return cache >= _CACHE_LEAST
    return share.part <= fraction + _SERVER_SLACK + _CONTEXT_BYTES / share.total


def _fraction(text: str) -> float | None:
    """A share of a GPU as a setting has it; ``None`` if it is none."""
    try:
        fraction = float(text)
    except ValueError:
        return None
    return fraction if 0 < fraction <= 1 else None


def _of_jax(texts: str, environment: Mapping[str, str], shares: Sequence[_Share]) -> Words | None:
    named = _named(_JAX_NAMES, texts)
    variables = [name for name in environment if name.startswith(("XLA_PYTHON_CLIENT_", "JAX_"))]
    variables += [name for name in environment if name == _JAX_FRACTIONS[0]]
    if environment.get("KERAS_BACKEND") == "jax":
        variables.append("KERAS_BACKEND")
    if named is None and not variables:
        return None
    if environment.get(_JAX_PREALLOCATE, "").lower() in ("false", "0"):
        return None
    if environment.get(_JAX_ALLOCATOR, "").lower() == "platform":
        return None
    fraction = _jax_fraction(environment)
    for share in shares:
        slack = _SHARE_SLACK + _CONTEXT_BYTES / share.total
        if fraction - _SHARE_SLACK <= share.part <= fraction + slack:
            return _preallocated(
                "JAX",
                "much of this memory may be unused: this looks like JAX, which reserves "
                f"{100 * fraction:.0f} % of a GPU at start, and it holds {share}; with "
                f"{_JAX_PREALLOCATE}=false it allocates only what it needs, with "
                f"{_JAX_FRACTIONS[0]}=.30 ({_JAX_FRACTIONS[1]} in older versions) it reserves less",
                share,
                named,
                [(name, environment[name]) for name in variables],
            )
    return None


def _of_tensorflow(
    texts: str, environment: Mapping[str, str], shares: Sequence[_Share]
) -> Words | None:
    named = _named(_TENSORFLOW_NAMES, texts)
    if named == "keras" and environment.get("KERAS_BACKEND", "tensorflow") != "tensorflow":
        return None
    if named is None or environment.get(_TENSORFLOW_GROWTH, "").lower() in ("true", "1"):
        return None
    for share in shares:
        if share.part >= TENSORFLOW_LEAST:
            return _preallocated(
                "TensorFlow",
                "much of this memory may be unused: this looks like TensorFlow, which reserves "
                f"nearly all of a GPU at start, and it holds {share}; with "
                f"{_TENSORFLOW_GROWTH}=true, or tf.config.experimental.set_memory_growth in the "
                "program, it allocates only what it needs",
                share,
                named,
            )
    return None


def _jax_fraction(environment: Mapping[str, str]) -> float:
    """The share of a GPU that JAX reserves."""
    value = next((environment[name] for name in _JAX_FRACTIONS if name in environment), "")
    try:
        return float(value)
    except ValueError:
        return JAX_FRACTION


def _named(names: re.Pattern[str], texts: str) -> str | None:
    """The first of the names that occurs in the texts."""
    found = names.search(texts)
    return None if found is None else found[1].rstrip("_")


def _preallocated(
    framework: str,
    sentence: str,
    share: _Share,
    named: str | None,
    variables: Sequence[tuple[str, str]] = (),
) -> Words:
    evidence = [f"holds {share}"]
    if named is not None:
        evidence.append(f"named in its command, program or environment: {named}")
    for name, value in variables[:1]:
        # The contents of other variables are unknown.
        shown = f"={printable(value)}" if name in _JAX_SETTINGS else ""
        evidence.append(f"set in its environment: {name}{shown}")
    return Words(sentence, f"preallocated by {framework}", "prealloc.", tuple(evidence))
