# Text files that a program carries: plasmon_text(TARGET SYMBOL file...) makes `const char
# *SYMBOL(void)`, which gives the files' text, one after the other. C has no string literal that
# long, so it is an array of numbers.
function(plasmon_text TARGET SYMBOL)
  set(_c ${CMAKE_CURRENT_BINARY_DIR}/${SYMBOL}.c)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  add_custom_command(OUTPUT ${_c}
    COMMAND ${CMAKE_COMMAND} "-DFILES=${ARGN}" -DSYMBOL=${SYMBOL} -DOUT=${_c} -P ${PROJECT_SOURCE_DIR}/cmake/text.cmake
    DEPENDS ${ARGN} ${PROJECT_SOURCE_DIR}/cmake/text.cmake VERBATIM)
  target_sources(${TARGET} PRIVATE ${_c})
endfunction()
