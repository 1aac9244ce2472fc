"""The two frameworks the controller runs on, and the little in which they differ.

The choice is explicit, by the environment variable KV_TESTBED_FRAMEWORK: nothing falls back to the
other one. Importing this module imports neither. `controller.main` and `controller.app` call it.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from controller.errors import ControllerError

VARIABLE = "KV_TESTBED_FRAMEWORK"

QUIET_SOCKET_S = 1e6
"""A socket timeout that never comes. The frameworks' own, 5 s, wakes a thread for each switch."""


@dataclass(frozen=True)
class Framework:
    """A framework by its name for people, its package and the name of its application class."""

    name: str
    package: str
    app_class: str

    def module(self, path: str) -> ModuleType:
        """Import and return one of the framework's modules, such as `lib.hub`."""
        return importlib.import_module(f"{self.package}.{path}")

    def app_base(self) -> Any:
        """Return the class that applications of this framework inherit."""
        return getattr(self.module("base.app_manager"), self.app_class)

    def version(self) -> str:
        """Return the framework's own version."""
        package = importlib.import_module(self.package)
        return str(getattr(package, "__version__", None) or package.version)


FRAMEWORKS = {
    "os-ken": Framework("os-ken", "os_ken", "OSKenApp"),
    "ryu": Framework("ryu", "ryu", "RyuApp"),
}


def selected() -> Framework:
    """Return the framework named by KV_TESTBED_FRAMEWORK; ControllerError when it names none."""
    name = os.environ.get(VARIABLE, "")
    if name not in FRAMEWORKS:
        raise ControllerError(f"{VARIABLE} is {name!r}, expected {' or '.join(FRAMEWORKS)}")
    return FRAMEWORKS[name]


def prepare(framework: Framework) -> None:
    """Make the selected framework importable; ControllerError when it is not installed."""
    if importlib.util.find_spec(framework.package) is None:
        raise ControllerError(f"{framework.name} is not installed for {sys.executable}")
    if framework.name == "ryu":
        _prepare_eventlet()


def listen_on(framework: Framework, host: str, port: int) -> None:
    """Set the address the framework's OpenFlow server will listen on, and quieten its sockets."""
    framework.module("base.app_manager")  # registers the options; another order is a circular import
    config = framework.module("cfg").CONF
    config.set_override("ofp_listen_host", host)
    config.set_override("ofp_tcp_listen_port", port)
    config.set_override("socket_timeout", QUIET_SOCKET_S)


def _prepare_eventlet() -> None:
    # Its own resolver takes a third of a second to import, and nothing here resolves a name.
    os.environ["EVENTLET_NO_GREENDNS"] = "yes"
    wsgi: Any = importlib.import_module("eventlet.wsgi")
    if not hasattr(wsgi, "ALREADY_HANDLED"):
        # Ryu 4.34 imports this name, which eventlet 0.30.3 removed; only its web server uses it.
        wsgi.ALREADY_HANDLED = object()
