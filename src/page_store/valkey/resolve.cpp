#include "page_store/valkey/resolve.h"

#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include "core/error.h"
#include "core/start_thread.h"

namespace rota::page_store {
namespace {

struct Lookup {
  std::mutex mutex;
  std::condition_variable done_changed;
  bool is_done = false;
  int error = 0;
  std::vector<Place> places;
};

int look_up(const Address& address, int flags, std::vector<Place>& places) {
  const addrinfo hints{.ai_flags = flags | AI_NUMERICSERV, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) return error;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(found, freeaddrinfo);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    Place place{.bytes = one->ai_addrlen};
    if (place.bytes > sizeof(place.address)) continue;
    std::memcpy(&place.address, one->ai_addr, place.bytes);
    places.push_back(place);
  }
  return places.empty() ? EAI_NONAME : 0;
}

}  // namespace

Result<std::vector<Place>> places_of(const Address& address, const Until& until) {
  std::vector<Place> places;
  if (look_up(address, AI_NUMERICHOST, places) == 0) return places;
  // A name's lookup has no deadline: the thread ends when it does, and what it found is for nobody then.
  const auto lookup = std::make_shared<Lookup>();
  std::thread thread = core::start_thread([lookup, address] {
    std::vector<Place> found;
    int error = EAI_MEMORY;
    static_cast<void>(core::guarded([&]() -> Status {
      error = look_up(address, 0, found);
      return {};
    }));
    const std::lock_guard lock(lookup->mutex);
    lookup->error = error;
    lookup->places = std::move(found);
    lookup->is_done = true;
    lookup->done_changed.notify_all();
  });
  if (!thread.joinable()) return Error{Errc::io, "no thread could be started to look up its name"};
  thread.detach();
  std::unique_lock lock(lookup->mutex);
  if (!lookup->done_changed.wait_until(lock, until.deadline, [&] { return lookup->is_done; })) {
    return Error{Errc::io, "its name was not found in time"};
  }
  if (lookup->error != 0) return Error{Errc::io, core::text("its name was not found: {}", gai_strerror(lookup->error))};
  return lookup->places;
}

}  // namespace rota::page_store
