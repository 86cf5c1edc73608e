"""The server's settings: SHORTLIST_* variables, overridden by command-line flags."""

from __future__ import annotations

import difflib
import ipaddress
from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from shortlist.core.checks import require_utf8
from shortlist.errors import BadInput

ENVIRONMENT_PREFIX = "SHORTLIST_"
VARIABLES_ALONE = ("api_keys",)  # settings without a flag: every user of a machine sees the flags of a process
OTHER_VARIABLES = ("api_key", "kernels")  # that clients and the compiled loops read
LEAST_LIKENESS = 0.75  # of a misspelt name; those that Kubernetes sets for a service `shortlist` are less like any
LOCAL_NAME = "localhost"
LOCAL_RAY = "local"  # in place of an address: Ray is started here, and ends with the server
DEFAULT_PORT = 8000
FEWEST_CONNECTIONS = 2  # of one alone nobody could have three quarters, and everybody would be refused
MIB = 1 << 20

Network = IPv4Network | IPv6Network


def parse_networks(value: object) -> object:
    """Addresses and networks separated by commas, as networks; raises ValueError."""
    if not isinstance(value, str):
        return value
    return tuple(ip_network(text.strip(), strict=False) for text in value.split(",") if text.strip())


def drop_service_link(value: object) -> object:
    """The default port in place of what Kubernetes tells every pod about a service `shortlist`: tcp://ADDRESS:PORT."""
    return DEFAULT_PORT if isinstance(value, str) and "://" in value else value


def strip_brackets(value: object) -> object:
    """An IPv6 address without the brackets that it has in URLs."""
    return value[1:-1] if isinstance(value, str) and value.startswith("[") and value.endswith("]") else value


class Settings(BaseSettings):
    """All settings of a server, with their defaults; sizes in bytes, times in seconds."""

    model_config = SettingsConfigDict(env_prefix=ENVIRONMENT_PREFIX, frozen=True, extra="ignore")

    repository: Annotated[Path, AfterValidator(require_utf8)] = Field(
        Path("build/repository"), description="folder of <name>/<version>/ bundles"
    )
    host: Annotated[str, BeforeValidator(strip_brackets)] = Field(
        "127.0.0.1", min_length=1, description="address to listen on"
    )
    port: Annotated[int, BeforeValidator(drop_service_link)] = Field(
        DEFAULT_PORT, ge=0, le=65535, description="port; 0 takes a free one and prints it"
    )
    unix_socket: Path | None = Field(
        None, description="also listen on a Unix socket of this path, which its owner and group may use"
    )
    tcp: bool = Field(True, description="listen on host and port; without it on --unix-socket alone")
    allowed_hosts: str | None = Field(
        None,
        description="names that requests may give as Host, comma-separated, *.example.org, or * for any; addresses and "
        "localhost always may; by default no others on a loopback address, any elsewhere",
    )
    api_keys_file: Path | None = Field(
        None, description="file of API keys, a line `name roles key` each; roles of ask,observe,administer"
    )
    api_keys: SecretStr | None = Field(None, description="API keys as in the file, separated by semicolons")
    model_control: Literal["none", "explicit", "poll"] = Field(
        "none",
        description="explicit: models are loaded and unloaded by request; poll: as they come and go in the repository",
    )
    poll_seconds: float = Field(5, gt=0, description="between looks at the repository, with --model-control poll")
    arrival_seconds: float = Field(
        30,
        ge=0,
        description="with polls: an incomplete version is waited for until no file of it has changed for so long",
    )
    latest_versions: int | None = Field(
        None, ge=1, description="so many of the newest versions of a model are served; by default all of them"
    )
    exit_on_load_error: bool = Field(False, description="end with exit code 1 where a bundle cannot be loaded at first")
    tls_cert: Path | None = Field(None, description="certificate chain, PEM; HTTPS instead of HTTP")
    tls_key: Path | None = Field(None, description="private key of the certificate, PEM")
    device: str | None = Field(None, description="cpu or cuda:N; cpu by default")
    threads: int | None = Field(
        None, ge=1, description="threads of each session; by default the CPUs that the process may use"
    )
    processes: int = Field(
        1, ge=1, description="number of processes that share the port; limits and quotas apply to each one"
    )
    hang_seconds: float = Field(
        30, gt=0, description="with --processes: one that has done nothing for so long is killed and replaced, seconds"
    )
    ray: str | None = Field(
        None, description="serve by replicas on the Ray cluster of this address; without one, on Ray started here"
    )
    replicas: int = Field(1, ge=1, description="with --ray: the fewest replicas, of each shard where there are shards")
    max_replicas: int | None = Field(None, ge=1, description="with --ray: the most; by default four times the fewest")
    replica_requests: float = Field(
        16, gt=0, description="with --ray: requests in progress per replica above which Ray starts another replica"
    )
    replica_cpus: float = Field(1, ge=0, description="with --ray: CPUs that Ray reserves for a replica")
    shard_seconds: float = Field(
        2, gt=0, description="with --ray: a shard that has not answered by then is lost, seconds"
    )
    concurrent_models: int = Field(2, ge=1, description="models computed at a time; of each, one batch")
    inline_us: float = Field(400, ge=0, description="work of at most so many microseconds is done without a thread")
    batch_rows: int = Field(64, ge=1, description="most context vectors computed together")
    batch_delay_us: float = Field(0, ge=0, description="microseconds that an idle model waits for more rows")
    queue_rows: int = Field(8192, ge=1, description="context vectors held at a time; requests over it get 429")
    queue_bytes: int = Field(
        128 * MIB, ge=1, description="bytes held for requests and answers not read yet; requests over it get 429"
    )
    quota_rows: float | None = Field(
        None, gt=0, description="context vectors a second of each client, averaged over 10 s; by default as many as fit"
    )
    max_connections: int = Field(4096, ge=FEWEST_CONNECTIONS, description="open connections; more get 503")
    trusted_proxies: Annotated[tuple[Network, ...], NoDecode, BeforeValidator(parse_networks)] = Field(
        (), description="addresses or networks, with commas, whose X-Forwarded-For says who asks; by default none"
    )
    keep_alive: float = Field(75, gt=0, description="an idle connection is closed after so long, seconds")
    request_timeout: float = Field(30, gt=0, description="a request not computed by then gets 504, seconds")
    body_timeout: float = Field(
        30,
        gt=0,
        description="for a body to come (else 408) and an answer to be read, seconds",
    )
    shared_memory: bool = Field(
        False, description="serve tensors in this user's system shared memory; on a loopback address alone"
    )
    body_limit: int = Field(16 * MIB, ge=1, description="largest request body, also once it is decompressed, bytes")
    json_limit: int = Field(2 * MIB, ge=1, description="largest JSON in a body; more has to be binary data, bytes")
    answer_limit: int = Field(64 * MIB, ge=1, description="largest answer, bytes of ids and log-probabilities")
    item_changes: Path | None = Field(
        None, description="let items be changed by request, and keep the changes in this folder; by default none may"
    )
    list_tables: int = Field(64, ge=0, description="most tables of lists that clients may register at a time")
    list_bytes: int = Field(64 * MIB, ge=0, description="bytes that all registered lists may take; over it 413")
    list_seconds: float = Field(3600, gt=0, description="lists that no request used for so long are forgotten")
    sets: int = Field(256, ge=0, description="most named sets of classes that are kept for a model")
    set_bytes: int = Field(64 * MIB, ge=0, description="bytes on disk of all named sets of a model; over it 413")
    max_rows: int = Field(4096, ge=1, description="most context vectors in a request")
    drain_delay: float = Field(
        1.0, ge=0, description="after SIGTERM, requests are accepted this long while /readyz says 503, seconds"
    )
    drain_seconds: int = Field(20, ge=0, description="then the longest wait for accepted requests, seconds")
    canary_seconds: float = Field(
        60, ge=0, description="between looks whether served bundles are as they were loaded; 0: none"
    )
    precision_share: float = Field(
        0.01, ge=0, le=1, description="share of live rows asked again exactly, to see how precise they were; 0: none"
    )
    precision_cpu: float = Field(
        0.02, gt=0, le=1, description="share of the processor that may be spent on that; rows over it are dropped"
    )
    precision_rollback: bool = Field(
        False, description="roll a new version back whose precision falls under its promise while an older one stands"
    )
    precision_raise: bool = Field(
        False, description="raise a head's promise step by step while the precision of live rows is under it"
    )
    precision_exact: bool = Field(
        False, description="give exact answers while the precision of live rows is under the promise"
    )
    keep_contexts: Path | None = Field(
        None, description="folder in which contexts of live rows that were asked again are kept; by default none are"
    )
    keep_rows: int = Field(20_000, ge=1, description="most contexts kept of each version; the oldest are dropped")
    keep_seconds: float = Field(604_800, gt=0, description="seconds after which a kept context is deleted")
    triton_metrics: bool = Field(True, description="also export the metrics under Triton's names, nv_inference_*")
    overview: bool = Field(
        True, description="serve a page at / that shows models and live figures; it asks for the API key"
    )
    access_log: bool = Field(False, description="log every request that is over: who asked, what, status, times, ids")
    otel: bool = Field(False, description="export OpenTelemetry spans of requests, to where OTEL_* variables say")
    log_format: Literal["text", "json"] = Field("text", description="json: one object a line, tracebacks inside")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="least level logged")

    @property
    def is_local(self) -> bool:
        """Whether the server is reached from this machine alone."""
        return not self.tcp or is_loopback(self.host)

    @property
    def polls(self) -> bool:
        """Whether the server keeps up with its repository by itself."""
        return self.model_control == "poll"

    @model_validator(mode="after")
    def check_together(self) -> Self:
        """Raise ValueError where settings contradict each other."""
        if self.shared_memory and not self.is_local:
            raise ValueError(f"--shared-memory is for clients on this machine: listen on 127.0.0.1, not on {self.host}")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("--tls-cert and --tls-key belong together: give both")
        if self.keep_contexts is not None and not self.precision_share:
            raise ValueError("--keep-contexts keeps rows that are asked again: give a --precision-share over 0")
        if self.precision_raise and self.precision_exact:
            raise ValueError("--precision-raise and --precision-exact mend the same: give one of them")
        if not self.tcp and self.unix_socket is None:
            raise ValueError("--no-tcp leaves nothing to listen on: give --unix-socket")
        return self


def is_loopback(host: str) -> bool:
    """Whether what listens on `host` is reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == LOCAL_NAME


def load_settings(**flags: Any) -> Settings:
    """The settings from the environment; `flags` that are not None win.

    Raises BadInput naming the variable or flag and its value.
    """
    set_flags = {name: value for name, value in flags.items() if value is not None}
    try:
        return Settings(**set_flags)
    except ValidationError as error:
        raise BadInput(explain_error(error, set_flags)) from None


def explain_misspelt(variables: Iterable[str]) -> list[str]:
    """A sentence for each of these names of variables that is no setting, but nearly the name of one."""
    known = (*Settings.model_fields, *OTHER_VARIABLES)
    names = sorted(each.removeprefix(ENVIRONMENT_PREFIX) for each in variables if each.startswith(ENVIRONMENT_PREFIX))
    likely = {name: difflib.get_close_matches(name.lower(), known, 1, LEAST_LIKENESS) for name in names}
    return [
        f"{ENVIRONMENT_PREFIX}{name} is no setting and does nothing: is it {ENVIRONMENT_PREFIX}{near[0].upper()}?"
        for name, near in likely.items()
        if near and name.lower() not in known
    ]


def explain_error(error: ValidationError, flags: dict[str, Any]) -> str:
    """What is wrong with the first wrong setting, and the flag or variable that it came from."""
    first = error.errors()[0]
    if not first["loc"]:  # of settings together, which the sentence names
        return str(first["ctx"]["error"])
    name = str(first["loc"][0])
    source = f"--{name.replace('_', '-')}" if name in flags else f"{ENVIRONMENT_PREFIX}{name.upper()}"
    return f"{source} is '{first['input']}': {first['msg'][0].lower()}{first['msg'][1:]}"
