#include "llama-kv-rota.h"

#include <algorithm>
#include <limits>
#include <set>

#include "llama-cparams.h"
#include "llama-impl.h"
#include "llama-model.h"

using namespace llama_rota;

namespace {

constexpr llama_pos kEnd = std::numeric_limits<llama_pos>::max();

options options_from(const llama_memory_params& params) {
  if (params.type_k != GGML_TYPE_F16 || params.type_v != GGML_TYPE_F16) {
    throw std::runtime_error("--rota: it stands instead of --cache-type-k and --cache-type-v");
  }
  return options::parse(params.rota);
}

device_ptr open_device(const llama_cparams& cparams, team& team) {
  rota_device_options options = ROTA_DEVICE_OPTIONS_INIT;
  options.device = "cpu";
  options.threads = static_cast<uint32_t>(std::max({cparams.n_threads, cparams.n_threads_batch, 1}));
  options.parallel_for = team::parallel_for;
  options.parallel_for_user = &team;
  rota_device* device = nullptr;
  check(rota_device_open(&options, &device));
  return device_ptr(device);
}

cache_ptr create_cache(rota_device* device, const rota_kv_cache_spec& spec) {
  rota_kv_cache* cache = nullptr;
  check(rota_kv_cache_create(device, &spec, &cache));
  return cache_ptr(cache);
}

}  // namespace

cell_pool::cell_pool(uint32_t cells) : users_(cells, 0) {
  free_.reserve(cells);
  for (uint32_t cell = cells; cell > 0; --cell) free_.push_back(cell - 1);
}

uint32_t cell_pool::take() {
  const uint32_t cell = free_.back();
  free_.pop_back();
  users_[cell] = 1;
  return cell;
}

void cell_pool::share(const std::vector<uint32_t>& cells) {
  for (const uint32_t cell : cells) ++users_[cell];
}

void cell_pool::give(uint32_t cell) {
  if (--users_[cell] == 0) free_.push_back(cell);
}

llama_kv_rota::llama_kv_rota(const llama_model& model, const llama_memory_params& params, const llama_cparams& cparams)
    : no_alloc_(model.hparams.no_alloc),
      n_ctx_seq_(cparams.n_ctx_seq),
      description_(model, cparams, options_from(params)),
      bytes_(description_.bytes()),
      device_(no_alloc_ ? nullptr : open_device(cparams, team_)),
      cache_(no_alloc_ ? nullptr : create_cache(device_.get(), description_.spec)),
      store_(store::open(description_.chosen, model, cparams, cache_.get())),
      ops_(device_.get(), team_),
      cells_(static_cast<uint32_t>(description_.spec.max_tokens)),
      sequences_(cparams.n_seq_max) {
  const auto& chosen = description_.chosen;
  LLAMA_LOG_INFO("%s: size = %7.2f MiB at most (%6u cells, %3u layers, %2u seqs), K (%s), V (%s), rota %s\n", __func__,
                 double(bytes_) / 1024.0 / 1024.0, unsigned(description_.spec.max_tokens), description_.n_layer,
                 cparams.n_seq_max, chosen.k.c_str(), chosen.v.c_str(), rota_version_text());
}

llama_memory_context_ptr llama_kv_rota::init_batch(llama_batch_allocr& balloc, uint32_t n_ubatch, bool /*embd_all*/) {
  const std::string why = misfit(balloc.get_batch());
  if (!why.empty()) {
    LLAMA_LOG_ERROR("%s: %s\n", __func__, why.c_str());
    return std::make_unique<llama_kv_rota_context>(this, LLAMA_MEMORY_STATUS_FAILED_PREPARE);
  }
  return std::make_unique<llama_kv_rota_context>(this, LLAMA_MEMORY_STATUS_SUCCESS, split(balloc, n_ubatch));
}

llama_memory_context_ptr llama_kv_rota::init_full() {
  return std::make_unique<llama_kv_rota_context>(this, LLAMA_MEMORY_STATUS_SUCCESS);
}

llama_memory_context_ptr llama_kv_rota::init_update(llama_context* /*lctx*/, bool /*optimize*/) {
  return std::make_unique<llama_kv_rota_context>(this, LLAMA_MEMORY_STATUS_NO_UPDATE);
}

// Why the batch cannot be computed; "" if it can. Tokens of a sequence follow one another, and sequences that have a
// token in common have had all before it in common.
std::string llama_kv_rota::misfit(const llama_batch& batch) const {
  struct tip {
    llama_pos next;
    uint64_t length;
    uint32_t group;  // equal where sequences are the same
  };
  std::map<llama_seq_id, tip> tips;
  uint32_t groups = 0;
  const auto tip_of = [&](llama_seq_id id, llama_pos pos) -> tip& {
    const sequence& known = sequences_.at(id);
    const auto found = tips.find(id);
    if (found != tips.end()) return found->second;
    uint32_t group = groups++;
    for (const auto& other : tips) {
      const sequence& its = sequences_[other.first];
      if (other.second.length == its.cells.size() && its.cells == known.cells) group = other.second.group;
    }
    return tips[id] = {known.cells.empty() ? pos : known.end(), known.cells.size(), group};
  };
  for (int32_t i = 0; i < batch.n_tokens; ++i) {
    for (int32_t s = 0; s < batch.n_seq_id[i]; ++s) {
      const llama_seq_id id = batch.seq_id[i][s];
      if (!has(id)) return "there is no sequence " + std::to_string(id);
      if (!sequences_[id].broken.empty()) return "sequence " + std::to_string(id) + ": " + sequences_[id].broken;
      tip_of(id, batch.pos[i]);
    }
    const uint32_t group = tips.at(batch.seq_id[i][0]).group;
    for (int32_t s = 0; s < batch.n_seq_id[i]; ++s) {
      const llama_seq_id id = batch.seq_id[i][s];
      tip& at = tips.at(id);
      if (batch.pos[i] != at.next) {
        return "sequence " + std::to_string(id) + " goes on with position " + std::to_string(at.next) + ", not " +
               std::to_string(batch.pos[i]);
      }
      if (at.group != group) return "a token belongs to sequences that are not the same before it";
      if (++at.length > n_ctx_seq_) return "sequence " + std::to_string(id) + " is full";
      ++at.next;
    }
    for (int32_t s = 0; s < batch.n_seq_id[i]; ++s) tips.at(batch.seq_id[i][s]).group = groups;
    ++groups;
  }
  if (size_t(batch.n_tokens) > cells_.free()) {
    return std::to_string(batch.n_tokens) + " tokens, and " + std::to_string(cells_.free()) + " free cells";
  }
  return "";
}

// In the order of the batch. Sequences that have tokens in common get them by forks after the ubatch: until then none
// of them has tokens of its own.
std::vector<llama_ubatch> llama_kv_rota::split(llama_batch_allocr& balloc, uint32_t n_ubatch) const {
  std::vector<llama_ubatch> result;
  if (store_) n_ubatch = std::min(n_ubatch, description_.storable_step());
  const llama_batch& batch = balloc.get_batch();
  balloc.split_reset();
  for (int32_t begin = 0; begin < batch.n_tokens;) {
    std::map<llama_seq_id, std::set<llama_seq_id>> coupled;
    int32_t end = begin;
    for (; end < batch.n_tokens && uint32_t(end - begin) < n_ubatch; ++end) {
      const std::set<llama_seq_id> ids(batch.seq_id[end], batch.seq_id[end] + batch.n_seq_id[end]);
      const auto is_free = [&](llama_seq_id id) { return coupled.count(id) == 0 || coupled[id] == ids; };
      if (!std::all_of(ids.begin(), ids.end(), is_free)) break;
      if (ids.size() == 1) continue;
      for (const llama_seq_id id : ids) coupled[id] = ids;
    }
    result.push_back(balloc.split_simple(uint32_t(end - begin)));
    begin = end;
  }
  return result;
}

bool llama_kv_rota::begin(const llama_ubatch& ubatch) {
  roll_back();
  extensions_.clear();
  coupled_.clear();
  for (uint32_t i = 0; i < ubatch.n_tokens; ++i) {
    const llama_seq_id id = ubatch.seq_id[i][0];
    if (!extensions_.empty() && extensions_.back().seq_id == id) {
      ++extensions_.back().tokens;
    } else {
      extensions_.push_back({id, 1});
    }
    for (int32_t s = 1; s < ubatch.n_seq_id[i]; ++s) {
      const std::pair<llama_seq_id, llama_seq_id> pair(id, ubatch.seq_id[i][s]);
      if (std::find(coupled_.begin(), coupled_.end(), pair) == coupled_.end()) coupled_.push_back(pair);
    }
  }
  try {
    std::vector<rota_kv_extension> wanted;
    std::vector<uint64_t> query_tokens;
    for (const extension& extension : extensions_) {
      sequence& sequence = sequences_.at(extension.seq_id);
      open(sequence);
      rota_kv_extension next = ROTA_KV_EXTENSION_INIT;
      next.sequence = sequence.id;
      next.tokens = extension.tokens;
      wanted.push_back(next);
      query_tokens.push_back(extension.tokens);
    }
    encoder_ptr encoder = new_encoder(device_.get());
    rota_kv_step* step = nullptr;
    check(rota_kv_cache_extend(cache_.get(), encoder.get(), wanted.data(), wanted.size(), &step));
    ops_.begin(step_ptr(step), std::move(encoder), std::move(query_tokens));
  } catch (const std::exception& error) {
    LLAMA_LOG_ERROR("%s: %s\n", __func__, error.what());
    return false;
  }
  for (uint32_t i = 0; i < ubatch.n_tokens; ++i) {
    sequence& sequence = sequences_[ubatch.seq_id[i][0]];
    if (sequence.cells.empty()) sequence.first = ubatch.pos[i];
    const bool is_known = ubatch.token != nullptr && ubatch.embd == nullptr;
    if (is_known && sequence.tokens.size() == sequence.cells.size()) sequence.tokens.push_back(ubatch.token[i]);
    sequence.cells.push_back(cells_.take());
  }
  under_way_ = true;
  is_plain_ = false;
  return true;
}

bool llama_kv_rota::end() {
  const std::string failure = ops_.submitted() ? ops_.failure() : "no layer has attended: " + ops_.failure();
  if (!failure.empty()) {
    LLAMA_LOG_ERROR("%s: %s\n", __func__, failure.c_str());
    roll_back();
    return false;
  }
  ops_.end();
  under_way_ = false;
  if (store_) keep();
  for (const auto& [from, to] : coupled_) {
    try {
      close(sequences_[to]);
      fork(sequences_[from], sequences_[to]);
    } catch (const std::exception& error) {
      LLAMA_LOG_ERROR("%s: %s\n", __func__, error.what());
      sequences_[to].broken = error.what();
      return false;
    }
  }
  return true;
}

// A step that was begun and not computed to its end is taken back, in all of its sequences.
void llama_kv_rota::roll_back() {
  if (!under_way_) return;
  under_way_ = false;
  const bool submitted = ops_.submitted();
  std::map<llama_seq_id, uint64_t> added;
  for (const extension& extension : extensions_) added[extension.seq_id] += extension.tokens;
  if (!submitted) ops_.end();
  for (const auto& [id, tokens] : added) {
    sequence& sequence = sequences_[id];
    const uint64_t length = sequence.cells.size() - tokens;
    try {
      if (submitted) truncate(sequence, length);
    } catch (const std::exception& error) {
      LLAMA_LOG_ERROR("%s: %s\n", __func__, error.what());
      sequence.broken = error.what();
    }
    shrink(sequence, length);
  }
  ops_.end();
}

void llama_kv_rota::open(sequence& sequence) {
  if (sequence.is_open) return;
  check(rota_kv_cache_open_sequence(cache_.get(), &sequence.id));
  sequence.is_open = true;
}

void llama_kv_rota::close(sequence& sequence) {
  if (sequence.is_open) check(rota_kv_cache_close(cache_.get(), sequence.id));
  for (const uint32_t cell : sequence.cells) cells_.give(cell);
  sequence = {};
}

void llama_kv_rota::fork(const sequence& from, sequence& to) {
  if (!from.is_open) return;
  const encoder_ptr encoder = new_encoder(device_.get());
  check(rota_kv_cache_fork(cache_.get(), encoder.get(), from.id, &to.id));
  to.is_open = true;
  check(rota_encoder_submit(encoder.get(), nullptr));
  to.first = from.first;
  to.cells = from.cells;
  to.tokens = from.tokens;
  cells_.share(to.cells);
}

void llama_kv_rota::truncate(sequence& sequence, uint64_t length) {
  const encoder_ptr encoder = new_encoder(device_.get());
  check(rota_kv_cache_truncate(cache_.get(), encoder.get(), sequence.id, length));
  check(rota_encoder_submit(encoder.get(), nullptr));
  shrink(sequence, length);
}

void llama_kv_rota::shrink(sequence& sequence, uint64_t length) {
  for (; sequence.cells.size() > length; sequence.cells.pop_back()) cells_.give(sequence.cells.back());
  if (sequence.tokens.size() > length) sequence.tokens.resize(length);
}

void llama_kv_rota::clear(bool /*data*/) {
  if (!cache_) return;
  roll_back();
  for (sequence& sequence : sequences_) close(sequence);
}

// Whether [p0, p1) can be removed: nothing, all, or what is newest and leaves enough for every window.
bool llama_kv_rota::serves(const sequence& sequence, llama_pos p0, llama_pos p1) const {
  if (p0 >= sequence.end() || p1 <= sequence.first || p0 >= p1) return true;
  if (p1 < sequence.end()) return false;
  if (p0 <= sequence.first) return true;
  uint64_t kept = 0;
  check(rota_kv_cache_first_position(cache_.get(), sequence.id, &kept));
  uint64_t window = 0;
  for (const rota_kv_group& group : description_.groups) window = std::max(window, group.window);
  return kept == 0 || uint64_t(p0 - sequence.first) >= kept + window;
}

bool llama_kv_rota::seq_rm(llama_seq_id seq_id, llama_pos p0, llama_pos p1) {
  if (!cache_) return true;
  roll_back();
  p0 = std::max(p0, 0);
  p1 = p1 < 0 ? kEnd : p1;
  std::vector<sequence*> chosen;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    if (seq_id < 0 || size_t(seq_id) == i) chosen.push_back(&sequences_[i]);
  }
  try {
    for (const sequence* sequence : chosen) {
      if (!serves(*sequence, p0, p1)) return false;
    }
    for (sequence* sequence : chosen) {
      if (p0 <= sequence->first && p1 >= sequence->end()) {
        close(*sequence);
      } else if (p0 < sequence->end() && p0 < p1 && p1 > sequence->first) {
        truncate(*sequence, uint64_t(p0 - sequence->first));
      }
    }
    return true;
  } catch (const std::exception& error) {
    LLAMA_LOG_ERROR("%s: %s\n", __func__, error.what());
    return false;
  }
}

void llama_kv_rota::seq_cp(llama_seq_id seq_id_src, llama_seq_id seq_id_dst, llama_pos p0, llama_pos p1) {
  if (!cache_ || seq_id_src == seq_id_dst || !has(seq_id_src) || !has(seq_id_dst)) return;
  roll_back();
  const sequence& from = sequences_.at(seq_id_src);
  sequence& to = sequences_.at(seq_id_dst);
  p0 = std::max(p0, 0);
  p1 = p1 < 0 ? kEnd : std::min(p1, from.end());
  try {
    // A copy adds to what is there: only the beginning of the same text may be.
    const bool is_prefix =
        to.cells.size() <= from.cells.size() && std::equal(to.cells.begin(), to.cells.end(), from.cells.begin());
    if (!is_prefix || !from.broken.empty() || p0 > from.first + llama_pos(to.cells.size())) {
      throw std::runtime_error("a copy of sequence " + std::to_string(seq_id_src) + " from position " +
                               std::to_string(p0) + " does not follow what the sequence has");
    }
    if (p1 <= to.end() && !to.cells.empty()) return;
    close(to);
    fork(from, to);
    if (p1 < to.end()) truncate(to, uint64_t(std::max(p1, to.first) - to.first));
  } catch (const std::exception& error) {
    LLAMA_LOG_ERROR("%s: %s\n", __func__, error.what());
    to.broken = error.what();
  }
}

void llama_kv_rota::seq_keep(llama_seq_id seq_id) {
  for (size_t i = 0; i < sequences_.size(); ++i) {
    if (i != size_t(seq_id)) seq_rm(llama_seq_id(i), -1, -1);
  }
}

void llama_kv_rota::seq_add(llama_seq_id seq_id, llama_pos p0, llama_pos p1, llama_pos shift) {
  if (shift == 0 || p0 == p1 || !has(seq_id)) return;
  sequences_.at(seq_id).broken = "its positions were shifted, which Rota's keys cannot follow";
  LLAMA_LOG_ERROR("%s: sequence %d: %s\n", __func__, seq_id, sequences_[seq_id].broken.c_str());
}

void llama_kv_rota::seq_div(llama_seq_id seq_id, llama_pos p0, llama_pos p1, int d) {
  if (d != 1) seq_add(seq_id, p0, p1, d);
}

// A batch that names another is refused.
bool llama_kv_rota::has(llama_seq_id seq_id) const { return seq_id >= 0 && size_t(seq_id) < sequences_.size(); }

llama_pos llama_kv_rota::seq_pos_min(llama_seq_id seq_id) const {
  if (!has(seq_id)) return -1;
  const sequence& sequence = sequences_.at(seq_id);
  if (sequence.cells.empty()) return -1;
  uint64_t kept = 0;
  check(rota_kv_cache_first_position(cache_.get(), sequence.id, &kept));
  return sequence.first + llama_pos(kept);
}

llama_pos llama_kv_rota::seq_pos_max(llama_seq_id seq_id) const {
  if (!has(seq_id)) return -1;
  const sequence& sequence = sequences_.at(seq_id);
  return sequence.cells.empty() ? -1 : sequence.end() - 1;
}

std::map<ggml_backend_buffer_type_t, size_t> llama_kv_rota::memory_breakdown() const {
  return {{ggml_backend_cpu_buffer_type(), bytes_}};
}

uint64_t llama_kv_rota::window(uint32_t layer) const {
  for (size_t i = 0; i < description_.groups.size(); ++i) {
    const auto& own = description_.layers[i];
    const auto& shared = description_.shared[i];
    const auto is_shared = [&](const rota_kv_shared_layer& one) { return one.layer == layer; };
    if (std::find(own.begin(), own.end(), layer) != own.end() || std::any_of(shared.begin(), shared.end(), is_shared)) {
      return description_.groups[i].window;
    }
  }
  throw std::runtime_error("--rota: layer " + std::to_string(layer) + " attends, and has no keys and values");
}
