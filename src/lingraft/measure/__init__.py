"""The measurement room: likelihoods, in-context learning, and how far the weights moved."""
