"""What importing gpumon costs a program: nothing that it does not use."""

from __future__ import annotations

import sys
from collections.abc import Callable

import gpumon
from tests.command import run_program
from tests.driver import Driver, h100


def test_importing_it_imports_nothing_else_and_starts_nothing() -> None:
    code = (
        "import sys, threading\nbefore = set(sys.modules)\nimport gpumon\n"
        "print(*(set(sys.modules) - before), threading.active_count())"
    )
    done = run_program([sys.executable, "-c", code], check=True)
    assert done.stdout.split() == ["gpumon", "1"]


def test_no_function_imports_the_screen(program: Callable[..., str]) -> None:
    code = (
        "import sys, gpumon\nnow = gpumon.snapshot()\nnow.to_dict(), str(now), now._repr_html_()\n"
        "gpumon.select()\n"
        "with gpumon.watch(print), gpumon.measure(): pass\n"
        "print('textual' in sys.modules)"
    )
    assert program(code).splitlines()[-1] == "False"


def test_each_name_is_there_and_no_other() -> None:
    for name in gpumon.__all__:
        assert getattr(gpumon, name) is not None
    assert set(gpumon.__all__) <= set(dir(gpumon))
    assert not hasattr(gpumon, "nothing")


def test_without_a_driver_one_error_says_what_is_wrong_and_measuring_goes_on() -> None:
    code = """
import gpumon
for function in (gpumon.snapshot, lambda: gpumon.watch(print), gpumon.select):
    try:
        function()
    except gpumon.GpuError as error:
        print(error.sentence, bool(error.advice))
with gpumon.measure() as m:
    print("worked")
print(m.gpus, m.energy, str(m) == m.trouble, "not loaded" in m.trouble)
"""
    with Driver([h100()]) as driver:
        driver.fail_init(9)
        done = run_program([sys.executable, "-W", "error", "-c", code], driver.env(), check=True)
    *refused, worked, measured = done.stdout.splitlines()
    assert len(refused) == 3
    assert all("not loaded" in line and line.endswith("True") for line in refused)
    assert (worked, measured) == ("worked", "() None True True")
