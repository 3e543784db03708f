"""Reads records and dumps, each format in one place: calls become columns, and damage a sentence.

`parts` is what all formats become. `unisono_record` reads Unisono's own record, whose entries are
in words (`words`) or packed (`packed`); `flight_recorder` PyTorch's; `nccl_ras` NCCL's reports and
`nccl_x` NCCLX's dumps. `clocks` aligns the clocks of hosts.
"""
