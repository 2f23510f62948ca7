"""How a snapshot becomes rows of styled text for a given size. Pure functions, no Textual."""
