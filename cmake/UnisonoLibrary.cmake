# The shared library, its headers and its CMake package: what a C++ user installs.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(layer_objects "")
foreach(layer IN LISTS UNISONO_LAYERS)
  get_target_property(type ${layer} TYPE)
  if(type STREQUAL "STATIC_LIBRARY")
    list(APPEND layer_objects $<TARGET_OBJECTS:${layer}>)
  endif()
endforeach()

if(layer_objects AND NOT UNISONO_BUILD_PYTHON)
  # Objects, not archives: an archive would drop what no other layer refers to, and the public API is
  # referred to by nobody inside.
  add_library(unisono SHARED ${layer_objects})
  add_library(unisono::unisono ALIAS unisono)
  set_target_properties(unisono PROPERTIES
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
    LINKER_LANGUAGE CXX)
  target_compile_features(unisono PUBLIC cxx_std_20)
  target_include_directories(unisono PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(unisono PRIVATE $<BUILD_INTERFACE:unisono_flags>)

  # A sanitizer's run-time finds its hooks by symbols that this would hide.
  if(NOT UNISONO_SANITIZE)
    set(exports "${CMAKE_CURRENT_LIST_DIR}/exports.map")
    target_link_options(unisono PRIVATE "LINKER:--version-script=${exports}" LINKER:--no-undefined)
    set_property(TARGET unisono PROPERTY LINK_DEPENDS "${exports}")
  endif()

  set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/unisono")
  install(TARGETS unisono EXPORT unisonoTargets
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT cpp)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/unisono"
    DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT cpp FILES_MATCHING PATTERN "*.h")
  install(EXPORT unisonoTargets NAMESPACE unisono:: DESTINATION "${package_folder}" COMPONENT cpp)
  configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/unisonoConfig.cmake.in"
    "${PROJECT_BINARY_DIR}/unisonoConfig.cmake" INSTALL_DESTINATION "${package_folder}")
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/unisonoConfigVersion.cmake"
    COMPATIBILITY SameMinorVersion)
  install(FILES "${PROJECT_BINARY_DIR}/unisonoConfig.cmake"
    "${PROJECT_BINARY_DIR}/unisonoConfigVersion.cmake"
    DESTINATION "${package_folder}" COMPONENT cpp)

  # For projects without CMake. Relative, so that the installed tree can be moved.
  set(pc_folder "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
  file(RELATIVE_PATH UNISONO_PC_TO_PREFIX "/prefix/${pc_folder}" "/prefix")
  configure_file("${CMAKE_CURRENT_LIST_DIR}/unisono.pc.in" "${PROJECT_BINARY_DIR}/unisono.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/unisono.pc" DESTINATION "${pc_folder}" COMPONENT cpp)
endif()
