"""``python -m sdnpu_policy``: the same as the command ``sdnpu``."""

from sdnpu_policy.tools.cli import main

if __name__ == "__main__":
    main()
