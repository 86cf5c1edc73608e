"""Settings: command-line flags over `SHORTLIST_*` variables over defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from .errors import BadInput

PREFIX = "SHORTLIST_"


class Settings(BaseSettings):
    """Everything a server can be told."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore")

    repository: Path = Field(Path("build/repository"), description="folder of <name>/<version>/ bundles")
    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8000, ge=0, le=65535, description="port; 0 takes a free one")
    device: str | None = Field(None, description="cpu or cuda:N; cpu by default")
    threads: int | None = Field(None, ge=1, description="threads of each session; by default what the cgroup grants")
    workers: int = Field(2, ge=1, description="requests computed at a time")
    body_limit: int = Field(16 << 20, ge=1, description="largest request body, bytes")
    max_rows: int = Field(4096, ge=1, description="most context vectors in a request")
    drain_seconds: int = Field(30, ge=0, description="longest wait for accepted requests after SIGTERM, seconds")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="least level logged")


def load_settings(**flags: Any) -> Settings:
    """Settings with the flags that were given (None: not given); raises BadInput naming the setting and its value."""
    try:
        return Settings(**{name: value for name, value in flags.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        raise BadInput(f"setting {name} (or {PREFIX}{name.upper()}) is '{first['input']}': {first['msg']}") from None
