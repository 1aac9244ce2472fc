"""The application both frameworks load: gives every switch its rules when it connects.

A thin rim around `controller.rules` and `controller.installation`; the module is loaded by name by the
framework's AppManager, which `controller.main` runs. It forwards no packet and keeps no timer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, cast

from controller.errors import ControllerError, SwitchError
from controller.framework import selected
from controller.installation import Installation
from controller.messages import OPENFLOW_15, error_text, is_barrier, switch_messages

FRAMEWORK = selected()
_handler = FRAMEWORK.module("controller.handler")
_events = FRAMEWORK.module("controller.ofp_event")
_Base: Any = FRAMEWORK.app_base()

Handler = TypeVar("Handler", bound=Callable[[Any, Any], None])


def _on(event: str, *phases: str) -> Callable[[Handler], Handler]:
    """Register a handler of `event` in the connection's `phases`; what it raises ends the controller.

    The frameworks only log what a handler raises, and the lab would wait for rules that never come.
    """

    def register(handler: Handler) -> Handler:
        @functools.wraps(handler)
        def guarded(self: Any, event: Any) -> None:
            try:
                handler(self, event)
            except ControllerError as error:
                self.outcomes.put(error)
            except Exception as error:  # an unforeseen one must reach the lab as well
                self.logger.exception("the handler failed")
                self.outcomes.put(ControllerError(f"{type(error).__name__}: {error}"))

        event_class = getattr(_events, event)
        return cast(Handler, _handler.set_ev_cls(event_class, list(phases))(guarded))

    return register


class Controller(_Base):
    """Installs `installation`'s rules. Puts True into `outcomes` when all are confirmed, or an error."""

    OFP_VERSIONS: ClassVar = [OPENFLOW_15]

    def __init__(self, *args: Any, installation: Installation, outcomes: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.installation = installation
        self.outcomes = outcomes

    @_on("EventOFPStateChange", _handler.MAIN_DISPATCHER)
    def connected(self, event: Any) -> None:
        """Send a switch that has just connected, or connected again, all its rules."""
        datapath = event.datapath
        messages = switch_messages(datapath, self.installation.rules_for(datapath.id))
        for message in messages:
            datapath.set_xid(message)
        self.installation.sent(datapath.id, [m.xid for m in messages if is_barrier(datapath, m)])
        for message in messages:
            datapath.send_msg(message)

    @_on("EventOFPBarrierReply", _handler.MAIN_DISPATCHER)
    def confirmed(self, event: Any) -> None:
        """Note that a switch has done all it was sent before a barrier."""
        if self.installation.confirmed(event.msg.datapath.id, event.msg.xid):
            self.outcomes.put(True)

    @_on(
        "EventOFPErrorMsg",
        _handler.HANDSHAKE_DISPATCHER,
        _handler.CONFIG_DISPATCHER,
        _handler.MAIN_DISPATCHER,
    )
    def refused(self, event: Any) -> None:
        """A switch refused a message: the fabric would not forward as planned."""
        datapath, what = event.msg.datapath, error_text(event.msg)
        if datapath.id is None:
            raise SwitchError(
                f"the handshake with a switch at {datapath.address[0]} failed; "
                f"does its bridge have OpenFlow15 in protocols? ({what})"
            )
        raise SwitchError(f"{self.installation.rules_for(datapath.id).name} refused a message: {what}")
