# The Metal backend: part of the library on a Mac; elsewhere part of tests, which bring Metal in software.

if(NOT ROTA_MSL)
  message(FATAL_ERROR "rota: the Metal backend is made of translated kernels: ROTA_MSL must be ON")
endif()
if(NOT APPLE)
  find_program(ROTA_OBJCXX NAMES clang++-19 clang++-18 clang++-17 clang++-16 clang++ REQUIRED)
  set(CMAKE_OBJCXX_COMPILER ${ROTA_OBJCXX})
endif()
# How headers are precompiled is one setting of CMake's for all languages: C++ keeps its own compiler's.
set(precompiling CMAKE_PCH_EXTENSION CMAKE_PCH_PROLOGUE CMAKE_PCH_EPILOGUE)
foreach(variable IN LISTS precompiling)
  set(saved_${variable} "${${variable}}")
endforeach()
enable_language(OBJCXX)
foreach(variable IN LISTS precompiling)
  set(${variable} "${saved_${variable}}")
endforeach()

# How Objective-C++ is compiled: without automatic reference counting, with blocks.
add_library(rota_objcxx INTERFACE)
if(APPLE)
  target_link_libraries(rota_objcxx INTERFACE "-framework Foundation" "-framework Metal")
else()
  find_library(ROTA_GNUSTEP_BASE gnustep-base REQUIRED)
  find_library(ROTA_BLOCKS_RUNTIME BlocksRuntime REQUIRED)
  execute_process(COMMAND gcc -print-file-name=include OUTPUT_VARIABLE gcc_include OUTPUT_STRIP_TRAILING_WHITESPACE)
  execute_process(COMMAND gcc -print-file-name=libobjc.so OUTPUT_VARIABLE libobjc OUTPUT_STRIP_TRAILING_WHITESPACE)
  target_compile_options(
    rota_objcxx INTERFACE $<$<COMPILE_LANGUAGE:OBJCXX>:-fblocks -fobjc-runtime=gcc -fexceptions -fobjc-exceptions
                          -fconstant-string-class=NSConstantString -idirafter ${gcc_include}>)
  target_compile_definitions(rota_objcxx INTERFACE _NATIVE_OBJC_EXCEPTIONS GNUSTEP GNUSTEP_BASE_LIBRARY=1 GNU_RUNTIME=1)
  target_include_directories(rota_objcxx SYSTEM INTERFACE /usr/include/GNUstep ${PROJECT_SOURCE_DIR}/tests/metal/include)
  # In this order: GNUstep has a _Block_copy of its own, which copies nothing.
  target_link_libraries(rota_objcxx INTERFACE ${ROTA_BLOCKS_RUNTIME} ${ROTA_GNUSTEP_BASE} ${libobjc})
endif()

file(GLOB rota_metal_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/metal/*.mm)
add_library(rota_metal OBJECT ${rota_metal_sources} ${PROJECT_BINARY_DIR}/kernels/msl_table.cpp)
rota_compile_options(rota_metal)
set_target_properties(rota_metal PROPERTIES OBJCXX_STANDARD 20 OBJCXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON
                                            OBJCXX_VISIBILITY_PRESET hidden)
target_link_libraries(rota_metal PUBLIC rota_objcxx rota_kernels)
target_include_directories(rota_metal PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include
                                              ${PROJECT_BINARY_DIR}/include ${PROJECT_BINARY_DIR}/kernels)
target_include_directories(rota_metal SYSTEM PRIVATE
                           $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)
add_dependencies(rota_metal rota_kernels_products)
