"""What gpumon says about cards and processes."""
