"""MSCCL and MSCCL++ formats: reads and writes MSCCL's XML, writes MSCCL++'s execution plans.

    plan = read_plan(Path("allreduce.xml"))
    text = write_plan(plan, "rccl")

`read_plan` takes any file that holds a plan, `read_plans` gives both of one that serves calls in
place and out of place. docs/how-to/msccl-files.md says what becomes of what.
"""

from unisono.arguments import guard
from unisono.exchange.files import holds_xml, read_plan, read_plans, targets, write_plan
from unisono.exchange.mscclpp import write_mscclpp_json
from unisono.exchange.read_xml import read_msccl_plans, read_msccl_xml
from unisono.exchange.write_xml import write_msccl_xml

__all__ = [
    "holds_xml",
    "read_msccl_plans",
    "read_msccl_xml",
    "read_plan",
    "read_plans",
    "targets",
    "write_msccl_xml",
    "write_mscclpp_json",
    "write_plan",
]

guard(globals())
