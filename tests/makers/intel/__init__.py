"""Tests of the backend of Intel's GPUs."""
