"""Formatting and parsing of text."""
