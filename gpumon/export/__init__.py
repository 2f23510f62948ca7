"""Export of snapshots: JSON, CSV and Prometheus' text format."""
