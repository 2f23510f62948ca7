"""Tests of the backend of AMD GPUs."""
