"""`python -m verl_doctor.toolkit` does what `verl-doctor` does."""

from verl_doctor.toolkit.cli.main import main

if __name__ == "__main__":
    main()
