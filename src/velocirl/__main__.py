"""`python -m velocirl` is the command `velocirl`."""

from velocirl_command import main

if __name__ == "__main__":  # and not in the processes that it starts
    main()
