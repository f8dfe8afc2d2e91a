"""The node: command line, run file, life cycle, event log, status, doctor, roles."""
