# How every target of the project is compiled.

include(CheckCXXCompilerFlag)

# A flag that a compiler knows and leaves unused, as on another system, only makes it warn.
set(CMAKE_REQUIRED_FLAGS -Werror)
# A frame that is larger than the guard page is probed page by page: a stack that ends faults, and overwrites nothing.
check_cxx_compiler_flag(-fstack-clash-protection ROTA_HAS_STACK_CLASH_PROTECTION)
# The compiler writes beside each object what frames its functions have: see tests/stack.
check_cxx_compiler_flag(-fstack-usage ROTA_HAS_STACK_USAGE)
unset(CMAKE_REQUIRED_FLAGS)

function(rota_sanitize target)
  if(ROTA_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${ROTA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${target} PRIVATE -fsanitize=${ROTA_SANITIZE})
  endif()
endfunction()

# An overrun ends the program instead of serving someone. Sanitizers see more, and fortified functions need an optimizer.
function(rota_harden target)
  if(ROTA_SANITIZE)
    return()
  endif()
  target_compile_options(
    ${target} PRIVATE -fstack-protector-strong
                      "$<$<CONFIG:Release,RelWithDebInfo,MinSizeRel>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>")
  if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
    target_link_options(${target} PRIVATE -Wl,-z,relro -Wl,-z,now)
  endif()
endfunction()

function(rota_compile_options target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(
    ${target} PROPERTIES CXX_EXTENSIONS OFF CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_compile_options(
    ${target} PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wnon-virtual-dtor
                      -Wold-style-cast -Wcast-align -Wunused -Woverloaded-virtual -Wdouble-promotion
                      -Wno-missing-field-initializers -ffp-contract=off $<$<BOOL:${ROTA_WERROR}>:-Werror>)
  # g++ 12 at -O3 sees overlaps and overruns in the standard library itself: https://gcc.gnu.org/PR105651
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict;-Wno-stringop-overread>")
  endif()
  if(ROTA_HAS_STACK_CLASH_PROTECTION)
    target_compile_options(${target} PRIVATE -fstack-clash-protection)
  endif()
  rota_sanitize(${target})
  rota_harden(${target})
endfunction()

# A program in C, which is what users of rota/c.h write.
function(rota_c_options target)
  set_target_properties(${target} PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Wshadow $<$<BOOL:${ROTA_WERROR}>:-Werror>)
  rota_sanitize(${target})
  rota_harden(${target})
  if(ROTA_SANITIZE)
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)  # whose driver links all of a sanitizer's runtime
  endif()
endfunction()

# rota_unity_build(WHOSE target): up to eight files of a folder are compiled as one, where ROTA_UNITY_BUILD has WHOSE. Most
# of the time that a file takes goes to the standard library's headers. It is for builds that are made once: a missing
# include is not seen, and a change compiles its neighbours, too. Files with options of their own, as kernels have, stay
# alone.
function(rota_unity_build whose target)
  if(NOT whose IN_LIST ROTA_UNITY_BUILD)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  target_compile_options(${target} PRIVATE -Wno-shadow)  # a neighbour's name is not hidden
  get_target_property(sources ${target} SOURCES)
  get_target_property(from ${target} SOURCE_DIR)
  list(FILTER sources INCLUDE REGEX "\\.cpp$")
  foreach(source IN LISTS sources)
    get_filename_component(path ${source} ABSOLUTE BASE_DIR ${from})
    get_filename_component(folder ${path} DIRECTORY)
    # By its place among all files of the folder: a file that two targets have is in one group.
    file(GLOB beside ${folder}/*.cpp)
    list(FIND beside ${path} place)
    math(EXPR part "${place} / 8")
    file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${folder})
    string(MAKE_C_IDENTIFIER "${name}_${part}" group)
    set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${group})
  endforeach()
endfunction()
