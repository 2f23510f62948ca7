"""The declarations of makers, and what they refer to."""

from __future__ import annotations

import pytest

from gpumon.doctor import MakerChecks
from gpumon.host.kernel_log import LineParser
from gpumon.makers.backend import GpuBackend
from gpumon.makers.visible_devices import VisibleDevices
from gpumon.model.makers import Maker, load, makers


@pytest.mark.parametrize("maker", makers(), ids=lambda maker: maker.name)
def test_what_a_maker_refers_to_is_there(maker: Maker) -> None:
    assert issubclass(load(maker.backend_class), GpuBackend)
    assert load(maker.backend_class).maker is maker
    assert issubclass(load(maker.visible_devices), VisibleDevices)
    assert maker.checks is None or isinstance(load(maker.checks), MakerChecks)
    for function in (maker.integrated, maker.version):
        assert function is None or callable(load(function))
    assert maker.error_table is None or isinstance(load(maker.error_table), dict)
    assert maker.error_details is None or load(maker.error_details)(0, "") is None
    assert maker.log_parser is None or issubclass(load(maker.log_parser), LineParser)


def test_no_two_makers_share_what_tells_them_apart() -> None:
    for name in ("name", "backend", "pci_vendor", "device", "main_variable"):
        assert len({getattr(maker, name) for maker in makers()}) == len(makers()), name


def test_a_declaration_that_lacks_something_or_has_something_unknown_fails() -> None:
    own = {"name": "X", "backend": "x", "pci_vendor": "0x1", "kernel_drivers": ()}
    with pytest.raises(TypeError, match="lacks backend_class"):
        type("Lacking", (Maker,), own)
    with pytest.raises(TypeError, match="has no use for vendor"):
        type("Unknown", (Maker,), {**own, "backend_class": "x:X", "vendor": "x"})
