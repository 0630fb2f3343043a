# What a stranger's project finds: headers, library, CMake package, pkg-config file, documents with examples, and the tool.
# Components are what cmake/RotaPackages.cmake makes packages of.

include(CMakePackageConfigHelpers)

install(
  TARGETS rota EXPORT rota
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
if(ROTA_STORE)
  install(
    TARGETS rota_store EXPORT rota_store
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT store NAMELINK_COMPONENT development
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
else()
  list(APPEND rota_left_out PATTERN store.h EXCLUDE PATTERN c_store.h EXCLUDE)
endif()
if(NOT ROTA_VULKAN)
  list(APPEND rota_left_out PATTERN vulkan.h EXCLUDE)
endif()
if(NOT ROTA_METAL)
  list(APPEND rota_left_out PATTERN metal.h EXCLUDE)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/rota DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
        FILES_MATCHING PATTERN "*.h" ${rota_left_out})
install(FILES ${PROJECT_BINARY_DIR}/include/rota/version.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/rota COMPONENT development)
if(ROTA_TOOL)
  install(TARGETS rota_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tool)
  get_target_property(pages rota_tool ROTA_PAGES)
  get_target_property(completions rota_tool ROTA_COMPLETIONS)
  if(pages)
    set(share ${CMAKE_INSTALL_DATAROOTDIR})
    install(DIRECTORY ${pages}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tool)
    install(FILES ${completions}/rota.bash DESTINATION ${share}/bash-completion/completions RENAME rota COMPONENT tool)
    install(FILES ${completions}/rota.fish DESTINATION ${share}/fish/vendor_completions.d COMPONENT tool)
    # zsh looks there, but Debian's under /usr only where packages put theirs: see RotaPackages.cmake.
    install(FILES ${completions}/rota.zsh DESTINATION ${share}/zsh/site-functions RENAME _rota COMPONENT zsh)
  endif()
endif()

# As they lie in the source, for their links to each other.
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CONTRIBUTING.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md
              ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/NOTICE ${PROJECT_SOURCE_DIR}/SECURITY.md
        DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT tool)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs ${PROJECT_SOURCE_DIR}/data DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT tool)
install(FILES ${PROJECT_SOURCE_DIR}/integrations/llama.cpp/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/integrations/llama.cpp
        COMPONENT tool)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT development
        PATTERN CMakeLists.txt EXCLUDE)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/rota)
install(EXPORT rota NAMESPACE rota:: DESTINATION ${package_folder} FILE rota-targets.cmake COMPONENT development)
if(ROTA_STORE)
  install(EXPORT rota_store NAMESPACE rota:: DESTINATION ${package_folder} FILE rota-store-targets.cmake COMPONENT development)
endif()
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/rota-config.cmake.in ${PROJECT_BINARY_DIR}/rota-config.cmake
                              INSTALL_DESTINATION ${package_folder})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/rota-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/rota-config.cmake ${PROJECT_BINARY_DIR}/rota-config-version.cmake
        DESTINATION ${package_folder} COMPONENT development)

# Relative, so that an installed tree may be moved.
file(RELATIVE_PATH rota_pc_up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${PROJECT_SOURCE_DIR}/cmake/rota.pc.in ${PROJECT_BINARY_DIR}/rota.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/rota.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
if(ROTA_STORE)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/rota-store.pc.in ${PROJECT_BINARY_DIR}/rota-store.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/rota-store.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
endif()
