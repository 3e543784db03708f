# A driver of CUDA whose device is the host, without kernels: tests of what maps and copies device
# memory link to it, and so need neither a GPU nor a toolkit, and sanitizers see what it does.

set(emulated_driver_folder "${PROJECT_SOURCE_DIR}/tests/emulated_gpu")
add_library(emulated_driver SHARED
  "${emulated_driver_folder}/device.cc" "${emulated_driver_folder}/driver.cc"
  "${emulated_driver_folder}/scheduler.cc" "${emulated_driver_folder}/without_kernels/kernels.cc")
# The name by which src/sys/cuda opens a driver: one that is loaded already is taken.
set_target_properties(emulated_driver PROPERTIES OUTPUT_NAME cuda SUFFIX ".so.1"
  LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/emulated_driver")
target_compile_options(emulated_driver PRIVATE ${test_options})
target_include_directories(emulated_driver PRIVATE
  "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include" "${emulated_driver_folder}")
target_link_libraries(emulated_driver PRIVATE unisono_flags Threads::Threads)

# unisono_test_with_emulated_driver(<test program>)
function(unisono_test_with_emulated_driver program)
  target_link_options(${program} PRIVATE -Wl,--no-as-needed)
  target_link_libraries(${program} PRIVATE emulated_driver)
endfunction()

unisono_test_with_emulated_driver(conformance_test)
unisono_test_with_emulated_driver(transport_test)
unisono_test_with_emulated_driver(comm_job_test)
