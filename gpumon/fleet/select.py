"""``gpumon select --hosts``: finds free GPUs of one host among several."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpumon.fleet.answers import changes, is_settled, missing
from gpumon.fleet.fleet import HostStatus
from gpumon.makers.source import NoSuchGpuError
from gpumon.scheduling.choose import Chooser
from gpumon.scheduling.ranking import worth
from gpumon.scheduling.select import (
    as_env,
    as_index,
    as_uuid,
    json_text,
    selection_json,
    table,
)
from gpumon.text.status_line import columns, tell, write

if TYPE_CHECKING:
    from typing import TextIO

    from gpumon.fleet.fleet import Fleet, FleetSnapshot, HostState
    from gpumon.scheduling.eligibility import Eligibility
    from gpumon.scheduling.ranking import GpuChoice
    from gpumon.scheduling.requirements import Requirements

SCHEMA = "gpumon.select_hosts/1"
_LONGEST_OBSERVED = 30 * 86400.0


class _HostChoice(NamedTuple):
    """What a host offers."""

    host: HostState
    verdicts: tuple[Eligibility, ...] = ()  # the eligibility of each of its GPUs
    choice: GpuChoice | None = None  # its best GPUs; ``None`` if too few are eligible
    missing: str = ""  # why it offers none: it has not answered, or not the GPUs that were named


class HostSelector:
    """Chooses GPUs of one host. The GPUs of a job are always on the same host."""

    def __init__(self, requirements: Requirements, patience: float) -> None:
        self._requirements = requirements
        self._patience = patience
        self._choosers: dict[str, Chooser] = {}
        self._judged: dict[str, _HostChoice] = {}

    def choose(self, fleet: Fleet) -> tuple[_HostChoice | None, list[_HostChoice]]:
        """The best choice, if there is one, and what each host of a started fleet offers."""
        offers: list[_HostChoice] = []
        for hosts in changes(fleet, self._patience):
            offers = self._judge(hosts)
            if all(is_settled(host) for host in hosts.hosts):
                break
        # GPUs may have to be observed for longer, but not those of a host that has not answered.
        for hosts in changes(fleet, _LONGEST_OBSERVED):
            offers = self._judge(hosts)
            if self._is_decided(offers):
                break
        best = [offer for offer in offers if offer.choice is not None]
        return min(best, key=_worth, default=None), offers

    def _is_decided(self, offers: list[_HostChoice]) -> bool:
        if self._requirements.stable is None and any(offer.choice is not None for offer in offers):
            return True
        return not any(
            self._choosers[offer.host.name].left()
            for offer in offers
            if offer.verdicts and not offer.missing
        )

    def _judge(self, hosts: FleetSnapshot) -> list[_HostChoice]:
        offers = []
        for host in hosts.hosts:
            before = self._judged.get(host.name)
            if before is None or before.host is not host:
                before = self._judged[host.name] = self._offer(host)
            offers.append(before)
        return offers

    def _offer(self, host: HostState) -> _HostChoice:
        absent = missing(host, self._patience)
        if absent or host.snapshot is None or host.status is not HostStatus.LIVE:
            return _HostChoice(host, missing=absent or host.sentence)
        if not is_settled(host):
            # A reservation there may not be known yet.
            return _HostChoice(host, missing=f"no answer within {self._patience:g}s")
        # The environment of this machine says nothing of the GPUs of another machine.
        chooser = self._choosers.setdefault(host.name, Chooser(self._requirements, {}))
        try:
            verdicts = chooser.judge(host.snapshot)
        except NoSuchGpuError as error:
            return _HostChoice(host, missing=error.sentence.rstrip("."))
        return _HostChoice(host, verdicts, chooser.choose(verdicts))

    def refusal(self, offer: _HostChoice) -> str:
        """Why a host offers nothing, in a sentence."""
        if offer.missing:
            return offer.missing
        return self._choosers[offer.host.name].refusal(offer.verdicts)


def _worth(offer: _HostChoice) -> tuple[object, ...]:
    assert offer.choice is not None  # noqa: S101 - only those with a choice are compared
    return worth(offer.choice, offer.verdicts)


def select_host(
    fleet: Fleet,
    requirements: Requirements,
    form: str,
    stream: TextIO,
    *,
    patience: float,
    verbose: bool,
) -> int:
    """Print the best eligible GPUs with their host, or on standard error why no host has them.

    Args:
        fleet: A fleet that was started.
        requirements: The requirements.
        form: ``uuid``, ``index``, ``env`` or ``json``.
        stream: The output stream.
        patience: Seconds for the first answers.
        verbose: Whether to explain the choice.

    Returns:
        The exit status: 0, or 1 if no host has enough eligible GPUs.

    Raises:
        OSError: Writing to the stream failed.
    """
    selector = HostSelector(requirements, patience)
    best, offers = selector.choose(fleet)
    if form == "json":
        stream.write(_as_json(best, offers) + "\n")
    elif best is not None and best.choice is not None:
        stream.write(_as_text(best, best.choice, form) + "\n")
    stream.flush()
    for offer in offers:
        if best is None or offer.missing:
            tell(f"{offer.host.name}: {selector.refusal(offer)}")
        if verbose and offer.verdicts:
            chosen = offer.choice if offer is best else None
            if chosen is not None:
                tell(f"{offer.host.name}: {chosen.reason}")
            elif best is not None:
                tell(f"{offer.host.name}:")
            write(table(offer.verdicts, chosen, columns()))
    if best is None:
        why = "" if verbose else ": --verbose shows the reason for each GPU"
        tell(f"no host has {requirements.counted()} to give{why}.")
    return 1 if best is None else 0


def _as_text(best: _HostChoice, choice: GpuChoice, form: str) -> str:
    host, chosen = best.host.name, choice.candidates
    gpus = () if best.host.snapshot is None else best.host.snapshot.gpus
    if form == "env":
        return f"GPUMON_HOST={host}\n{as_env(chosen, gpus)}"
    return f"{host} {(as_index if form == 'index' else as_uuid)(chosen, gpus)}"


def _as_json(best: _HostChoice | None, offers: list[_HostChoice]) -> str:
    """The chosen host with its selection, and what is known of the other hosts."""
    return json_text(
        {
            "schema": SCHEMA,
            "host": None if best is None else best.host.name,
            "selection": None if best is None else selection_json(best.choice, best.verdicts),
            "hosts": [
                {
                    "name": offer.host.name,
                    "status": offer.host.status,
                    "missing": offer.missing or None,
                    "fitting": sum(verdict.refusal is None for verdict in offer.verdicts),
                    "refused": sum(verdict.refusal is not None for verdict in offer.verdicts),
                }
                for offer in offers
            ],
        }
    )
