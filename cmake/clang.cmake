# A toolchain: the newest clang that CI has tried, else any other from 16 on. -DCMAKE_CXX_COMPILER takes precedence.

if(NOT CMAKE_CXX_COMPILER)
  find_program(rota_clang NAMES clang++-19 clang++-20 clang++-21 clang++-18 clang++-17 clang++-16 clang++ REQUIRED)
  set(CMAKE_CXX_COMPILER ${rota_clang})
endif()
