"""The benchmark: times collectives as nccl-tests does, and checks every result.

`unisono bench` is its command line; `driver.run` is its door for programs.
"""
