"""Clients that put load on a server: raw sockets, wrk, and the requests that they send."""
