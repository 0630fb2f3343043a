#include "bench/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "cli/table.h"
#include "cli/written.h"

namespace rota::tool {
namespace {

constexpr std::size_t kMostEvents = 1'000'000;
constexpr int kHost = 0;  // process numbers; devices have the next ones

double microseconds(std::chrono::nanoseconds time) { return static_cast<double>(time.count()) * 1e-3; }

Json shape_json(const TraceEvent& event) {
  Json json{{"submission", event.submission}, {"command", event.command}, {"bytes", event.bytes}};
  for (const auto& [key, value] : {std::pair("tokens", event.shape.tokens), std::pair("heads", event.shape.heads),
                                   std::pair("dim", event.shape.dim), std::pair("keys", event.shape.keys),
                                   std::pair("sequences", event.shape.sequences)}) {
    if (value > 0) json[key] = value;
  }
  return json;
}

Json slice(std::string_view name, int process, std::chrono::nanoseconds begin, std::chrono::nanoseconds time) {
  return {{"name", name},
          {"ph", "X"},
          {"pid", process},
          {"tid", 0},
          {"ts", microseconds(begin)},
          {"dur", microseconds(time)}};
}

Json process_name(int process, const std::string& name) {
  return {{"name", "process_name"}, {"ph", "M"}, {"pid", process}, {"args", {{"name", name}}}};
}

}  // namespace

TraceSink TraceFile::sink() {
  return [events = events_](const TraceEvent& event) {
    const std::lock_guard lock(events->mutex);
    if (events->kept.size() == kMostEvents) {
      ++events->dropped;
      return;
    }
    events->kept.push_back({std::string(event.device), std::string(event.op), event});
  };
}

void TraceFile::write(const std::string& path) const {
  const std::lock_guard lock(events_->mutex);
  struct Clock {
    int process;
    std::chrono::nanoseconds offset;  // from the device's clock to the host's
  };
  std::map<std::string, Clock> clocks;
  Json all = Json::array({process_name(kHost, "host")});
  for (const auto& [device, op, event] : events_->kept) {
    // A GPU's clock has a zero of its own: its first command is shown where it was submitted.
    const bool own_clock = device != "cpu";
    const auto [clock, is_new] = clocks.try_emplace(
        device, Clock{static_cast<int>(clocks.size()) + 1,
                      own_clock ? event.submitted - event.device_begin : std::chrono::nanoseconds(0)});
    if (is_new) all.push_back(process_name(clock->second.process, device));
    Json ran = slice(op, clock->second.process, event.device_begin + clock->second.offset, event.device_time);
    ran["args"] = shape_json(event);
    all.push_back(std::move(ran));
    if (event.host_time.count() == 0) continue;
    Json recorded = slice(fmt::format("record {}", op), kHost, event.host_begin, event.host_time);
    recorded["args"] = shape_json(event);
    all.push_back(std::move(recorded));
  }
  const Json file{
      {"traceEvents", all}, {"displayTimeUnit", "ns"}, {"otherData", {{"commands_left_out", events_->dropped}}}};
  write_file(path, file.dump() + "\n");
  if (events_->dropped > 0) {
    write_error(
        fmt::format("{} has the first {} commands; {} more are not in it\n", path, kMostEvents, events_->dropped));
  }
}

}  // namespace rota::tool
