"""Checks of ``gpumon doctor`` that are the same for every driver of the DRM subsystem."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.doctor import check, checks_of, failed, passed, warned
from gpumon.doctor.access import in_container, no_permission
from gpumon.doctor.context import exists
from gpumon.doctor.gpus import GIVEN, drm_log
from gpumon.makers.visible_devices import visible_devices_of
from gpumon.model.makers import makers
from gpumon.text.formatting import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.doctor import Result
    from gpumon.doctor.context import DiagnosticContext, PciGpu
    from gpumon.model.makers import Maker

LOST = (
    f"Run `sudo dmesg | grep -E '{drm_log()}'` to see what happened: these drivers reset a "
    "GPU themselves."
)
REPLACE = (
    "Reboot: the driver then leaves out bad pages of memory. If errors return, show the "
    "GPU's vendor the kernel's log."
)
NO_GROUP = (
    "An administrator must give the file to a group: `sudo udevadm trigger` applies the rules of "
    "the system, which give it to the group render."
)


def driver_result(
    context: DiagnosticContext, maker: Maker, no_driver: str, parameters: Sequence[str] = ()
) -> Result | None:
    """Whether the kernel's driver controls a maker's GPUs, and its version.

    ``no_driver`` says what to do without one, ``parameters`` what was changed of it.
    """
    cards = context.cards_of(maker)
    if not cards or context.in_wsl:
        return None
    details = [f"{card.slot}  {card.driver or 'no driver'}" for card in cards]
    drivers = dict.fromkeys(card.driver for card in cards if card.driver and card.shown_by_gpumon)
    versions = "; ".join(_version(context, driver) for driver in drivers)
    complain = warned if context.gpus else failed
    idle = [card for card in cards if card.driver is None]
    if idle and context.gpus and all(card.integrated for card in idle):
        return passed("The processor's GPU has no driver, and is not used.", *details)
    if idle:
        return complain(
            f"{counted(len(idle), f'{maker.name} GPU')} without a driver.",
            no_driver,
            *details,
        )
    if not drivers:
        given = all(card.driver in GIVEN for card in cards)
        other = ", ".join(sorted({card.driver or "" for card in cards}))
        why = "reserved for virtual machines" if given else "gpumon does not read this driver"
        return passed(f"{other}: {why}.")
    return passed(f"{versions}.", *parameters)


def _version(context: DiagnosticContext, driver: str) -> str:
    """The driver and its version: that of the kernel, unless it was installed apart (DKMS)."""
    own = (context.machine.text(f"/sys/module/{driver}/version") or "").strip()
    if own:
        return f"{driver} {own}, installed beside the kernel (DKMS)"
    release = (context.machine.text("/proc/sys/kernel/osrelease") or "").strip()
    return f"{driver}, part of Linux {release}" if release else f"{driver}, part of the kernel"


def used_gpus(context: DiagnosticContext, maker: Maker | None = None) -> list[PciGpu]:
    """The GPUs with a DRM driver that gpumon shows, or those of one maker."""
    return [
        card
        for card in context.cards
        if card.maker.is_drm and card.shown_by_gpumon and card not in context.hidden
        if maker in (None, card.maker)
    ]


@check("render nodes")
def render_nodes(context: DiagnosticContext) -> Result | None:
    """Whether you may open ``/dev/dri/renderD*`` of AMD's and Intel's GPUs, or which group may.

    The files are not opened: that would wake a sleeping GPU.
    """
    cards = [card for card in used_gpus(context) if card.render_nodes]
    if not cards or context.in_wsl:
        return None
    files = [
        context.machine.path(f"/dev/dri/{node}") for card in cards for node in card.render_nodes
    ]
    there = [file for file in files if exists(file)]
    contained = in_container(context)
    if not there or (len(there) < len(files) and not contained):
        missing = context.machine.name(next(file for file in files if file not in there))
        return failed(
            f"The driver is loaded, but there is no {missing}: programs cannot use the GPU.",
            checks_of(cards[0].maker).container
            if contained
            else "Run `sudo udevadm trigger` to create the device files.",
        )
    effect = ": your programs cannot use the GPU"
    return no_permission(context, there, effect, otherwise=NO_GROUP, contained=contained) or passed(
        f"You may open {', '.join(context.machine.name(file) for file in there)}."
    )


@check("process lists")
def process_lists(context: DiagnosticContext) -> Result | None:
    """A note: whose processes gpumon sees on AMD's and Intel's GPUs.

    [makers.md](makers.md) has more.
    """
    found = [maker for maker in makers() if maker.is_drm and context.gpus_of(maker)]
    if not found:
        return None
    whose = " and ".join(f"{maker.name}'s" for maker in found)
    if context.machine.root_user:
        return passed(f"Root sees the processes of all users on {whose} GPUs.")
    notes = "".join(f" {note}" for maker in found if (note := checks_of(maker).process_note))
    return passed(
        f"On {whose} GPUs you see your own processes: the kernel shows those of other users to "
        f"root only.{notes}",
    )


def visible_result(
    context: DiagnosticContext, maker: Maker, names: tuple[str, ...], certain: str
) -> Result | None:
    """The GPUs of a maker that the variables select here.

    ``certain`` is what makes their order known.
    """
    environ, devices = context.machine.environ, visible_devices_of(maker)
    if not context.gpus_of(maker) or not devices.selecting_variable(environ, context.gpus):
        return None
    meaning = devices.visible(environ, context.gpus)
    given = [name for name in names if name in environ]
    values = ", ".join(f"{name}={environ[name]}" for name in given)
    why = f"; {meaning.why}" if meaning.why else ""
    words = f"{values}: {meaning.sentence}{why}."
    note = [
        f"gpumon does not show the processor's GPU at {card.slot}, but programs may count it."
        for card in context.hidden
        if card.maker is maker
    ]
    if meaning.devices and meaning.certain:
        return passed(words, *note)
    if meaning.devices:
        return warned(words, f"Use {certain}: then the order is known.", *note)
    return warned(words, f"Run `unset {' '.join(given)}`, unless a batch system set it.", *note)
