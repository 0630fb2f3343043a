#include "rota/result.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "core/error.h"

namespace rota {
namespace {

TEST(Result, HoldsAValueOrAnError) {
  Result<std::unique_ptr<int>> value(std::make_unique<int>(7));
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(**value, 7);
  const std::unique_ptr<int> moved = std::move(value).value();
  EXPECT_EQ(*moved, 7);

  const Result<int> error(Error{Errc::io, "gone"});
  ASSERT_FALSE(error);
  EXPECT_EQ(error.error().message, "gone");
}

TEST(Result, ValueOfAnErrorThrowsItsMessage) {
  const Result<int> error(Error{Errc::io, "gone"});
  try {
    (void)error.value();
    FAIL();
  } catch (const BadResult& bad) {
    EXPECT_STREQ(bad.what(), "gone");
    EXPECT_EQ(bad.error().code, Errc::io);
  }
  EXPECT_THROW(Status(Error{Errc::io, "gone"}).value(), BadResult);
}

TEST(Refusal, NamesOpArgumentFoundAndWanted) {
  const Error error = core::refuse({"store", {"pairs", 0, "from"}}, 3, "at most {}", 2);
  EXPECT_EQ(error.message, "store: pairs[0].from is 3; wanted at most 2");
  EXPECT_EQ(error.code, Errc::invalid_argument);
}

TEST(Guarded, TurnsWhatIsThrownIntoErrors) {
  EXPECT_EQ(core::guarded([]() -> Status { throw std::bad_alloc(); }).error().code, Errc::out_of_memory);
  EXPECT_EQ(core::guarded([]() -> Result<int> { throw 1; }).error().code, Errc::internal);
  EXPECT_EQ(core::guarded([]() -> Result<int> { return 5; }).value(), 5);
}

TEST(Errc, EveryCodeHasANameOfItsOwn) {
  std::vector<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(Errc::internal); ++code) names.push_back(name(static_cast<Errc>(code)));
  std::ranges::sort(names);
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
  EXPECT_EQ(std::ranges::find(names, "unknown"), names.end());
}

}  // namespace
}  // namespace rota
