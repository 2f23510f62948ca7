"""Tests of the locks and of those who wait for them."""
