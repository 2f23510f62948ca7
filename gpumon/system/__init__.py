"""Access to the operating system: time, folders, imports, resources."""
