#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "rota/export.h"

namespace rota::inline ROTA_ABI {

// Why a call failed.
enum class Errc : std::uint8_t {
  invalid_argument,  // a value of the caller's; the message names the op, the argument, what was found and wanted
  unsupported,       // a valid request that this device or build cannot serve
  no_device,         // no such device, or its driver does not answer
  out_of_memory,     // of the host or of a device
  out_of_pages,      // a cache has no page, or no sequence, left
  busy,              // held by an encoder that is not submitted yet; will pass: see KvCache::wait()
  device_lost,       // the device is gone; every later call says so, too
  pipeline_failed,   // the driver refused to build a kernel
  io,                // a file could not be read or written, or its contents are not what they should be
  internal,          // a bug of the library
};

// The enumerator's name.
ROTA_API std::string_view name(Errc code) noexcept;

struct Error {
  Errc code;
  std::string message;
};

// Thrown by value() of a Result that holds an Error.
class BadResult : public std::exception {
 public:
  explicit BadResult(Error error) noexcept : error_(std::move(error)) {}
  const char* what() const noexcept override { return error_.message.c_str(); }
  const Error& error() const noexcept { return error_; }

 private:
  Error error_;
};

// A value or an Error, as C++23's std::expected. No function of the library throws. value(), * and -> do, if there is
// no value.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }

  T& value() & { return get(*this); }
  const T& value() const& { return get(*this); }
  T value() && { return std::move(get(*this)); }

  T& operator*() & { return get(*this); }
  const T& operator*() const& { return get(*this); }
  T operator*() && { return std::move(get(*this)); }
  T* operator->() { return &get(*this); }
  const T* operator->() const { return &get(*this); }

  // Precondition: !ok().
  const Error& error() const& { return std::get<1>(state_); }
  Error error() && { return std::get<1>(std::move(state_)); }

 private:
  template <class Self>
  static auto& get(Self& self) {
    if (!self.ok()) throw BadResult(self.error());
    return *std::get_if<0>(&self.state_);
  }

  std::variant<T, Error> state_;
};

// Nothing, or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() noexcept = default;
  Result(Error error) : error_(std::move(error)), failed_(true) {}

  bool ok() const noexcept { return !failed_; }
  explicit operator bool() const noexcept { return ok(); }
  void value() const {
    if (failed_) throw BadResult(error_);
  }
  // Precondition: !ok().
  const Error& error() const& { return error_; }
  Error error() && { return std::move(error_); }

 private:
  Error error_{};
  bool failed_ = false;
};

using Status = Result<void>;

}  // namespace rota::inline ROTA_ABI
