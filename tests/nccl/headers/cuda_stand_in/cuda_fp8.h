// NCCL includes it and uses nothing of it on the host.
#pragma once
