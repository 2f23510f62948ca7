"""Each maker's words on the screen, also where GPUs of two makers are on one machine."""

from __future__ import annotations

from msgspec.structs import replace

from gpumon.config.keymap import DEFAULT_WINDOW
from gpumon.findings import conditions, explain, gpu_state
from gpumon.model.snapshot import Gpu, GpuStatus
from gpumon.recording.history import History
from gpumon.ui.view.frame import Memo
from gpumon.ui.view.gpu_page import gpu_rows
from gpumon.ui.view.process_page import process_rows
from tests.build import NOON, gpu, process, recording_of, snapshot

NVIDIA = gpu(index=0)
AMD = gpu(
    index=1,
    name="AMD Instinct MI300X",
    architecture="gfx942",
    temperature_hotspot=71,
    fan_rpm=None,
)


def history_of(*gpus: Gpu) -> History:
    history = History(conditions())
    jobs = (process(1, gpus=(0,), sm=30), process(2, gpus=(1,), sm=40))
    for second in range(3):
        history.add(snapshot(NOON + second, *gpus, processes=jobs))
    return history


def gpu_page(one: Gpu) -> str:
    history = history_of(NVIDIA, AMD)
    rows = gpu_rows(Memo(), one, history, history.latest, DEFAULT_WINDOW, recording_of(), 160, 60)
    return "\n".join("".join(text for text, _ in row) for row in rows)


def test_the_page_of_an_amd_gpu_speaks_of_shaders_and_not_of_nvidias_features() -> None:
    text = gpu_page(AMD)
    for words in ("Shader clock", "GPU 40 %", "Hotspot temperature", "ROCR_VISIBLE_DEVICES="):
        assert words in text, words
    for words in ("SM clock", "SM 40", "NVLink", "XID", "MIG", "CUDA"):
        assert words not in text, words


def test_the_page_of_an_nvidia_gpu_beside_it_is_as_ever() -> None:
    text = gpu_page(NVIDIA)
    for words in ("SM clock", "SM 30 %", "NVLink", "CUDA_VISIBLE_DEVICES="):
        assert words in text, words
    for words in ("Shader", "Hotspot", "ROCR"):
        assert words not in text, words


def test_the_load_of_a_process_has_the_word_of_its_own_gpu() -> None:
    history = history_of(NVIDIA, AMD)
    assert history.latest is not None
    for one, word, other in zip(
        history.latest.processes, ("SM", "GPU"), ("GPU ", "SM"), strict=True
    ):
        rows = process_rows(Memo(), one, history, history.latest, DEFAULT_WINDOW, 120)
        text = "\n".join("".join(part for part, _ in row) for row in rows)
        load = 30 if word == "SM" else 40
        assert f"{word} {load} %" in text
        assert f"{other} {load} %" not in text


def test_what_to_do_about_a_lost_gpu_is_what_its_maker_says() -> None:
    for card, words, absent in (
        (NVIDIA, "XID", "amdgpu"),
        (AMD, "amdgpu", "XID"),
        (replace(AMD, name="Intel Arc B580"), "i915 or xe", "XID"),
    ):
        lost = replace(card, status=GpuStatus.LOST, status_since=NOON)
        history = History(conditions())
        history.add(snapshot(NOON, lost))
        finding = gpu_state(history, lost)
        advice = " ".join(explain(history, finding).advice)
        assert words in advice
        assert absent not in advice


def test_a_reset_is_the_makers_command_or_a_reboot() -> None:
    for name, words in (
        ("NVIDIA H100", "`nvidia-smi --gpu-reset` as root"),
        ("AMD Instinct MI300X", "`amd-smi reset --gpureset` as root"),
        ("Intel Arc B580", "reboot once nothing uses it"),
    ):
        card = gpu(name=name, status=GpuStatus.RESET_REQUIRED, status_since=NOON)
        history = History(conditions())
        history.add(snapshot(NOON, card))
        finding = gpu_state(history, card)
        assert words in finding.sentence
