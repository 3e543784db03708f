// Which messages of a program may be put straight where they are wanted, at any time of a launch.
#pragma once

#include "engine/gpu/lower.h"

namespace unisono::engine::gpu {

// Numbers the messages of each link, and marks the steps that receive into the output what no other
// step of the program touches before them. Fills Step::in_post and out_post, and has_posts.
void mark_posts(const plan::Header& header, int rank, LoweredProgram& program);

}  // namespace unisono::engine::gpu
