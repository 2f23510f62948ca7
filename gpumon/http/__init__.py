"""HTTP to one server, in bounded time and bounded size."""
