"""``gpumon serve``: who is let in, what a visitor can do, and how it ends."""
