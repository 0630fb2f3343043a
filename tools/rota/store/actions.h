#pragma once

#include "cli/command.h"
#include "cli/table.h"
#include "store/opened.h"

// What `rota store` does, each as what it prints. Those that take long end early by Ctrl-C, with what was done by then.

namespace rota::tool {

Report stat_report(const StoreOptions& options, Invocation& invocation);
Report ls_report(const StoreOptions& options, Invocation& invocation);
Report verify_report(const StoreOptions& options, Invocation& invocation);
Report gc_report(const StoreOptions& options, Invocation& invocation);
Report copy_report(const StoreOptions& options, Invocation& invocation);
Report speed_report(const StoreOptions& options, Invocation& invocation);

}  // namespace rota::tool
