"""What can only be tested on a real NVIDIA card; skipped where there is none."""
