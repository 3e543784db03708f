// Whether this process uses MPI, too.
#pragma once

namespace unisono::sys {

// Whether a library of MPI in this process has been initialised; any library may have loaded it.
bool mpi_is_initialized();

}  // namespace unisono::sys
