"""AMD: GPUs that the kernel's driver ``amdgpu`` runs."""

from gpumon.model.makers import Maker


class Amd(Maker):
    """See the module."""

    name = "AMD"
    backend = "amdgpu"
    pci_vendor = "0x1002"
    kernel_drivers = ("amdgpu",)
    backend_class = "gpumon.makers.amd.backend:AmdBackend"
    is_drm = True
    # The Instinct MI300 and later are accelerators (apache/cloudstack#11701).
    pci_classes = ("0x03", "0x12")
    integrated = "gpumon.makers.amd.gpu:is_integrated"
    driver_files = ("/dev/kfd",)
    brands = ("Radeon ", "Instinct ")
    device = "amdgpu"
    cores = "shader"
    kernel_log = "amdgpu"
    log_parser = "gpumon.makers.amd.kernel_lines:AmdgpuLines"
    reset = "amd-smi reset --gpureset"
    variables = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
    visible_devices = "gpumon.makers.amd.visible_devices:RocmDevices"
    certain_selection = "Name the GPUs by their UUIDs in ROCR_VISIBLE_DEVICES."
    checks = "gpumon.makers.amd.checks:CHECKS"


MAKER = Amd()
