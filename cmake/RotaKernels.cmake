# From one GLSL file per kernel to what C++ includes (rota_kernels/<name>.h), and to MSL as text and as a table.

if(ROTA_VULKAN OR ROTA_MSL)
  find_program(ROTA_GLSLC glslc REQUIRED)
  find_program(ROTA_SPIRV_VAL spirv-val REQUIRED)
endif()

if(ROTA_MSL)
  find_path(ROTA_SPIRV_CROSS_INCLUDE spirv_cross/spirv_cross_c.h REQUIRED)
  find_library(ROTA_SPIRV_CROSS_LIBRARY spirv-cross-c-shared REQUIRED)
  add_executable(rota_spirv_to_msl ${PROJECT_SOURCE_DIR}/cmake/spirv_to_msl.cpp)
  rota_compile_options(rota_spirv_to_msl)
  target_include_directories(rota_spirv_to_msl PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_include_directories(rota_spirv_to_msl SYSTEM PRIVATE ${ROTA_SPIRV_CROSS_INCLUDE})
  target_link_libraries(rota_spirv_to_msl PRIVATE ${ROTA_SPIRV_CROSS_LIBRARY})
endif()

# rota_add_kernels(<interface target> SOURCES <file.comp>...)
function(rota_add_kernels target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES")
  set(folder ${PROJECT_BINARY_DIR}/kernels)
  set(products)
  set(msl_rows "")
  foreach(source IN LISTS arg_SOURCES)
    get_filename_component(kernel ${source} NAME_WE)
    set(spirv ${folder}/${kernel}.spv)
    set(words ${folder}/${kernel}.inc)
    if(ROTA_VULKAN OR ROTA_MSL)
      set(compile ${ROTA_GLSLC} --target-env=vulkan1.1 -Werror -O -I ${PROJECT_SOURCE_DIR}/src)
      add_custom_command(
        OUTPUT ${spirv} ${words}
        COMMAND ${compile} -MD -MF ${spirv}.d -MT ${spirv} ${source} -o ${spirv}
        COMMAND ${compile} -mfmt=num ${source} -o ${words}
        COMMAND ${ROTA_SPIRV_VAL} --target-env vulkan1.1 ${spirv}
        DEPENDS ${source}
        DEPFILE ${spirv}.d
        COMMENT "Kernel ${kernel} to SPIR-V"
        VERBATIM)
    endif()
    if(ROTA_MSL)
      add_custom_command(
        OUTPUT ${folder}/${kernel}.metal ${folder}/${kernel}.msl.inc
        COMMAND rota_spirv_to_msl ${spirv} ${kernel} ${folder}/${kernel}.metal ${folder}/${kernel}.msl.inc
        DEPENDS ${spirv} rota_spirv_to_msl
        COMMENT "Kernel ${kernel} to MSL"
        VERBATIM)
      list(APPEND products ${folder}/${kernel}.metal)
      string(APPEND msl_rows "#include \"${kernel}.msl.inc\"\n")
    endif()
    if(ROTA_VULKAN)
      list(APPEND products ${words})
      set(KERNEL_WORDS "inline constexpr std::uint32_t kSpirv[] = {\n#include \"${words}\"\n};")
      set(KERNEL_SPIRV kSpirv)
    else()
      set(KERNEL_WORDS "")
      set(KERNEL_SPIRV "{}")
    endif()
    configure_file(${PROJECT_SOURCE_DIR}/cmake/kernel.h.in ${folder}/rota_kernels/${kernel}.h @ONLY)
  endforeach()
  if(ROTA_MSL)
    configure_file(${PROJECT_SOURCE_DIR}/cmake/msl_table.cpp.in ${folder}/msl_table.cpp @ONLY)
  endif()
  add_custom_target(${target}_products DEPENDS ${products})
  add_library(${target} INTERFACE)
  add_dependencies(${target} ${target}_products)
  target_include_directories(${target} INTERFACE ${folder})
endfunction()

# The table of runtime/selftest.h: a file src/ops/<op>/<op>_selftest.cpp defines ops::<op>_selftest.
function(rota_write_selftest_table path)
  set(declarations "")
  set(rows "")
  foreach(file IN LISTS ARGN)
    get_filename_component(test ${file} NAME_WE)
    string(REGEX REPLACE "_selftest$" "" op ${test})
    string(APPEND declarations "void ${test}(runtime::SelfTestRun& run);\n")
    string(APPEND rows "      SelfTest{\"${op}\", ops::${test}},\n")
  endforeach()
  file(
    CONFIGURE
    OUTPUT ${path}
    CONTENT
      "#include <array>

#include \"runtime/selftest.h\"

namespace rota::ops {
@declarations@}  // namespace rota::ops

namespace rota::runtime {

std::span<const SelfTest> self_tests() noexcept {
  static constexpr std::array kTable{
@rows@  };
  return kTable;
}

}  // namespace rota::runtime
"
    @ONLY)
endfunction()
