"""How tokens are drawn from the model: the same by who generates and by who checks."""
