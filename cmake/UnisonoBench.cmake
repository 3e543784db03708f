# Every bench/<folder>/<name>_bench.cc becomes the program <name>_bench, built on request only: one
# by its name, all by `benches`.

file(GLOB bench_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/bench/*/*_bench.cc")
# `unisono bench --against` compiles the ranks of other libraries where they are installed.
list(FILTER bench_sources EXCLUDE REGEX "/bench/peers/")
if(NOT UNISONO_LIBFABRIC_INCLUDE)
  list(FILTER bench_sources EXCLUDE REGEX "/ofi_bench\\.cc$")
endif()
add_custom_target(benches)
foreach(source IN LISTS bench_sources)
  get_filename_component(name "${source}" NAME_WE)
  add_executable(${name} EXCLUDE_FROM_ALL "${source}")
  target_link_libraries(${name} PRIVATE ${UNISONO_LAYERS})
  add_dependencies(benches ${name})
endforeach()

# A driver that does nothing, by the name that drivers have, for gpu_call_bench.
file(GLOB stub_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/bench/gpu/stub_driver/*.cc")
add_library(stub_driver SHARED EXCLUDE_FROM_ALL ${stub_sources})
set_target_properties(stub_driver PROPERTIES OUTPUT_NAME cuda SUFFIX ".so.1"
  LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/stub_driver")
target_include_directories(stub_driver PRIVATE
  "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include")
add_dependencies(gpu_call_bench stub_driver)
