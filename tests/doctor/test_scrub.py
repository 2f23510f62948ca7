"""What a report for a public issue leaves out, and what it keeps."""

from __future__ import annotations

import pytest

from gpumon.doctor import CheckVerdict, Result
from gpumon.doctor.scrub import Scrubber

SCRUBBER = Scrubber("/data/ann", {"ann", "", "x"}, {"ada-07", "ada-07.example.org"})


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("/data/ann/venv/lib", "~/venv/lib"),
        ("/data/ann", "~"),
        ("/data/anna/venv", "/data/anna/venv"),
        ("/home/bo/x and /home/cy", "/home/USER/x and /home/USER"),
        ("/scratch/ann/runs", "/scratch/USER/runs"),
        ("/mnt/teams/ann/envs", "/mnt/teams/USER/envs"),
        ("on ada-07.example.org, ada-07", "on HOST, HOST"),
        ("GPU-0123abcd-aaaa-bbbb-cccc-0123456789ab", "GPU-…"),
        ("MIG-0123abcd-aaaa-bbbb-cccc-0123456789ab", "MIG-…"),
        ("//ann:secret@host/simple", "//host/simple"),
        ("570.124.06 and cuDNN 9.1.0.70", "570.124.06 and cuDNN 9.1.0.70"),
        ("cuda:0 is GPU 3, index", "cuda:0 is GPU 3, index"),
    ],
)
def test_names_go_and_facts_stay(text: str, left: str) -> None:
    assert SCRUBBER.text(text) == left


def test_every_text_of_a_result_is_scrubbed() -> None:
    result = Result(CheckVerdict.WARN, "/data/ann/a", "ask ann", ("/home/bo/b",))
    assert SCRUBBER.result(result) == Result(
        CheckVerdict.WARN, "~/a", "ask USER", ("/home/USER/b",)
    )


@pytest.mark.parametrize("home", ["", "/", "/root"])
def test_roots_home_is_no_name(home: str) -> None:
    text = "/usr/lib, /root/.config"
    left = Scrubber(home, {"root"}, set()).text(text)
    assert left == text.replace("/root", "~") if home == "/root" else left == text
