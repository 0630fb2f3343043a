#include "page_store/url.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "core/error.h"

namespace rota::page_store {
namespace {

constexpr std::array<std::string_view, 6> kOptions{"ca", "cert", "key", "password_file", "prefix", "ttl"};
constexpr std::string_view kForms = "file:PATH, valkey://HOST, valkeys://HOST, redis://HOST or rediss://HOST";

// Passwords are in URLs: messages have what is wrong and no more.
Error bad_url(const std::string& what) {
  return {Errc::invalid_argument, core::text("PageStore::open: url: {}", what)};
}

// The text before `mark`, which is taken from `rest` with it; none where there is no mark.
std::optional<std::string_view> take_before(std::string_view& rest, char mark) {
  const std::size_t at = rest.find(mark);
  if (at == std::string_view::npos) return {};
  const std::string_view before = rest.substr(0, at);
  rest.remove_prefix(at + 1);
  return before;
}

Result<std::string> characters_of(std::string_view text) {
  std::string all;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      all += text[i];
      continue;
    }
    unsigned value = 0;
    const std::string_view digits = text.substr(i + 1, 2);
    const auto end = std::from_chars(digits.begin(), digits.end(), value, 16).ptr;
    if (digits.size() != 2 || end != digits.end() || value == 0) {
      return bad_url("a percent sign is not followed by two digits of a character");
    }
    all += static_cast<char>(value);
    i += 2;
  }
  return all;
}

Status read_options(std::string_view text, Url& url) {
  while (!text.empty()) {
    std::string_view value = take_before(text, '&').value_or(text);
    if (value.end() == text.end()) text = {};
    const std::string_view name = take_before(value, '=').value_or("");
    if (std::ranges::find(kOptions, name) == kOptions.end()) {
      return bad_url("an unknown option; there are ca, cert, key, password_file, prefix and ttl");
    }
    auto characters = characters_of(value);
    if (!characters) return characters.error();
    url.options.insert_or_assign(std::string(name), std::move(characters).value());
  }
  return {};
}

Status read_user(std::string_view text, Url& url) {
  std::string_view password = text;
  const auto user = take_before(password, ':');
  auto name = characters_of(user.value_or(text));
  if (!name) return name.error();
  url.user = std::move(name).value();
  if (!user) return {};
  auto secret = characters_of(password);
  if (!secret) return secret.error();
  url.password = std::move(secret).value();
  return {};
}

// HOST, HOST:PORT, [IPV6] or [IPV6]:PORT.
Status read_host(std::string_view text, Url& url) {
  std::string_view port;
  if (text.starts_with('[')) {
    text.remove_prefix(1);
    const auto host = take_before(text, ']');
    if (!host || (!text.empty() && !text.starts_with(':'))) return bad_url("a host that begins with [ has no end");
    url.host = *host;
    port = text.empty() ? text : text.substr(1);
    if (!text.empty() && port.empty()) return bad_url("a port is empty");
  } else {
    port = text;
    const auto host = take_before(port, ':');
    url.host = host.value_or(text);
    if (!host) port = {};
    if (host && port.empty()) return bad_url("a port is empty");
  }
  if (url.host.empty()) return bad_url("there is no host");
  if (port.empty()) return {};
  const auto [end, error] = std::from_chars(port.begin(), port.end(), url.port);
  if (error != std::errc{} || end != port.end() || url.port == 0) return bad_url("the port is no number up to 65535");
  return {};
}

}  // namespace

Result<Url> read_url(std::string_view text) {
  Url url;
  if (text.find('\0') != std::string_view::npos) return bad_url("it has a zero byte");
  std::string_view rest = text;
  const auto scheme = take_before(rest, ':');
  if (scheme == "file") {
    if (rest.starts_with("//")) rest.remove_prefix(2);  // file:///PATH
    if (rest.empty()) return bad_url("there is no path");
    url.path = rest;
    return url;
  }
  url.kind = Url::Kind::server;
  url.tls = scheme == "valkeys" || scheme == "rediss";
  const bool is_server = url.tls || scheme == "valkey" || scheme == "redis";
  if (!is_server || !rest.starts_with("//")) return bad_url(core::text("wanted {}", kForms));
  rest.remove_prefix(2);
  std::string_view options = rest;
  const std::string_view place = take_before(options, '?').value_or(rest);
  if (place.size() < rest.size()) {
    if (Status status = read_options(options, url); !status) return status.error();
  }
  const std::size_t at = place.rfind('@');
  if (at != std::string_view::npos) {
    if (Status status = read_user(place.substr(0, at), url); !status) return status.error();
  }
  std::string_view host = at == std::string_view::npos ? place : place.substr(at + 1);
  if (host.ends_with('/')) host.remove_suffix(1);
  if (Status status = read_host(host, url); !status) return status.error();
  return url;
}

}  // namespace rota::page_store
