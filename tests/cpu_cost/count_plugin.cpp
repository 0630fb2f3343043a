#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

// A plugin of QEMU 7.2 that counts what an emulated program executes: count_plugin.so,into=NAME. The count stands in
// that file's first eight bytes, where the program itself reads it (steps.cpp). Instructions are added before the
// straight piece of code that they belong to runs.

// What it takes of QEMU's interface, whose header no package brings.
struct qemu_plugin_tb;
struct qemu_info_t;
using qemu_plugin_id_t = std::uint64_t;
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };

extern "C" {

std::size_t qemu_plugin_tb_n_insns(const qemu_plugin_tb* piece);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, void (*call)(qemu_plugin_id_t, qemu_plugin_tb*));
void qemu_plugin_register_vcpu_tb_exec_inline(qemu_plugin_tb* piece, qemu_plugin_op op, void* at, std::uint64_t number);

[[gnu::visibility("default")]] int qemu_plugin_version = 1;
[[gnu::visibility("default")]] int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t* info, int count,
                                                       char** arguments);
}

namespace {

void* counter = nullptr;

void count_piece(qemu_plugin_id_t, qemu_plugin_tb* piece) {
  qemu_plugin_register_vcpu_tb_exec_inline(piece, QEMU_PLUGIN_INLINE_ADD_U64, counter, qemu_plugin_tb_n_insns(piece));
}

}  // namespace

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t*, int count, char** arguments) {
  constexpr char kOption[] = "into=";
  constexpr std::size_t kLength = sizeof(kOption) - 1;
  if (count != 1 || std::strncmp(arguments[0], kOption, kLength) != 0) return 1;
  const int file = open(arguments[0] + kLength, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, sizeof(std::uint64_t)) != 0) {
    std::perror(arguments[0]);
    return 1;
  }
  counter = mmap(nullptr, sizeof(std::uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (counter == MAP_FAILED) return 1;
  qemu_plugin_register_vcpu_tb_trans_cb(id, count_piece);
  return 0;
}
