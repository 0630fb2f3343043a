# Run by cpack between installation and packing: what Debian's policy asks of a package's files.

find_program(gzip gzip REQUIRED)
find_program(git git)
if(NOT DEFINED ENV{SOURCE_DATE_EPOCH} AND git)
  execute_process(COMMAND ${git} -C ${CPACK_ROTA_SOURCE} log -1 --format=%ct OUTPUT_VARIABLE time OUTPUT_STRIP_TRAILING_WHITESPACE
                  ERROR_QUIET)
  if(time)
    set(ENV{SOURCE_DATE_EPOCH} ${time})
  endif()
endif()
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)

function(compress)
  execute_process(COMMAND ${gzip} -9nf ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} part)
  set(package ${CPACK_DEBIAN_${part}_PACKAGE_NAME})
  set(root ${CPACK_TEMPORARY_DIRECTORY}/${component}/usr)
  set(doc ${root}/share/doc/${package})

  set(copyright "Rota\nCopyright 2026 the Rota maintainers\nLicence: Apache-2.0, see /usr/share/common-licenses/Apache-2.0\n")
  foreach(included IN LISTS CPACK_ROTA_${part}_INCLUDES)
    set(licence /usr/share/doc/${included}/copyright)
    if(IS_ABSOLUTE ${included})
      set(licence ${included})
    endif()
    if(NOT EXISTS ${licence})
      message(FATAL_ERROR "${package} has code of ${included} in it, and ${licence} is not here to go along")
    endif()
    file(READ ${licence} text)
    string(APPEND copyright "\n---- Compiled in: ${included}. Its own words:\n\n${text}")
  endforeach()
  file(WRITE ${doc}/copyright "${copyright}")
  file(WRITE ${doc}/changelog.Debian
       "rota (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium\n\n"
       "  * What changed is in changelog.gz.\n\n -- ${CPACK_PACKAGE_CONTACT} <>  ${date}\n")
  file(COPY_FILE ${CPACK_ROTA_SOURCE}/CHANGELOG.md ${doc}/changelog)
  file(GLOB pages ${root}/share/man/man1/*.1)
  compress(${doc}/changelog ${doc}/changelog.Debian ${pages})
  file(GLOB_RECURSE files ${doc}/* ${root}/share/man/*)
  file(CHMOD ${files} PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
endforeach()

# The library is where the system looks.
file(RPATH_REMOVE FILE ${CPACK_TEMPORARY_DIRECTORY}/tool/usr/bin/rota)
