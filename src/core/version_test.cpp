#include "rota/version.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace rota {
namespace {

TEST(Version, OfTheLibraryIsThatOfItsHeadersHere) {
  const Version found = version();
  EXPECT_EQ(found, (Version{ROTA_VERSION_MAJOR, ROTA_VERSION_MINOR, ROTA_VERSION_PATCH, ROTA_VERSION}));
  EXPECT_EQ(found.text, fmt::format("{}.{}.{}", found.major, found.minor, found.patch));
}

}  // namespace
}  // namespace rota
