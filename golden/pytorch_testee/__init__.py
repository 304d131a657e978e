"""Real PyTorch FSDP as a testee of the suite."""
