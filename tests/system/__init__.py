"""Tests of ``gpumon.system``."""
