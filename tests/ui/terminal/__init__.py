"""What goes to the terminal past Textual."""
