# tests/fuzz/<name>_fuzz.cc defines LLVMFuzzerTestOneInput. With UNISONO_BUILD_FUZZERS it becomes the
# libFuzzer program <name>_fuzz; otherwise <name>_replay, which feeds it the files of
# tests/fuzz/corpus/<name>, so that what a fuzzer once found stays tested with any compiler.

file(GLOB fuzz_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/fuzz/*_fuzz.cc")
foreach(source IN LISTS fuzz_sources)
  get_filename_component(name "${source}" NAME_WE)
  string(REGEX REPLACE "_fuzz$" "" name "${name}")
  if(UNISONO_BUILD_FUZZERS)
    add_executable(${name}_fuzz "${source}")
    target_link_options(${name}_fuzz PRIVATE -fsanitize=fuzzer)
    target_link_libraries(${name}_fuzz PRIVATE ${UNISONO_LAYERS})
  elseif(NOT UNISONO_SANITIZE STREQUAL "thread")
    add_executable(${name}_replay "${source}" "${PROJECT_SOURCE_DIR}/tests/fuzz/replay.cc")
    target_link_libraries(${name}_replay PRIVATE ${UNISONO_LAYERS})
    add_test(NAME ${name}_replay
      COMMAND ${name}_replay "${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name}")
    set_tests_properties(${name}_replay PROPERTIES TIMEOUT ${UNISONO_TEST_TIMEOUT_SECONDS})
  endif()
endforeach()
