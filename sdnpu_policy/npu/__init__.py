"""The network on its accelerator: sessions, placement, the stepper, latency overlays."""
