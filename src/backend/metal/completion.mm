#include "backend/metal/completion.h"

namespace rota::mtl {
namespace {

// What a handler holds: told once, by the handler or by its end.
class Teller {
 public:
  explicit Teller(std::shared_ptr<Completion> to) noexcept : to_(std::move(to)) {}
  ~Teller() {
    if (to_) to_->give_up_one();
  }
  Teller(const Teller&) = delete;
  Teller& operator=(const Teller&) = delete;

  void tell(NSError* error) noexcept {
    if (const auto to = std::exchange(to_, nullptr)) to->end_one(error);
  }

 private:
  std::shared_ptr<Completion> to_;
};

NSError* error_of(id<MTLCommandBuffer> commands) {
  if ([commands status] != MTLCommandBufferStatusError) return nil;
  NSError* const error = [commands error];
  return error != nil ? error : [NSError errorWithDomain:@"MTLCommandBufferErrorDomain" code:1 userInfo:nil];
}

}  // namespace

void tell_end(id<MTLCommandBuffer> commands, std::shared_ptr<Completion> to) {
  Completion& expecting = *to;
  const auto teller = std::make_shared<Teller>(std::move(to));
  expecting.expect_one();
  [commands addCompletedHandler:^(id<MTLCommandBuffer> completed) {
    @autoreleasepool {
      teller->tell(error_of(completed));
    }
  }];
}

}  // namespace rota::mtl
