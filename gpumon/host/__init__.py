"""What the operating system knows of the machine and of the processes on it."""
