"""Source models: architectures, checkpoints, training."""
