"""`python -m bridge` is `seb`, for where no scripts are installed."""

from bridge.cli import main

if __name__ == "__main__":
    main()
