"""Tests of the commands that are no screen."""
