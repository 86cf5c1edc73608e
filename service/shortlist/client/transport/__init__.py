"""How requests reach a server: by sockets of our own, blocking and for asyncio, or by httpx for TLS and proxies."""
