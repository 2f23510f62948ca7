"""What Slurm printed, and jobs read from it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from gpumon.allocations.slurm_output import Gres, Job, job_of_json, job_of_text
from tests.known import known

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SLURM = Path(__file__).parent / "slurm"
TOO_LONG = 4 * 2**20
"""As much as is parsed at most."""

NONE = Gres(0, ())
UNKNOWN = Gres(None)

REAL_JOB = Job(
    "1", "1", "games", True, 1795710069.0, 1795796469.0, False, "gpu-[01-02]", Gres(2, (0, 1))
)
"""Job 1 of 26.05, on gpu-01."""


def text(version: str, *numbers: str) -> str:
    """The records of these jobs, in the file's order."""
    records = re.split(r"(?m)^(?=JobId=)", (SLURM / version / "job.txt").read_text())
    wanted = tuple(f"JobId={number} " for number in numbers)
    return "".join(record for record in records if record.startswith(wanted))


def of_text(data: str, number: str = "1", node: str = "gpu-01") -> Job:
    return known(job_of_text(data.encode(), number, node))


def of_json(changed: Mapping[str, object], node: str = "gpu-01") -> Job | None:
    """Job 1 of 26.05, changed."""
    answer = json.loads((SLURM / "26.05/job.json").read_bytes())
    job = next(job for job in answer["jobs"] if job["job_id"] == 1)
    answer["jobs"] = [job | changed]
    return job_of_json(json.dumps(answer).encode(), "1", node)


def in_form(form: str, version: str, numbers: Sequence[str], node: str = "gpu-01") -> Job:
    """The first of these jobs, as the text or the JSON of a version has it."""
    if form == "text":
        return of_text(text(version, *numbers), numbers[0], node)
    return known(job_of_json((SLURM / version / "job.json").read_bytes(), numbers[0], node))
