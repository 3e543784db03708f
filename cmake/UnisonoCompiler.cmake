# The flags that every target of this project is compiled with.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_package(Threads REQUIRED)

add_library(unisono_flags INTERFACE)
target_compile_options(unisono_flags INTERFACE
  -Wall -Wextra -Wnon-virtual-dtor -Wno-missing-field-initializers -fno-omit-frame-pointer)
# Where several files are compiled at a time, names of one are in the others' sight.
if(NOT UNISONO_SANITIZE)
  target_compile_options(unisono_flags INTERFACE
    $<$<NOT:$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>>:-Wshadow>)
endif()
if(UNISONO_WERROR)
  target_compile_options(unisono_flags INTERFACE -Werror)
endif()
target_link_libraries(unisono_flags INTERFACE Threads::Threads)
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  target_link_libraries(unisono_flags INTERFACE rt)
endif()

# The flags are global, so that no object, of whichever target, is left without instrumentation. -O1
# keeps the tests bearable and -g1 the build: names and lines are all that a report shows. UBSan's
# checks for null and for an object's size are left to ASan, which sees the access itself; the first
# alone would double the time to compile. clang before 17 cannot emit the function check for
# coroutines; and that instrumented loops are not vectorised is no news.
if(UNISONO_SANITIZE STREQUAL "address")
  add_compile_options(-O1 -g1 -fsanitize=address,undefined -fno-sanitize=null,object-size
    -fno-sanitize-recover=all)
  add_link_options(-fsanitize=address,undefined)
elseif(UNISONO_SANITIZE STREQUAL "thread")
  add_compile_options(-O1 -g1 -fsanitize=thread)
  add_link_options(-fsanitize=thread)
endif()
if(UNISONO_SANITIZE AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  add_compile_options(-fno-sanitize=function -Wno-pass-failed)
endif()

# What fuzzers run tells them which branches it took.
if(UNISONO_BUILD_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang" OR NOT UNISONO_SANITIZE STREQUAL "address")
    message(FATAL_ERROR "UNISONO_BUILD_FUZZERS needs clang and UNISONO_SANITIZE=address, but the "
      "compiler is ${CMAKE_CXX_COMPILER_ID} and UNISONO_SANITIZE is '${UNISONO_SANITIZE}'; configure "
      "with -DCMAKE_CXX_COMPILER=clang++ -DUNISONO_SANITIZE=address")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
