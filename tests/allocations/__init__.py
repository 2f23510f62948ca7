"""Tests of what schedulers say."""
