# Every folder tests/<name> with *_test.cc files becomes the program <name>_test and one ctest of the
# same name; tests/support is the library that they share.

find_package(GTest REQUIRED)

# Tests are compiled more often than run: the code under test is optimised, they hardly.
if(UNISONO_SANITIZE)
  set(test_options -O0)
else()
  set(test_options -O1)
endif()

add_library(unisono_all INTERFACE)
target_link_libraries(unisono_all INTERFACE ${UNISONO_LAYERS})
target_include_directories(unisono_all INTERFACE
  "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/tests")

file(GLOB support_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/support/*.cc")
if(support_sources)
  add_library(unisono_test_support STATIC ${support_sources})
  target_link_libraries(unisono_test_support PUBLIC unisono_all GTest::gtest)
  set_source_files_properties("${PROJECT_SOURCE_DIR}/tests/support/folders.cc" PROPERTIES
    SKIP_UNITY_BUILD_INCLUSION ON COMPILE_DEFINITIONS
    "UNISONO_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\";UNISONO_BINARY_DIR=\"${PROJECT_BINARY_DIR}\"")
  if(UNISONO_SANITIZE)
    unisono_unity(unisono_test_support ${support_sources})
  endif()
else()
  add_library(unisono_test_support INTERFACE)
  target_link_libraries(unisono_test_support INTERFACE unisono_all GTest::gtest)
endif()

# No test may hang the suite; the longest under a sanitizer on two cores stays well below this.
set(UNISONO_TEST_TIMEOUT_SECONDS 1800)

include("${PROJECT_SOURCE_DIR}/tests/rest_tier.cmake")

# unisono_add_tests(<name> <program> [ENVIRONMENT <variable=value>...] [ONLY <filter>...])
#
# Adds the ctest `name`, and `name_rest` with the label "rest" for what tests/rest_tier.cmake lists by
# that name. Instrumented builds run all of a program as one.
function(unisono_add_tests name program)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "ENVIRONMENT;ONLY")
  set(only "*")
  if(arg_ONLY)
    list(JOIN arg_ONLY ":" only)
  endif()
  set(rest "${UNISONO_REST_${name}}")
  set(added ${name})
  if(UNISONO_SANITIZE OR NOT rest)
    add_test(NAME ${name} COMMAND ${program} "--gtest_filter=${only}")
  else()
    list(JOIN rest ":" rest)
    add_test(NAME ${name} COMMAND ${program} "--gtest_filter=${only}-${rest}")
    # GoogleTest has no intersection: what has both lists names the rest in full.
    add_test(NAME ${name}_rest COMMAND ${program} "--gtest_filter=${rest}")
    list(APPEND added ${name}_rest)
    set_tests_properties(${name}_rest PROPERTIES LABELS rest)
  endif()
  set_tests_properties(${added} PROPERTIES TIMEOUT ${UNISONO_TEST_TIMEOUT_SECONDS}
    ENVIRONMENT "${arg_ENVIRONMENT}")
endfunction()

# Tests spend most of their compilation on GoogleTest's header: it is read once, for a program that
# holds nothing else.
set(headers_source "${PROJECT_BINARY_DIR}/test_headers.cc")
file(CONFIGURE OUTPUT "${headers_source}" CONTENT "int main() { return 0; }\n")
add_executable(test_headers "${headers_source}")
target_compile_options(test_headers PRIVATE ${test_options})
target_link_libraries(test_headers PRIVATE unisono_test_support GTest::gtest_main)
unisono_precompile(test_headers <gtest/gtest.h> ${UNISONO_PRECOMPILED})

# Neither these tests nor what they call start a thread, nor do fuzzers' inputs: the thread sanitizer
# has nothing to see there. A test of tests/tidy holds this list against the sources.
set(UNISONO_SINGLE_THREADED
  algorithm compile device_arithmetic engine engine_reduce plan simulate synthesize topo topo_host verify)

# Replaces the allocator, as a sanitizer does; its test leaves it out there.
set(UNISONO_UNSANITIZED_PROGRAMS quiet)

# These look at the compiler's report of the kernels, or need a GPU, whose driver no sanitizer knows.
set(UNISONO_DEVICE_TESTS device gpu)

file(GLOB test_folders CONFIGURE_DEPENDS LIST_DIRECTORIES true "${PROJECT_SOURCE_DIR}/tests/*")
foreach(folder IN LISTS test_folders)
  file(GLOB sources CONFIGURE_DEPENDS "${folder}/*_test.cc")
  if(NOT sources)
    continue()
  endif()
  get_filename_component(name "${folder}" NAME)
  if(UNISONO_SANITIZE STREQUAL "thread" AND name IN_LIST UNISONO_SINGLE_THREADED)
    continue()
  endif()
  if(UNISONO_SANITIZE AND name IN_LIST UNISONO_DEVICE_TESTS)
    continue()
  endif()
  file(GLOB helpers CONFIGURE_DEPENDS "${folder}/*.cc")
  list(FILTER helpers EXCLUDE REGEX "_(test|main)\\.cc$")
  add_executable(${name}_test ${sources} ${helpers})
  target_compile_options(${name}_test PRIVATE ${test_options})
  # Instrumented code is some ten times slower: tests draw fewer random cases by this.
  if(UNISONO_SANITIZE)
    target_compile_definitions(${name}_test PRIVATE UNISONO_SANITIZED=1)
  endif()
  unisono_unity(${name}_test ${sources} ${helpers})
  target_precompile_headers(${name}_test REUSE_FROM test_headers)
  target_link_libraries(${name}_test PRIVATE unisono_test_support GTest::gtest_main)
  unisono_add_tests(${name} ${name}_test)

  # A <word>_main.cc beside the tests is a program of its own, which they start.
  file(GLOB mains CONFIGURE_DEPENDS "${folder}/*_main.cc")
  foreach(main IN LISTS mains)
    get_filename_component(program "${main}" NAME_WE)
    string(REGEX REPLACE "_main$" "" program "${program}")
    if(UNISONO_SANITIZE AND program IN_LIST UNISONO_UNSANITIZED_PROGRAMS)
      continue()
    endif()
    add_executable(${program} "${main}")
    target_link_libraries(${program} PRIVATE unisono_test_support)
    add_dependencies(${name}_test ${program})
  endforeach()
endforeach()

# What is written for nvcc, with stand-ins for a GPU's instructions before these.
if(TARGET device_arithmetic_test)
  target_compile_options(device_arithmetic_test PRIVATE -Wno-unknown-pragmas
    "SHELL:-iquote ${PROJECT_SOURCE_DIR}/tests/emulated_gpu")
endif()

include(UnisonoEmulatedDriver)
if(UNISONO_KERNELS AND NOT UNISONO_SANITIZE)
  include(UnisonoEmulatedGpu)
endif()

# Through the library's exports, as NCCL's users reach them.
target_link_libraries(nccl_test PRIVATE unisono_nccl)
target_include_directories(nccl_test PRIVATE "${PROJECT_SOURCE_DIR}/bindings")
target_include_directories(torch_binding_test PRIVATE "${PROJECT_SOURCE_DIR}/bindings")

# Loaded at run time, as NCCL does.
add_dependencies(nccl_plugins_test unisono_nccl_profiler)

include(UnisonoTestFabric)

# The same programs, compiled against NVIDIA's own headers, which are not part of this project.
set(UNISONO_NCCL_INCLUDE "" CACHE PATH
  "A folder with nccl.h and nccl_device/, of NCCL 2.32 or newer: tests/nccl is compiled with it, too")
if(UNISONO_NCCL_INCLUDE)
  get_target_property(nccl_test_sources nccl_test SOURCES)
  add_executable(nccl_headers_test ${nccl_test_sources})
  target_compile_definitions(nccl_headers_test PRIVATE UNISONO_NCCL_HEADERS)
  target_include_directories(nccl_headers_test SYSTEM PRIVATE
    "${PROJECT_SOURCE_DIR}/tests/nccl/headers/cuda_stand_in" "${UNISONO_NCCL_INCLUDE}")
  target_link_libraries(nccl_headers_test PRIVATE
    unisono_test_support GTest::gtest_main unisono_nccl)
  add_test(NAME nccl_headers COMMAND nccl_headers_test)
  set_tests_properties(nccl_headers PROPERTIES TIMEOUT ${UNISONO_TEST_TIMEOUT_SECONDS})
endif()
