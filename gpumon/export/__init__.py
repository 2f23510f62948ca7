"""Where snapshots leave gpumon: JSON, CSV and Prometheus' text format."""
