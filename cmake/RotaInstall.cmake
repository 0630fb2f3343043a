# What a stranger's project finds: headers, library, CMake package, pkg-config file, and the tool.

include(CMakePackageConfigHelpers)

install(TARGETS rota EXPORT rota LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/rota DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_BINARY_DIR}/include/rota/version.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/rota)
if(ROTA_TOOL)
  install(TARGETS rota_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/rota)
install(EXPORT rota NAMESPACE rota:: DESTINATION ${package_folder} FILE rota-targets.cmake)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/rota-config.cmake.in ${PROJECT_BINARY_DIR}/rota-config.cmake
                              INSTALL_DESTINATION ${package_folder})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/rota-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/rota-config.cmake ${PROJECT_BINARY_DIR}/rota-config-version.cmake
        DESTINATION ${package_folder})

# Relative, so that an installed tree may be moved.
file(RELATIVE_PATH rota_pc_up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${PROJECT_SOURCE_DIR}/cmake/rota.pc.in ${PROJECT_BINARY_DIR}/rota.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/rota.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
