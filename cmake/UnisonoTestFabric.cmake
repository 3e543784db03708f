# The provider of libfabric that the tests load: tests/fabric says what it asks for and gets wrong.
# libfabric loads what ends in -fi.so from FI_PROVIDER_PATH, a folder.

find_library(UNISONO_LIBFABRIC_LIBRARY fabric
  DOC "libfabric (libfabric-dev); without it the tests leave out their own provider")
if(UNISONO_LIBFABRIC_INCLUDE AND UNISONO_LIBFABRIC_LIBRARY)
  file(GLOB fabric_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/fabric/*.cc")
  add_library(unisono_demanding MODULE ${fabric_sources})
  target_compile_options(unisono_demanding PRIVATE ${test_options})
  target_include_directories(unisono_demanding PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(unisono_demanding PRIVATE unisono_flags "${UNISONO_LIBFABRIC_LIBRARY}")
  set_target_properties(unisono_demanding PROPERTIES
    OUTPUT_NAME unisono_demanding-fi CXX_VISIBILITY_PRESET hidden
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/fabric")
  add_dependencies(conformance_test unisono_demanding)
  add_dependencies(transport_test unisono_demanding)
endif()
