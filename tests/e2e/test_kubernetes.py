"""A GPU that Kubernetes gave to a pod is not free: with a kubelet's server and a simulated GPU."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command import GPUMON, run_gpumon
from tests.driver import Driver, h100
from tests.kubelet import Kubelet, container, pod
from tests.screen import Screen


@pytest.fixture
def kubelet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kubelet]:
    made = Kubelet(tmp_path)
    monkeypatch.setenv("GPUMON_KUBELET_SOCKET", str(made.socket))
    monkeypatch.setenv("GPUMON_LOCK_DIR", str(tmp_path / "locks"))
    made.answer(b"")
    with made:
        yield made


@pytest.fixture
def driver(kubelet: Kubelet) -> Iterator[Driver]:
    with Driver([h100() for _ in range(3)]) as made:
        kubelet.answer(
            pod("worker-0", container({"nvidia.com/gpu": [made.cards[0].uuid]}))
            + pod("small", container({"nvidia.com/gpu.shared": [f"{made.cards[1].uuid}::0"]}))
        )
        yield made


def run(driver: Driver, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_gpumon(*arguments, env=driver.env())


@pytest.mark.slow
def test_select_leaves_the_gpus_of_pods(driver: Driver) -> None:
    one, two = (run(driver, "select", "-n", number) for number in ("1", "2"))
    assert one.stdout.strip() == driver.cards[2].uuid
    assert two.returncode == 1
    assert "kubernetes train/worker-0 has it" in two.stderr
    assert "kubernetes train/small has a part of it" in two.stderr


def test_a_snapshot_names_the_pods(driver: Driver) -> None:
    found = json.loads(run(driver, "snapshot", "--format", "json").stdout)["allocations"]
    assert [(each["scheduler"], each["job"], each["user"], each["is_share"]) for each in found] == [
        ("kubernetes", "train/worker-0", None, False),
        ("kubernetes", "train/small", None, True),
    ]


@pytest.mark.slow
def test_the_screen_shows_the_pod_until_it_ends(kubelet: Kubelet, driver: Driver) -> None:
    with Screen([*GPUMON, "-n", "0.2"], driver.env(), 160, 30) as screen:
        screen.wait_for(r"train/worker-0, no process")
        screen.wait_for("1 of 3 free")
        kubelet.answer(b"")
        screen.wait_for("3 of 3 free")
        screen.quit()


def test_while_the_kubelet_does_not_answer_nothing_is_free(
    kubelet: Kubelet, driver: Driver
) -> None:
    kubelet.kill()
    chosen = run(driver, "select")
    assert chosen.returncode == 1
    assert "which GPUs kubernetes has given to jobs is not known" in chosen.stderr
