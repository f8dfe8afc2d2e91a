"""The inner loop: one process per accelerator, sharded with FSDP2, told what to do by the node's daemon.

`group.py` is the daemon's side and imports no torch. The processes are `python -m diloco.worker`.
"""
