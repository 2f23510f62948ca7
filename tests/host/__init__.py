"""Tests of what the operating system is asked."""
