"""Live views of running jobs: what ranks answer on their local sockets.

`ask` collects the answers of this host's ranks, `Overview` says where each of them is and who waits
for whom.
"""

from unisono.arguments import guard
from unisono.live.overview import Overview
from unisono.live.sockets import Answer, ask

__all__ = ["Answer", "Overview", "ask"]

guard(globals())
