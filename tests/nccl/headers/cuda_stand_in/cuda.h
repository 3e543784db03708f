// The one type of the CUDA driver that NCCL's headers name.
#pragma once

enum CUmemLocationType { CU_MEM_LOCATION_TYPE_INVALID = 0 };
