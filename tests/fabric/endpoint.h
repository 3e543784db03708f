// What all posts of an endpoint share.
#pragma once

#include "fabric/objects.h"

namespace unisono::test::fabric {

// Whether a buffer may be used for `access`, FI_SEND, FI_RECV or FI_WRITE; -FI_EINVAL, said on
// stderr, where FI_MR_LOCAL is asked for and its descriptor does not cover it. The id of its
// registration, where there must be one. The domain's mutex is held.
int check_buffer(const Endpoint& endpoint, const void* data, std::size_t bytes,
                 const void* descriptor, std::uint64_t access, std::uint64_t& registration);

}  // namespace unisono::test::fabric
