# A toolchain: zig, which brings clang, libc++ and Apple's C library, for macOS 13 on Apple Silicon. run.sh says where it
# is, and where the headers of other libraries lie.

set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_VERSION 22)
set(CMAKE_SYSTEM_PROCESSOR arm64)
set(folder $ENV{ROTA_MACOS_FOLDER})
set(CMAKE_C_COMPILER ${folder}/bin/clang)
set(CMAKE_CXX_COMPILER ${folder}/bin/clang++)
set(CMAKE_OBJCXX_COMPILER ${folder}/bin/clang++)
set(CMAKE_AR ${folder}/bin/ar CACHE FILEPATH "")
set(CMAKE_RANLIB ${folder}/bin/ranlib CACHE FILEPATH "")
set(CMAKE_INSTALL_NAME_TOOL /bin/true CACHE FILEPATH "")
set(CMAKE_FIND_ROOT_PATH ${folder})
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
