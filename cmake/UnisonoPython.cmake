# The extension modules: unisono._unisono, the layers, linked statically, behind nanobind; and
# unisono._bench, which measures them and links to the first.

file(GLOB python_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/bindings/python/*.cc")
if(NOT python_sources)
  message(STATUS "bindings/python has no sources; the extension is not built")
  return()
endif()

find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(COMMAND "${Python_EXECUTABLE}" -m nanobind --cmake_dir
  OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE nanobind_ROOT COMMAND_ERROR_IS_FATAL ANY)
find_package(nanobind CONFIG REQUIRED)

set(python_folder "${PROJECT_SOURCE_DIR}/bindings/python")
file(GLOB bench_module_sources CONFIGURE_DEPENDS "${python_folder}/bench/*.cc")
nanobind_add_module(_unisono NB_STATIC ${python_sources})
# The loop that times calls, here and in bench/peers' programs.
set(peers_folder "${PROJECT_SOURCE_DIR}/bench/peers")
nanobind_add_module(_bench NB_STATIC ${bench_module_sources} "${python_folder}/convert.cc"
  "${python_folder}/edge.cc" "${peers_folder}/worker.cc")
target_include_directories(_bench PRIVATE "${python_folder}" "${peers_folder}")
set_source_files_properties("${peers_folder}/worker.cc" PROPERTIES COMPILE_OPTIONS -O3)
install(FILES "${peers_folder}/worker.h" "${peers_folder}/worker.cc" "${peers_folder}/mpi_bench.cc"
  "${peers_folder}/gloo_bench.py" DESTINATION unisono/bench/workers COMPONENT python)
# What the bench runs on devices besides the library's kernels.
if(UNISONO_KERNELS)
  unisono_kernels("${kernels_folder}/bench.fatbin" "${kernels_folder}/bench_resources.txt"
    "${PROJECT_SOURCE_DIR}/bindings/python/bench/kernels.cu"
    "${PROJECT_SOURCE_DIR}/bindings/python/bench/kernels.cc" UNISONO_BENCH_KERNEL_IMAGE
    "${python_folder}/bench/program.h" ${kernel_sources})
endif()
# All of the public API, which _bench and the backend of PyTorch take from it, called here or not.
target_link_options(_unisono PRIVATE
  "LINKER:--whole-archive,$<TARGET_FILE:unisono_comm>,--no-whole-archive")
target_link_libraries(_unisono PRIVATE ${UNISONO_LAYERS})
# A module is nothing that CMake links to: the headers are the layers', the code is the file's.
foreach(layer IN LISTS UNISONO_LAYERS)
  target_include_directories(_bench PRIVATE
    $<TARGET_PROPERTY:${layer},INTERFACE_INCLUDE_DIRECTORIES>)
  target_compile_options(_bench PRIVATE $<TARGET_PROPERTY:${layer},INTERFACE_COMPILE_OPTIONS>)
endforeach()
add_dependencies(_bench _unisono)
target_link_libraries(_bench PRIVATE "-L$<TARGET_FILE_DIR:_unisono>"
  "-l:$<TARGET_FILE_NAME:_unisono>" ${CMAKE_DL_LIBS})
# Its headers are not ours to warn about.
get_target_property(nanobind_headers nanobind-static INTERFACE_INCLUDE_DIRECTORIES)
foreach(module _unisono _bench)
  target_include_directories(${module} SYSTEM PRIVATE ${nanobind_headers})
  target_compile_definitions(${module} PRIVATE UNISONO_VERSION="${PROJECT_VERSION}")
  set_target_properties(${module} PROPERTIES INSTALL_RPATH $ORIGIN BUILD_RPATH $ORIGIN)
  install(TARGETS ${module} LIBRARY DESTINATION unisono COMPONENT python)
endforeach()
if(NOT UNISONO_SANITIZE)
  set(exports "${CMAKE_CURRENT_LIST_DIR}/exports.map")
  target_link_options(_unisono PRIVATE "LINKER:--version-script=${exports}")
  set_property(TARGET _unisono APPEND PROPERTY LINK_DEPENDS "${exports}")
endif()

# What unisono.torch is compiled from where PyTorch is (python/unisono/torch/_build.py). It links to
# the extension itself, so that a process has one core: the public API must stay visible in it.
install(DIRECTORY "${PROJECT_SOURCE_DIR}/bindings/torch/" DESTINATION unisono/torch_sources
  COMPONENT python FILES_MATCHING PATTERN "*.h" PATTERN "*.cc")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/" DESTINATION unisono/include COMPONENT python)

# The clusters that the simulator knows by name.
install(DIRECTORY "${PROJECT_SOURCE_DIR}/clusters/" DESTINATION unisono/clusters COMPONENT python
  FILES_MATCHING PATTERN "*.yaml")
