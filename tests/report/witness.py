"""The figures of a report worked out once more, by pandas and by another way.

Shares no code with ``gpumon.report``: whole columns in place of one moment after another, files as
``pandas.read_csv`` reads them with no options, and for the processes a table with a row for every
sample, card and process.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from pathlib import Path


class Witness:
    """One log of one host.

    Args:
        cards: The cards' file.
        processes: The processes' file, if there is one.
    """

    def __init__(self, cards: Path, processes: Path | None = None) -> None:
        # pandas warns of many added columns unless the file's are copied into one block.
        self.cards = _weighed(pd.read_csv(cards).copy())
        self.listed: Any = None
        if processes is not None:
            self.listed = _spread(self.cards, pd.read_csv(processes))

    def card(self, index: int) -> dict[str, Any]:
        """What it knows of a card."""
        rows = self.cards[self.cards["index"] == index]
        weight = rows["weight"]
        return {
            "covered_hours": weight.sum() / 3600,
            "gaps": int(rows["gap"].sum()),
            "gap_hours": (rows["wall"] - weight)[rows["gap"]].sum() / 3600,
            **_utilization(rows["utilization.gpu [%]"], weight),
            "memory_mean_bytes": _mean(rows["memory.used [MiB]"] * 2**20, weight),
            "memory_peak_bytes": _or_none(rows["memory.used [MiB]"].max() * 2**20),
            "busy_hours": _hours(weight[rows["utilization.gpu [%]"] > 0].sum()),
            "energy_kwh": _energy_of(rows),
            "heat_hours": _hours(weight[_reasons(rows, 0x60)].sum()),
            "power_brake_hours": _hours(weight[_reasons(rows, 0x80)].sum()),
            "power_cap_hours": _hours(weight[_reasons(rows, 0x04)].sum()),
            "ecc_uncorrected": _ecc(rows),
            "lost_hours": weight[rows["status"] == "lost"].sum() / 3600,
        }

    def gpu_hours(self, index: int) -> float:
        """Hours in which a process that computes was on a card."""
        here = self.listed[(self.listed["index"] == index) & (self.listed["type"] != "G")]
        return float(here.groupby("sample")["weight"].first().sum() / 3600)

    @cached_property
    def _given_out(self) -> Any:
        """The rows of the processes, each with its part of the energy of its card."""
        listed = self.listed
        whole = listed.groupby(["sample", "uuid"])["sm [%]"].transform("sum", min_count=1)
        number = listed.groupby(["sample", "uuid"])["pid"].transform("count")
        part = (listed["sm [%]"] / whole).where(whole > 0, 1 / number)
        return listed.assign(energy=part * listed["joules"])

    def subject(self, column: str, value: object) -> dict[str, Any]:
        """What it knows of those processes whose column has a value."""
        mine = self._given_out[self.listed[column] == value]
        on_gpu = mine.groupby(["sample", "uuid"]).agg(
            weight=("weight", "first"), sm=("sm [%]", "sum"), energy=("energy", "sum")
        )
        there = mine.groupby("sample").agg(
            weight=("weight", "max"), memory=("used_gpu_memory [MiB]", "sum")
        )
        sm = on_gpu["sm"].clip(upper=100)
        return {
            "gpu_hours": on_gpu["weight"].sum() / 3600,
            "present_hours": there["weight"].sum() / 3600,
            **_utilization(sm, on_gpu["weight"]),
            "memory_mean_bytes": _mean(there["memory"] * 2**20, there["weight"]),
            "memory_peak_bytes": there["memory"].max() * 2**20,
            "busy_hours": on_gpu["weight"][sm > 0].sum() / 3600,
            "idle_hours": on_gpu["weight"][sm == 0].sum() / 3600,
            "energy_kwh": on_gpu["energy"].sum() / 3.6e6,
        }


def _weighed(cards: Any) -> Any:
    """The cards' rows, each with the seconds for which it counts and what was used in them."""
    cards["wall"] = pd.to_datetime(cards["timestamp"], utc=True).astype("int64")
    unit = pd.to_datetime(cards["timestamp"], utc=True).dt.unit
    cards["wall"] /= {"s": 1, "ms": 1e3, "us": 1e6, "ns": 1e9}[unit]
    cards["sample"] = (
        cards[["timestamp", "elapsed [s]"]]
        .ne(cards[["timestamp", "elapsed [s]"]].shift())
        .any(axis=1)
    ).cumsum()
    samples = cards.groupby("sample")[["wall", "elapsed [s]"]].first()
    wall = -samples["wall"].diff(-1)
    passed = (-samples["elapsed [s]"].diff(-1)).where(lambda seconds: seconds > 0, wall)
    usual = passed.rolling(11, center=True, min_periods=1).median()
    told = pd.DataFrame({"passed": passed, "most": 2.5 * usual})
    told["weight"] = told[["passed", "most"]].min(axis=1).where(passed.notna(), 0.0)
    told["gap"] = passed > told["most"]
    told["wall"] = passed
    cards = cards.drop(columns="wall").join(told, on="sample")
    after = cards.groupby("uuid")["energy [J]" if "energy [J]" in cards else "energy"].shift(-1)
    counted = after - cards["energy [J]"]
    integrated = cards["power.draw [W]"] * cards["weight"]
    by_counter = counted * cards["weight"] / cards["passed"]
    cards["joules"] = by_counter.where(counted >= 0, integrated)
    return cards


def _spread(cards: Any, listed: Any) -> Any:
    """A row for every sample, card and process: the list that stood then."""
    keys = cards.groupby("sample")[["timestamp", "elapsed [s]"]].first().reset_index()
    listed = listed.merge(keys, on=["timestamp", "elapsed [s]"]).rename(columns={"sample": "list"})
    written = pd.DataFrame({"list": sorted(listed["list"].unique())})
    told = cards[cards["processes"] > 0][["sample", "uuid", "weight", "joules"]]
    standing = pd.merge_asof(told, written, left_on="sample", right_on="list")
    return standing.merge(listed, on=["list", "uuid"])


def _utilization(percent: Any, weight: Any) -> dict[str, Any]:
    known = percent.notna()
    percent, weight = percent[known], weight[known]
    if not weight.sum():
        return dict.fromkeys(
            ("utilization_mean_percent", "utilization_median_percent", "utilization_p95_percent")
        )
    order = percent.sort_values(kind="stable").index
    reached = weight.loc[order].cumsum() / weight.sum()
    return {
        "utilization_mean_percent": _mean(percent, weight),
        "utilization_median_percent": percent.loc[order][reached >= 0.5 - 1e-12].iloc[0],
        "utilization_p95_percent": percent.loc[order][reached >= 0.95 - 1e-12].iloc[0],
    }


def _mean(values: Any, weight: Any) -> float | None:
    known = values.notna()
    return float((values * weight)[known].sum() / weight[known].sum()) if known.any() else None


def _energy_of(rows: Any) -> float | None:
    joules = rows["joules"][rows["weight"] > 0]
    return float(joules.sum() / 3.6e6) if joules.notna().any() else None


def _reasons(rows: Any, bits: int) -> Any:
    told = rows["clocks_event_reasons.active"].fillna("0x0")
    return told.map(lambda cell: int(cell, 16) & bits != 0)


def _ecc(rows: Any) -> int | None:
    errors = rows["ecc.errors.uncorrected.volatile.total"]
    return int(errors.diff().clip(lower=0).sum()) if errors.notna().any() else None


def _hours(seconds: float) -> float:
    return float(seconds) / 3600


def _or_none(value: float) -> float | None:
    return None if pd.isna(value) else float(value)
