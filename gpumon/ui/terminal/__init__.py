"""The terminal: output, input and the first picture, bypassing Textual."""
