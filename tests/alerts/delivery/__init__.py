"""How alerts are told: real commands, real servers, and what waits between."""
