"""`python -m labeldp.cli` is the command line where the script is not on the path."""

from labeldp.cli import main

if __name__ == "__main__":
    main()
