"""Tests with inference servers."""
