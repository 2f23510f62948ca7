"""The screen of many hosts, without a terminal."""
