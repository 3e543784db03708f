# Run by ninja: compiles GPU kernels into a fat binary, or takes the one that the same compiler made of
# the same sources, as ccache does for C++.
#
#   cmake -DNVCC=… -DOPTIONS=… -DINCLUDES=… -DSOURCE=… -DDEPENDS=… -DIMAGE=… -DRESOURCES=… -DCACHE=… -P …
#
# IMAGE gets the fat binary, RESOURCES what ptxas tells of it. CACHE is a folder, or empty for none. In
# INCLUDES each folder is named as it is; the key has the contents of DEPENDS alone.

get_filename_component(folder "${IMAGE}" DIRECTORY)
file(MAKE_DIRECTORY "${folder}")

set(kept "")
if(CACHE)
  execute_process(COMMAND "${NVCC}" --version OUTPUT_VARIABLE key COMMAND_ERROR_IS_FATAL ANY)
  string(APPEND key "${OPTIONS}")
  foreach(file IN LISTS SOURCE DEPENDS)
    file(SHA256 "${file}" digest)
    string(APPEND key "${digest}")
  endforeach()
  string(SHA256 key "${key}")
  set(kept "${CACHE}/${key}")
  if(EXISTS "${kept}/image" AND EXISTS "${kept}/resources")
    file(COPY_FILE "${kept}/image" "${IMAGE}")
    file(COPY_FILE "${kept}/resources" "${RESOURCES}")
    # Newer than what they were made of, or ninja would come again.
    file(TOUCH "${IMAGE}" "${RESOURCES}")
    return()
  endif()
endif()

set(includes "")
foreach(include IN LISTS INCLUDES)
  list(APPEND includes -I "${include}")
endforeach()
execute_process(COMMAND "${NVCC}" ${OPTIONS} ${includes} -o "${IMAGE}" "${SOURCE}"
  RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said)
file(WRITE "${RESOURCES}" "${said}")
if(NOT status EQUAL 0)
  file(REMOVE "${IMAGE}")
  message(FATAL_ERROR "${said}")
endif()

# By a name of its own first: another build may read at the same time.
if(kept)
  string(RANDOM LENGTH 12 suffix)
  file(MAKE_DIRECTORY "${kept}.${suffix}")
  file(COPY_FILE "${IMAGE}" "${kept}.${suffix}/image")
  file(COPY_FILE "${RESOURCES}" "${kept}.${suffix}/resources")
  file(RENAME "${kept}.${suffix}" "${kept}" RESULT result)
  if(NOT result EQUAL 0)
    file(REMOVE_RECURSE "${kept}.${suffix}")
  endif()
endif()
