#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <rota/store.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bind.h"
#include "caches.h"

namespace rota::python {
namespace {

using nb::literals::operator""_a;
using std::chrono::milliseconds;

constexpr const char* kPageStoreDoc =
    R"(Pages in a folder that many processes share, "file:PATH", or on a Redis or Valkey server or cluster,
"valkey://[USER[:PASSWORD]@]HOST[:PORT]", with TLS "valkeys://...". docs/store.md says more.

`max_bytes` limits a folder; `deadline` is in seconds, to reach the store.)";

constexpr const char* kPrefixStoreDoc =
    R"(Prefixes of a cache's sequences in a page store.

>>> import numpy, rota, tempfile
>>> group = rota.KvGroup(layers=1, kv_heads=2, head_dim=64, k="turbo4", v="turbo4")
>>> cache = rota.KvCache([group], max_sequences=2)
>>> pages = rota.PageStore("file:" + tempfile.mkdtemp() + "/pages")
>>> store = rota.PrefixStore(pages, cache, weights="a model, revision 1")
>>> prompt = numpy.arange(500, dtype=numpy.int32)
>>> sequence, tokens = store.load(prompt[:-1])
>>> tokens
0
>>> x = numpy.zeros((500, 2, 64), numpy.float32)
>>> step = cache.extend([(sequence, 500)])
>>> step.append(0, x, x)
>>> cache.settle()
>>> store.put(sequence, prompt)
>>> store.flush(20)
>>> store.load(prompt[:-1])[1]
256

A store that is slow, full, wrong or gone makes matches shorter and drops puts; `counters` tell. It is no error.
`deadline` is the longest, in seconds, that a call waits for the store while nothing comes. Only who knows the `salt`
finds what was stored with it.)";

milliseconds milliseconds_of(double seconds, const char* argument) {
  constexpr double kMost = 1e9;
  if (!(seconds >= 0 && seconds <= kMost))
    refuse(argument, "wanted 0 to 1e9 seconds, found " + std::to_string(seconds));
  return milliseconds(std::llround(std::ceil(seconds * 1000)));
}

// Not converted: other numbers would wrap around to other tokens, under whose keys pages would be stored.
using Tokens = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::span<const std::int32_t> span_of(const Tokens& tokens) { return {tokens.data(), tokens.size()}; }

std::span<const std::byte> span_of(const nb::bytes& bytes) {
  return {static_cast<const std::byte*>(bytes.data()), bytes.size()};
}

struct PyPageStore {
  PageStore store;
};

class PyPrefixStore {
 public:
  PyPrefixStore(std::shared_ptr<Cache> cache, PrefixStore store) : cache_(std::move(cache)), store_(std::move(store)) {}
  PyPrefixStore(const PyPrefixStore&) = delete;
  PyPrefixStore& operator=(const PyPrefixStore&) = delete;
  // Waits for what is being stored just now: not with Python's lock.
  ~PyPrefixStore() {
    const nb::gil_scoped_release unlocked;
    store_.reset();
  }

  const std::shared_ptr<Cache>& cache() const noexcept { return cache_; }
  const PrefixStore* operator->() const noexcept { return &*store_; }

 private:
  std::shared_ptr<Cache> cache_;
  std::optional<PrefixStore> store_;
};

nb::dict stat(const PyPageStore& self, double deadline) {
  const milliseconds wait = milliseconds_of(deadline, "deadline");
  const StoreStat found = [&] {
    const nb::gil_scoped_release unlocked;
    return self.store.stat(std::chrono::steady_clock::now() + wait).value();
  }();
  nb::dict dict;
  dict["pages"] = found.pages;
  dict["bytes"] = found.bytes;
  dict["max_bytes"] = found.max_bytes;
  dict["medium"] = found.medium;
  return dict;
}

std::shared_ptr<PyPrefixStore> create(const std::shared_ptr<PyPageStore>& pages, const std::shared_ptr<Cache>& cache,
                                      std::string weights, std::string rope, const nb::bytes& salt, double deadline,
                                      std::uint64_t max_queued_puts, bool needs_state) {
  const auto secret = span_of(salt);
  const PrefixStoreOptions options{
      .model = {.weights = std::move(weights), .rope = std::move(rope), .salt = {secret.begin(), secret.end()}},
      .deadline = milliseconds_of(deadline, "deadline"),
      .max_queued_puts = max_queued_puts,
      .needs_state = needs_state};
  return std::make_shared<PyPrefixStore>(cache, PrefixStore::create(pages->store, cache->cache, options).value());
}

// What Python does with its arrays meanwhile is its own: they are held.
std::uint64_t match(const PyPrefixStore& self, const Tokens& tokens) {
  const nb::gil_scoped_release unlocked;
  return self->match(span_of(tokens)).value().tokens;
}

PrefixLoaded load_longest(const PyPrefixStore& self, const Tokens& tokens) {
  const nb::gil_scoped_release unlocked;
  return self->load(self->match(span_of(tokens)).value()).value();
}

nb::tuple load(const PyPrefixStore& self, const Tokens& tokens) {
  const PrefixLoaded loaded = load_longest(self, tokens);
  return nb::make_tuple(std::make_shared<PySequence>(self.cache(), loaded.sequence), loaded.tokens);
}

nb::tuple load_state(const PyPrefixStore& self, const Tokens& tokens) {
  const PrefixLoaded loaded = load_longest(self, tokens);
  return nb::make_tuple(std::make_shared<PySequence>(self.cache(), loaded.sequence), loaded.tokens,
                        nb::bytes(loaded.state.data(), loaded.state.size()));
}

void put(const PyPrefixStore& self, const PySequence& sequence, const Tokens& tokens) {
  if (sequence.cache() != self.cache()) refuse("sequence", "is of another cache than the store");
  const nb::gil_scoped_release unlocked;
  self->put(sequence.name(), span_of(tokens)).value();
}

void put_state(const PyPrefixStore& self, const Tokens& tokens, const nb::bytes& state) {
  const auto bytes = span_of(state);
  const nb::gil_scoped_release unlocked;
  self->put_state(span_of(tokens), bytes).value();
}

void flush(const PyPrefixStore& self, double seconds) {
  const milliseconds at_most = milliseconds_of(seconds, "seconds");
  const nb::gil_scoped_release unlocked;
  self->flush(at_most).value();
}

nb::dict counters(const PyPrefixStore& self) {
  const PrefixCounters found = self->counters();
  nb::dict dict;
  dict["matched"] = found.matched;
  dict["missed"] = found.missed;
  dict["loaded"] = found.loaded;
  dict["loaded_bytes"] = found.loaded_bytes;
  dict["failed_loads"] = found.failed_loads;
  dict["stored"] = found.stored;
  dict["stored_bytes"] = found.stored_bytes;
  dict["already_stored"] = found.already_stored;
  dict["dropped_puts"] = found.dropped_puts;
  dict["queued_puts"] = found.queued_puts;
  dict["failed_calls"] = found.failed_calls;
  dict["last_error"] = found.last_error;
  return dict;
}

}  // namespace

void bind_stores(nb::module_& module) {
  nb::class_<PyPageStore>(module, "PageStore", kPageStoreDoc)
      .def(nb::new_([](const std::string& url, std::optional<std::uint64_t> max_bytes, double deadline) {
             const milliseconds wait = milliseconds_of(deadline, "deadline");
             const nb::gil_scoped_release unlocked;
             return std::make_shared<PyPageStore>(
                 PyPageStore{PageStore::open(url, {.max_bytes = max_bytes, .deadline = wait}).value()});
           }),
           "url"_a, nb::kw_only(), "max_bytes"_a = nb::none(), "deadline"_a = 2.0)
      .def("stat", &stat, nb::kw_only(), "deadline"_a = 10.0, "Pages and bytes that are stored.");
  nb::class_<PyPrefixStore>(module, "PrefixStore", kPrefixStoreDoc)
      .def(nb::new_(&create), "pages"_a, "cache"_a, nb::kw_only(), "weights"_a, "rope"_a = "", "salt"_a = nb::bytes(""),
           "deadline"_a = 1.0, "max_queued_puts"_a = PrefixStoreOptions{}.max_queued_puts, "needs_state"_a = false)
      .def_prop_ro(
          "page", [](const PyPrefixStore& self) { return self->page(); }, "Tokens of a stored page.")
      .def("match", &match, "tokens"_a.noconvert(), "How many of these tokens (int32) are stored, in whole pages.")
      .def("load", &load, "tokens"_a.noconvert(),
           "(sequence, tokens): a new sequence with the longest stored prefix. Leave out the last token: a model needs "
           "one.")
      .def("load_state", &load_state, "tokens"_a.noconvert(),
           "(sequence, tokens, state): load(), and what put_state() stored there.")
      .def("put", &put, "sequence"_a, "tokens"_a.noconvert(),
           "Stores, behind the caller, pages of the sequence that are sealed and were not stored before. Call it after "
           "every step. `tokens` are those of the sequence from its first on.")
      .def("put_state", &put_state, "tokens"_a.noconvert(), "state"_a,
           "Stores bytes of the caller's own for the prefix of exactly these tokens, a multiple of `page`.")
      .def("flush", &flush, "seconds"_a, "Waits until all that was put is stored or dropped.")
      .def_prop_ro("counters", &counters, "What became of calls, in pages, and the last error of the store.");
}

}  // namespace rota::python
