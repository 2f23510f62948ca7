"""What this gpumon has seen, in bounded memory."""
