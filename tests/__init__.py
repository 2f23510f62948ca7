"""The tests: a promise each, at the real boundary."""
