# The CUDA device and the kernels need nvcc and the toolkit's headers at build time, and nothing at
# link time: driver, cuBLAS, cuFFT, cuSOLVER and NVRTC are loaded when the program runs. Without
# nvcc the build is CPU-only.
set(PLASMON_HAVE_CUDA OFF)
if(NOT PLASMON_CUDA STREQUAL "OFF")
  find_program(PLASMON_NVCC nvcc HINTS ENV CUDA_HOME PATH_SUFFIXES bin PATHS /usr/local/cuda/bin)
  if(PLASMON_NVCC)
    get_filename_component(_bin ${PLASMON_NVCC} REALPATH)
    get_filename_component(_bin ${_bin} DIRECTORY)
    get_filename_component(PLASMON_CUDA_ROOT ${_bin} DIRECTORY)
    find_path(PLASMON_CUDA_INCLUDE cuda.h
      HINTS ${PLASMON_CUDA_ROOT}/include ${PLASMON_CUDA_ROOT}/targets/x86_64-linux/include)
  endif()
  if(PLASMON_NVCC AND PLASMON_CUDA_INCLUDE)
    set(PLASMON_HAVE_CUDA ON)
  elseif(PLASMON_CUDA STREQUAL "ON")
    message(FATAL_ERROR "PLASMON_CUDA=ON but nvcc or cuda.h was not found: install the CUDA toolkit or set CUDA_HOME")
  endif()
endif()
if(PLASMON_HAVE_CUDA)
  message(STATUS "plasmon: with CUDA (${PLASMON_NVCC})")
  enable_language(ASM) # for the fatbins; here, because inside a function it would not last
  add_library(plasmon_cuda_headers INTERFACE)
  target_include_directories(plasmon_cuda_headers SYSTEM INTERFACE ${PLASMON_CUDA_INCLUDE})
  target_compile_definitions(plasmon_cuda_headers INTERFACE PLASMON_HAVE_CUDA)
else()
  if(PLASMON_CUDA STREQUAL "OFF")
    set(_why "PLASMON_CUDA=OFF")
  else()
    set(_why "no nvcc found")
  endif()
  message(STATUS "plasmon: CPU only (${_why})")
endif()
set(PLASMON_CUDA_ARCHS "80;90;100" CACHE STRING "Real architectures in the embedded fatbins; the last also as PTX of sm_80")

# plasmon_fatbin(TARGET symbol source.cu): compiles to a fatbin and links it in as `const unsigned
# char symbol[]`, `const size_t symbol_bytes`.
function(plasmon_fatbin TARGET SYMBOL SOURCE)
  set(_fatbin ${CMAKE_CURRENT_BINARY_DIR}/${SYMBOL}.fatbin)
  set(_asm ${CMAKE_CURRENT_BINARY_DIR}/${SYMBOL}.S)
  set(_arch -gencode arch=compute_80,code=compute_80)
  foreach(a IN LISTS PLASMON_CUDA_ARCHS)
    list(APPEND _arch -gencode arch=compute_${a},code=sm_${a})
  endforeach()
  add_custom_command(OUTPUT ${_fatbin}
    COMMAND ${PLASMON_NVCC} -fatbin -O3 -std=c++17 ${_arch} -I${CMAKE_SOURCE_DIR} -I${CMAKE_SOURCE_DIR}/include
            -MD -MF ${_fatbin}.d -o ${_fatbin} ${CMAKE_CURRENT_SOURCE_DIR}/${SOURCE}
    DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${SOURCE} DEPFILE ${_fatbin}.d
    COMMENT "nvcc ${SOURCE}" VERBATIM)
  file(CONFIGURE OUTPUT ${_asm} CONTENT
".section .rodata
.global ${SYMBOL}
.global ${SYMBOL}_bytes
.balign 64
${SYMBOL}: .incbin \"${_fatbin}\"
1:
.balign 8
${SYMBOL}_bytes: .quad 1b - ${SYMBOL}
.section .note.GNU-stack,\"\",@progbits
" @ONLY)
  set_source_files_properties(${_asm} PROPERTIES OBJECT_DEPENDS ${_fatbin})
  target_sources(${TARGET} PRIVATE ${_asm})
endfunction()
