"""The table of servers in ``docs/serving.md``, which follows from the engines.

``python -m tests.serving.page`` writes it into the page; a test checks that it stands there.
"""

from __future__ import annotations

from pathlib import Path

from gpumon.serving import ENGINES
from tests.pages import with_table

PAGE = Path(__file__).parents[2] / "docs" / "serving.md"


def with_servers(page: str) -> str:
    """The page with the table of servers made anew."""
    lines = ["| Server | Memory setting, default | Metrics |", "|---|---|---|"]
    for engine in sorted(ENGINES.values(), key=lambda engine: engine.name.casefold()):
        memory = "no setting"
        if engine.memory_setting is not None:
            memory = f"`{engine.memory_setting}`, {engine.memory_default}"
        metrics = "not queried"
        if engine.metrics_path is not None:
            metrics = f"`:{engine.default_port}{engine.metrics_path}`"
        if engine.metrics_option is not None:
            metrics += f", with `{engine.metrics_option}`"
        lines.append(f"| {engine.name} (`{engine.key}`) | {memory} | {metrics} |")
    return with_table(page, "servers", "\n".join([*lines, ""]))


if __name__ == "__main__":
    PAGE.write_text(with_servers(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
