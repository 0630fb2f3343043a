# `cpack -G DEB` in a built folder makes Debian packages: librota0, librota-store0, librota-dev and rota.

set(soversion ${PROJECT_VERSION_MAJOR})
set(library_package librota${soversion})

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME rota)
set(CPACK_PACKAGE_CONTACT "Rota maintainers")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # each package has its own
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL library development tool)
if(ROTA_STORE)
  list(APPEND CPACK_COMPONENTS_ALL store)
endif()
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)

set(about "Rota keeps a language model's keys and values in pages of 2 to 8 bits
per value, and attends to them where they lie, on the CPU and on GPUs by
Vulkan.")

set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME ${library_package})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_DESCRIPTION "compressed KV cache of language models - shared library\n${about}

This package has the library that programs load.")
if(ROTA_VULKAN)
  set(CPACK_DEBIAN_LIBRARY_PACKAGE_RECOMMENDS libvulkan1)  # loaded where it is
endif()
# Before 1.0 a minor version may change the interface.
math(EXPR next_minor "${PROJECT_VERSION_MINOR} + 1")
set(control ${PROJECT_BINARY_DIR}/packages)
set(this ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(next ${PROJECT_VERSION_MAJOR}.${next_minor})
file(CONFIGURE OUTPUT ${control}/shlibs @ONLY
     CONTENT "librota @soversion@ @library_package@ (>= @this@), @library_package@ (<< @next@~)\n")
file(CONFIGURE OUTPUT ${control}/triggers CONTENT "activate-noawait ldconfig\n" @ONLY)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${control}/shlibs ${control}/triggers)

if(ROTA_STORE)
  set(store_package librota-store${soversion})
  set(CPACK_DEBIAN_STORE_PACKAGE_NAME ${store_package})
  set(CPACK_DEBIAN_STORE_PACKAGE_SECTION libs)
  set(CPACK_COMPONENT_STORE_DEPENDS library)
  set(CPACK_DEBIAN_STORE_DESCRIPTION "compressed KV cache of language models - page store\n${about}

This package has the library that keeps pages in files, and on Redis and
Valkey servers.")
  file(CONFIGURE OUTPUT ${control}/store/shlibs @ONLY
       CONTENT "librota-store @soversion@ @store_package@ (>= @this@), @store_package@ (<< @next@~)\n")
  file(CONFIGURE OUTPUT ${control}/store/triggers CONTENT "activate-noawait ldconfig\n" @ONLY)
  set(CPACK_DEBIAN_STORE_PACKAGE_CONTROL_EXTRA ${control}/store/shlibs ${control}/store/triggers)
  set(with_store store)
endif()

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME librota-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
set(CPACK_COMPONENT_DEVELOPMENT_DEPENDS library ${with_store})
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "compressed KV cache of language models - development files\n${about}

This package has the headers, the CMake package and the pkg-config file.")

set(CPACK_DEBIAN_TOOL_PACKAGE_NAME rota)
set(CPACK_DEBIAN_TOOL_PACKAGE_SECTION utils)
set(CPACK_COMPONENT_TOOL_DEPENDS library ${with_store})
set(CPACK_DEBIAN_TOOL_DESCRIPTION "compressed KV cache of language models - command\n${about}

The command rota says what works on a machine, how fast it is, and what
compression costs.")

# What Debian wants in a package, and a folder that is installed by hand does not have.
if(pages)
  install(FILES ${completions}/rota.zsh DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/zsh/vendor-completions RENAME _rota
          COMPONENT tool EXCLUDE_FROM_ALL)
endif()
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/finish_packages.cmake)
set(CPACK_ROTA_SOURCE ${PROJECT_SOURCE_DIR})
# Packages whose headers are compiled in, and whose licences therefore go along.
set(CPACK_ROTA_LIBRARY_INCLUDES libfmt-dev)
set(CPACK_ROTA_STORE_INCLUDES libfmt-dev)
if(ROTA_STORE AND EXISTS ${ROTA_HIREDIS}/COPYING)
  list(APPEND CPACK_ROTA_STORE_INCLUDES ${ROTA_HIREDIS}/COPYING)  # a static one
endif()
set(CPACK_ROTA_TOOL_INCLUDES libfmt-dev libcli11-dev nlohmann-json3-dev)
include(CPack)
