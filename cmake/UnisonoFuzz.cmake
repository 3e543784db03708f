# tests/fuzz/<name>_fuzz.cc defines LLVMFuzzerTestOneInput. With UNISONO_BUILD_FUZZERS it becomes the
# libFuzzer program <name>_fuzz; otherwise <name>_replay, which feeds it the files of
# tests/fuzz/corpus/<name>, so that what a fuzzer once found stays tested with any compiler.

# Instrumented by clang for nothing else: only the decoders' files and those they stand on.
if(UNISONO_BUILD_FUZZERS)
  file(GLOB_RECURSE fuzzed_sources CONFIGURE_DEPENDS
    "${PROJECT_SOURCE_DIR}/src/base/*.cc"
    "${PROJECT_SOURCE_DIR}/src/plan/*.cc"
    "${PROJECT_SOURCE_DIR}/src/sys/*.cc"
    "${PROJECT_SOURCE_DIR}/src/transport/socket/*.cc"
    "${PROJECT_SOURCE_DIR}/src/transport/fault.cc"
    "${PROJECT_SOURCE_DIR}/src/transport/request.cc"
    "${PROJECT_SOURCE_DIR}/src/comm/bootstrap_*.cc"
    "${PROJECT_SOURCE_DIR}/src/simulate/goal.cc"
    "${PROJECT_SOURCE_DIR}/src/simulate/goal_text.cc"
    "${PROJECT_SOURCE_DIR}/src/simulate/goal_binary.cc")
  add_library(unisono_fuzzed STATIC ${fuzzed_sources})
  target_include_directories(unisono_fuzzed PUBLIC "${PROJECT_SOURCE_DIR}/include")
  target_compile_options(unisono_fuzzed PUBLIC "SHELL:-iquote ${PROJECT_SOURCE_DIR}/src")
  target_link_libraries(unisono_fuzzed PUBLIC unisono_flags)
  target_precompile_headers(unisono_fuzzed PRIVATE ${UNISONO_PRECOMPILED})
  unisono_unity(unisono_fuzzed ${fuzzed_sources})
endif()

file(GLOB fuzz_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/fuzz/*_fuzz.cc")
foreach(source IN LISTS fuzz_sources)
  get_filename_component(name "${source}" NAME_WE)
  string(REGEX REPLACE "_fuzz$" "" name "${name}")
  if(UNISONO_BUILD_FUZZERS)
    add_executable(${name}_fuzz "${source}")
    target_link_options(${name}_fuzz PRIVATE -fsanitize=fuzzer)
    target_link_libraries(${name}_fuzz PRIVATE unisono_fuzzed)
  elseif(NOT UNISONO_SANITIZE STREQUAL "thread")
    add_executable(${name}_replay "${source}" "${PROJECT_SOURCE_DIR}/tests/fuzz/replay.cc")
    target_link_libraries(${name}_replay PRIVATE ${UNISONO_LAYERS})
    add_test(NAME ${name}_replay
      COMMAND ${name}_replay "${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name}")
    set_tests_properties(${name}_replay PROPERTIES TIMEOUT ${UNISONO_TEST_TIMEOUT_SECONDS})
  endif()
endforeach()
