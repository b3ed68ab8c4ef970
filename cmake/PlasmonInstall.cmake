# Packages. Each target installs itself in its folder; here is what goes around the libraries:
# pkg-config and CMake files, which find their prefix from where they lie, and an archive that may
# be unpacked anywhere.
#
#   cmake --preset release && cmake --build --preset release && cmake --install build/release --prefix DIR
#   cd build/release && cpack
include(CMakePackageConfigHelpers)

if(TARGET plasmon)
  file(RELATIVE_PATH PLASMON_PREFIX_FROM_PKGCONFIG
    ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
  configure_file(${CMAKE_CURRENT_LIST_DIR}/plasmon.pc.in ${PROJECT_BINARY_DIR}/plasmon.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/plasmon.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

  set(_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/plasmon)
  configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/plasmonConfig.cmake.in
    ${PROJECT_BINARY_DIR}/plasmonConfig.cmake INSTALL_DESTINATION ${_package_dir}
    PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/plasmonConfigVersion.cmake
    VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/plasmonConfig.cmake ${PROJECT_BINARY_DIR}/plasmonConfigVersion.cmake
    DESTINATION ${_package_dir})
endif()

string(TOLOWER ${CMAKE_SYSTEM_NAME} _system)
set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_NAME plasmon)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "A distributed object store whose objects live in GPU memory")
set(CPACK_PACKAGE_FILE_NAME plasmon-${PROJECT_VERSION}-${_system}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
include(CPack)
