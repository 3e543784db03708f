# The transport over libfabric (src/transport/ofi) is compiled where libfabric's headers are. The
# library itself is loaded at run time, so nothing is linked.

find_path(UNISONO_LIBFABRIC_INCLUDE rdma/fi_rma.h
  DOC "The folder of libfabric's rdma/fabric.h (libfabric-dev); without it there is no transport ofi")
set(ofi_folder "${PROJECT_SOURCE_DIR}/src/transport/ofi")
if(UNISONO_LIBFABRIC_INCLUDE)
  list(APPEND UNISONO_SOURCES_APART "${ofi_folder}/absent.cc")
  include_directories(SYSTEM "${UNISONO_LIBFABRIC_INCLUDE}")
else()
  message(STATUS "unisono: no libfabric headers; the transport ofi is left out")
  file(GLOB ofi_sources CONFIGURE_DEPENDS "${ofi_folder}/*.cc")
  list(REMOVE_ITEM ofi_sources "${ofi_folder}/absent.cc")
  list(APPEND UNISONO_SOURCES_APART ${ofi_sources})
endif()
