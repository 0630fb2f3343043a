#include <exception>

#include "cli/parser.h"
#include "cli/show.h"
#include "cli/written.h"

int main(int argc, char** argv) {
  try {
    return static_cast<int>(rota::tool::run({argv + (argc > 0 ? 1 : 0), argv + argc}));
  } catch (const std::exception& error) {
    rota::tool::write_error("rota: " + rota::tool::one_line(error.what()) + "\n");
    return static_cast<int>(rota::tool::Exit::failed_check);
  }
}
