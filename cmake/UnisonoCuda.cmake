# The GPU kernels: src/device/kernels/kernels.cu becomes one fat binary, which is embedded in the
# library as it is and handed to the driver. Only nvcc is needed, to build; nothing of CUDA is linked.

# nvcc of a CUDA toolkit, else of the package index's nvidia-cuda-nvcc, which pyproject.toml asks for
# where the environment says UNISONO_NVCC_WHEELS=1.
find_program(UNISONO_NVCC nvcc PATHS /usr/local/cuda/bin)
if(NOT UNISONO_NVCC AND NOT UNISONO_CUDA STREQUAL "OFF")
  find_package(Python COMPONENTS Interpreter QUIET)
  if(Python_EXECUTABLE)
    execute_process(COMMAND "${Python_EXECUTABLE}" -c
        "import importlib.util, pathlib; s = importlib.util.find_spec('nvidia'); print(next((str(n) for p in (s.submodule_search_locations if s else []) for n in pathlib.Path(p).glob('*/bin/nvcc')), ''))"
      OUTPUT_VARIABLE packaged_nvcc OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(packaged_nvcc)
      set(UNISONO_NVCC "${packaged_nvcc}" CACHE FILEPATH "" FORCE)
    endif()
  endif()
endif()

set(UNISONO_KERNELS "")
if(UNISONO_CUDA STREQUAL "OFF")
  return()
elseif(NOT UNISONO_NVCC)
  if(UNISONO_CUDA STREQUAL "ON")
    message(FATAL_ERROR "UNISONO_CUDA is ON, but there is no nvcc; install the CUDA toolkit or "
      "nvidia-cuda-nvcc, or name it with -DUNISONO_NVCC=")
  endif()
  message(STATUS "There is no nvcc: the library is built without GPU kernels")
  return()
endif()

set(gencode "")
foreach(architecture IN LISTS UNISONO_CUDA_ARCHITECTURES)
  list(APPEND gencode -gencode arch=compute_${architecture},code=sm_${architecture})
  set(newest ${architecture})
endforeach()
# For devices newer than these, which compile it when it is loaded.
list(APPEND gencode -gencode arch=compute_${newest},code=compute_${newest})

set(kernels_folder "${PROJECT_BINARY_DIR}/kernels")

# unisono_kernels(<image> <resources> <source> <user> <macro> [<dependency>...])
#
# Compiles `source` into the fat binary `image`, which the file `user` embeds by the name `macro`;
# `resources` is what ptxas tells of it. Products are rounded before they are added, as on the host.
# Where ccache keeps objects, images are kept as well: nvcc takes a minute, and a checkout has several
# builds.
function(unisono_kernels image resources source user macro)
  set(script "${PROJECT_SOURCE_DIR}/cmake/CompileKernels.cmake")
  set(options -fatbin -std=c++20 -O3 -fmad=false --expt-relaxed-constexpr -Werror all-warnings
    -Xptxas -v --threads 0 ${gencode})
  set(cache "")
  if(UNISONO_CCACHE)
    set(cache "$ENV{XDG_CACHE_HOME}")
    if(NOT cache)
      set(cache "$ENV{HOME}/.cache")
    endif()
    string(APPEND cache "/unisono/kernels")
  endif()
  add_custom_command(OUTPUT "${image}" "${resources}"
    COMMAND "${CMAKE_COMMAND}" "-DNVCC=${UNISONO_NVCC}" "-DOPTIONS=${options}"
      "-DINCLUDES=${PROJECT_SOURCE_DIR}/src;${PROJECT_SOURCE_DIR}/include" "-DSOURCE=${source}"
      "-DDEPENDS=${ARGN}" "-DIMAGE=${image}" "-DRESOURCES=${resources}" "-DCACHE=${cache}"
      -P "${script}"
    DEPENDS "${source}" "${script}" ${ARGN}
    COMMENT "Compiling the GPU kernels of ${source} for ${UNISONO_CUDA_ARCHITECTURES}"
    VERBATIM)
  set_property(SOURCE "${user}" APPEND PROPERTY COMPILE_DEFINITIONS "${macro}=\"${image}\"")
  set_property(SOURCE "${user}" APPEND PROPERTY OBJECT_DEPENDS "${image}")
endfunction()

set(UNISONO_KERNELS "${kernels_folder}/kernels.fatbin")
set(kernel_resources "${kernels_folder}/resources.txt")
file(GLOB_RECURSE kernel_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/device/*.cuh"
  "${PROJECT_SOURCE_DIR}/src/device/*.h")
set(image_source "${PROJECT_SOURCE_DIR}/src/device/image.cc")
# A Python package has several libraries with the layers: they share one that holds the kernels.
set(UNISONO_SOURCES_APART "")
if(UNISONO_BUILD_PYTHON)
  set(UNISONO_SOURCES_APART "${image_source}")
  add_library(unisono_kernel_library SHARED "${image_source}")
  set_target_properties(unisono_kernel_library PROPERTIES OUTPUT_NAME unisono_kernels)
  target_compile_options(unisono_kernel_library PRIVATE "SHELL:-iquote ${PROJECT_SOURCE_DIR}/src")
  target_link_libraries(unisono_kernel_library PRIVATE unisono_flags)
  install(TARGETS unisono_kernel_library LIBRARY DESTINATION unisono COMPONENT python)
endif()
unisono_kernels("${UNISONO_KERNELS}" "${kernel_resources}"
  "${PROJECT_SOURCE_DIR}/src/device/kernels/kernels.cu" "${image_source}"
  UNISONO_KERNEL_IMAGE ${kernel_sources}
  "${PROJECT_SOURCE_DIR}/src/plan/chunk_layout.h" "${PROJECT_SOURCE_DIR}/include/unisono/types.h")
add_custom_target(unisono_kernels DEPENDS "${UNISONO_KERNELS}")
