#include <cstdio>
#include <exception>

#include "cli/parser.h"

int main(int argc, char** argv) {
  try {
    return static_cast<int>(rota::tool::run({argv + (argc > 0 ? 1 : 0), argv + argc}));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rota: %s\n", error.what());
    return static_cast<int>(rota::tool::Exit::failed_check);
  }
}
