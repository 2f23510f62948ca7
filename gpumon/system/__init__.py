"""What gpumon needs of the system it runs on: time, folders, imports, resources."""
