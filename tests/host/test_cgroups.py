"""What the cgroup parser promises, on lines as real systems write them.

The lines of a kind come from where that kind is made or read: the tests of container agents
(Datadog's, SPIRE's, Falco's, Coroot's), the manuals of Slurm, the kernel's cgroup-v2.rst, and
output that people posted of systemd-cgls and systemctl status. Some ids stand in for others.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.host.containers import CgroupInfo, cgroup_info, step_name
from gpumon.model.processes import Container

ID = "9bca8d63d5fa610783847915bcff0ecac1273e5b4bed3f6fa1b07350e0135961"
OUTER = "8d461fa5765781bcf5f7eb192f101bc3103d4b932e26236f43feecfa20664f96"
POD = "2c48913c-b29f-11e7-9350-020968147796"
POD_ = POD.replace("-", "_")
STATIC_POD = "33d556edd3ae8ef21980288cef77ae8b"
TASK = "34dc0b5e626f2c5c4c5170e34b10e765"

USER = "/user.slice/user-1000.slice/user@1000.service"
SERVICE = "/system.slice/containerd.service"
BURSTABLE = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD_}.slice"
KIND = "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice"

DOCKER_V1 = f"""\
13:name=systemd:/docker/{ID}
12:pids:/docker/{ID}
11:hugetlb:/docker/{ID}
5:memory:/docker/{ID}
2:cpu,cpuacct:/docker/{ID}
0::/system.slice/containerd.service
"""

DOCKER, PODMAN, CONTAINERD = (Container(name, ID) for name in ("docker", "podman", "containerd"))
IN_POD, CONTAINERD_POD, CRIO_POD = (
    Container(name, ID, pod=POD) for name in ("kubernetes", "containerd", "cri-o")
)

CONTAINERS = {
    "docker, cgroupfs, v1": (DOCKER_V1, DOCKER),
    "docker, cgroupfs, v2": (f"0::/docker/{ID}", DOCKER),
    "docker, systemd": (f"0::/system.slice/docker-{ID}.scope", DOCKER),
    "docker, systemd, v1": (
        f"10:devices:/system.slice/docker-{ID}.scope\n1:name=systemd:/system.slice/docker-{ID}.scope",
        DOCKER,
    ),
    "docker, an init inside": (f"0::/docker/{ID}/init.scope", DOCKER),
    "docker, rootless": (f"0::{USER}/user.slice/docker-{ID}.scope", DOCKER),
    "docker, a parent of one's own": (f"4:memory:/team/{ID}", Container("container", ID)),
    "an old docker on Debian": (f"4:memory:/{ID}", Container("container", ID)),
    "podman": (f"0::/machine.slice/libpod-{ID}.scope/container", PODMAN),
    "podman, rootless": (f"0::{USER}/user.slice/libpod-{ID}.scope/container", PODMAN),
    "podman, cgroupfs": (f"0::/libpod_parent/libpod-{ID}", PODMAN),
    "podman, in a pod of its own": (
        f"0::/machine.slice/machine-libpod_pod_{OUTER}.slice/libpod-{ID}.scope",
        PODMAN,
    ),
    "podman, a service": (f"0::/system.slice/nginx.service/libpod-payload-{ID}", PODMAN),
    "podman's conmon": (f"0::/machine.slice/libpod-conmon-{ID}.scope", None),
    "podman's conmon in a service": ("0::/system.slice/nginx.service/runtime", None),
    "kubernetes, cgroupfs": (f"11:perf_event:/kubepods/besteffort/pod{POD}/{ID}", IN_POD),
    "kubernetes, guaranteed": (f"0::/kubepods/pod{POD}/{ID}", IN_POD),
    "kubernetes, containerd": (f"0::{BURSTABLE}/cri-containerd-{ID}.scope", CONTAINERD_POD),
    "kubernetes, guaranteed, containerd": (
        f"0::/kubepods.slice/kubepods-pod{POD_}.slice/cri-containerd-{ID}.scope",
        CONTAINERD_POD,
    ),
    "kubernetes, containerd that names it for systemd": (
        f"12:cpu,cpuacct:{SERVICE}/kubepods-besteffort-pod{POD_}.slice:cri-containerd:{ID}",
        CONTAINERD_POD,
    ),
    "kubernetes, cri-o": (f"1:name=systemd:{BURSTABLE}/crio-{ID}.scope", CRIO_POD),
    "kubernetes, cri-o with crun": (f"0::{BURSTABLE}/crio-{ID}.scope/container", CRIO_POD),
    "kubernetes, docker": (
        f"0::{BURSTABLE.replace(POD_, POD)}/docker-{ID}.scope",
        Container("docker", ID, pod=POD),
    ),
    "cri-o's conmon": (f"0::{BURSTABLE}/crio-conmon-{ID}.scope", None),
    "kind": (
        f"0::{KIND}/kubelet-kubepods-besteffort-pod{POD_}.slice/cri-containerd-{ID}.scope",
        CONTAINERD_POD,
    ),
    "kind, v1, in docker": (
        f"1:name=systemd:/docker/{OUTER}/kubelet/kubepods/besteffort/pod{POD}/{ID}",
        IN_POD,
    ),
    "a pod described by a file on the node": (
        f"0::/kubepods/burstable/pod{STATIC_POD}/{ID}",
        Container("kubernetes", ID, pod=STATIC_POD),
    ),
    "a pod's own cgroup": (f"0::/kubepods/burstable/pod{POD}", Container("kubernetes", pod=POD)),
    "nerdctl": (f"0::/system.slice/nerdctl-{ID}.scope", CONTAINERD),
    "nerdctl, cgroupfs": (f"0::/default/{ID}", CONTAINERD),
    "containerd, k8s.io": (f"9:pids:/k8s.io/{ID}", CONTAINERD),
    "ecs": (
        f"9:perf_event:/ecs/haissam-ecs-classic/5a0d5ceddf6c44c1928d367a815d890f/{ID}",
        Container("ecs", ID),
    ),
    "fargate": (
        f"1:name=systemd:/ecs/{TASK}/{TASK}-1234567890",
        Container("ecs", f"{TASK}-1234567890"),
    ),
    "lxc": ("4:memory:/lxc/web/init.scope", Container("lxc", "web", "web")),
    "lxc 3.1": ("1:name=systemd:/lxc.payload/web", Container("lxc", "web", "web")),
    "lxc 4": (
        "0::/lxc.payload.a-long-name/system.slice/sshd.service",
        Container("lxc", "a-long-name", "a-long-name"),
    ),
    "lxd, a project's": ("0::/lxc.payload.ml_train", Container("lxc", "ml_train", "ml_train")),
    "proxmox": ("0::/lxc/101/ns/user.slice", Container("lxc", "101", "101")),
    "lxc's monitor": ("0::/lxc.monitor.web", None),
    "lxc's monitor, 3.1": ("1:name=systemd:/lxc.monitor/web", None),
    "systemd-nspawn": (
        "0::/machine.slice/machine-alpine.scope/payload/system.slice/nginx.service",
        Container("systemd-nspawn", "alpine", "alpine"),
    ),
    "systemd-nspawn, a dash and an umlaut in its name": (
        r"0::/machine.slice/machine-my\x2dt\xc3\xa4st.scope/payload",
        Container("systemd-nspawn", "my-täst", "my-täst"),
    ),
    "systemd-nspawn, a service": (
        "0::/machine.slice/systemd-nspawn@debian.service/payload/system.slice/app.service",
        Container("systemd-nspawn", "debian", "debian"),
    ),
    "systemd-nspawn itself": ("0::/machine.slice/systemd-nspawn@debian.service/supervisor", None),
    "libvirt's lxc": (
        r"1:name=systemd:/machine.slice/machine-lxc\x2d4177\x2dweb.scope",
        Container("lxc", "web", "web"),
    ),
    "a virtual machine": (r"0::/machine.slice/machine-qemu\x2d18\x2dtest10.scope", None),
    "docker in docker": (f"0::/docker/{OUTER}/docker/{ID}", DOCKER),
    "docker in lxc": (f"0::/lxc.payload.web/system.slice/docker-{ID}.scope", DOCKER),
    "lxc in lxc": ("0::/lxc/outer/lxc/inner", Container("lxc", "inner", "inner")),
    "conmon inside docker": (
        f"0::/docker/{OUTER}/libpod_parent/libpod-conmon-{ID}",
        Container("docker", OUTER),
    ),
    "beside us in a cgroup name space": (f"0::/../{ID}", Container("container", ID)),
    "beside us, cri-o": (f"0::/../crio-{ID}.scope", Container("cri-o", ID)),
    "beside us, another pod": (f"11:memory:/../../pod{POD}/{ID}", IN_POD),
    "in our own cgroup name space": ("0::/", None),
    "a removed cgroup": (f"0::/system.slice/docker-{ID}.scope (deleted)", DOCKER),
    "a login": ("0::/user.slice/user-1000.slice/session-3.scope", None),
    "a service": ("0::/system.slice/docker.service", None),
    "batch jobs": ("0::/batchjobs/container_id2/sub_cgrp_1", None),
}


@pytest.mark.parametrize("kind", CONTAINERS)
def test_the_container_is_told(kind: str) -> None:
    lines, container = CONTAINERS[kind]
    assert cgroup_info(lines).container == container


SLURM_V1 = """\
11:cpuset:/slurm/uid_1000/job_195428/step_batch
7:freezer:/slurm/uid_1000/job_195428/step_batch
4:memory:/slurm/uid_1000/job_195428/step_batch/task_0
3:devices:/slurm/uid_1000/job_195428
1:name=systemd:/system.slice/slurmd.service
"""
SCOPE = "0::/system.slice/slurmstepd.scope"

SLURM = {
    "v1": (SLURM_V1, ("195428", "batch")),
    "v1, the job alone first": (
        "3:devices:/slurm/uid_1000/job_88123\n2:memory:/slurm/uid_1000/job_88123/step_0/task_0",
        ("88123", "0"),
    ),
    "v1, a slurmd of several": ("4:memory:/slurm_node7/uid_1000/job_88123/step_3", ("88123", "3")),
    "v2": (f"{SCOPE}/job_3385/step_0/user/task_0", ("3385", "0")),
    "v2, batch": (f"{SCOPE}/job_42/step_batch/user/task_special", ("42", "batch")),
    "v2, ssh adopted by pam": (f"{SCOPE}/job_42/step_extern/user", ("42", "extern")),
    "v2, salloc's shell": (f"{SCOPE}/job_42/step_interactive/user/task_0", ("42", "interactive")),
    "v2, slurmstepd itself": (f"{SCOPE}/job_3385/step_0/slurm", ("3385", "0")),
    "v2, a node's name": (
        "0::/system.slice/l40-node-01_slurmstepd.scope/job_614/step_0/user/task_0",
        ("614", "0"),
    ),
    "v2, without a step": (f"{SCOPE}/job_1009249", ("1009249", None)),
    "v2, a component of a heterogeneous job": (f"{SCOPE}/job_7/step_0+1/user", ("7", "0+1")),
    "v2, a step by its number": (f"{SCOPE}/job_7/step_4294967291/user", ("7", "batch")),
    "v2, a job by its SLUID": (f"{SCOPE}/s6MHM8CAJB5900/step_0/user/task_0", (None, "0")),
    "no job": (f"{SCOPE}/system", (None, None)),
    "no job but a long number": (f"{SCOPE}/job_{'9' * 30}/step_0", (None, None)),
    "no job but a folder": ("0::/user.slice/job_7/step_0", (None, None)),
}


@pytest.mark.parametrize("kind", SLURM)
def test_the_slurm_job_is_told(kind: str) -> None:
    lines, job = SLURM[kind]
    facts = cgroup_info(lines)
    assert (facts.slurm_job, facts.slurm_step) == job


def test_a_container_in_a_slurm_job_is_both() -> None:
    facts = cgroup_info(f"{SCOPE}/job_42/step_0/user/task_0/libpod-{ID}.scope")
    assert facts == CgroupInfo(Container("podman", ID), "42", "0")


def test_the_owner_of_a_rootless_container_is_told() -> None:
    assert cgroup_info(f"0::{USER}/user.slice/libpod-{ID}.scope").slice_uid == 1000
    assert cgroup_info(f"0::/machine.slice/libpod-{ID}.scope").slice_uid is None


@pytest.mark.parametrize(
    ("number", "name"),
    [
        ("0", "0"),
        ("0017", "17"),
        ("4294967280", "4294967280"),
        ("4294967290", "interactive"),
        ("4294967291", "batch"),
        ("4294967292", "extern"),
        ("4294967294", None),
        ("extern", "extern"),
        ("1+2", "1+2"),
        ("-1", None),
        ("9" * 5000, None),
        ("", None),
        (None, None),
    ],
)
def test_the_steps_without_a_number_go_by_name(number: str | None, name: str | None) -> None:
    assert step_name(number) == name


def test_a_sluid_is_told_where_it_is_the_name_of_the_job() -> None:
    assert cgroup_info(f"{SCOPE}/s6MHM8CAJB5900/step_0").slurm_sluid == "s6MHM8CAJB5900"
    assert cgroup_info(f"{SCOPE}/job_s6MHM8CAJB5900").slurm_sluid == "s6MHM8CAJB5900"
    for other in ("s6MHM8CAJB590", "s6mhm8cajb5900", "job_7"):
        assert cgroup_info(f"{SCOPE}/{other}/step_0").slurm_sluid is None


PARTS = st.sampled_from(
    [
        "",
        "..",
        "docker",
        "lxc",
        "lxc.payload.",
        ID,
        f"libpod-{ID}.scope",
        f"docker-{ID}.scope",
        f"crio-conmon-{ID}",
        f"pod{POD}",
        f"kubepods-pod{POD_}.slice:cri-containerd:{ID}",
        r"machine-\xff\x2d.scope",
        "machine-qemu.scope",
        "supervisor",
        "slurm",
        "uid_1",
        "slurmstepd.scope",
        "job_" + "9" * 30,
        "job_٣",
        "step_batch",
        "user-" + "9" * 5000 + ".slice",
        "x (deleted)",
    ]
)
PATHS = st.lists(st.one_of(PARTS, st.text(max_size=20)), max_size=8).map("/".join)
LINE = st.builds("{}:{}:/{}".format, st.integers(), st.text(max_size=8), PATHS)
LINES = st.lists(LINE, max_size=5)


BYTES = st.binary(max_size=200).map(lambda data: data.decode(errors="surrogateescape"))


@given(st.one_of(st.text(), BYTES, LINES.map("\n".join)))
def test_no_text_makes_it_fail(text: str) -> None:
    facts = cgroup_info(text)
    assert facts.slurm_job is None or facts.slurm_job.isdecimal()
    if facts.container is not None:
        assert facts.container.runtime
