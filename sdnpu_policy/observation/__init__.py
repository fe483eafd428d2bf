"""Camera bytes and robot poses to the tensors a policy was trained on."""
