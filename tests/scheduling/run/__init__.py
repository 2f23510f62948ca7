"""Tests of the running of jobs."""
