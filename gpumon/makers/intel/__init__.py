"""Intel: GPUs that the kernel's drivers ``i915`` and ``xe`` run."""

from gpumon.model.makers import Maker


class Intel(Maker):
    """See the module."""

    name = "Intel"
    backend = "intel"
    pci_vendor = "0x8086"
    kernel_drivers = ("i915", "xe")
    backend_class = "gpumon.makers.intel.gpu:IntelBackend"
    is_drm = True
    integrated = "gpumon.makers.intel.names:is_integrated"
    brands = ("Data Center GPU ",)
    device = "intel"
    cores = "GT"
    kernel_log = "i915 or xe"
    log_parser = "gpumon.makers.intel.kernel_lines:IntelLines"
    variables = ("ZE_AFFINITY_MASK", "ZE_ENABLE_PCI_ID_DEVICE_ORDER", "ZE_FLAT_DEVICE_HIERARCHY")
    visible_devices = "gpumon.makers.intel.visible_devices:LevelZeroDevices"
    certain_selection = "Set ZE_ENABLE_PCI_ID_DEVICE_ORDER=1 too."
    checks = "gpumon.makers.intel.checks:CHECKS"


MAKER = Intel()
