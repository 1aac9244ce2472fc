"""From a record to its summary: pure functions that anyone can run again, on any machine, without root.

Nothing here touches the lab or the network. The report and the commands that make a record's outputs call
`summarise`, `write_outputs` and `transfer_losses`.
"""

from testbed.analysis.losses import TransferLoss, transfer_losses
from testbed.analysis.summary import summarise, write_outputs

__all__ = ["TransferLoss", "summarise", "transfer_losses", "write_outputs"]
