#include "core/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#include "core/cpuid.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#if defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#endif

// A sum is a polynomial's remainder, lowest power in the highest bit. Remainders are linear: that of A and then B is
// that of A and then as many zeros, plus that of B. So pieces may be added up side by side,
//
//   bytes    | first        | second       | third        |
//   sum  =     past 2 pieces + past 1 piece  + as it is
//
// and an instruction that takes three cycles but can begin in each is never waited for.

namespace rota::core {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;
constexpr std::size_t kPiece = 1024;  // bytes

constexpr std::uint32_t past_one_bit(std::uint32_t sum) { return sum >> 1 ^ ((sum & 1) != 0 ? kPolynomial : 0); }

using Table = std::array<std::uint32_t, 256>;

// tables[n][b]: the byte b, and then n zeros.
constexpr std::array<Table, 8> tables_of_bytes() {
  std::array<Table, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t sum = byte;
    for (Table& table : tables) {
      for (int bit = 0; bit < 8; ++bit) sum = past_one_bit(sum);
      table[byte] = sum;
    }
  }
  return tables;
}

constexpr std::array<Table, 8> kBytes = tables_of_bytes();

std::uint64_t load(const std::byte* at) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

#if defined(__x86_64__) || defined(__aarch64__)

// tables[i][b]: byte i of a sum is b, and then come kPiece zeros.
constexpr std::array<Table, 4> tables_of_a_piece() {
  // What becomes of each bit of a sum past a zero byte, past 2, past 4, ...
  std::array<std::uint32_t, 32> bits{};
  for (std::size_t bit = 0; bit < 32; ++bit) {
    bits[bit] = std::uint32_t{1} << bit;
    for (int i = 0; i < 8; ++i) bits[bit] = past_one_bit(bits[bit]);
  }
  const auto apply = [](const std::array<std::uint32_t, 32>& to, std::uint32_t sum) {
    std::uint32_t all = 0;
    for (std::size_t bit = 0; bit < 32; ++bit) all ^= (sum >> bit & 1) != 0 ? to[bit] : 0;
    return all;
  };
  for (std::size_t zeros = 1; zeros < kPiece; zeros *= 2) {
    const std::array<std::uint32_t, 32> half = bits;
    for (std::uint32_t& bit : bits) bit = apply(half, bit);
  }
  std::array<Table, 4> tables{};
  for (std::uint32_t i = 0; i < 4; ++i) {
    for (std::uint32_t byte = 0; byte < 256; ++byte) tables[i][byte] = apply(bits, byte << 8 * i);
  }
  return tables;
}

constexpr std::array<Table, 4> kPastPiece = tables_of_a_piece();
static_assert(std::has_single_bit(kPiece));

std::uint32_t past_piece(std::uint32_t sum) noexcept {
  return kPastPiece[0][sum & 255] ^ kPastPiece[1][sum >> 8 & 255] ^ kPastPiece[2][sum >> 16 & 255] ^
         kPastPiece[3][sum >> 24];
}

#if defined(__x86_64__)
#define ROTA_CRC_TARGET __attribute__((target("sse4.2,crc32")))
ROTA_CRC_TARGET inline std::uint32_t add_word(std::uint32_t sum, std::uint64_t word) noexcept {
  return static_cast<std::uint32_t>(_mm_crc32_u64(sum, word));
}
ROTA_CRC_TARGET inline std::uint32_t add_byte(std::uint32_t sum, std::byte byte) noexcept {
  return _mm_crc32_u8(sum, std::to_integer<std::uint8_t>(byte));
}
bool has_instructions() noexcept { return has(X86Feature::sse4_2); }
#else
#if defined(__clang__)
#define ROTA_CRC_TARGET __attribute__((target("crc")))
#else
#define ROTA_CRC_TARGET __attribute__((target("+crc")))
#endif
ROTA_CRC_TARGET inline std::uint32_t add_word(std::uint32_t sum, std::uint64_t word) noexcept {
  return __crc32cd(sum, word);
}
ROTA_CRC_TARGET inline std::uint32_t add_byte(std::uint32_t sum, std::byte byte) noexcept {
  return __crc32cb(sum, std::to_integer<std::uint8_t>(byte));
}
bool has_instructions() noexcept {
#if defined(__linux__)
  return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
#else
  return true;
#endif
}
#endif

ROTA_CRC_TARGET std::uint32_t add_by_instructions(std::uint32_t sum, std::span<const std::byte> bytes) noexcept {
  for (; bytes.size() >= 3 * kPiece; bytes = bytes.subspan(3 * kPiece)) {
    std::uint32_t second = 0;
    std::uint32_t third = 0;
    for (std::size_t i = 0; i < kPiece; i += sizeof(std::uint64_t)) {
      sum = add_word(sum, load(&bytes[i]));
      second = add_word(second, load(&bytes[kPiece + i]));
      third = add_word(third, load(&bytes[2 * kPiece + i]));
    }
    sum = past_piece(past_piece(sum) ^ second) ^ third;
  }
  for (; bytes.size() >= sizeof(std::uint64_t); bytes = bytes.subspan(sizeof(std::uint64_t))) {
    sum = add_word(sum, load(bytes.data()));
  }
  for (const std::byte byte : bytes) sum = add_byte(sum, byte);
  return sum;
}
#undef ROTA_CRC_TARGET

#endif

std::uint32_t add_by_tables(std::uint32_t sum, std::span<const std::byte> bytes) noexcept {
  static_assert(std::endian::native == std::endian::little);
  for (; bytes.size() >= sizeof(std::uint64_t); bytes = bytes.subspan(sizeof(std::uint64_t))) {
    const std::uint64_t word = load(bytes.data()) ^ sum;
    sum = 0;
    for (std::size_t i = 0; i < 8; ++i) sum ^= kBytes[7 - i][word >> 8 * i & 255];
  }
  for (const std::byte byte : bytes) sum = sum >> 8 ^ kBytes[0][(sum ^ std::to_integer<std::uint32_t>(byte)) & 255];
  return sum;
}

}  // namespace

std::uint32_t crc32c_by_tables(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
  return ~add_by_tables(~before, bytes);
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
#if defined(__x86_64__) || defined(__aarch64__)
  static const bool by_instructions = has_instructions();
  if (by_instructions) return ~add_by_instructions(~before, bytes);
#endif
  return crc32c_by_tables(bytes, before);
}

}  // namespace rota::core
