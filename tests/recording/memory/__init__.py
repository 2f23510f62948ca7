"""Tests of what can be played back."""
