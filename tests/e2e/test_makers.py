"""GPUs of AMD and Intel, alone and beside NVIDIA's, through the whole program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import fork_server, tree_machine
from tests.command import run_program
from tests.driver import Driver, Owner, h100
from tests.known import known
from tests.makers.amd import machines
from tests.makers.drm.trees import Tree, write
from tests.makers.intel import captures
from tests.screen import Screen
from tests.tree_machine import live_tree, use

GIB = 2**30
UUID = "GPU-c0ffee0123456789"
CARD = "0000:06:00.0"


class Machine:
    """A Radeon RX 6900 XT, and a process with 8 GiB on it."""

    def __init__(self, folder: Path, job: subprocess.Popen[bytes], env: dict[str, str]) -> None:
        self.tree: Tree = live_tree(folder / "machine")
        self.job = job
        self.env = {
            **env,
            "GPUMON_LOCK_DIR": str(folder / "locks"),
            "XDG_STATE_HOME": str(folder / "state"),
        }
        self.command = [*tree_machine.COMMAND, str(folder / "machine")]
        changes = {
            "unique_id": UUID.removeprefix("GPU-") + "\n",
            "gpu_busy_percent": "0\n",
            "mem_info_vram_used": f"{8 * GIB + GIB // 4}\n",
        }
        self.folder = machines.add(self.tree, "rx_6900_xt", changes, bus_id=CARD, number=1)
        self.compute(0)

    def compute(self, nanoseconds: int) -> None:
        """Let the process have computed for so long."""
        use(
            self.tree,
            self.job.pid,
            "renderD129",
            f"drm-driver:\tamdgpu\ndrm-client-id:\t9\ndrm-pdev:\t{CARD}\n"
            f"drm-memory-vram:\t{8 * GIB // 1024} KiB\ndrm-engine-compute:\t{nanoseconds} ns\n",
        )

    def bury(self) -> None:
        """What the kernel does once the process has ended."""
        self.job.wait()
        self.tree.end(self.job.pid)
        write(self.folder / "mem_info_vram_used", f"{GIB // 4}\n")

    def printed(self, *arguments: str) -> str:
        done = fork_server.run([*self.command, *arguments], self.env)
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextmanager
def amd_machine(folder: Path, env: dict[str, str] | None = None) -> Iterator[Machine]:
    with subprocess.Popen(["sleep", "600"]) as job:
        try:
            yield Machine(folder, job, dict(os.environ) if env is None else env)
        finally:
            job.kill()


@pytest.fixture
def amd(tmp_path: Path) -> Iterator[Machine]:
    with amd_machine(tmp_path) as machine:
        machine.compute(1_000_000_000)
        yield machine


@pytest.mark.slow
def test_without_nvidias_driver_plain_gpumon_shows_amds_gpu(amd: Machine) -> None:
    with Screen([*amd.command, "-n", "0.2"], amd.env, 100, 24) as screen:
        text = screen.wait_for(rf"RX 6900 XT[\s\S]*{amd.job.pid}")
        assert "amdgpu" in screen.rows()[0]
        assert "8.2/16.0G" in text
        assert "GPU%" in text
        screen.press("\t\r", "y copy ROCR_VISIBLE_DEVICES")
        screen.type("\x1b")
        screen.wait(lambda it: "gpumon" in it.rows()[0], "waiting for the dashboard")
        screen.quit()


def test_a_job_on_an_amd_gpu_is_ended_and_its_memory_comes_back(amd: Machine) -> None:
    with Screen([*amd.command, "-n", "0.1"], amd.env, 120, 30) as screen:
        screen.wait_for(f"{amd.job.pid}")
        screen.type("\x1b[Bk")
        # The button takes no key before it is known whether there are children.
        screen.wait_for(rf"{amd.job.pid} +\S+ +8\.0 GiB on GPU 0[\s\S]*no children[\s\S]*Send TERM")
        screen.type("\x1b[C\r")
        amd.bury()
        screen.wait_for(r"8\.0 GiB came back on GPU 0")
        screen.quit()


@pytest.mark.slow
def test_a_free_amd_gpu_is_selected_and_a_job_sees_it_alone(amd: Machine) -> None:
    amd.job.kill()
    amd.bury()
    assert amd.printed("select") == f"{UUID}\n"
    assert amd.printed("select", "--format", "env").splitlines() == [
        f"ROCR_VISIBLE_DEVICES={UUID}",
        "HIP_VISIBLE_DEVICES=0",
        "GPU_DEVICE_ORDINAL=0",
    ]
    told = json.loads(amd.printed("select", "--format", "json"))
    assert told["cuda_visible_devices"] is None
    assert told["environment"] == {
        "ROCR_VISIBLE_DEVICES": UUID,
        "HIP_VISIBLE_DEVICES": "0",
        "GPU_DEVICE_ORDINAL": "0",
    }
    inside = (
        "import os; print(os.environ['ROCR_VISIBLE_DEVICES'], os.environ['HIP_VISIBLE_DEVICES'])"
    )
    amd.env["HIP_VISIBLE_DEVICES"] = "0"
    assert amd.printed("run", "--", sys.executable, "-c", inside) == f"{UUID} 0\n"


@pytest.mark.slow
def test_a_log_of_an_amd_gpu_is_reported_and_played(amd: Machine, tmp_path: Path) -> None:
    log = str(tmp_path / "amd.csv")
    amd.printed("log", log, "-n", "0.1", "--for", "1.5s")
    assert UUID in amd.printed("report", log, "--by", "gpu", "--format", "json")
    with Screen([*amd.command, "replay", log], amd.env, 120, 30) as screen:
        screen.wait_for("REPLAY")
        screen.wait_for(rf"RX 6900 XT[\s\S]*{amd.job.pid}")
        screen.quit()


def test_prometheus_gets_its_values_with_its_own_device(amd: Machine) -> None:
    page = amd.printed("snapshot", "--format", "prometheus")
    assert 'device="amdgpu0"' in page
    (used,) = (line for line in page.splitlines() if line.startswith("DCGM_FI_DEV_FB_USED{"))
    assert used.endswith(f" {8 * 1024 + 256}.0")


@pytest.mark.slow
def test_a_machine_with_gpus_of_three_makers_shows_all_and_a_cuda_job_gets_nvidias(
    tmp_path: Path,
) -> None:
    with (
        Driver([h100(memory_used=0), h100(memory_used=0)], driver_version="570.124.06") as driver,
        amd_machine(tmp_path, driver.env()) as machine,
    ):
        captures.b580_xe(machine.tree)
        machine.compute(1_000_000_000)
        told = json.loads(machine.printed("snapshot", "--format", "json"))
        names = [gpu["name"] for gpu in told["gpus"]]
        assert [gpu["index"] for gpu in told["gpus"]] == [0, 1, 2, 3]
        assert [name.split()[0] for name in names] == ["NVIDIA", "NVIDIA", "AMD", "Intel"]
        assert told["source"] == "nvml+amdgpu+intel"
        (process,) = told["processes"]
        assert [use["gpu_index"] for use in process["uses"]] == [2]
        assert machine.printed("select") == f"{driver.cards[0].uuid}\n"
        driver.cards[0].processes = [Owner(os.getpid(), memory=GIB)]
        driver.cards[1].processes = [Owner(os.getpid(), memory=GIB)]
        refused = run_program([*machine.command, "select"], machine.env)
        assert refused.returncode == 1
        assert "it is AMD's, and a job gets NVIDIA's: --backend amdgpu selects it" in (
            refused.stderr
        )
        only = json.loads(machine.printed("snapshot", "--format", "json", "--backend", "amdgpu"))
        assert [gpu["index"] for gpu in only["gpus"]] == [0]
        with Screen([*machine.command, "-n", "0.2"], machine.env, 120, 30) as screen:
            screen.wait_for(r"0 H100[\s\S]*1 H100[\s\S]*2 RX 6900[\s\S]*3 Arc B580")
            screen.quit()


@pytest.mark.slow
def test_a_processors_gpu_stays_out_of_the_way_until_it_is_asked_for(tmp_path: Path) -> None:
    with Driver([h100()], driver_version="570.124.06") as driver:
        tree = live_tree(tmp_path / "machine")
        captures.uhd_i915(tree)
        command = [*tree_machine.COMMAND, str(tmp_path / "machine"), "snapshot", "--format", "json"]
        seen = []
        for options in ((), ("--backend", "all"), ("--backend", "intel")):
            done = subprocess.run(
                [*command, *options], env=driver.env(), capture_output=True, check=True
            )
            seen.append([gpu["name"] for gpu in json.loads(done.stdout)["gpus"]])
        assert [len(names) for names in seen] == [1, 2, 1]
        assert seen[0][0].startswith("NVIDIA")
        assert seen[1][1] == seen[2][0]
        assert seen[2][0].startswith("Intel ")


def test_an_amd_gpu_is_waited_for(amd: Machine) -> None:
    command = [*amd.command, "wait", "--timeout", "60"]
    with subprocess.Popen(command, env=amd.env, stderr=subprocess.PIPE, text=True) as waiting:
        said = known(waiting.stderr)
        assert "holds 8.0 GiB" in said.readline()
        amd.job.kill()
        amd.bury()
        assert waiting.wait(60) == 0
        assert "GPU 0 is free" in said.read()
