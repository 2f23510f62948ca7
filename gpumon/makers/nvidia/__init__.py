"""NVIDIA: GPUs that its driver reports through NVML; ``source.NvmlBackend`` reads it."""

from gpumon.model.makers import Maker


class Nvidia(Maker):
    """See the module."""

    name = "NVIDIA"
    backend = "nvml"
    pci_vendor = "0x10de"
    kernel_drivers = ("nvidia",)
    backend_class = "gpumon.makers.nvidia.source:NvmlBackend"
    device_file = "/dev/nvidia{minor}"
    device_prefix = "/dev/nvidia"
    version = "gpumon.makers.nvidia.library:driver_version"
    brands = ("GeForce ", "Tesla ")
    device = "nvidia"
    cores = "SM"
    clock_heading = "SM MHz"
    load_word = "SM"
    has_cuda = True
    kernel_log = "the XID"
    log_pattern = "NVRM"
    log_parser = "gpumon.makers.nvidia.kernel_lines:XidLines"
    reset = "nvidia-smi --gpu-reset"
    error_label = "XID"
    error_catalogue = "NVIDIA's XID catalogue (docs.nvidia.com/deploy/xid-errors)"
    error_table = "gpumon.makers.nvidia.xid_table:XIDS"
    error_details = "gpumon.makers.nvidia.xid_text:xid_details"
    variables = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
    visible_devices = "gpumon.makers.nvidia.visible_devices:CudaDevices"
    certain_selection = "Set CUDA_DEVICE_ORDER=PCI_BUS_ID too, or name the GPUs by their UUIDs."
    checks = "gpumon.makers.nvidia.checks:CHECKS"


MAKER = Nvidia()
