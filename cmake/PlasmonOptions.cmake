option(PLASMON_WERROR "Warnings are errors" OFF)
option(PLASMON_FAULTS "Fault points and seeded bugs (tests need them)" ON)
set(PLASMON_SANITIZE "" CACHE STRING "address,undefined | thread | empty")
option(PLASMON_LIBFUZZER "Build fuzzers with libFuzzer (clang); otherwise with a small driver of our own" OFF)
set(PLASMON_CUDA "AUTO" CACHE STRING "AUTO, ON or OFF: build the CUDA device and kernels (needs nvcc)")
set_property(CACHE PLASMON_CUDA PROPERTY STRINGS AUTO ON OFF)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

# The default build keeps assertions and lock-rank checks, which cost little; only Release drops them.
string(REPLACE "-DNDEBUG" "" CMAKE_C_FLAGS_RELWITHDEBINFO "${CMAKE_C_FLAGS_RELWITHDEBINFO}")

# For x86-64 of any make GCC clears and copies structures with instructions (`rep stos`) that take
# longer to begin than most of ours take in all.
include(CheckCCompilerFlag)
foreach(what memset memcpy)
  check_c_compiler_flag(-m${what}-strategy=libcall:-1:noalign PLASMON_HAS_${what}_STRATEGY)
  if(PLASMON_HAS_${what}_STRATEGY)
    string(APPEND CMAKE_C_FLAGS_RELEASE " -m${what}-strategy=libcall:-1:noalign")
  endif()
endforeach()

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# An installed tree may be moved: programs find the libraries from where they lie.
set(CMAKE_INSTALL_RPATH "$ORIGIN:$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")

# Every target of ours links this. Generated code does not.
add_library(plasmon_flags INTERFACE)
target_compile_definitions(plasmon_flags INTERFACE _GNU_SOURCE)
target_compile_options(plasmon_flags INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Wmissing-prototypes -Wvla
  $<$<BOOL:${PLASMON_WERROR}>:-Werror> -fno-strict-aliasing -fno-omit-frame-pointer)
target_include_directories(plasmon_flags INTERFACE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR})
if(PLASMON_FAULTS)
  target_compile_definitions(plasmon_flags INTERFACE PL_FAULTS)
endif()
find_package(Threads REQUIRED)
target_link_libraries(plasmon_flags INTERFACE Threads::Threads)

if(PLASMON_SANITIZE)
  add_compile_options(-fsanitize=${PLASMON_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${PLASMON_SANITIZE})
endif()
if(PLASMON_LIBFUZZER)
  add_compile_options(-fsanitize=fuzzer-no-link)
  add_link_options(-fsanitize=fuzzer-no-link)
endif()

# A release is optimised across files: a task takes 18 % fewer instructions in a worker, 11 % in the
# head. Objects have ordinary code, too, which libplasmon.a keeps alone. What is linked often, for
# tests, is not worth the time.
set(_lto OFF)
if(CMAKE_BUILD_TYPE STREQUAL Release AND CMAKE_C_COMPILER_ID STREQUAL GNU AND NOT BUILD_TESTING AND NOT PLASMON_SANITIZE)
  set(_lto ON)
endif()
option(PLASMON_LTO "Optimise across files (gcc)" ${_lto})
if(PLASMON_LTO)
  add_compile_options($<$<COMPILE_LANGUAGE:C>:-flto=auto> $<$<COMPILE_LANGUAGE:C>:-ffat-lto-objects>)
  add_link_options($<$<LINK_LANGUAGE:C,CXX>:-flto=auto>)
endif()

# Programs of tests are many and each has gRPC in it: the usual linker takes a third of the time of
# compiling for them. What is installed (a release) has no tests, and is linked as ever.
if(BUILD_TESTING)
  foreach(_linker lld gold)
    find_program(PLASMON_LD_${_linker} ld.${_linker})
    mark_as_advanced(PLASMON_LD_${_linker})
    if(PLASMON_LD_${_linker})
      add_link_options(-fuse-ld=${_linker})
      break()
    endif()
  endforeach()
endif()
