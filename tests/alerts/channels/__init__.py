"""Tests of the channels of alerts."""
