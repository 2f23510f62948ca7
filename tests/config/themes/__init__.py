"""Tests of themes as data."""
