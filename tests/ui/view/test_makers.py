"""Each maker's words on the screen, also where GPUs of two makers are on one machine."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gpumon.config.keymap import DEFAULT_WINDOW
from gpumon.findings import explain, gpu_state
from gpumon.model.snapshot import Gpu, GpuStatus
from gpumon.ui.view.frame import Memo
from gpumon.ui.view.gpu_page import gpu_rows
from gpumon.ui.view.process_page import process_rows
from tests.build import NOON, gpu, process, recording_of, snapshot
from tests.ui.view.drawing import history_of, lines_of

NVIDIA = gpu(index=0)
AMD = gpu(
    index=1,
    name="AMD Instinct MI300X",
    architecture="gfx942",
    temperature_hotspot=71,
    fan_rpm=None,
)


JOBS = (process(1, gpus=(0,), sm=30), process(2, gpus=(1,), sm=40))
BOTH = history_of(*(snapshot(NOON + second, NVIDIA, AMD, processes=JOBS) for second in range(3)))


def gpu_page(one: Gpu) -> str:
    rows = gpu_rows(Memo(), one, BOTH, BOTH.latest, DEFAULT_WINDOW, recording_of(), 160, 60)
    return "\n".join(lines_of(rows))


@pytest.mark.parametrize(
    ("shown", "own", "others"),
    [
        (
            AMD,
            ("Shader clock", "GPU 40 %", "Hotspot temperature", "ROCR_VISIBLE_DEVICES="),
            ("SM clock", "SM 40", "NVLink", "XID", "MIG", "CUDA"),
        ),
        (
            NVIDIA,
            ("SM clock", "SM 30 %", "NVLink", "CUDA_VISIBLE_DEVICES="),
            ("Shader", "Hotspot", "ROCR"),
        ),
    ],
    ids=["AMD", "NVIDIA"],
)
def test_the_page_of_a_gpu_has_the_words_of_its_own_maker(
    shown: Gpu, own: tuple[str, ...], others: tuple[str, ...]
) -> None:
    text = gpu_page(shown)
    assert [words for words in own if words not in text] == []
    assert [words for words in others if words in text] == []


def test_the_load_of_a_process_has_the_word_of_its_own_gpu() -> None:
    for one, word, other in zip(JOBS, ("SM", "GPU"), ("GPU ", "SM"), strict=True):
        rows = process_rows(Memo(), one, BOTH, BOTH.latest, DEFAULT_WINDOW, 120)
        text = "\n".join(lines_of(rows))
        load = 30 if word == "SM" else 40
        assert f"{word} {load} %" in text
        assert f"{other} {load} %" not in text


INTEL = replace(AMD, name="Intel Arc B580")


@pytest.mark.parametrize(
    ("maker", "words", "absent"),
    [(NVIDIA, "XID", "amdgpu"), (AMD, "amdgpu", "XID"), (INTEL, "i915 or xe", "XID")],
    ids=["NVIDIA", "AMD", "Intel"],
)
def test_what_to_do_about_a_lost_gpu_is_what_its_maker_says(
    maker: Gpu, words: str, absent: str
) -> None:
    lost = replace(maker, status=GpuStatus.LOST, status_since=NOON)
    history = history_of(snapshot(NOON, lost))
    advice = " ".join(explain(history, gpu_state(history, lost)).advice)
    assert words in advice
    assert absent not in advice


@pytest.mark.parametrize(
    ("maker", "words"),
    [
        (NVIDIA, "`nvidia-smi --gpu-reset` as root"),
        (AMD, "`amd-smi reset --gpureset` as root"),
        (INTEL, "reboot once nothing uses it"),
    ],
    ids=["NVIDIA", "AMD", "Intel"],
)
def test_a_reset_is_the_makers_command_or_a_reboot(maker: Gpu, words: str) -> None:
    broken = replace(maker, status=GpuStatus.RESET_REQUIRED, status_since=NOON)
    assert words in gpu_state(history_of(snapshot(NOON, broken)), broken).sentence
