"""Where snapshots come from: ``Source`` is the interface, ``GpuBackend`` that of a driver."""
