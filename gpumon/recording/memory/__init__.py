"""The recording of this gpumon run, in bounded memory."""
