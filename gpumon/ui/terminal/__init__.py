"""The terminal: output, input, and the first picture, past Textual."""
