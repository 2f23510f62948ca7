"""What SQL says of random logs is what the report says: DuckDB reads the same files."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import duckdb
import pytest

from tests.report.logs import chaos, report, write_log

START = 1_760_000_000.0

ROWS = """
create table rows as select *, dense_rank() over (order by "elapsed [s]") as sample from '{gpus}';
create table uses as
    select uses.*, sample from '{processes}' as uses
    join (select distinct "elapsed [s]", sample from rows) using ("elapsed [s]");
"""
# A sample counts until the next one, at most 2.5 usual intervals: the median of those around it.
SECONDS = """
create table samples as
    select sample, passed, least(coalesce(passed, 0), 2.5 * median(passed) over (
        order by sample rows between 5 preceding and 5 following)) as seconds
    from (select sample, lead(elapsed) over (order by sample) - elapsed as passed
          from (select sample, any_value("elapsed [s]") as elapsed from rows group by sample));
"""
# The energy of a GPU is that of its counter, or power draw times time where the counter is unknown.
GPUS = """
create table gpus as
    select sample, uuid, processes, seconds, "utilization.gpu [%]" as util,
        "memory.used [MiB]" * 1048576 as memory,
        coalesce((lead("energy [J]") over (partition by uuid order by sample) - "energy [J]")
                 * seconds / passed, "power.draw [W]" * seconds) as joules
    from rows join samples using (sample);
"""
# Each process list stands until the next one. A GPU's energy is split among its processes by their
# SM share, or equally if none has any.
SHARES = """
create table shares as
    select standing.sample, standing.uuid, uses."user", slurm_job, seconds, "sm [%]" as sm,
        "used_gpu_memory [MiB]" * 1048576 as memory,
        joules * coalesce("sm [%]" / nullif(sum("sm [%]") over here, 0), 1 / count(*) over here)
            as joules
    from (select gpus.*, lists.sample as list
          from (select * from gpus where processes > 0) as gpus
          asof join (select distinct sample from uses) as lists on gpus.sample >= lists.sample
         ) as standing
    join uses on uses.sample = standing.list and uses.uuid = standing.uuid
    window here as (partition by standing.sample, standing.uuid);
"""
BY_GPU = """
select uuid, sum(seconds) / 3600 as covered_hours,
    sum(util * seconds) / sum(seconds) filter (util is not null) as utilization_mean_percent,
    sum(seconds) filter (util > 0) / 3600 as busy_hours,
    max(memory) as memory_peak_bytes, sum(joules) / 3.6e6 as energy_kwh
from gpus group by uuid
"""
BY_SUBJECT = """
with on_gpu as (select "{by}" as subject, sample, any_value(seconds) as seconds,
        least(sum(sm), 100) as sm, sum(memory) as memory, sum(joules) as joules
    from shares group by subject, sample, uuid),
present as (select subject, sample, any_value(seconds) as seconds, sum(memory) as memory
    from on_gpu group by subject, sample)
select * from (select subject, sum(seconds) / 3600 as gpu_hours,
    sum(sm * seconds) / sum(seconds) as utilization_mean_percent,
    sum(joules) / 3.6e6 as energy_kwh from on_gpu group by subject)
join (select subject, sum(seconds) / 3600 as present_hours, max(memory) as memory_peak_bytes
    from present group by subject) using (subject)
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_the_report_says_what_sql_says(seed: int, tmp_path: Path) -> None:
    log = write_log(tmp_path / "run.csv", islice(chaos(seed, START), 200))
    with duckdb.connect() as database:
        files = {"gpus": log, "processes": log.with_suffix(".processes.csv")}
        database.execute(ROWS.format(**files) + SECONDS + GPUS + SHARES)
        for by, name, question in (
            ("gpu", "uuid", BY_GPU),
            ("user", "user", BY_SUBJECT.format(by="user")),
            ("job", "job", BY_SUBJECT.format(by="slurm_job")),
        ):
            answer = database.execute(question)
            (_, *keys) = [column[0] for column in answer.description or ()]
            expected = {str(subject): values for subject, *values in answer.fetchall()}
            lines = {
                str(line[name]).removeprefix("slurm "): line for line in report(log, by=by)["lines"]
            }
            assert lines.keys() == expected.keys()
            for subject, values in expected.items():
                found = [lines[subject][key] for key in keys]
                # The report rounds hours and kilowatt hours to the sixth digit.
                assert found == pytest.approx(values, rel=1e-4, abs=1e-6), (by, subject, keys)
