"""The commands of the command line that are no screen, a module each."""
