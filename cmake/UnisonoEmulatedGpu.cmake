# The kernels, compiled for the host, behind a driver of CUDA whose device is the host
# (tests/emulated_gpu): tests of tests/gpu that are quick enough run on it without a GPU.

file(GLOB emulated_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/emulated_gpu/*.cc")
add_library(emulated_gpu SHARED ${emulated_sources})
set(emulated_folder "${PROJECT_BINARY_DIR}/emulated_gpu")
# Found by the name that the driver has. Sums are rounded as on a device; threads leave by longjmp.
# The address of each thread_local variable is asked for by a call (shared_variables.h).
set(traditional gnu)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(traditional trad)
endif()
set_target_properties(emulated_gpu PROPERTIES OUTPUT_NAME cuda SUFFIX ".so.1"
  LIBRARY_OUTPUT_DIRECTORY "${emulated_folder}")
target_include_directories(emulated_gpu PRIVATE
  "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include")
target_compile_options(emulated_gpu PRIVATE -O2 -ffp-contract=off -U_FORTIFY_SOURCE
  -ftls-model=global-dynamic -mtls-dialect=${traditional}
  -Wno-unknown-pragmas "SHELL:-iquote ${PROJECT_SOURCE_DIR}/tests/emulated_gpu")
target_link_libraries(emulated_gpu PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
add_library(emulated_nvml SHARED "${PROJECT_SOURCE_DIR}/tests/emulated_gpu/management/nvml.cc")
set_target_properties(emulated_nvml PROPERTIES OUTPUT_NAME nvidia-ml SUFFIX ".so.1"
  LIBRARY_OUTPUT_DIRECTORY "${emulated_folder}")
add_dependencies(gpu_test emulated_gpu emulated_nvml)

# unisono_test_emulated(<name> <devices> <SMs> <test>...)
function(unisono_test_emulated name devices sms)
  # By a name of its own, which its report has, too.
  add_custom_command(TARGET gpu_test POST_BUILD COMMAND "${CMAKE_COMMAND}" -E create_symlink
    "$<TARGET_FILE_NAME:gpu_test>" "$<TARGET_FILE_DIR:gpu_test>/${name}" VERBATIM)
  unisono_add_tests(${name} "$<TARGET_FILE_DIR:gpu_test>/${name}" ONLY ${ARGN} ENVIRONMENT
    "LD_LIBRARY_PATH=${emulated_folder}" "UNISONO_EMULATED_DEVICES=${devices}"
    "UNISONO_EMULATED_SMS=${sms}")
endfunction()

unisono_test_emulated(gpu_emulated 1 16
  "Gpu.EveryTypeAndOperationIsCombinedRight" "Gpu.GraphsReplayWithNewData"
  "Ranks/GpuSpecialisedKernels.*" "By/GpuGroups.*" "GpuCopies.EveryPlan*" "GpuCopies.GraphsReplay*"
  "GpuZeroCopyTransfers.*" "GpuLongCopies.*" "GpuExchanges.*"
  "GpuAverages.*"
  "GpuBulk.EveryPlanIsRight" "GpuBulk.GraphsReplay*" "GpuBulk.ARankSays*" "GpuBulk.SlotsAndChunks*")
# Ranks that share so many have more than the few thread blocks that copy in bulk, and run every
# built-in plan.
unisono_test_emulated(gpu_emulated_room 1 72 "GpuBulk.LeavingRoom*" "GpuBulk.ARankHasFew*"
  "GpuBulk.InPlace*" "GpuBulk.NoFallback*"
  "Ranks/GpuZeroCopyPlan.*")
# Each rank with a device of its own.
unisono_test_emulated(gpu_emulated_devices 4 16
  "Ranks/GpuCommunicator.GroupsOf*/4" "Ranks/GpuCommunicator.CallsOnSeveral*/4"
  "Ranks/GpuCommunicator.Splits*/4" "Ranks/GpuCommunicator.RegisteredPlans*/4" "Ranks/GpuCommunicator.APlansName*/4"
  "Ranks/GpuCommunicator.Refuses*/4" "Ranks/GpuCommunicator.IsCaptured*/4"
  "Ranks/GpuCommunicator.Abort*/4" "Ranks/GpuCommunicator.ACallThat*/4" "Ranks/GpuStamps.*" "Ranks/GpuFallbacks.*" "Ranks/GpuLinks.*" "GpuZeroSm.*" "GpuWindows.*" "GpuPool.*"
  "By/GpuPlaces.*" "By/GpuUnlikeCalls.OfAnotherShape*" "By/GpuUnlikeCalls.ByAnotherPlan*"
  "By/GpuUnlikeCalls.OfAnotherCollective*/interpreter*" "By/GpuUnlikeCalls.OfAnotherCollective*/ll*"
  "Of/GpuUnlikeMessages.*" "Of/GpuUnlikeCopies.*" "GpuUnlikePlaces.*"
  "GpuLl128ZeroCopy.ASeedReplays" "Ranks/GpuLl128ZeroCopyPlans.*/0" "Ranks/GpuLl128ZeroCopyPlans.*/2")
# Forked ranks open their devices themselves: a fork leaves the threads of the parent's devices
# behind.
unisono_test_emulated(gpu_emulated_processes 4 16 "Ranks/GpuProcesses.*" "Ranks/GpuHosts.*" "GpuNvml.*"
  "Ranks/GpuMixedHosts.*")
unisono_test_emulated(gpu_emulated_rings 4 16 "Ranks/GpuRingHosts.*" "Ranks/GpuRingMessages.*"
  "RingMessages.*")

# NCCL's interface on devices: of one process, and of processes on several hosts, which are forked
# before any device is opened.
add_executable(nccl_devices_test "${PROJECT_SOURCE_DIR}/tests/nccl/devices/devices_test.cc"
  "${PROJECT_SOURCE_DIR}/tests/nccl/devices/hosts_test.cc" "${PROJECT_SOURCE_DIR}/tests/nccl/ranks.cc")
target_include_directories(nccl_devices_test PRIVATE "${PROJECT_SOURCE_DIR}/bindings")
target_link_libraries(nccl_devices_test PRIVATE
  unisono_test_support GTest::gtest_main unisono_nccl)
add_dependencies(nccl_devices_test emulated_gpu)
foreach(suite Devices Hosts)
  string(TOLOWER "nccl_emulated_${suite}" test)
  unisono_add_tests(${test} nccl_devices_test ONLY "*Nccl${suite}.*" ENVIRONMENT
    "LD_LIBRARY_PATH=${emulated_folder}" UNISONO_EMULATED_DEVICES=4 UNISONO_EMULATED_SMS=16)
endforeach()
