# Completion of gpumon for fish. The script comes from the gpumon that is on the PATH, so that it
# fits its version and your themes; fish reads this file at the first Tab after gpumon.
gpumon completion fish | source
