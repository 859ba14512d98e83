"""`python -m mas`: the command `mas`."""

from mas.cli import main

if __name__ == "__main__":
    main()
