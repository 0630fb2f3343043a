# A toolchain: the newest clang that CI has tried, else any other from 16 on. -DCMAKE_CXX_COMPILER takes precedence.

if(NOT CMAKE_CXX_COMPILER)
  find_program(rota_clang NAMES clang++-19 clang++-20 clang++-21 clang++-18 clang++-17 clang++-16 clang++ REQUIRED)
  set(CMAKE_CXX_COMPILER ${rota_clang})
endif()

# The C compiler beside it, for the examples and tests in C.
if(NOT CMAKE_C_COMPILER AND CMAKE_CXX_COMPILER MATCHES "clang[+][+]")
  string(REPLACE clang++ clang CMAKE_C_COMPILER ${CMAKE_CXX_COMPILER})
endif()
