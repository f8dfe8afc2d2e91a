"""On the path of a process whose wall clock is to be wrong."""
