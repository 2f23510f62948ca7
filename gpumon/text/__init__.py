"""Text and amounts: formatting, units, parsing, and what a terminal can show."""
