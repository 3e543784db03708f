# unisono_unity(<target> <source>...)
#
# Compiles the sources of a target several at a time: what templates and headers cost is then paid
# once for them all, which halves the time of an instrumented build and of the tests. Files of which
# two define a name of their own alike (functions, types and constants in anonymous namespaces) go to
# different groups, and so do a file and one that includes a header of its folder with such a name. The
# plain build compiles every file of the library by itself, with all warnings.

set(UNISONO_UNITY_FILES 8)

# What a file defines outside of classes, by the layout that clang-format keeps: such a definition
# starts in the first column, its name stands before a bracket or a sign of equality. A name too many
# costs no more than another group.
function(unisono_defined_names source out)
  file(READ "${source}" text)
  # What CMake's lists would take for their own.
  string(REPLACE ";" "=" text "\n${text}")
  string(REGEX REPLACE "[][\"\\]" " " text "${text}")
  string(REGEX MATCHALL "\n[A-Za-z][^\n]*" lines "${text}")
  list(FILTER lines EXCLUDE REGEX "^\n(namespace|using|return|template|requires|TEST|INSTANTIATE)")
  string(REGEX MATCHALL "[A-Za-z0-9_:~']+ *[({=]|(struct|class|enum) [A-Za-z0-9_]+" names "${lines}")
  list(TRANSFORM names REPLACE "[ ({=]|struct |class |enum " "")
  list(FILTER names EXCLUDE REGEX "^[0-9]|:|~|^(const|noexcept|override|default|void|bool|sizeof)$")
  list(REMOVE_DUPLICATES names)
  set(${out} "${names}" PARENT_SCOPE)
endfunction()

# What the headers in a file's own folder define, which it includes.
function(unisono_included_names source out)
  get_filename_component(folder "${source}" DIRECTORY)
  file(STRINGS "${source}" includes REGEX "^#include \"")
  set(all "")
  foreach(include IN LISTS includes)
    string(REGEX REPLACE "^#include \"([^\"]*/)?([^\"/]+)\".*" "\\2" name "${include}")
    if(EXISTS "${folder}/${name}")
      unisono_defined_names("${folder}/${name}" names)
      list(APPEND all ${names})
    endif()
  endforeach()
  set(${out} "${all}" PARENT_SCOPE)
endfunction()

# Whether two lists have an element in common.
function(unisono_overlap first second out)
  set(${out} FALSE PARENT_SCOPE)
  foreach(name IN LISTS ${first})
    if(name IN_LIST ${second})
      set(${out} TRUE PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

function(unisono_unity target)
  set(count 0)
  foreach(source IN LISTS ARGN)
    get_filename_component(source "${source}" ABSOLUTE)
    unisono_defined_names("${source}" names)
    unisono_included_names("${source}" included)
    set(chosen ${count})
    if(count GREATER 0)
      math(EXPR last "${count} - 1")
      foreach(group RANGE ${last})
        list(LENGTH files_${group} length)
        set(visible ${names_${group}} ${included_${group}})
        unisono_overlap(names visible is_defined_twice)
        unisono_overlap(included names_${group} is_hidden)
        if(length LESS UNISONO_UNITY_FILES AND NOT is_defined_twice AND NOT is_hidden)
          set(chosen ${group})
          break()
        endif()
      endforeach()
    endif()
    if(chosen EQUAL count)
      math(EXPR count "${count} + 1")
      set(files_${chosen} "")
      set(names_${chosen} "")
      set(included_${chosen} "")
    endif()
    list(APPEND files_${chosen} "${source}")
    list(APPEND names_${chosen} ${names})
    list(APPEND included_${chosen} ${included})
    set_property(SOURCE "${source}" PROPERTY UNITY_GROUP "${target}_${chosen}")
  endforeach()
  # Relocatable: the files that are written name no path of this checkout, which ccache would compare.
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD ON UNITY_BUILD_MODE GROUP UNITY_BUILD_RELOCATABLE ON)
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()
