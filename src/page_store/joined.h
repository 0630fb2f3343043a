#pragma once

#include <memory>
#include <span>
#include <vector>

#include "page_store/block_form.h"
#include "page_store/medium.h"

// Blocks of a fetch, read as one saved sequence.

namespace rota::page_store {

class Joined {
 public:
  // `object_of(block, part)` is the index of an object of the fetch.
  using ObjectOf = std::function<std::size_t(std::uint64_t block, StoredPart part)>;
  static Result<Joined> of(const BlockForm& form, std::uint64_t begin, std::uint64_t end, const ObjectOf& object_of);

  // May be called by several threads at once, as `fetch`.
  Status read(Fetch& fetch, std::uint64_t offset, std::span<std::byte> to) const;

 private:
  struct Part {
    std::uint64_t offset = 0, bytes = 0;  // in the saved sequence
    std::size_t object = 0;
    std::uint64_t object_offset = 0;
  };
  Status read_part(Fetch& fetch, std::size_t number, std::uint64_t at, std::span<std::byte> to) const;

  std::vector<std::byte> header_;
  std::vector<Part> parts_;
};

}  // namespace rota::page_store
