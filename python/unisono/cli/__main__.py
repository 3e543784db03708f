"""`python -m unisono.cli`, as `unisono`."""

from unisono.cli import main

main()
