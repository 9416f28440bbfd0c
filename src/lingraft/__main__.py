"""``python -m lingraft``."""

from lingraft.cli import main

if __name__ == "__main__":
    main()
