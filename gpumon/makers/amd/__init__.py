"""The GPUs of AMD, as the kernel's driver ``amdgpu`` tells them."""
