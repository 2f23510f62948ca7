"""The dashboard, the pages and the help page, as Textual screens."""
