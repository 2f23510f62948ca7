"""What a log holds, and what its commands do."""
