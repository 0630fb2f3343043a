#include <array>

#include "c/structs.h"

using namespace rota::c;

rota_status rota_struct_init(const char* name, void* structure, size_t struct_size) {
  static constexpr std::array kRules{ROTA_C_STRUCTS(ROTA_C_RULES)};
  return answer([&]() -> rota::Status {
    return init_struct({nullptr, "rota_struct_init"}, {"rota/c.h", kRules}, name, structure, struct_size);
  });
}
