# libunisono_nccl.so: the layers behind NCCL's binary interface. Its SONAME is NCCL's, so that where it
# is preloaded no other NCCL is loaded; it holds the layers itself and shows nothing but NCCL's names.

file(GLOB nccl_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/bindings/nccl/*.cc")
add_library(unisono_nccl SHARED ${nccl_sources})
target_include_directories(unisono_nccl PRIVATE "${PROJECT_SOURCE_DIR}/include")
target_link_libraries(unisono_nccl PRIVATE ${UNISONO_LAYERS})
set_target_properties(unisono_nccl PROPERTIES NO_SONAME ON LINKER_LANGUAGE CXX)
# Its own calls stay inside: a tool that stands before NCCL sees those of the program, once. It stays
# loaded, because a thread of it answers unisono ras.
target_link_options(unisono_nccl PRIVATE LINKER:-soname,libnccl.so.2 LINKER:-Bsymbolic-functions
  LINKER:-z,nodelete)
# A sanitizer's run-time finds its hooks by symbols that this would hide.
if(NOT UNISONO_SANITIZE)
  set(nccl_exports "${PROJECT_SOURCE_DIR}/bindings/nccl/exports.map")
  target_link_options(unisono_nccl PRIVATE "LINKER:--version-script=${nccl_exports}"
    LINKER:--no-undefined)
  set_property(TARGET unisono_nccl APPEND PROPERTY LINK_DEPENDS "${nccl_exports}")
endif()
# What is linked to it asks for it by its SONAME; installed it has its own name only, so that no system's
# NCCL is hidden by it unasked.
add_custom_command(TARGET unisono_nccl POST_BUILD COMMAND "${CMAKE_COMMAND}" -E create_symlink
  "$<TARGET_FILE_NAME:unisono_nccl>" "$<TARGET_FILE_DIR:unisono_nccl>/libnccl.so.2" VERBATIM)

if(UNISONO_BUILD_PYTHON)
  set_target_properties(unisono_nccl PROPERTIES INSTALL_RPATH $ORIGIN)
  install(TARGETS unisono_nccl LIBRARY DESTINATION unisono COMPONENT python)
else()
  install(TARGETS unisono_nccl LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT cpp)
endif()
