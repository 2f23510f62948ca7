"""Where snapshots leave: JSON, CSV and Prometheus."""
