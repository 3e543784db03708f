# The C++ tests that tools/test leaves to `tools/test --rest`, by ctest's name, as filters of GoogleTest.
# All others run in the fast tier. Python tests say it with the marker `slow`.

set(UNISONO_REST_chaos "Chaos.WhatIsStruck*" "Chaos.ASeedIsTheSame*")
set(UNISONO_REST_comm "Backoff.WhoIsWoken*" "Dump.OfARank*" "Dump.AFailureWrites*")
set(UNISONO_REST_comm_blame "SimulatedInquiry.O*")
set(UNISONO_REST_comm_join "BootstrapMisuse.A*" "DeepTree.*")
set(UNISONO_REST_comm_observe "Survey.GoesAround*" "Survey.W*")
set(UNISONO_REST_comm_control "ControlGroup.AMemberThat*")
# The other settings of a transport, and each transport over libfabric.
set(UNISONO_REST_conformance "*/ofi_*" "*/wild_*" "*/quiet_*" "*/slow_*" "*/lazy_*" "*/auth_*"
  "*/encrypt_*" "*ExposingProcesses.*" "*GettingProcesses.*")
set(UNISONO_REST_engine "Protocols/EveryAlgorithm.*/ll" "Protocols/EveryAlgorithm.*/simple"
  "Protocols/EveryAlgorithm.DeliversManyTiles*" "Protocols/EveryAlgorithm.DeliversMessages*")
set(UNISONO_REST_engine_reduce "*EveryNarrowKernel.CombinesAllPairsOfEightBits*")
set(UNISONO_REST_fault "Shapes/*2" "Shapes/WaysToEnd.*" "Shapes/*socket" "Shapes/Limits.*" "Shapes/Blame.OneThat*"
  "Transports/Mismatches.*" "Worlds/UnlikeCalls.*/ofi_*" "Worlds/UnlikeCalls.*/*_2_nodes"
  "Worlds/UnlikeCalls.*/shm_3_*" "Worlds/UnlikeCalls.*/socket_2_*" "Worlds/UnlikeCalls.*/*_4_ranks_*"
  "Worlds/UnlikeCalls.*/*_5_ranks_*" "AllReduce/KilledNode.*" "CutOff.*" "Watchdog.*" "Timeout.*")
# Other numbers of ranks, and each plan on each path.
set(UNISONO_REST_gpu_emulated "GpuBulk.EveryPlanIsRight" "GpuBulk.GraphsReplay*" "GpuBulk.ARankSays*"
  "GpuExchanges.*" "GpuLongCopies.*" "Ranks/GpuSpecialisedKernels.*/4" "Gpu.GraphsReplayWith*" "GpuAverages.*"
  "GpuBulk.SlotsAndChunks*")
set(UNISONO_REST_gpu_emulated_devices "Ranks/GpuLl128ZeroCopyPlans.*" "Ranks/GpuStamps.AHang*"
  "Ranks/GpuStamps.What*" "Ranks/GpuCommunicator.GroupsOf*/4" "Ranks/GpuCommunicator.ACallThat*/4"
  "GpuLl128ZeroCopy.ASeedReplays" "By/GpuPlaces.*/kernels_*" "By/GpuUnlikeCalls.*"
  "Ranks/GpuCommunicator.CallsOnSeveral*/4")
set(UNISONO_REST_gpu_emulated_processes "Ranks/GpuMixedHosts.*" "Ranks/GpuHosts.*/1" "Ranks/GpuHosts.*/2"
  "Ranks/GpuProcesses.*/1" "GpuNvml.*")
set(UNISONO_REST_gpu_emulated_rings "Ranks/GpuRingHosts.KernelsRunEveryPlan/*" "Ranks/GpuRingHosts.Survivors*"
  "Ranks/GpuRingHosts.*/1" "Ranks/GpuRingHosts.*/2")
set(UNISONO_REST_gpu_emulated_room "GpuBulk.LeavingRoom*" "GpuBulk.InPlaceEvery*" "Ranks/GpuZeroCopyPlan.*/3"
  "Ranks/GpuZeroCopyPlan.*/4" "Ranks/GpuZeroCopyPlan.*/5" "Ranks/GpuZeroCopyPlan.*/6"
  "Ranks/GpuZeroCopyPlan.*/7" "Ranks/GpuZeroCopyPlan.*/8")
set(UNISONO_REST_multirank "ConnectionMemory.*" "LargeCollectives.*" "*Places.DoNotDecideWhichRegistered*")
set(UNISONO_REST_simulate "Symmetry.OfEveryEntryHolds")
set(UNISONO_REST_transport "Ofi.*" "Sockets.AnUnreachable*" "SocketWaits.An*" "Strangers.FiveHundred*"
  "All/Fifo.SlotsGoRound*" "All/Fifo.OffersArrive*")
set(UNISONO_REST_verify "Ranks/ZeroCopyOfRanks.*/8" "Mutation.WrongPlansAreCaught")
