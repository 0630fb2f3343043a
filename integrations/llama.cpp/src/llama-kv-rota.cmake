# Rota's part of libllama, and Rota itself. llama.cpp includes this from src/CMakeLists.txt.
target_sources(llama PRIVATE
    llama-kv-rota.cpp
    llama-kv-rota-check.cpp
    llama-kv-rota-graph.cpp
    llama-kv-rota-op.cpp
    llama-kv-rota-restore.cpp
    llama-kv-rota-spec.cpp
    llama-kv-rota-state.cpp
    llama-kv-rota-store.cpp
    llama-kv-rota-weights.cpp)

# Not by find_package(): its target asks for C++20, and llama.cpp is C++17.
find_package(PkgConfig REQUIRED)
pkg_check_modules(ROTA REQUIRED IMPORTED_TARGET rota)
target_link_libraries(llama PRIVATE PkgConfig::ROTA)
# librota may have been built without its store: store= is refused then.
pkg_check_modules(ROTA_STORE IMPORTED_TARGET rota-store)
if(ROTA_STORE_FOUND)
  target_link_libraries(llama PRIVATE PkgConfig::ROTA_STORE)
  target_compile_definitions(llama PRIVATE ROTA_LLAMA_STORE)
endif()
set_property(TARGET llama APPEND PROPERTY BUILD_RPATH ${ROTA_LIBRARY_DIRS})
set_property(TARGET llama APPEND PROPERTY INSTALL_RPATH ${ROTA_LIBRARY_DIRS})
