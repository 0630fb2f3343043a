#pragma once

#include <gtest/gtest.h>
#include <rota/c.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// Calls a function of rota/c.h with each of its arguments wrong in turn, all others right, and once with all right:
// what is refused is refused for that argument. A refusal has a status, a message, and leaves all results as they were.

namespace c_test {

// Other headers' handles are added beside their tests.
template <class T>
inline constexpr bool kIsHandle =
    std::is_same_v<T, rota_backends> || std::is_same_v<T, rota_device> || std::is_same_v<T, rota_buffer> ||
    std::is_same_v<T, rota_encoder> || std::is_same_v<T, rota_fence> || std::is_same_v<T, rota_kv_cache> ||
    std::is_same_v<T, rota_kv_step> || std::is_same_v<T, rota_kv_notes> || std::is_same_v<T, rota_kv_saved>;

template <class T>
concept Sized = requires(T value) { value.struct_size; };

// Memory that is no handle, and one handle of each kind.
struct Strangers {
  alignas(64) std::array<unsigned char, 4096> zeros{}, ones{};
  std::vector<std::pair<std::string, void*>> handles;

  Strangers() { ones.fill(0xff); }
};

// Functions that were called so far.
inline std::set<std::string>& called() {
  static std::set<std::string> names;
  return names;
}

template <class T>
struct Wrong {
  T value;
  rota_status status;
  std::string what;
};

// A copy of a struct, in memory of another size.
class Copies {
 public:
  template <class T>
  T* copy(const T& of, std::size_t struct_size, unsigned char beyond) {
    auto& memory = memory_.emplace_back(std::make_unique<std::array<unsigned char, 1024>>());
    memory->fill(beyond);
    std::memcpy(memory->data(), &of, sizeof(T));
    std::memcpy(memory->data(), &struct_size, sizeof(struct_size));
    return reinterpret_cast<T*>(memory->data());
  }

 private:
  std::vector<std::unique_ptr<std::array<unsigned char, 1024>>> memory_;
};

template <class P>
std::vector<Wrong<P>> wrong_values(P good, bool may_be_null, Strangers& strangers, Copies& copies) {
  std::vector<Wrong<P>> wrong;
  if constexpr (std::is_pointer_v<P>) {
    using T = std::remove_cv_t<std::remove_pointer_t<P>>;
    if (!may_be_null) wrong.push_back({nullptr, ROTA_INVALID_ARGUMENT, "NULL"});
    if constexpr (kIsHandle<T>) {
      wrong.push_back({reinterpret_cast<P>(strangers.zeros.data()), ROTA_INVALID_ARGUMENT, "zeros"});
      wrong.push_back({reinterpret_cast<P>(strangers.ones.data()), ROTA_INVALID_ARGUMENT, "0xff"});
      for (auto& [name, handle] : strangers.handles) {
        T* none = nullptr;
        if (name == typeid(none).name()) continue;
        wrong.push_back({static_cast<P>(handle), ROTA_INVALID_ARGUMENT, "a handle of another kind"});
      }
    } else if constexpr (Sized<T>) {
      if (good != nullptr) {
        for (const std::size_t size : {std::size_t{0}, std::size_t{1}, sizeof(std::size_t), sizeof(T) - 1,
                                       std::size_t{1} << 40, ~std::size_t{0}}) {
          wrong.push_back({copies.copy(*good, size, 0), ROTA_INVALID_ARGUMENT, "struct_size " + std::to_string(size)});
        }
        if constexpr (std::is_const_v<std::remove_pointer_t<P>>) {
          wrong.push_back({copies.copy(*good, sizeof(T) + 8, 1), ROTA_UNSUPPORTED, "unknown members that are not 0"});
        }
        if constexpr (requires { good->reserved; } && std::is_const_v<std::remove_pointer_t<P>>) {
          T* const reserved = copies.copy(*good, sizeof(T), 0);
          reserved->reserved = 1;
          wrong.push_back({reserved, ROTA_UNSUPPORTED, "reserved is not 0"});
        }
      }
    }
  } else if constexpr (std::is_enum_v<P>) {
    wrong.push_back({static_cast<P>(99), ROTA_INVALID_ARGUMENT, "99"});
    wrong.push_back({static_cast<P>(0xffffffffU), ROTA_INVALID_ARGUMENT, "2^32 - 1"});
  }
  return wrong;
}

// The bytes that a call might write through an argument.
template <class P>
std::vector<unsigned char> bytes_behind(P pointer) {
  if constexpr (std::is_pointer_v<P>) {
    using T = std::remove_pointer_t<P>;
    if constexpr (!std::is_const_v<T> && std::is_object_v<T> && !kIsHandle<std::remove_cv_t<T>> &&
                  requires { sizeof(T); }) {
      if (pointer != nullptr) {
        std::vector<unsigned char> bytes(sizeof(T));
        std::memcpy(bytes.data(), pointer, bytes.size());
        return bytes;
      }
    }
  }
  return {};
}

// One function. `good` makes arguments that the function accepts, anew for each call; positions in `may_be_null` accept
// NULL.
template <class... Args>
class Abuse {
 public:
  using Tuple = std::tuple<Args...>;

  Abuse(const char* name, rota_status (*function)(Args...), std::function<Tuple()> good, Strangers& strangers)
      : name_(name), function_(function), good_(std::move(good)), strangers_(strangers) {
    called().insert(name);
  }

  Abuse& may_be_null(std::set<std::size_t> positions) {
    may_be_null_ = std::move(positions);
    return *this;
  }

  void run() {
    accepted(good_(), "right arguments");
    each(std::index_sequence_for<Args...>());
  }

  // The struct at a position changed, which must be refused.
  template <std::size_t I, class Change>
  Abuse& refused_if(const char* what, Change&& change, rota_status wanted = ROTA_INVALID_ARGUMENT) {
    Tuple args = good_();
    auto copy = *std::get<I>(args);
    change(copy);
    std::get<I>(args) = &copy;
    refused(args, wanted, what);
    return *this;
  }

 private:
  void accepted(Tuple args, const std::string& what) {
    EXPECT_EQ(std::apply(function_, args), ROTA_OK) << name_ << ", " << what << ": " << rota_last_message();
  }

  void refused(Tuple args, rota_status wanted, const std::string& what) {
    const auto before = std::apply([](auto... arg) { return std::vector{bytes_behind(arg)...}; }, args);
    rota_buffer_size(nullptr, nullptr);  // another message
    const rota_status status = std::apply(function_, args);
    EXPECT_EQ(status, wanted) << name_ << ", " << what << ": " << rota_last_message();
    const std::string message = rota_last_message();
    EXPECT_EQ(message.rfind(std::string(name_) + ": ", 0), 0) << name_ << ", " << what << ": " << message;
    EXPECT_NE(message.find("; wanted "), std::string::npos) << message;
    const auto after = std::apply([](auto... arg) { return std::vector{bytes_behind(arg)...}; }, args);
    EXPECT_EQ(before, after) << name_ << ", " << what << ": a result has changed";
  }

  template <std::size_t... I>
  void each(std::index_sequence<I...>) {
    (one<I>(), ...);
  }

  template <std::size_t I>
  void one() {
    using P = std::tuple_element_t<I, Tuple>;
    const std::string at = "argument " + std::to_string(I);
    const auto wrongs = wrong_values(std::get<I>(good_()), may_be_null_.count(I) != 0, strangers_, copies_);
    for (const auto& wrong : wrongs) {
      Tuple args = good_();
      std::get<I>(args) = wrong.value;
      refused(args, wrong.status, at + " is " + wrong.what);
    }
    if constexpr (std::is_pointer_v<P> && Sized<std::remove_cv_t<std::remove_pointer_t<P>>>) {
      Tuple args = good_();
      if (std::get<I>(args) == nullptr) return;
      using T = std::remove_cv_t<std::remove_pointer_t<P>>;
      constexpr bool result = !std::is_const_v<std::remove_pointer_t<P>>;
      T* const larger = copies_.copy(*std::get<I>(args), sizeof(T) + 8, result ? 0xaa : 0);
      std::get<I>(args) = larger;
      accepted(args, at + " is larger");
      const auto* const bytes = reinterpret_cast<const unsigned char*>(larger);
      for (std::size_t i = sizeof(T); i < sizeof(T) + 8; ++i) EXPECT_EQ(bytes[i], 0) << name_ << ", " << at;
      if (result) {
        EXPECT_EQ(bytes[sizeof(T) + 8], 0xaa) << name_ << " wrote beyond " << at;
        EXPECT_EQ(larger->struct_size, sizeof(T) + 8) << name_;
      }
    }
  }

  const char* name_;
  rota_status (*function_)(Args...);
  std::function<Tuple()> good_;
  Strangers& strangers_;
  std::set<std::size_t> may_be_null_;
  Copies copies_;
};

}  // namespace c_test
