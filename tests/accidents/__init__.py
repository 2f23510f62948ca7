"""Tests of accidents."""
