"""The coordinator's HTTP interface: JSON under /api/v1, metrics, and what every answer has in common."""
