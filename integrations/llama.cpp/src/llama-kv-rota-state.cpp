#include <cstring>
#include <limits>
#include <stdexcept>

#include "llama-impl.h"
#include "llama-io.h"
#include "llama-kv-rota.h"

// A state is kMagic, the number of sequences, and for each: its number, its first position, and the number of another
// that is the same, or -1 and the bytes of rota_kv_cache_save(), which know their length. With a store they have a
// note: kTokensMagic, a digest of what names the weights, and the tokens that are known, so that what follows can be
// stored.

using namespace llama_rota;

namespace {

constexpr uint32_t kMagic = 0x61746f72;                // "rota"
constexpr uint64_t kTokensMagic = 0x736e656b6f742d72;  // "r-tokens"

struct tokens_header {
  uint64_t magic, weights;
};

std::vector<uint8_t> note_of(uint64_t weights, const std::vector<llama_token>& tokens) {
  const tokens_header header = {kTokensMagic, weights};
  std::vector<uint8_t> note(sizeof(header) + tokens.size() * sizeof(llama_token));
  std::memcpy(note.data(), &header, sizeof(header));
  if (!tokens.empty()) {
    std::memcpy(note.data() + sizeof(header), tokens.data(), tokens.size() * sizeof(llama_token));
  }
  return note;
}

// None if the note is another's, or was made with other weights.
std::vector<llama_token> tokens_from(const rota_kv_note& note, uint64_t weights, uint64_t length) {
  tokens_header header = {};
  if (note.size < sizeof(header)) return {};
  std::memcpy(&header, note.bytes, sizeof(header));
  const size_t bytes = note.size - sizeof(header);
  if (header.magic != kTokensMagic || header.weights != weights || bytes % sizeof(llama_token) != 0) return {};
  std::vector<llama_token> tokens(bytes / sizeof(llama_token));
  if (tokens.size() > length) return {};
  if (bytes > 0) std::memcpy(tokens.data(), static_cast<const uint8_t*>(note.bytes) + sizeof(header), bytes);
  return tokens;
}

template <class T>
void put(llama_io_write_i& io, T value) {
  io.write(&value, sizeof(value));
}

template <class T>
T get(llama_io_read_i& io) {
  T value;
  io.read(&value, sizeof(value));
  return value;
}

// Exceptions stop here: C is between.
struct bridge {
  llama_io_write_i* to = nullptr;
  llama_io_read_i* from = nullptr;
  std::string error;

  static int write(void* user, const void* bytes, size_t size) {
    return static_cast<bridge*>(user)->guarded([&](bridge& self) { self.to->write(bytes, size); });
  }
  static int read(void* user, void* bytes, size_t size) {
    return static_cast<bridge*>(user)->guarded([&](bridge& self) { self.from->read(bytes, size); });
  }

 private:
  template <class F>
  int guarded(const F& body) {
    try {
      body(*this);
      return 0;
    } catch (const std::exception& caught) {
      error = caught.what();
      return 1;
    }
  }
};

}  // namespace

void llama_kv_rota::state_write(llama_io_write_i& io, llama_seq_id seq_id, llama_state_seq_flags /*flags*/) const {
  std::vector<llama_seq_id> ids;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const auto id = llama_seq_id(i);
    if ((seq_id >= 0 && id != seq_id) || sequences_[i].cells.empty()) continue;
    if (!sequences_[i].broken.empty())
      throw std::runtime_error("rota: sequence " + std::to_string(id) + ": " + sequences_[i].broken);
    ids.push_back(id);
  }
  put(io, kMagic);
  put(io, uint32_t(ids.size()));
  for (const llama_seq_id id : ids) {
    const sequence& sequence = sequences_[id];
    llama_seq_id same = -1;
    for (const llama_seq_id other : ids) {
      if (other >= id) break;
      if (sequences_[other].cells == sequence.cells) same = other;
    }
    put(io, id);
    put(io, sequence.first);
    put(io, same);
    if (same >= 0) continue;
    bridge bridge;
    bridge.to = &io;
    rota_kv_save_options options = ROTA_KV_SAVE_OPTIONS_INIT;
    rota_kv_note note = ROTA_KV_NOTE_INIT;
    std::vector<uint8_t> bytes;
    if (store_) {
      bytes = note_of(store_->weights(), sequence.tokens);
      note.bytes = bytes.data();
      note.size = bytes.size();
      options.notes = &note;
      options.note_count = 1;
    }
    const rota_status status = rota_kv_cache_save(cache_.get(), sequence.id, bridge::write, &bridge, &options);
    if (!bridge.error.empty()) throw std::runtime_error(bridge.error);
    check(status);
  }
}

void llama_kv_rota::state_read(llama_io_read_i& io, llama_seq_id seq_id, llama_state_seq_flags /*flags*/) {
  roll_back();
  if (get<uint32_t>(io) != kMagic) throw std::runtime_error("rota: the state is another cache's");
  const auto count = get<uint32_t>(io);
  if (count > (seq_id >= 0 ? 1 : sequences_.size())) throw std::runtime_error("rota: the state has too many sequences");
  if (seq_id < 0) {
    clear(true);
  } else {
    close(sequences_.at(size_t(seq_id)));
  }
  for (uint32_t i = 0; i < count; ++i) read_one(io, seq_id);
}

// Into the sequence that the state names, or into `seq_id`. It is empty before, and after an error.
void llama_kv_rota::read_one(llama_io_read_i& io, llama_seq_id seq_id) {
  const auto saved = get<llama_seq_id>(io);
  const auto first = get<llama_pos>(io);
  const auto same = get<llama_seq_id>(io);
  const llama_seq_id id = seq_id >= 0 ? seq_id : saved;
  if (!has(id) || first < 0 || (same >= 0 && (seq_id >= 0 || !has(same) || same == id))) {
    throw std::runtime_error("rota: the state is damaged");
  }
  sequence& to = sequences_[id];
  close(to);
  if (same >= 0) return fork(sequences_[same], to);
  bridge bridge;
  bridge.from = &io;
  uint64_t length = 0;
  rota_kv_notes* all = nullptr;
  const rota_status status = rota_kv_cache_load(cache_.get(), bridge::read, &bridge, nullptr, &to.id, &length, &all);
  if (!bridge.error.empty()) throw std::runtime_error(bridge.error);
  check(status);
  const notes_ptr notes(all);
  to.is_open = true;
  to.first = first;
  if (length > cells_.free() || length > n_ctx_seq_ ||
      length > uint64_t(std::numeric_limits<llama_pos>::max() - first)) {
    close(to);
    throw std::runtime_error("rota: the state has " + std::to_string(length) +
                             " tokens, and there are not as many cells");
  }
  for (uint64_t i = 0; i < length; ++i) to.cells.push_back(cells_.take());
  size_t count = 0;
  check(rota_kv_notes_count(notes.get(), &count));
  if (!store_ || count == 0) return;
  rota_kv_note note = ROTA_KV_NOTE_INIT;
  check(rota_kv_notes_get(notes.get(), 0, &note));
  to.tokens = tokens_from(note, store_->weights(), length);
}
