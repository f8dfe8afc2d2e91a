"""Generation: a Llama-architecture model that continues many sequences at once, and reads whole ones for validators."""
