"""Translating through a head: in process, over HTTP, and beside CTranslate2."""
