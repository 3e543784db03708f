# unisono_layer(<name> [DEPENDS <layer>...])
#
# Turns src/<name> into the static library unisono_<name>, which links the layers it depends on. A
# folder that does not exist is skipped, one with headers only becomes an interface library.
# UNISONO_LAYERS collects the targets' names, lowest layer first.

include(UnisonoUnity)

set(UNISONO_LAYERS "")
string(TOLOWER "${CMAKE_SYSTEM_PROCESSOR}" UNISONO_PROCESSOR)

# A translation unit named for an instruction set is compiled for it, and only on a processor family
# that can have it; which one runs is decided at run time. Contraction stays off, because a fused
# multiply-add in one variant and not in another would give different bits.
set(UNISONO_ISA_FLAGS_avx2 -mavx2 -mfma -mf16c)
set(UNISONO_ISA_FLAGS_avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c)
set(UNISONO_ISA_FLAGS_f16c -mavx -mf16c)

# What most files include.
set(UNISONO_PRECOMPILED <algorithm> <array> <atomic> <chrono> <cstdint> <cstring> <functional> <map>
  <memory> <mutex> <optional> <random> <span> <string> <string_view> <thread> <unordered_map> <utility>
  <variant> <vector>)

# Headers that are read once, for a target and those that reuse its. clang writes paths and times into
# what it precompiles, so that it never is the same again: ccache compares this sum of what it reads
# instead. CMake's own options for clang also name the header, behind -Xclang, where ccache does not
# see that it is a path.
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  set(CMAKE_CXX_COMPILE_OPTIONS_USE_PCH -include-pch <PCH_FILE>)
endif()
function(unisono_precompile target)
  target_precompile_headers(${target} PRIVATE ${ARGN})
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    set(precompiled "${PROJECT_BINARY_DIR}/CMakeFiles/${target}.dir/cmake_pch.hxx")
    list(TRANSFORM ARGN PREPEND "#include " OUTPUT_VARIABLE includes)
    list(JOIN includes "\n" text)
    file(CONFIGURE OUTPUT "${precompiled}.read.cc" CONTENT "${text}\n" @ONLY)
    execute_process(
      COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -E -P "${precompiled}.read.cc"
      OUTPUT_VARIABLE read COMMAND_ERROR_IS_FATAL ANY)
    string(SHA256 sum "${CMAKE_CXX_COMPILER_VERSION}${read}")
    file(CONFIGURE OUTPUT "${precompiled}.pch.sum" CONTENT "${sum}\n" @ONLY)
  endif()
endfunction()

function(unisono_isa_sources out)
  set(kept "")
  foreach(source IN LISTS ARGN)
    if(source MATCHES "_(avx2|avx512|f16c)\\.cc$")
      set(isa "${CMAKE_MATCH_1}")  # the next MATCHES overwrites it
      if(NOT UNISONO_PROCESSOR MATCHES "^(x86_64|amd64)$")
        continue()
      endif()
      set_property(SOURCE "${source}" APPEND PROPERTY COMPILE_OPTIONS
        ${UNISONO_ISA_FLAGS_${isa}})
      set_property(SOURCE "${source}" PROPERTY SKIP_PRECOMPILE_HEADERS ON)
    elseif(source MATCHES "_neon\\.cc$" AND NOT UNISONO_PROCESSOR MATCHES "^(aarch64|arm64)$")
      continue()
    endif()
    if(source MATCHES "/engine/reduce/")
      # Floating-point exceptions are not observed; assuming so lets branches over them become selects.
      set_property(SOURCE "${source}" APPEND PROPERTY COMPILE_OPTIONS
        -ffp-contract=off -fno-trapping-math)
      if(NOT UNISONO_SANITIZE)
        set_property(SOURCE "${source}" APPEND PROPERTY COMPILE_OPTIONS -O3)
      endif()
    endif()
    list(APPEND kept "${source}")
  endforeach()
  set(${out} "${kept}" PARENT_SCOPE)
endfunction()

function(unisono_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "DEPENDS")
  set(folder "${PROJECT_SOURCE_DIR}/src/${name}")
  if(NOT IS_DIRECTORY "${folder}")
    return()
  endif()

  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${folder}/*.cc")
  if(UNISONO_SOURCES_APART)
    list(REMOVE_ITEM sources ${UNISONO_SOURCES_APART})
  endif()
  unisono_isa_sources(sources ${sources})
  set(target unisono_${name})
  if(sources)
    add_library(${target} STATIC ${sources})
    set(scope PUBLIC)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${target} ${scope} "${PROJECT_SOURCE_DIR}/include")
  # Only where everything is compiled once more: the plain build shows each file's missing includes.
  if(sources AND UNISONO_SANITIZE)
    if(name STREQUAL "base")
      unisono_precompile(${target} ${UNISONO_PRECOMPILED})
    else()
      target_precompile_headers(${target} REUSE_FROM unisono_base)
    endif()
    unisono_unity(${target} ${sources})
  endif()
  # For quoted includes only: src/sys must not hide the system's <sys/...>.
  target_compile_options(${target} ${scope} "SHELL:-iquote ${PROJECT_SOURCE_DIR}/src")
  target_link_libraries(${target} ${scope} unisono_flags)
  foreach(layer IN LISTS arg_DEPENDS)
    if(TARGET unisono_${layer})
      target_link_libraries(${target} ${scope} unisono_${layer})
    endif()
  endforeach()
  set(UNISONO_LAYERS ${UNISONO_LAYERS} ${target} PARENT_SCOPE)
endfunction()
