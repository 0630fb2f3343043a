#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <memory>
#include <system_error>

#include "arrays.h"
#include "attention.h"
#include "bind.h"
#include "caches.h"
#include "specs.h"

namespace rota::python {
namespace {

using nb::literals::operator""_a;

constexpr const char* kCacheDoc = R"(The KV cache of a model: sequences of tokens, stored by layer.

>>> import numpy, rota
>>> group = rota.KvGroup(layers=1, kv_heads=2, head_dim=64, k="turbo4", v="turbo4")
>>> cache = rota.KvCache([group], max_step_tokens=256)
>>> sequence = cache.open_sequence()
>>> x = numpy.random.default_rng(0).standard_normal((200, 2, 64), numpy.float32)
>>> step = cache.extend([(sequence, 200)])
>>> step.update(0, x, x, x, scale=0.125).shape
(200, 2, 64)
>>> sequence.length
200
)";

struct PyStep {
  std::shared_ptr<Cache> cache;
  KvStep step;
  std::vector<std::uint64_t> query_tokens;             // of each extension
  std::vector<std::shared_ptr<PySequence>> sequences;  // they stay open while the step is used
};

std::shared_ptr<Cache> make_cache(const KvCacheSpec& spec, const std::optional<Device>& given) {
  const nb::gil_scoped_release unlocked;
  Device device = device_or_default(given);
  KvCache cache = KvCache::create(device, spec).value();
  return std::make_shared<Cache>(Cache{std::move(device), std::move(cache)});
}

std::unique_ptr<PyStep> extend(const std::shared_ptr<Cache>& cache,
                               const std::vector<std::pair<std::shared_ptr<PySequence>, std::uint64_t>>& sequences) {
  std::vector<KvExtension> extensions;
  std::vector<std::shared_ptr<PySequence>> extended;
  std::vector<std::uint64_t> query_tokens;
  for (const auto& [sequence, tokens] : sequences) {
    if (!sequence) throw nb::type_error("extend: wanted pairs of a rota.Sequence and a number, found None");
    (void)sequence->cache();  // an error if it is closed
    extensions.push_back({.sequence = sequence->name(), .tokens = tokens});
    query_tokens.push_back(tokens);
    extended.push_back(sequence);
  }
  const nb::gil_scoped_release unlocked;
  std::optional<KvStep> step;
  cache->submit([&](Encoder& encoder) { step = cache->cache.extend(encoder, extensions).value(); });
  return std::make_unique<PyStep>(PyStep{cache, std::move(*step), std::move(query_tokens), std::move(extended)});
}

// Of the group that has the layer, or whose cache it shares.
std::uint64_t value_dim(const KvCacheSpec& spec, std::uint32_t layer) {
  for (const KvGroup& group : spec.groups) {
    const bool shares = std::ranges::any_of(group.shared, [&](const auto& one) { return one.layer == layer; });
    if (shares || std::ranges::find(group.layers, layer) != group.layers.end()) {
      return group.value_dim.value_or(group.head_dim);
    }
  }
  refuse("layer", "no group has " + std::to_string(layer));
}

void record_append(PyStep& self, Call& call, Encoder& encoder, std::uint32_t layer, const Input& k,
                   const std::optional<Input>& v) {
  if (v) {
    self.step.append(encoder, layer, call.view(k, "k"), call.view(*v, "v"));
  } else {
    self.step.append(encoder, layer, call.view(k, "k"));
  }
  encoder.status().value();
}

void append(PyStep& self, std::uint32_t layer, const Input& k, const std::optional<Input>& v) {
  run_unlocked(self.cache->device,
               [&](Call& call, Encoder& encoder) { record_append(self, call, encoder, layer, k, v); });
}

nb::object attend_step(PyStep& self, std::uint32_t layer, const Input& q, double scale, const nb::object& out,
                       const std::optional<std::vector<std::uint64_t>>& query_tokens, std::optional<double> soft_cap,
                       const std::optional<Input>& sink_logits, const std::optional<Input>& alibi_slopes,
                       std::string_view mask, std::string_view arithmetic) {
  const Queries queries = queries_of(q, value_dim(self.cache->cache.spec(), layer), out,
                                     {scale, soft_cap, sink_logits, alibi_slopes, mask, arithmetic});
  run_unlocked(self.cache->device, [&](Call& call, Encoder& encoder) {
    record_attend(call, encoder, queries, self.step.view(layer).value(),
                  query_tokens ? *query_tokens : self.query_tokens);
  });
  return queries.out.array;
}

nb::object update(PyStep& self, std::uint32_t layer, const Input& q, const Input& k, const std::optional<Input>& v,
                  double scale, const nb::object& out, std::optional<double> soft_cap,
                  const std::optional<Input>& sink_logits, const std::optional<Input>& alibi_slopes,
                  std::string_view mask, std::string_view arithmetic) {
  const Queries queries = queries_of(q, value_dim(self.cache->cache.spec(), layer), out,
                                     {scale, soft_cap, sink_logits, alibi_slopes, mask, arithmetic});
  run_unlocked(self.cache->device, [&](Call& call, Encoder& encoder) {
    record_append(self, call, encoder, layer, k, v);
    record_attend(call, encoder, queries, self.step.view(layer).value(), self.query_tokens);
  });
  return queries.out.array;
}

nb::object save(const PySequence& self, const nb::object& given, std::uint64_t begin,
                std::optional<std::uint64_t> end) {
  std::optional<std::string> path;
  if (!given.is_none()) path = nb::cast<std::string>(nb::module_::import_("os").attr("fspath")(given));
  const auto owner = self.cache();
  std::vector<std::byte> bytes;
  {
    const nb::gil_scoped_release unlocked;
    std::ofstream file;
    const auto failed = [&] {
      return Error{.code = Errc::io, .message = *path + ": " + std::generic_category().message(errno)};
    };
    const auto sink = [&](std::span<const std::byte> part) -> Status {
      if (!path) {
        bytes.insert(bytes.end(), part.begin(), part.end());
        return {};
      }
      // Only now: a call that is refused leaves a file as it was.
      if (!file.is_open()) file.open(*path, std::ios::binary | std::ios::trunc);
      file.write(reinterpret_cast<const char*>(part.data()), static_cast<std::streamsize>(part.size()));
      if (!file) return failed();
      return {};
    };
    owner->cache.save(self.name(), sink, {.begin = begin, .end = end}).value();
    if (path) {
      file.close();
      if (!file) throw BadResult(failed());
    }
  }
  if (path) return nb::none();
  return nb::bytes(bytes.data(), bytes.size());
}

using Bytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// A path becomes a mapped file, which several threads read.
nb::object mapped(const nb::object& path) {
  const nb::object file = nb::module_::import_("builtins").attr("open")(path, "rb");
  const nb::object mmap = nb::module_::import_("mmap");
  nb::object map = mmap.attr("mmap")(file.attr("fileno")(), 0, "access"_a = mmap.attr("ACCESS_READ"));
  file.attr("close")();
  return map;
}

std::shared_ptr<PySequence> load(const std::shared_ptr<Cache>& cache, const nb::object& source,
                                 std::optional<std::uint64_t> tokens) {
  const bool is_path = nb::isinstance<nb::str>(source) || nb::hasattr(source, "__fspath__");
  const nb::object memory = is_path ? mapped(source) : source;
  const auto bytes = nb::cast<Bytes>(memory);
  const nb::gil_scoped_release unlocked;
  const std::span all(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
  const KvLoaded loaded = cache->cache.load(all, {.tokens = tokens}).value();
  return std::make_shared<PySequence>(cache, loaded.sequence);
}

nb::dict to_dict(const KvPoolCounters& pool) {
  nb::dict dict;
  dict["pages"] = pool.used;
  dict["shared"] = pool.shared;
  dict["bytes_used"] = pool.bytes_used;
  dict["bytes_allocated"] = pool.bytes_allocated;
  return dict;
}

nb::dict counters(const std::shared_ptr<Cache>& cache) {
  const KvCounters found = cache->cache.counters();
  nb::dict dict;
  dict["sequences"] = found.sequences;
  dict["tokens"] = found.tokens;
  dict["bytes_used"] = found.bytes_used();
  dict["bytes_allocated"] = found.bytes_allocated();
  dict["seals"] = found.seals;
  dict["unseals"] = found.unseals;
  dict["copied_bytes"] = found.copied_bytes;
  dict["sealed"] = to_dict(found.sealed);
  dict["dense"] = to_dict(found.dense);
  dict["sinks"] = to_dict(found.sinks);
  dict["step"] = to_dict(found.step);
  return dict;
}

void bind_sequence(nb::module_& module) {
  nb::class_<PySequence>(module, "Sequence", "A sequence of a cache. It is closed when nothing refers to it any more.")
      .def_prop_ro("length", &PySequence::length, "Tokens.")
      .def("__len__", &PySequence::length)
      .def("fork", &PySequence::fork, "A second sequence with the same tokens, which shares full pages.")
      .def("truncate", &PySequence::truncate, "length"_a, "Takes back the newest tokens, so that `length` are left.")
      .def("close", &PySequence::close, "Gives the pages back.")
      .def("save", &save, "path"_a = nb::none(), nb::kw_only(), "begin"_a = 0, "end"_a = nb::none(),
           "Writes the sequence to a file, or returns it as bytes. `begin` and `end` are positions of whole pages.");
}

void bind_step(nb::module_& module) {
  nb::class_<PyStep>(module, "Step",
                     "The next tokens of one or more sequences. Each layer is appended once, and then attended to.")
      .def_prop_ro(
          "positions",
          [](const PyStep& self) {
            const auto positions = self.step.positions();
            return std::vector<std::int64_t>(positions.begin(), positions.end());
          },
          "The position of each token, for rope().")
      .def("append", &append, "layer"_a, "k"_a, "v"_a.none() = nb::none(),
           "Stores a layer's keys and values, [tokens, kv_heads, dim], one sequence after the other.")
      .def("attend", &attend_step, "layer"_a, "q"_a, nb::kw_only(), "scale"_a, "out"_a = nb::none(),
           "query_tokens"_a = nb::none(), "soft_cap"_a = nb::none(), "sink_logits"_a = nb::none(),
           "alibi_slopes"_a = nb::none(), "mask"_a = "causal", "arithmetic"_a = "stored",
           "Attention of the step's tokens over a layer, or over one that shares its cache: [tokens, heads, dim]. With "
           "`query_tokens` of so many newest tokens of each sequence.")
      .def("update", &update, "layer"_a, "q"_a, "k"_a, "v"_a.none(), nb::kw_only(), "scale"_a, "out"_a = nb::none(),
           "soft_cap"_a = nb::none(), "sink_logits"_a = nb::none(), "alibi_slopes"_a = nb::none(), "mask"_a = "causal",
           "arithmetic"_a = "stored", "append() and attend() in one submission.");
}

}  // namespace

void bind_caches(nb::module_& module) {
  using Unlocked = nb::call_guard<nb::gil_scoped_release>;
  bind_sequence(module);
  bind_step(module);
  nb::class_<Cache>(module, "KvCache", kCacheDoc)
      .def(nb::new_([](std::vector<KvGroup> groups, const std::optional<Device>& device,
                       std::optional<std::uint64_t> max_tokens, std::optional<std::uint64_t> max_bytes, bool at_once,
                       std::uint32_t max_sequences, std::uint64_t max_step_tokens, std::string_view layer_order,
                       std::optional<std::uint64_t> seal_within) {
             return make_cache(spec_of(std::move(groups), {max_tokens, max_bytes, at_once, max_sequences,
                                                           max_step_tokens, layer_order, seal_within}),
                               device);
           }),
           "groups"_a, nb::kw_only(), "device"_a = nb::none(), "max_tokens"_a = nb::none(), "max_bytes"_a = nb::none(),
           "at_once"_a = false, "max_sequences"_a = 1, "max_step_tokens"_a = 512, "layer_order"_a = "in_turn",
           "seal_within"_a = nb::none())
      .def(
          "open_sequence",
          [](const std::shared_ptr<Cache>& cache) {
            return std::make_shared<PySequence>(cache, cache->cache.open_sequence().value());
          },
          Unlocked(), "A new sequence without tokens.")
      .def("extend", &extend, "sequences"_a, "Adds tokens: a list of (sequence, tokens). Seals what is due.")
      .def(
          "load", &load, "source"_a, nb::kw_only(), "tokens"_a = nb::none(),
          "Opens a sequence that Sequence.save() wrote, from bytes or from a file. With `tokens` only those before it.")
      .def(
          "settle",
          [](const std::shared_ptr<Cache>& cache) {
            cache->submit([&](Encoder& encoder) { cache->cache.settle(encoder).value(); });
          },
          Unlocked(), "Seals now what the next step would seal.")
      .def(
          "reserve", [](Cache& cache, std::uint64_t tokens) { cache.cache.reserve(tokens).value(); }, "tokens"_a,
          Unlocked(), "Takes memory for so many tokens of all sequences, and keeps it.")
      .def(
          "trim", [](Cache& cache) { cache.cache.trim().value(); }, Unlocked(),
          "Gives back memory that no sequence uses.")
      .def_prop_ro("device", [](const Cache& cache) { return cache.device; })
      .def_prop_ro("groups", [](const Cache& cache) { return cache.cache.spec().groups; })
      .def_prop_ro("counters", &counters, "Tokens, pages and bytes in use.")
      .def_prop_ro(
          "memory", [](const Cache& cache) { return to_dict(cache.cache.memory()); },
          "The bytes of the cache, at most.")
      .def_prop_ro(
          "non_finite",
          [](const Cache& cache) {
            const KvNonFinite lost = [&] {
              const nb::gil_scoped_release unlocked;
              return cache.cache.non_finite().value();
            }();
            nb::dict dict;
            dict["appended"] = lost.appended;
            dict["sealed"] = lost.sealed;
            return dict;
          },
          "Values that were infinite or NaN once stored or sealed.");
}

}  // namespace rota::python
