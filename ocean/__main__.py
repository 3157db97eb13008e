"""`python -m ocean` is the command `ocean`."""

from ocean.cli.main import app

if __name__ == "__main__":
    app(prog_name="ocean")
