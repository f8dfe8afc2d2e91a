"""The coordinator's service: what is learned about a run, its present, its API and its pages."""
