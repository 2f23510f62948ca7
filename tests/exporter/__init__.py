"""gpumon exporter: the page, the server, and Prometheus itself."""
