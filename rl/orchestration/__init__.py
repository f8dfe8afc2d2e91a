"""The orchestrator: which work is given to whom, whose rollouts count, and what the trainer trains on next.

Read ``machine.py`` first: ``advance(state, event, now)`` is pure. ``desk.py`` is the rim around it, ``feed.py`` the
way from there to the trainer's workers.
"""
