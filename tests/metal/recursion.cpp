#include "recursion.h"

#include <cctype>
#include <map>
#include <set>
#include <utility>

namespace rota::test::metal {

namespace {

using Function = std::pair<std::string_view, size_t>;  // name, arguments

struct Call {
  Function to;
  size_t token;
};

class CallGraph {
 public:
  explicit CallGraph(const std::vector<Token>& tokens) : tokens_(tokens) {
    for (size_t i = 0; i < tokens_.size();) i = read_outside(i);
  }

  std::optional<size_t> cycle() const {
    std::set<Function> done;
    for (const auto& [function, calls] : calls_) {
      std::set<Function> open;
      if (const auto found = walk(function, open, done)) return found;
    }
    return std::nullopt;
  }

 private:
  std::string_view word(size_t i) const { return i < tokens_.size() ? tokens_[i].text : std::string_view(); }
  bool is_name(size_t i) const {
    const std::string_view text = word(i);
    return !text.empty() && (std::isalpha(static_cast<unsigned char>(text[0])) || text[0] == '_');
  }

  // The token after what closes the bracket at `i`, and how many arguments were between.
  std::pair<size_t, size_t> closed(size_t i) const {
    const std::string_view opening = word(i);
    const std::string_view closing = opening == "(" ? ")" : "}";
    size_t arguments = word(i + 1) == closing ? 0 : 1;
    int depth = 0, angles = 0;
    for (; i < tokens_.size(); ++i) {
      if (word(i) == "(" || word(i) == "{" || word(i) == "[") ++depth;
      if (word(i) == "<") ++angles;
      if (word(i) == ">" && angles > 0) --angles;
      if (word(i) == ";") angles = 0;
      if (word(i) == ")" || word(i) == "}" || word(i) == "]") --depth;
      if (depth == 1 && angles == 0 && word(i) == ",") ++arguments;
      if (depth == 0) return {i + 1, arguments};
    }
    return {i, arguments};
  }

  // At `i`, outside of functions. Returns where to go on.
  size_t read_outside(size_t i) {
    if (word(i) == "{") return closed(i).first;  // of a struct, or of an initial value
    if (!is_name(i) || word(i + 1) != "(") return i + 1;
    const auto [after, arguments] = closed(i + 1);
    if (word(after) != "{") return after;
    const size_t end = closed(after).first;
    for (size_t inside = after; inside < end; ++inside) {
      if (!is_name(inside) || word(inside + 1) != "(" || word(inside - 1) == ".") continue;
      calls_[{word(i), arguments}].push_back({{word(inside), closed(inside + 1).second}, inside});
    }
    return end;
  }

  std::optional<size_t> walk(const Function& function, std::set<Function>& open, std::set<Function>& done) const {
    const auto calls = calls_.find(function);
    if (calls == calls_.end() || done.contains(function)) return std::nullopt;
    open.insert(function);
    for (const Call& call : calls->second) {
      if (open.contains(call.to)) return call.token;
      if (const auto found = walk(call.to, open, done)) return found;
    }
    open.erase(function);
    done.insert(function);
    return std::nullopt;
  }

  const std::vector<Token>& tokens_;
  std::map<Function, std::vector<Call>> calls_;
};

}  // namespace

std::optional<size_t> find_recursion(const std::vector<Token>& tokens) { return CallGraph(tokens).cycle(); }

}  // namespace rota::test::metal
