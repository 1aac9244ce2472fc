"""The application both frameworks load: gives every switch its rules when it connects.

A thin rim around `controller.rules` and `controller.installation`; the module is loaded by name by the
framework's AppManager, which `controller.main` runs. Only with a `placement` (policy least-loaded) does
it see packets, the first of each flow, and keep a timer, to poll the switches' counters.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, cast

from controller.errors import ControllerError, SwitchError
from controller.framework import selected
from controller.installation import Installation
from controller.messages import (
    OPENFLOW_15,
    counters_request,
    error_text,
    is_barrier,
    packet_out,
    rule_message,
    switch_messages,
)
from controller.placement import Placement, parse_header

FRAMEWORK = selected()
_handler = FRAMEWORK.module("controller.handler")
_events = FRAMEWORK.module("controller.ofp_event")
_hub = FRAMEWORK.module("lib.hub")
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

    def __init__(
        self,
        *args: Any,
        installation: Installation,
        placement: Placement | None,
        outcomes: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.installation = installation
        self.placement = placement
        self.outcomes = outcomes
        self.datapaths: dict[int, Any] = {}
        self.polling = False

    @_on("EventOFPStateChange", _handler.MAIN_DISPATCHER)
    def connected(self, event: Any) -> None:
        """Send a switch that has just connected, or connected again, all its rules."""
        datapath = event.datapath
        self.datapaths[datapath.id] = datapath
        if self.placement is not None:
            self.placement.forget(datapath.id)
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
            if self.placement is not None and not self.polling:
                self.polling = True
                _hub.spawn(self._poll, self.placement.poll_ns / 1e9)
            self.outcomes.put(True)

    def _poll(self, interval_s: float) -> None:
        while True:
            for datapath in list(self.datapaths.values()):
                datapath.send_msg(counters_request(datapath))
            _hub.sleep(interval_s)

    @_on("EventOFPPortStatsReply", _handler.MAIN_DISPATCHER)
    def counted(self, event: Any) -> None:
        """Take in the counters of a switch's ports."""
        assert self.placement is not None, "nobody asked for counters"
        sent = {port.port_no: port.tx_bytes for port in event.msg.body}
        self.placement.counted(event.msg.datapath.id, sent, time.monotonic_ns())

    @_on("EventOFPPacketIn", _handler.MAIN_DISPATCHER)
    def arrived(self, event: Any) -> None:
        """Place the flow of a packet that no rule of its leaf takes, and send the packet on its way."""
        message, datapath = event.msg, event.msg.datapath
        header = parse_header(message.data)
        if self.placement is None or header is None:
            return
        placed = self.placement.place(datapath.id, header, time.monotonic_ns())
        if placed is None:
            return
        port, rule = placed
        if rule is not None:
            datapath.send_msg(rule_message(datapath, rule))
        datapath.send_msg(packet_out(datapath, message.data, message.match["in_port"], port))

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
