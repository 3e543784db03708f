# Every switch of the build, in one place.

string(COMPARE EQUAL "${CMAKE_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}" UNISONO_IS_TOP_LEVEL)

set(UNISONO_SANITIZE "" CACHE STRING
    "Instrument everything: empty, 'address' (address and undefined behaviour) or 'thread'")
set_property(CACHE UNISONO_SANITIZE PROPERTY STRINGS "" address thread)
if(NOT UNISONO_SANITIZE MATCHES "^(address|thread|)$")
  message(FATAL_ERROR
    "UNISONO_SANITIZE is '${UNISONO_SANITIZE}'; it must be empty, 'address' or 'thread'")
endif()

option(UNISONO_WERROR "Treat warnings as errors" OFF)
option(UNISONO_BUILD_PYTHON "Build the Python extension" OFF)
option(UNISONO_BUILD_FUZZERS "Build the libFuzzer binaries (needs clang and UNISONO_SANITIZE=address)" OFF)

# Instrumented builds test the host's code; their kernels would be the same.
set(cuda_default AUTO)
if(UNISONO_SANITIZE)
  set(cuda_default OFF)
endif()
set(UNISONO_CUDA ${cuda_default} CACHE STRING "GPU kernels: AUTO (where there is an nvcc), ON or OFF")
set_property(CACHE UNISONO_CUDA PROPERTY STRINGS AUTO ON OFF)
# Packages run anywhere; a build for oneself is quicker with one architecture, and has PTX besides.
if(UNISONO_BUILD_PYTHON)
  set(architectures_default "80;90;100")
else()
  set(architectures_default "90")
endif()
set(UNISONO_CUDA_ARCHITECTURES "${architectures_default}" CACHE STRING
    "Compute capabilities of the kernels, oldest first; the last one's PTX is for newer devices")

set(tests_default OFF)
if(UNISONO_IS_TOP_LEVEL AND NOT UNISONO_BUILD_PYTHON)
  find_package(GTest QUIET)
  set(tests_default ${GTest_FOUND})
endif()
option(UNISONO_BUILD_TESTS "Build the C++ tests (needs GoogleTest)" ${tests_default})

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
# -O3 where it was measured to help (engine/reduce), not everywhere.
string(REPLACE "-O3" "-O2" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")

find_program(UNISONO_CCACHE ccache)
mark_as_advanced(UNISONO_CCACHE)
if(UNISONO_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Another checkout of the same sources finds them, too. The sloppiness is what ccache needs for
  # precompiled headers; it compares the headers' contents all the same, for clang by a sum
  # (unisono_precompile).
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env
    "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1 CCACHE_PCH_EXTSUM=1
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    "${UNISONO_CCACHE}")
endif()
