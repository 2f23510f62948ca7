"""Tests of gpumon.scheduling."""
