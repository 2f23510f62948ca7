"""What was seen: in memory, in files, and played back."""
