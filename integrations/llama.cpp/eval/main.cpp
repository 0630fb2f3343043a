#include <cerrno>
#include <exception>
#include <fstream>
#include <iostream>
#include <system_error>

#include "engine.h"
#include "failure.h"
#include "options.h"
#include "result.h"

// What caches of keys and values do to a model's predictions, speed and memory, in llama.cpp itself.

namespace rota::eval {
namespace {

std::vector<Row> measure(Engine& engine, const Options& options) {
  const std::uint32_t head_dim = head_dim_of(*engine.load_without_weights());
  const std::vector<Memory> memory = measure_memory(engine, options);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < options.caches.size(); ++i) {
    rows.push_back({options.caches[i], stored_by(options.caches[i], head_dim), memory[i]});
  }
  if (options.quality) {
    const std::vector<Quality> quality = measure_quality(engine, options);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].quality = quality[i];
  }
  if (options.speed) {
    const std::vector<Timings> timings = measure_speed(engine, options);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].timings = timings[i];
  }
  return rows;
}

// The file that --to names.
class File {
 public:
  explicit File(const std::string& path) : path_(path) {
    if (!path.empty()) open(std::ios::app);  // a wrong name is found before all is measured
  }

  void write(const std::string& text) {
    open(std::ios::trunc);
    file_ << text << std::flush;
    if (!file_) fail();
  }

 private:
  void open(std::ios::openmode mode) {
    file_.close();
    file_.clear();
    file_.open(path_, std::ios::binary | std::ios::out | mode);
    if (!file_) fail();
  }
  [[noreturn]] void fail() const {
    throw Failure(Exit::failed, "'" + path_ + "' is not written: " + std::generic_category().message(errno));
  }

  std::string path_;
  std::ofstream file_{};
};

void run(const Options& options) {
  File file(options.to);
  Engine engine(options.model, options.threads);
  std::string table, json;
  if (options.pause) {
    for (const Cache& cache : options.caches) engine.check_served(cache, {options.pause->to});
    table = table_of(options.caches, measure_pauses(engine, options));
  } else {
    const std::vector<Row> rows = measure(engine, options);
    table = table_of(rows);
    if (options.json) json = json_of(rows, options);
  }
  if (options.to.empty()) {
    std::cout << (options.json ? json : table);
    return;
  }
  file.write(options.json ? json : table);
  if (options.json) std::cout << table;  // a person looks at it, too
}

}  // namespace
}  // namespace rota::eval

int main(int count, char** arguments) {
  using namespace rota::eval;
  try {
    const auto options = read_options(count, arguments);
    if (options) {
      run(*options);
    } else {
      std::cout << help();
    }
    return 0;
  } catch (const Failure& failure) {
    std::cerr << "rota-eval: " << failure.what() << '\n';
    if (failure.exit() == Exit::usage) std::cerr << "try: rota-eval --help\n";
    return static_cast<int>(failure.exit());
  } catch (const std::exception& error) {
    std::cerr << "rota-eval: " << error.what() << '\n';
    return static_cast<int>(Exit::failed);
  }
}
