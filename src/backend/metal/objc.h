#pragma once

#import <Metal/Metal.h>

#include <string>
#include <utility>

// Objective-C objects in C++ without automatic reference counting, so that every compiler that has the language will
// do.

namespace rota::mtl {

// Releases an object when it goes. Takes over the reference that methods named new... and copy... return.
template <class Object>
class Owned {
 public:
  Owned() noexcept = default;
  explicit Owned(Object object) noexcept : object_(object) {}
  Owned(Owned&& other) noexcept : object_(std::exchange(other.object_, nil)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Owned() { [object_ release]; }

  Object get() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nil; }

 private:
  Object object_ = nil;
};

// Keeps an object that somebody else owns, or that a pool will release.
template <class Object>
Owned<Object> retained(Object object) noexcept {
  return Owned<Object>([object retain]);
}

// What an engine's handle points to.
template <class Object>
Object object_of(void* handle) noexcept {
  return static_cast<Object>(handle);
}

inline std::string text_of(NSString* text) { return text == nil ? std::string() : std::string([text UTF8String]); }

// Metal's own words, which end an error's message.
inline std::string words_of(NSError* error) {
  return error == nil ? "Metal gives no reason" : text_of([error localizedDescription]);
}

inline NSString* string_of(const std::string& text) { return [NSString stringWithUTF8String:text.c_str()]; }

}  // namespace rota::mtl
