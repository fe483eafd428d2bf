"""A diffusion policy on an edge NPU, run one denoising step a tick, with an answer to every late step."""

__version__ = "0.1.0"
