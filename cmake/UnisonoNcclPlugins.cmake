# libnccl-profiler-unisono.so: NCCL's profiler plugin, which writes the record. It stands beside
# NVIDIA's NCCL, shows nothing but the tables that NCCL looks up, and holds the three lowest layers
# that it needs.

add_library(unisono_nccl_profiler SHARED
  "${PROJECT_SOURCE_DIR}/bindings/nccl_plugins/call_log.cc"
  "${PROJECT_SOURCE_DIR}/bindings/nccl_plugins/profiler.cc"
  "${PROJECT_SOURCE_DIR}/bindings/nccl_plugins/recorder.cc")
target_link_libraries(unisono_nccl_profiler PRIVATE unisono_trace unisono_sys unisono_base)
set_target_properties(unisono_nccl_profiler PROPERTIES
  OUTPUT_NAME nccl-profiler-unisono LINKER_LANGUAGE CXX)
# NCCL may unload it while its thread waits to write the record of a communicator that never ended.
target_link_options(unisono_nccl_profiler PRIVATE LINKER:-z,nodelete)
if(NOT UNISONO_SANITIZE)
  set(plugin_exports "${PROJECT_SOURCE_DIR}/bindings/nccl_plugins/exports.map")
  target_link_options(unisono_nccl_profiler PRIVATE "LINKER:--version-script=${plugin_exports}"
    LINKER:--no-undefined)
  set_property(TARGET unisono_nccl_profiler APPEND PROPERTY LINK_DEPENDS "${plugin_exports}")
endif()

if(UNISONO_BUILD_PYTHON)
  install(TARGETS unisono_nccl_profiler LIBRARY DESTINATION unisono COMPONENT python)
else()
  install(TARGETS unisono_nccl_profiler LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT cpp)
endif()
