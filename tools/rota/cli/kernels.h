#pragma once

#include "cli/table.h"
#include "rota/device.h"

namespace rota::tool {

Table support_table();

// Which ops take which codecs at which head sizes on a device. The library itself answers: each call is recorded with
// the device's limits, and none runs.
void add_support(Device& device, Table& table);

}  // namespace rota::tool
