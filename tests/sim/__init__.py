"""Runs of the real round machine in virtual time, under random faults from a seed, judged after every event.

Read ``setting`` (what a run is made of), ``world`` (time, links, who is up), ``running``, ``following``, ``keeping``,
``process`` (what a member does around the machine), ``judge`` (the invariants), ``faults`` and ``schedule`` (what goes
wrong, and when), ``play`` (one seed).
"""
