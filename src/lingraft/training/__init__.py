"""The training room: learning rate, loss, averaging, checkpoints, and the loop of one stage."""
