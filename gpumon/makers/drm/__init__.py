"""What the kernel tells of GPUs in its DRM subsystem, for the backends of AMD and Intel.

All values are files below ``/sys`` and ``/proc``; no library of a maker is needed.
"""
