"""Serve a repository of bundles over HTTP.

Every flag can also be set as SHORTLIST_<NAME>, as in SHORTLIST_PORT=9000. API keys are read from a file or from
SHORTLIST_API_KEYS, with roles ask, observe, administer; without any, everybody who reaches the server may ask it.
/readyz answers 200 once every bundle is warmed and passed its canary; SIGHUP reads keys, certificate and repository
again, SIGTERM finishes what was accepted and leaves.

  shortlist serve repo/ --port 8000
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Literal, get_args, get_origin

from shortlist.core.extras import require
from shortlist.errors import BadInput
from shortlist.runtime.devices import import_onnxruntime
from shortlist.runtime.threads import require_main_thread
from shortlist.server.settings import LOCAL_RAY, VARIABLES_ALONE, Settings, explain_misspelt, load_settings

METAVARS = {  # stand for values in the help, by setting; for all others the last word of the name does
    "PATH": ("unix_socket",),
    "FILE": ("api_keys_file", "tls_cert", "tls_key"),
    "FOLDER": ("item_changes", "keep_contexts"),
    "SECONDS": ("keep_alive", "request_timeout", "body_timeout", "drain_delay"),
    "MICROSECONDS": ("inline_us", "batch_delay_us"),
    "BYTES": ("body_limit", "json_limit", "answer_limit"),
    "SHARE": ("precision_cpu",),
    "ADDRESS": ("host",),
    "ADDRESSES": ("trusted_proxies",),
    "NAMES": ("allowed_hosts",),
    "cpu|cuda:N": ("device",),
}
METAVAR_OF_SETTING = {name: metavar for metavar, names in METAVARS.items() for name in names}


def configure(parser: argparse.ArgumentParser) -> None:
    """One flag a setting; defaults and units come from the settings."""
    parser.add_argument("repository", type=Path, nargs="?", help="folder of <name>/<version>/ bundles")
    for name, field in Settings.model_fields.items():
        if name != "repository" and name not in VARIABLES_ALONE:
            flag = f"--{name.replace('_', '-')}"
            if field.annotation is bool:
                switch = argparse.BooleanOptionalAction
                default = "on" if field.default else "off"
                parser.add_argument(flag, action=switch, default=None, help=f"{field.description} (default: {default})")
                continue
            if name == "ray":
                parser.add_argument(flag, nargs="?", const=LOCAL_RAY, help=field.description, metavar="ADDRESS")
                continue
            default = "" if field.default in (None, ()) else f" (default: {field.default})"
            parser.add_argument(flag, help=f"{field.description}{default}", metavar=find_metavar(name))


def find_metavar(name: str) -> str:
    """What stands for a setting's value in the help: its choices, its unit or its kind."""
    annotation = Settings.model_fields[name].annotation
    if get_origin(annotation) is Literal:
        return "|".join(get_args(annotation))
    return METAVAR_OF_SETTING.get(name, name.rpartition("_")[2].upper())


def run(args: argparse.Namespace) -> int:
    """Serve until a signal stops it; returns 2 where a flag or variable is wrong."""
    for sentence in explain_misspelt(os.environ):
        print(f"shortlist serve: {sentence}", file=sys.stderr)
    try:
        settings = load_settings(**vars(args))
    except BadInput as error:
        print(f"shortlist serve: {error}", file=sys.stderr)
        return 2
    require_main_thread()
    require("uvicorn")
    require("fastapi")
    import_onnxruntime()
    if settings.ray is not None:
        require("ray")
        return int(require("shortlist.fleet.ray.serving").serve_on_ray(settings))
    if settings.processes > 1:
        return int(require("shortlist.fleet.processes.supervisor").serve_processes(settings))
    return int(require("shortlist.server.transport.process").serve(settings))
