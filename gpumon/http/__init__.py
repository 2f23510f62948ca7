"""HTTP: questions to a server in bounded time and size, and sockets to answer from."""
