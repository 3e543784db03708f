// Element types and reductions, from NCCL's numbers.
#pragma once

#include <optional>

#include "communicator.h"

namespace unisono::nccl {

std::optional<DataType> type_of(ncclDataType_t type);

// Fills the call's reduction, with its scalar if it has one. `function` is for the error's text.
ncclResult_t set_operation(const char* function, ncclComm& comm, ncclRedOp_t op,
                           ncclDataType_t type, void* stream, Call& call);

}  // namespace unisono::nccl
