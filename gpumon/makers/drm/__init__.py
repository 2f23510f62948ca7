"""Reads GPUs whose drivers belong to the DRM subsystem of the kernel, as those of AMD and Intel.

All values are files below ``/sys`` and ``/proc``; no library of a maker is needed.
"""
