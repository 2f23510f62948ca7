"""Toolkits, cuDNN and frameworks, found by their files alone."""

from __future__ import annotations

from typing import Any

import pytest

from gpumon.doctor import CheckVerdict, frameworks
from gpumon.makers.nvidia import cuda_checks
from gpumon.model.snapshot import Gpu
from tests.build import gpu
from tests.doctor.trees import FAIL, PASS, SILENT, UNKNOWN, WARN, Tree, details, expect, verdict

VENV = "/home/ann/venv"
SITE = f"{VENV}/lib/python3.11/site-packages"
ENVIRON = {"VIRTUAL_ENV": VENV, "PATH": f"{VENV}/bin:/usr/bin", "HOME": "/home/ann"}

TORCH = """\
from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip']
__version__ = '{version}'
debug = False
cuda: Optional[str] = {cuda}
git_version = '0123'
hip: Optional[str] = None
"""
TENSORFLOW = (
    "import collections\n\nbuild_info = collections.OrderedDict([('cpu_compiler', 'clang'), "
    "('cuda_version', '{cuda}'), ('cudnn_version', '9'), ('is_cuda_build', {built})])\n"
)


def _torch(tree: Tree, version: str, built: str | None, folder: str = SITE) -> None:
    text = TORCH.format(version=version, cuda=repr(built))
    tree.write(f"{folder}/torch/version.py", text)


def _tensorflow(tree: Tree, cuda: str, *, built: bool, more: str = "") -> None:
    text = TENSORFLOW.format(cuda=cuda, built=built).replace("])", f"{more}])")
    tree.write(f"{SITE}/tensorflow/python/platform/build_info.py", text)


def test_toolkits_are_found_with_their_versions_each_once(tree: Tree) -> None:
    tree.write("/usr/local/cuda-12.4/version.json", '{"cuda": {"version": "12.4.1"}}')
    tree.link("/usr/local/cuda", "cuda-12.4")
    tree.write("/usr/local/cuda-10.2/version.txt", "CUDA Version 10.2.89\n")
    nvcc = tree.write("/opt/cuda/bin/nvcc", "#!/bin/sh\necho 'release 12.1, V12.1.105'\n")
    nvcc.chmod(0o755)
    result = cuda_checks.toolkits(tree.case(environ={"CUDA_HOME": "/usr/local/cuda"}))
    assert verdict(result) is PASS
    assert details(result) == (
        "12.4.1  /usr/local/cuda",
        "10.2.89  /usr/local/cuda-10.2",
        "12.1  /opt/cuda/bin/nvcc",
    )


def test_a_compiler_on_the_path_is_named_where_it_is(tree: Tree) -> None:
    nvcc = tree.write("/usr/bin/nvcc", "#!/bin/sh\necho 'release 11.8, V11.8.89'\n")
    nvcc.chmod(0o755)
    result = cuda_checks.toolkits(tree.case(environ={"PATH": "/usr/bin:/bin"}))
    assert details(result) == ("11.8  /usr/bin/nvcc",)


@pytest.mark.parametrize("variable", ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"])
def test_the_folder_of_a_toolkit_may_have_a_colon(tree: Tree, variable: str) -> None:
    tree.write("/home:a/cuda/version.json", '{"cuda": {"version": "12.4.1"}}')
    result = cuda_checks.toolkits(tree.case(environ={variable: "/home:a/cuda"}))
    assert details(result) == ("12.4.1  /home:a/cuda",)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"cuda": 7}', "\x00"])
def test_a_broken_version_file_is_no_end(tree: Tree, text: str) -> None:
    tree.write("/usr/local/cuda-12.4/version.json", text)
    tree.write("/usr/local/cuda-12.4/bin/nvcc")
    result = cuda_checks.toolkits(tree.case())
    assert details(result) == ("unknown version  /usr/local/cuda-12.4/bin/nvcc",)


def test_a_toolkit_of_a_later_major_version_is_told_where_there_is_a_driver(tree: Tree) -> None:
    tree.write("/usr/local/cuda-12.9/version.json", '{"cuda": {"version": "12.9.0"}}')
    assert verdict(cuda_checks.toolkits(tree.case())) is PASS
    tree.write("/usr/local/cuda-13.0/version.json", '{"cuda": {"version": "13.0.0"}}')
    expect(cuda_checks.toolkits(tree.case()), WARN, "driver 580 or later")
    assert verdict(cuda_checks.toolkits(tree.case(answer=SILENT))) is PASS


def test_cudnn_is_known_by_its_header(tree: Tree) -> None:
    assert cuda_checks.cudnn(tree.case()) is None
    header = (
        "#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 1\n#define CUDNN_PATCHLEVEL 0\n"
        "#define CUDNN_VERSION (CUDNN_MAJOR * 10000)\n"
    )
    tree.write("/usr/include/x86_64-linux-gnu/cudnn_version.h", header)
    result = cuda_checks.cudnn(tree.case())
    assert details(result) == ("9.1.0  /usr/include/x86_64-linux-gnu/cudnn_version.h",)


def test_the_cards_that_programs_see_are_named(tree: Tree) -> None:
    assert cuda_checks.visible(tree.case()) is None
    uuid = "GPU-0123"
    cards = gpu(uuid=uuid), gpu(index=1, uuid="GPU-4567")
    result = cuda_checks.visible(tree.case(*cards, environ={"CUDA_VISIBLE_DEVICES": uuid}))
    expect(result, PASS, "cuda:0 is GPU 0")


@pytest.mark.parametrize("value", ["", "-1", "GPU-nobody"])
def test_a_program_that_would_see_no_card_is_warned_of(tree: Tree, value: str) -> None:
    result = cuda_checks.visible(tree.case(environ={"CUDA_VISIBLE_DEVICES": value}))
    assert verdict(result) is WARN


def test_torch_is_told_from_its_version_file_alone(tree: Tree) -> None:
    _torch(tree, "2.5.1+cu124", "12.4")
    tree.write(f"{SITE}/torch/__init__.py", "raise SystemExit('somebody imported torch')\n")
    result = frameworks.torch(tree.case(environ=ENVIRON))
    expect(result, PASS, "2.5.1+cu124, built for CUDA 12.4.", VENV)


BUILDS: dict[str, tuple[str | None, dict[str, Any], CheckVerdict, list[str]]] = {
    "newer": ("13.0", {}, FAIL, ["CUDA up to 12.8", "driver 580 or later"]),
    "a later minor version": ("12.9", {}, PASS, ["newer than the driver's 12.8"]),
    "for the processor alone": (None, {}, WARN, []),
    "for the processor of a machine without a GPU": (None, {"answer": SILENT}, PASS, []),
    "for a driver of unknown version": ("12.4", {"cuda": None}, UNKNOWN, []),
}


@pytest.mark.parametrize("build", BUILDS)
def test_a_build_is_judged_by_the_driver(tree: Tree, build: str) -> None:
    built, given, expected, told = BUILDS[build]
    _torch(tree, "2.5.1", built)
    expect(frameworks.torch(tree.case(environ=ENVIRON, **given)), expected, *told)


def _other_torch(tree: Tree, version: str, **built: str) -> None:
    """A build of PyTorch for ROCm (``hip``) or for Intel's GPUs (``xpu``)."""
    lines = [f"{name}: Optional[str] = {built.get(name)!r}" for name in ("cuda", "hip", "xpu")]
    text = f"__version__ = '{version}'\ndebug = False\n" + "\n".join(lines)
    tree.write(f"{SITE}/torch/version.py", f"{text}\n")


AMD = gpu(name="AMD Radeon RX 7900 XTX")
APU = gpu(name="AMD Radeon 780M Graphics", memory_unified=True)
INTEL = gpu(name="Intel Arc A770")


@pytest.mark.parametrize(
    ("cards", "built", "expected", "told"),
    [
        ((gpu(),), {"hip": "6.2.41"}, WARN, "ROCm 6.2.41: it does not compute on these GPUs"),
        ((AMD,), {"hip": "6.2.41133"}, PASS, "was built for ROCm 6.2.41133."),
        ((AMD,), {"cuda": "12.4"}, WARN, "CUDA 12.4: it does not compute on these"),
        ((AMD,), {}, WARN, "Install the build for ROCm"),
        ((INTEL,), {"xpu": "20250101"}, PASS, "XPU 20250101"),
        ((INTEL,), {"cuda": "12.4"}, WARN, "Install the build for XPU"),
        ((gpu(), AMD), {"cuda": "12.4"}, PASS, "built for CUDA 12.4"),
        ((gpu(), AMD), {"hip": "6.2.41133"}, PASS, "ROCm"),
        ((gpu(), AMD), {}, WARN, "it includes CUDA"),
        ((APU,), {"cuda": "12.4"}, PASS, "nothing to compare it with"),
        ((APU,), {}, PASS, "without CUDA"),
    ],
)
def test_a_build_is_judged_by_the_makers_of_the_gpus(
    tree: Tree, cards: tuple[Gpu, ...], built: dict[str, str], expected: CheckVerdict, told: str
) -> None:
    _other_torch(tree, "2.8.0", **built)
    if cards[0].name != gpu().name:
        tree.without_nvidia()
    cuda_version = "12.8" if cards[0].name == gpu().name else None
    expect(frameworks.torch(tree.case(*cards, environ=ENVIRON, cuda=cuda_version)), expected, told)


def test_a_processors_gpu_is_to_compute_where_rocm_is_installed(tree: Tree) -> None:
    tree.without_nvidia()
    tree.write("/opt/rocm/.info/version", "7.1.1\n")
    _other_torch(tree, "2.8.0")
    assert verdict(frameworks.torch(tree.case(APU, environ=ENVIRON))) is WARN


def test_builds_for_rocm_of_the_other_frameworks_are_known(tree: Tree) -> None:
    tree.without_nvidia()
    for name in ("jax-0.6.0", "jax_rocm7_plugin-0.6.0", "jax_rocm60_pjrt-0.6.0"):
        tree.write(f"{SITE}/{name}.dist-info/METADATA")
    _tensorflow(tree, "", built=False, more=", ('is_rocm_build', True)")
    tree.write(f"{SITE}/tensorflow_rocm-2.18.1.dist-info/METADATA")
    case = tree.case(AMD, environ=ENVIRON, cuda=None)
    expect(frameworks.jax(case), PASS, "was built for ROCm 7.")
    expect(frameworks.tensorflow(case), PASS, "2.18.1")


def test_nvidias_driver_that_fails_beside_another_maker_blames_no_build(tree: Tree) -> None:
    _other_torch(tree, "2.8.0", cuda="12.4")
    result = frameworks.torch(tree.case(AMD, environ=ENVIRON, cuda=None))
    assert verdict(result) is PASS


def test_the_environment_that_a_program_would_run_in_is_judged_the_others_are_listed(
    tree: Tree,
) -> None:
    _torch(tree, "2.5.1+cu124", "12.4")
    _torch(tree, "2.9.0+cu130", "13.0", "/usr/lib/python3/dist-packages")
    tree.write("/usr/bin/python3")
    result = frameworks.torch(tree.case(environ=ENVIRON))
    assert verdict(result) is PASS
    assert details(result) == (f"2.5.1+cu124  CUDA 12.4  {VENV}", "2.9.0+cu130  CUDA 13.0  /usr")


@pytest.mark.parametrize(
    ("variable", "folder", "prefix"),
    [
        ("VIRTUAL_ENV", "/home:a/venv", "/home:a/venv"),
        ("CONDA_PREFIX", "/home:a/conda", "/home:a/conda"),
        ("HOME", "/home:a/ann", "/home:a/ann/.local"),
    ],
)
def test_the_folder_of_an_environment_may_have_a_colon(
    tree: Tree, variable: str, folder: str, prefix: str
) -> None:
    _torch(tree, "2.5.1+cu124", "12.4", f"{prefix}/lib/python3.11/site-packages")
    result = frameworks.torch(tree.case(environ={variable: folder}))
    assert details(result) == (f"2.5.1+cu124  CUDA 12.4  {prefix}",)


def test_tensorflow_is_told_by_what_its_build_wrote(tree: Tree) -> None:
    _tensorflow(tree, "12.5.1", built=True)
    tree.write(f"{SITE}/tensorflow-2.18.0.dist-info/METADATA")
    result = frameworks.tensorflow(tree.case(environ=ENVIRON))
    expect(result, PASS, "2.18.0, built for CUDA 12.5.1.", "cuDNN 9")


def test_a_tensorflow_without_cuda_is_no_cuda_build(tree: Tree) -> None:
    _tensorflow(tree, "12.5.1", built=False)
    expect(frameworks.tensorflow(tree.case(environ=ENVIRON)), WARN, "tensorflow[and-cuda]")


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        (["jax_cuda12_plugin-0.4.35", "jax_cuda12_pjrt-0.4.35"], PASS),
        (["jax_cuda13_plugin-0.7.2"], FAIL),
        (["jaxlib-0.4.13+cuda11.cudnn86"], PASS),
        (["jaxlib-0.4.35"], WARN),
    ],
)
def test_jax_is_told_by_the_plugins_beside_it(
    tree: Tree, others: list[str], expected: CheckVerdict
) -> None:
    for name in ("jax-0.4.35", *others):
        tree.write(f"{SITE}/{name}.dist-info/METADATA")
    assert verdict(frameworks.jax(tree.case(environ=ENVIRON))) is expected


def test_a_machine_without_frameworks_is_told_nothing_of_them(tree: Tree) -> None:
    case = tree.case(environ=ENVIRON)
    checks = (frameworks.torch, frameworks.tensorflow, frameworks.jax)
    assert [check(case) for check in checks] == [None] * 3
