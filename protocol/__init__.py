"""How peers speak: identity, messages, envelope, directory and data plane."""
