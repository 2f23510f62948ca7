"""The page of a process: what it answers, at every width, whatever texts it is given."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpumon.config.keymap import DEFAULT_WINDOW, WINDOWS
from gpumon.findings.groups import jobs
from gpumon.host.process_host import Details, RelatedProcess
from gpumon.model.processes import CgroupMemory, Container, GpuProcess, GpuUse, ProcessId, Workload
from gpumon.model.serving import InferenceServer, ServerLoad
from gpumon.model.snapshot import MigInstance, Snapshot
from gpumon.recording.history import History, ViewedSeries
from gpumon.text.cells import row_width
from gpumon.text.formatting import cell_width, printable
from gpumon.text.process_columns import RowContext
from gpumon.ui.view.chart_series import bytes_trend, percent_trend
from gpumon.ui.view.frame import Memo
from gpumon.ui.view.gpu_text import mig_indices
from gpumon.ui.view.page_layout import wrap
from gpumon.ui.view.process_details import HIDDEN
from gpumon.ui.view.process_page import job_rows, process_rows, state_words
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.export.hostile import texts
from tests.known import known
from tests.ui.view.drawing import flat, history_of, lines_of, text_of

WIDTHS = (200, 140, 100, 80, 60)
CHEN = ProcessId(41233, 999)
COMMAND = ("/opt/envs/ml/bin/python", "/home/chen/proj/train.py", "--config", "big.yaml")
PLACE = Workload(
    container=Container("docker", "4f1c" * 16, "llama-ft"),
    slurm_job="88123",
    slurm_step="0",
    jupyter_kernel="8a1f",
    notebook="/home/chen/fine tuning.ipynb",
    tmux="train",
    environment="ml",
    launcher=ProcessId(4100, 1),
    launcher_name="torchrun",
)


pytestmark = pytest.mark.usefixtures("utc")


def chen(**changes: object) -> GpuProcess:
    whole = GpuProcess(
        CHEN,
        "C",
        (
            GpuUse("GPU-2", 2, memory_used=40 * GIB, sm=90),
            GpuUse("GPU-5", 5, memory_used=34 * GIB, sm=70),
        ),
        user="chen",
        uid=1004,
        name="python",
        command=COMMAND,
        state="S",
        cpu_percent=101.0,
        rss=9 * GIB,
        started_at=NOON - 1361,
        place=PLACE,
    )
    return replace(whole, **changes)


def relative(pid: int, parent: int, *command: str, state: str = "S") -> RelatedProcess:
    return RelatedProcess(
        ProcessId(pid, pid), parent, 1, 1, "name", command, user="chen", state=state
    )


def details(**changes: object) -> Details:
    whole = Details(
        CHEN,
        command=COMMAND,
        executable="/opt/envs/ml/bin/python3.11",
        cwd="/home/chen/proj",
        environment=(
            ("PATH", "/usr/bin"),
            ("HF_TOKEN", "hf_very_secret"),
            ("CUDA_VISIBLE_DEVICES", "2,5"),
        ),
        threads=64,
        state="S",
        devices=("/dev/nvidia2", "/dev/nvidia5", "/dev/nvidiactl"),
        place=PLACE,
        family=(
            relative(1, 0, "/sbin/init"),
            relative(812, 1, "tmux: server"),
            RelatedProcess(CHEN, 812, 1, 1, "python", COMMAND, user="chen"),
            relative(41240, 41233, "loader-a"),
            relative(41250, 41240, "grandchild"),
            relative(41241, 41233, "loader-b", state="Z"),
        ),
    )
    return replace(whole, **changes)


def at(seconds: float, one: GpuProcess) -> Snapshot:
    return snapshot(NOON + seconds, *(gpu(index=index) for index in range(8)), processes=(one,))


def page(
    process: GpuProcess,
    details: Details | None = None,
    width: int = 100,
    history: History | None = None,
    **given: Any,
) -> str:
    """The page as text; every row is exactly as wide as asked."""
    history = history or history_of(at(0, process))
    given.setdefault("reading", details is None)
    rows = process_rows(
        Memo(), process, history, history.latest, DEFAULT_WINDOW, width, details=details, **given
    )
    assert {row_width(row) for row in rows} == {width}
    return "\n".join(text_of(row).rstrip() for row in rows)


def line(text: str, beginning: str) -> str:
    """The line that begins so."""
    return next(one.strip() for one in text.splitlines() if one.strip().startswith(beginning))


@pytest.mark.parametrize("width", WIDTHS)
def test_every_row_is_whole_and_everything_is_told_at_every_width(width: int) -> None:
    text = flat(page(chen(), details(), width))
    for words in (
        "chen uid 1004",
        "74.0 GiB on GPU 2,5",
        "sleeping 64 threads",
        "11:37 22m ago",
        "/home/chen/proj/train.py",
        "python3.11",
        "job 88123, step 0",
        "docker llama-ft id 4f1c4f1c4f1c",
        "/home/chen/fine tuning.ipynb",
        "torchrun 4100",
        "GPU memory 74.0 GiB",
        "CUDA_VISIBLE_DEVICES 2,5",
        "/dev/nvidia5",
        "loader-b zombie (Z)",
    ):
        assert words in text, words


def test_a_mig_device_has_the_same_name_on_the_pages_of_a_process_and_of_a_job() -> None:
    instance = MigInstance("MIG-1", 3, 7, 0, "1g.10gb")
    inside = GpuUse("GPU-2", 2, (7, 0), memory_used=8 * GIB)
    one = chen(uses=(inside, GpuUse("GPU-5", 5, memory_used=2 * GIB)))
    gpus = (gpu(index=2, uuid="GPU-2", mig=(instance,)), gpu(index=5, uuid="GPU-5"))
    now = snapshot(NOON, *gpus, processes=(one,))
    of_process = flat(page(one, history=history_of(now)))
    assert "10.0 GiB on GPU 2:3,5 " in of_process
    assert "MIG 2:3 8.0 GiB " in of_process
    assert "GPU 5 2.0 GiB " in of_process
    (job,) = jobs(now.processes)
    context = RowContext(NOON, mig=mig_indices(gpus))
    of_job = flat(" ".join(map(text_of, job_rows(job, "", gpus, context, 100))))
    assert "MIG 2:3 8.0 GiB " in of_job
    assert f" 2:3,5 {CHEN.pid} chen " in of_job
    assert "2/7" not in of_process + of_job


def test_the_first_screen_of_a_small_terminal_says_whose_what_where_and_whether_it_lives() -> None:
    top = flat("\n".join(page(chen(), details(), 80).splitlines()[:22]))
    for words in ("chen", "python", "train.py", "/home/chen/proj", "88123", "llama-ft", "sleeping"):
        assert words in top, words


VLLM = InferenceServer(
    "vllm", "Qwen/Qwen2.5-14B", 41200, 7, "--gpu-memory-utilization", memory_value="0.30"
)
LOAD = ServerLoad(3, 1, 2.04, 459.2, 1390.0, 98.4, ("Qwen/Qwen2.5-14B",))


def served(load: ServerLoad | None, server: InferenceServer = VLLM) -> GpuProcess:
    return chen(place=Workload(server=server), load=load)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_server_has_its_setting_and_what_it_reports(width: int) -> None:
    text = flat(page(served(LOAD), width=width))
    for told in (
        *("server vLLM process 41200", "model Qwen/Qwen2.5-14B"),
        "memory --gpu-memory-utilization 0.30",
        *("requests 3 running, 1 waiting", "2 finished a second", "tokens 459 a second"),
        *("prompts 1390 a second", "KV cache 98 % in use"),
    ):
        assert told in text
    assert "serves" not in text, "the model that its command line names"


UNREAD = "Its environment, working directory and open files are readable by dora and root only."
UNREADABLE = details(environment=None, cwd=None, devices=None, unreadable=(UNREAD,))
BARE = details(place=None)
NO_GPUS = details(place=None, environment=(("CUDA_VISIBLE_DEVICES", ""),))
BY_UUID = details(environment=(("CUDA_VISIBLE_DEVICES", "GPU-5"),))
PARTLY = served(ServerLoad(running=2, models=("lora-a", "lora-b")))
OLLAMA = served(ServerLoad(models=("qwen3:8b",)), InferenceServer("ollama", None, 41200, 5))
UNSET = replace(VLLM, memory_value=None)
CGROUP, UNLIMITED = (CgroupMemory("/job_91", 61 * GIB, most) for most in (64 * GIB, None))
CACHED = "host memory, with cached files"


@pytest.mark.parametrize(
    ("shown", "found", "words"),
    [
        (chen(), None, "GPU 2 40.0 GiB SM 90 %"),
        (chen(), None, "GPU 5 34.0 GiB SM 70 %"),
        (chen(), None, "together 74.0 GiB"),
        (chen(), None, "directory being looked up"),
        (chen(), UNREADABLE, "directory –"),
        (chen(), UNREADABLE, "CUDA_VISIBLE_DEVICES – its environment was not read"),
        (chen(), UNREADABLE, "holds open – its open files were not read"),
        (chen(cgroup_memory=CGROUP), None, f"cgroup memory 61.0 of 64.0 GiB {CACHED}"),
        (chen(cgroup_memory=UNLIMITED), None, f"cgroup memory 61.0 GiB, no limit {CACHED}"),
        (chen(), BARE, "which means cuda:0 is GPU 2, cuda:1 is GPU 5"),
        (chen(), BARE, "CUDA_DEVICE_ORDER not set"),
        (chen(), NO_GPUS, "CUDA_VISIBLE_DEVICES empty"),
        (chen(), NO_GPUS, "which means no GPU"),
        # Indices of another container are not taken for the machine's.
        (chen(), details(), "which means numbers of GPUs inside its container"),
        (chen(), BY_UUID, "which means cuda:0 is GPU 5"),
        (
            chen(place=None),
            details(place=Workload()),
            "where no container, Slurm job, notebook or tmux",
        ),
        (chen(place=None), BARE, "where –"),
        (served(ServerLoad(problem="it needs a key")), None, "requests not known: it needs a key"),
        (served(None), None, "requests not known gpumon queries only your own servers"),
        (
            served(None, replace(VLLM, engine="ray")),
            None,
            "requests Ray Serve does not report them",
        ),
        (OLLAMA, None, "requests Ollama does not report them"),
        (OLLAMA, None, "serves qwen3:8b"),
        (PARTLY, None, "requests 2 running, – waiting – finished a second"),
        (PARTLY, None, "KV cache –"),
        (PARTLY, None, "serves lora-a, lora-b"),
        (served(LOAD, UNSET), None, "memory --gpu-memory-utilization not set: 0.9"),
        (
            served(LOAD, replace(UNSET, has_config_file=True)),
            None,
            "memory --gpu-memory-utilization not set, unless in its configuration file",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_line_says_what_is_known_or_why_it_is_not(
    shown: GpuProcess, found: Details | None, words: str
) -> None:
    lines = map(flat, page(shown, found).splitlines())
    assert words in {line[: len(words)] for line in lines}


@pytest.mark.parametrize(
    ("shown", "absent"),
    [
        (chen(), "cgroup memory"),
        (chen(), "Server"),
        (chen(), "Environment"),
        (served(ServerLoad(problem="it needs a key")), "KV cache"),
        (served(LOAD, InferenceServer("ollama", "llama3")), "memory"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_has_no_meaning_has_no_line(shown: GpuProcess, absent: str) -> None:
    lines = page(shown).splitlines()
    assert [line for line in lines if line.strip().startswith(f"{absent} ")] == []


def test_the_page_of_a_job_has_its_server_once() -> None:
    engines = [replace(served(load), id=ProcessId(pid, 9)) for pid, load in ((1, None), (2, LOAD))]
    (job,) = jobs(engines)
    text = flat(" ".join(map(text_of, job_rows(job, "", [gpu()], RowContext(NOON), 100))))
    assert text.count("server vLLM process 41200") == 1
    assert text.count("KV cache 98 % in use") == 1


def test_the_family_stands_outermost_first_and_each_under_its_parent() -> None:
    text = page(chen(), details())
    lines = text.split("Family")[1].split("Environment")[0].splitlines()[1:]
    told = [row for row in lines if row.strip()]
    assert [row.split()[0] for row in told] == ["1", "812", "41233", "41240", "41250", "41241"]
    words = ("init", "tmux:", "python", "loader-a", "grandchild", "loader-b")
    indents = [row.index(word) for row, word in zip(told, words, strict=True)]
    assert [indent - indents[0] for indent in indents] == [0, 2, 4, 6, 8, 6]


def test_a_large_family_is_cut_and_says_by_how_much() -> None:
    loaders = tuple(relative(50000 + number, 41233, "loader") for number in range(100))
    family = (RelatedProcess(CHEN, 1, 1, 1, "python", COMMAND), *loaders)
    text = page(chen(), details(family=family))
    assert "… and 60 more" in text
    assert text.count(" loader") == 40


def test_parents_that_name_each_other_end_the_chain() -> None:
    one = RelatedProcess(CHEN, 7, 1, 1, "python", COMMAND)
    family = (one, relative(7, 8, "a"), relative(8, 7, "b"))
    assert "41233" in page(chen(), details(family=family))


def test_secrets_are_hidden_until_they_are_asked_for() -> None:
    hidden = page(chen(), details())
    assert "hf_very_secret" not in hidden
    assert HIDDEN in line(hidden, "HF_TOKEN")
    assert "1 value hidden: s shows all" in hidden
    shown = page(chen(), details(), reveals=True)
    assert "hf_very_secret" in line(shown, "HF_TOKEN")
    assert HIDDEN not in shown


def test_what_could_not_be_read_says_why() -> None:
    summary, environment = page(chen(), UNREADABLE).split("Environment")
    assert UNREAD in summary
    assert UNREAD in environment


def test_before_the_look_is_done_the_page_says_what_the_snapshot_knows() -> None:
    assert "job 88123" in page(chen())


def test_a_process_of_another_name_space_has_only_what_the_driver_tells() -> None:
    hidden = process(visible=False, user=None, start_time=None, started_at=None)
    text = page(hidden)
    assert "Not visible here" in text
    assert "being looked up" not in text
    assert "1.0 GiB" in text


def test_one_that_has_ended_is_shown_as_it_was_last_seen() -> None:
    gone = "Ended at 12:03; what is shown is the last that was seen of it."
    text = page(chen(state="D"), details(state="D"), gone=gone, ended=True)
    assert gone in text
    assert line(text, "state").startswith("state         ended")
    assert "in the kernel" not in text.split("Family")[0]
    assert "/home/chen/proj/train.py" in text


@pytest.mark.parametrize(
    ("state", "channel", "words"),
    [
        ("S", None, "sleeping"),
        ("D", "nvidia_close", "waits inside the kernel (D) in nvidia_close"),
        ("D", None, "waits inside the kernel (D)"),
        ("Z", None, "zombie (Z): it has ended, and its parent has not reaped it yet"),
        ("T", "ignored", "stopped (T)"),
        ("?", None, "state ?"),
        (None, None, "–"),
    ],
)
def test_the_state_is_told_in_words(state: str | None, channel: str | None, words: str) -> None:
    assert state_words(state, channel) == words


def test_the_charts_say_peak_and_growth_and_how_much_was_seen() -> None:
    growing = (process(pid=7, memory_used=GIB + second * 2**25) for second in range(120))
    history = history_of(*(at(second, one) for second, one in enumerate(growing)))
    text = page(known(history.latest).processes[0], history=history)
    assert "The last 5 minutes, seen for 1m" in text
    assert "peak 4.7 GiB, grows" in text
    assert re.search(r"[⠉⠒⠤⣀]", text)
    assert re.search(r"-5m .*-1m +now", text), "how long the charts are"


def test_the_charts_of_a_server_are_there_once_it_reports_something() -> None:
    loads = [replace(LOAD, tokens=0.0)] * 60 + [replace(LOAD, tokens=600.0)] * 60
    history = history_of(*(at(second, served(load)) for second, load in enumerate(loads)))
    text = page(known(history.latest).processes[0], history=history)
    assert line(text, "tokens/s").split()[1] == "600"
    assert "peak 600, mean 300" in text
    assert line(text, "waiting").split()[1] == "1"
    for load in (None, ServerLoad(problem="it needs a key")):
        assert "tokens/s" not in page(served(load))


def test_values_over_time_are_read_no_more_often_than_the_charts_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []
    window = ViewedSeries.window

    def counted(self: ViewedSeries, field: str, *rest: Any, **more: Any) -> Any:
        read.append(field)
        return window(self, field, *rest, **more)

    monkeypatch.setattr(ViewedSeries, "window", counted)
    listed = process(pid=7, memory_used=GIB)
    history, memo = history_of(*(at(second, listed) for second in range(900))), Memo()
    for second in range(40):
        use = 9 * GIB if second == 11 else GIB
        owner = process(pid=7, memory_used=use)
        history.add(at(900 + second, owner))
        rows = process_rows(memo, owner, history, history.latest, WINDOWS[-1], 100)
        text = "\n".join(lines_of(rows))
        assert f"peak {9 if second >= 11 else 1}.0 GiB" in text, "never below the newest value"
    # Nothing but the charts reads it, once in five seconds: the points, the peak and the slope.
    assert read.count("rss") <= 3 * (1 + 40 // 5)


def test_unknown_values_make_no_chart_and_say_so() -> None:
    text = page(process(memory_used=None, sm=None))
    assert "not known" in line(text, "GPU memory")
    assert "no values in this time" in text
    assert "0.0 GiB" not in text


def test_a_value_of_a_megabyte_takes_a_few_lines() -> None:
    large = details(environment=(("LARGE", "x" * 2**20),))
    lines = page(chen(), large).splitlines()
    assert len(lines) < 80
    assert lines[-1].endswith("…")


@given(texts, st.integers(1, 60), st.none() | st.integers(1, 4))
def test_wrapped_lines_fit_and_lose_nothing_but_spaces(
    text: str, width: int, most: int | None
) -> None:
    lines = wrap(text, width, most)
    assert lines
    assert all(cell_width(line) <= max(width, 2) for line in lines)
    if most is None:
        assert "".join(lines).replace(" ", "") == printable(text).replace(" ", "")
    else:
        assert len(lines) <= most


def test_text_is_broken_at_spaces_and_within_words_that_are_too_long() -> None:
    assert wrap("one two three", 8) == ["one two", "three"]
    assert wrap("abcdefghij kl", 4) == ["abcd", "efgh", "ij", "kl"]
    assert wrap("中文中文", 5) == ["中文", "中文"]
    assert wrap("one two three four", 8, 2) == ["one two", "three f…"]
    assert wrap("", 8) == [""]


def course(values: list[float], step: float = 1.0, slope: float | None = None) -> str:
    points = [(NOON + number * step, value) for number, value in enumerate(values)]
    if slope is None:
        slope = (values[-1] - values[0]) / (step * max(1, len(values) - 1))
    return bytes_trend(points, max(values), slope)


def test_the_course_of_an_amount_in_words() -> None:
    level = [40.0 * GIB] * 300
    assert course(level) == "peak 40.0 GiB, steady"
    growing = [40 * GIB + second * 1.2 * GIB / 3600 for second in range(300)]
    assert course(growing) == "peak 40.1 GiB, grows 1.2 GiB/h"
    assert course(growing[::-1]) == "peak 40.1 GiB, falls 1.2 GiB/h"
    assert course(level[:10]) == "peak 40.0 GiB"
    assert course([100 * 2**20 + second * 2**30 for second in range(60)]).endswith("60.0 GiB/min")
    assert bytes_trend([], None, None) == "no values in this time"


def test_what_was_allocated_in_one_go_does_not_grow() -> None:
    early = [10.0 * GIB] * 50 + [40.0 * GIB] * 250
    assert course(early) == "peak 40.0 GiB, steady"
    late = [10.0 * GIB] * 280 + [40.0 * GIB] * 20
    assert course(late) == "peak 40.0 GiB, +30.0 GiB in 4m"


def test_the_course_of_a_share_in_words() -> None:
    busy = [(NOON + second, 50.0 + 40 * (second % 2)) for second in range(300)]
    assert percent_trend(busy, 90.0, 0.001) == "peak 90 %, mean 70 %"
    rising = [(NOON + second, second / 3) for second in range(300)]
    assert percent_trend(rising, 100.0, 1 / 3) == "peak 100 %, mean 50 %, +20 a minute"
    assert percent_trend([], None, None) == "no values in this time"
