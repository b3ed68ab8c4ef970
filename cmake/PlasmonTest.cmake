# Tests and fuzzers. Daemons that a test starts inherit the sanitizers' options below, and keep
# compiled functions here and not in the user's folder.
set(_test_cache "PLASMON_CACHE_DIR=${CMAKE_BINARY_DIR}/test-cache")
set(_test_environment
  "${_test_cache}"
  "UBSAN_OPTIONS=print_stacktrace=1"
  "TSAN_OPTIONS=second_deadlock_stack=1"
  "ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1")

# plasmon_test(NAME LABELS l... SOURCES s... LIBS l... [TIMEOUT seconds] [ARGS a...]) One
# executable, TAP on stdout; CTest judges the exit status: 0 passed, 77 all its tests were skipped,
# else failed. Target plasmon_tests_LABEL builds the tests of one label. Those that may take longest
# begin first (COST), so that none is left alone at the end.
function(plasmon_test NAME)
  cmake_parse_arguments(T "" "TIMEOUT" "LABELS;SOURCES;LIBS;ARGS" ${ARGN})
  if(NOT BUILD_TESTING)
    return()
  endif()
  add_executable(${NAME} ${T_SOURCES})
  target_link_libraries(${NAME} PRIVATE plasmon_harness ${T_LIBS} plasmon_flags)
  add_test(NAME ${NAME} COMMAND ${NAME} ${T_ARGS})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 60)
  endif()
  set_tests_properties(${NAME} PROPERTIES LABELS "${T_LABELS}" TIMEOUT ${T_TIMEOUT} COST ${T_TIMEOUT} SKIP_RETURN_CODE 77
    ENVIRONMENT "${_test_environment}")
  foreach(label IN LISTS T_LABELS)
    if(NOT TARGET plasmon_tests_${label})
      add_custom_target(plasmon_tests_${label})
    endif()
    add_dependencies(plasmon_tests_${label} ${NAME})
  endforeach()
endfunction()

# Programs of tests that are not run with the address sanitizer, and of fuzzers without libFuzzer,
# are not built with it unless they are asked for.
function(_plasmon_unless_address TARGET)
  if(PLASMON_SANITIZE MATCHES "address" AND NOT PLASMON_LIBFUZZER AND TARGET ${TARGET})
    set_target_properties(${TARGET} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# plasmon_plain(NAME...): these tests, programs or scripts, are of no use with a sanitizer; say beside it why.
function(plasmon_plain)
  set_property(TEST ${ARGV} APPEND PROPERTY LABELS plain)
  foreach(name IN LISTS ARGV)
    _plasmon_unless_address(${name})
  endforeach()
endfunction()

set(PLASMON_FUZZ_RUNS 20000 CACHE STRING "Inputs that each fuzzer tries as a test")
add_custom_target(plasmon_fuzzers)

# plasmon_fuzz(NAME SOURCES s... LIBS l... CORPUS folder [RUNS n] [LEAKS_AT_END]) The sources define
# LLVMFuzzerTestOneInput(). As a test, labelled fuzz, it tries PLASMON_FUZZ_RUNS inputs (or n, for
# one that is slow) grown from the files in CORPUS. A fatal one is left in the folder findings of
# the build folder. tools/fuzz runs all of them for longer: it finds them in fuzzers.txt of the
# build folder. By hand: NAME -runs=N [-seed=S] new-corpus corpus, with either driver.
# LEAKS_AT_END, for what keeps memory of its own from one input to the next (OpenSSL its last
# errors): libFuzzer takes each such input for a possible leak and stops the process to look at all
# of its memory, 25 times what the input takes. Leaks are then looked for once, when the process
# ends; run it with -detect_leaks=1 to learn which input it was.
function(plasmon_fuzz NAME)
  cmake_parse_arguments(F "LEAKS_AT_END" "RUNS" "SOURCES;LIBS;CORPUS" ${ARGN})
  if(NOT BUILD_TESTING)
    return()
  endif()
  add_executable(${NAME} ${F_SOURCES})
  target_link_libraries(${NAME} PRIVATE ${F_LIBS} plasmon_flags)
  if(PLASMON_LIBFUZZER)
    target_link_options(${NAME} PRIVATE -fsanitize=fuzzer)
  else()
    target_link_libraries(${NAME} PRIVATE plasmon_fuzz_driver)
  endif()
  add_dependencies(plasmon_fuzzers ${NAME})
  _plasmon_unless_address(${NAME})
  list(TRANSFORM F_CORPUS PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  if(F_LEAKS_AT_END)
    list(APPEND F_CORPUS -detect_leaks=0)
  endif()
  string(REPLACE ";" " " _corpora "${F_CORPUS}")
  set_property(GLOBAL APPEND_STRING PROPERTY PLASMON_FUZZERS
    "$<TARGET_FILE:${NAME}> ${CMAKE_CURRENT_BINARY_DIR}/${NAME}.corpus ${_corpora}\n")

  if(NOT F_RUNS)
    set(F_RUNS ${PLASMON_FUZZ_RUNS})
  endif()
  set(_grown ${CMAKE_CURRENT_BINARY_DIR}/${NAME}.corpus) # libFuzzer keeps what it finds in the first folder
  file(MAKE_DIRECTORY ${_grown} ${CMAKE_BINARY_DIR}/findings)
  add_test(NAME ${NAME}
    COMMAND ${NAME} -runs=${F_RUNS} -timeout=60 -artifact_prefix=${CMAKE_BINARY_DIR}/findings/${NAME}- ${_grown} ${F_CORPUS})
  set_tests_properties(${NAME} PROPERTIES LABELS fuzz TIMEOUT 120 ENVIRONMENT "${_test_environment}")
endfunction()
