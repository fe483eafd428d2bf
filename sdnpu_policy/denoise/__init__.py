"""Noise to actions, a step at a time: scheduler tables and the resumable sampler."""
