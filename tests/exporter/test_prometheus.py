"""A real Prometheus: it scrapes the exporter, answers, and takes the rules and the board."""

from __future__ import annotations

import json
import re
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpumon.export.as_prometheus import (
    ACCIDENT_LAST_SEEN,
    DRIVER_UP,
    NIC_METRICS,
    OOM_KILL_LAST_SEEN,
    SERVER_METRICS,
    STATE,
    STATUS,
    USER_METRICS,
    XID_LAST_SEEN,
    exported_metrics,
)
from gpumon.exporter.job_metrics import JOB_METRICS
from gpumon.exporter.metrics_page import SAMPLE_TIME
from gpumon.findings import FindingKind
from gpumon.model.snapshot import GpuStatus
from tests.command import run_program
from tests.exporter.certificates import Authority, authority
from tests.exporter.exporting import exporting, wait_until
from tests.exporter.test_web_config import OPEN_SESAME, TLS, write
from tests.prometheus.server import PrometheusServer

pytestmark = pytest.mark.slow

__all__ = ["authority"]

FLEET = Path(__file__).parents[2] / "docs" / "fleet"
EXPORTED = {
    *(name for _, name, _, _ in exported_metrics()),
    *USER_METRICS,
    *SERVER_METRICS,
    *NIC_METRICS,
    *JOB_METRICS,
    *(STATUS, STATE, XID_LAST_SEEN, ACCIDENT_LAST_SEEN, OOM_KILL_LAST_SEEN),
    *(DRIVER_UP, SAMPLE_TIME),
}
_METRIC = re.compile(r"\b(?:DCGM_FI|gpumon)_\w+")

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed"
)


def expressions(board: Any) -> list[str]:
    """Every PromQL expression of a board, as for all machines."""
    found = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return [expression.replace("$host", ".*") for expression in found]


@pytest.fixture(scope="module")
def board() -> Any:
    return json.loads((FLEET / "grafana.json").read_text())


class Prometheus:
    """What a Prometheus answers that runs."""

    def __init__(self, url: str) -> None:
        self._url = url

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an instant query; none while it does not answer."""
        asked = urllib.parse.urlencode({"query": expression})
        url = f"{self._url}/api/v1/query?{asked}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - it is HTTP
                told = json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return []  # it is starting
            raise AssertionError(f"{expression}: {error.read().decode()}") from None
        except OSError:
            return []
        assert told["status"] == "success"
        samples: list[dict[str, Any]] = told["data"]["result"]
        return samples

    def wait_for(self, expression: str) -> list[dict[str, Any]]:
        wait_until(lambda: self.query(expression), expression, pause=0.2)
        return self.query(expression)


@pytest.fixture(scope="module")
def prometheus(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """Prometheus with the rules of docs/fleet, which scrapes a demo over TLS with a password."""
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed")
    web = write(authority.folder, f"{TLS}basic_auth_users:\n  ann: {OPEN_SESAME}\n")
    with exporting("--demo", "--jobs", "-n", "0.5", "--web-config", web) as exporter:
        server = PrometheusServer(
            tmp_path_factory.mktemp("prometheus"),
            [(f"127.0.0.1:{exporter.port}", {"job": "gpumon"})],
            rules=FLEET / "alerts.yml",
            scheme="https",
            tls_config={"ca_file": str(authority.folder / "ca.pem")},
            basic_auth={"username": "ann", "password": "open sesame"},
        )
        try:
            yield Prometheus(server.url)
        finally:
            server.close()


def test_prometheus_scrapes_it_over_tls_with_a_password(prometheus: Prometheus) -> None:
    states = prometheus.wait_for("gpumon_gpu_state")
    assert len({one["metric"]["UUID"] for one in states}) == 8
    assert {one["metric"]["job"] for one in states} == {"gpumon"}
    assert [one["value"][1] for one in prometheus.query('up{job="gpumon"}')] == ["1"]
    (age,) = prometheus.query("time() - gpumon_sample_timestamp_seconds")
    assert -1 < float(age["value"][1]) < 60


def test_the_labels_of_a_job_arrive_as_they_were_sent(prometheus: Prometheus) -> None:
    (pod,) = prometheus.wait_for('gpumon_job_gpu_memory_bytes{kind="pod"}')
    assert pod["metric"]["name"] == "embeddings-0"
    assert not any(label.startswith("exported_") for label in pod["metric"])


def test_prometheus_raises_the_alert_of_a_fault(prometheus: Prometheus) -> None:
    (alert,) = prometheus.wait_for('ALERTS{alertname="GpuXidCritical",alertstate="firing"}')
    assert alert["metric"]["xid"] == "79"
    assert alert["metric"]["severity"] == "critical"


def test_every_query_of_the_board_has_an_answer(prometheus: Prometheus, board: Any) -> None:
    prometheus.wait_for("gpumon_driver_up == 1")
    prometheus.wait_for("gpumon_gpu_xid_last_seen_timestamp_seconds")
    for expression in expressions(board):
        assert prometheus.wait_for(expression), expression


def test_the_board_names_only_metrics_that_are_exported(board: Any) -> None:
    named = {name for one in expressions(board) for name in _METRIC.findall(one)}
    assert len(named) > 10
    assert named <= EXPORTED
    asked = board["templating"]["list"][1]["query"]["query"]
    assert set(_METRIC.findall(asked)) <= EXPORTED


def test_the_panels_of_the_board_have_their_own_place(board: Any) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= 24
        assert not taken & cells, panel["title"]
        taken |= cells
    identities = [panel["id"] for panel in board["panels"]]
    assert len(set(identities)) == len(identities)


@pytest.mark.parametrize("page", ["alerts.yml", "alerts_test.yml", "grafana.json"])
def test_states_and_statuses_are_words_that_exist(page: str) -> None:
    text = (FLEET / page).read_text().replace('\\"', '"')
    words = {kind.value for kind in FindingKind} | {"busy", "no compute", "stuck?"}
    statuses = {status.value for status in GpuStatus}
    found = re.findall(r'(state|status)[!=~]+"([^"]+)"', text)
    assert found
    for label, alternatives in found:
        known = words if label == "state" else statuses
        assert set(alternatives.split("|")) <= known, alternatives


def test_the_rules_name_only_metrics_that_are_exported() -> None:
    text = (FLEET / "alerts.yml").read_text()
    found = re.findall(r"^ +expr: (.+)$", text, re.MULTILINE)
    assert len(found) > 10
    named = {name for one in found for name in _METRIC.findall(one)}
    assert named <= EXPORTED


@needs_promtool
def test_promtool_accepts_the_rules_and_their_tests() -> None:
    for arguments in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        done = run_program(["promtool", *arguments], cwd=FLEET)
        assert done.returncode == 0, (done.stdout + done.stderr)[:2000]
        assert "SUCCESS" in done.stdout


def test_every_rule_has_a_test() -> None:
    rules = re.findall(r"- alert: (\w+)", (FLEET / "alerts.yml").read_text())
    tested = re.findall(
        r"alertname: (\w+)\n +eval_time: \w+\n +exp_alerts:(?: &\w+)?\n",
        (FLEET / "alerts_test.yml").read_text(),
    )
    assert set(rules) == set(tested)
