#include "page_store/valkey/settings.h"

#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <array>
#include <charconv>
#include <fstream>
#include <iterator>
#include <limits>

#include "core/error.h"

namespace rota::page_store {
namespace {

constexpr std::size_t kMostPasswordBytes = 4096;

Error bad_option(const std::string& what) {
  return {Errc::invalid_argument, core::text("PageStore::open: url: {}", what)};
}

std::string option(const Url& url, std::string_view name) {
  const auto found = url.options.find(name);
  return found == url.options.end() ? std::string() : found->second;
}

Result<std::string> read_password(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostPasswordBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.eof()) {
    return Error{Errc::io,
                 core::text("PageStore::open: password_file {}: wanted a file of at most {} bytes that can be read",
                            path, kMostPasswordBytes)};
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  return text;
}

Status read_user(const Url& url, Settings& settings) {
  settings.user = url.user;
  settings.password = url.password;
  if (const std::string file = option(url, "password_file"); !file.empty()) {
    if (!url.password.empty()) return bad_option("a password and password_file; wanted one of them");
    auto password = read_password(file);
    if (!password) return password.error();
    settings.password = std::move(password).value();
  }
  settings.has_user = !settings.user.empty() || !settings.password.empty();
  return {};
}

Status read_ttl(const Url& url, Settings& settings) {
  const std::string text = option(url, "ttl");
  if (text.empty()) return {};
  std::uint32_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc{} || end != text.data() + text.size() || seconds == 0 ||
      seconds > std::uint32_t{std::numeric_limits<std::int32_t>::max()}) {
    return bad_option("ttl is no number of seconds, 1 or more");
  }
  settings.ttl = seconds;
  return {};
}

Result<std::shared_ptr<SSL_CTX>> make_tls(const Url& url) {
  const std::string ca = option(url, "ca"), cert = option(url, "cert"), key = option(url, "key");
  if (cert.empty() != key.empty()) return bad_option("cert without key, or key without cert; wanted both");
  const std::shared_ptr<SSL_CTX> tls(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  if (tls == nullptr) throw std::bad_alloc();
  const auto unusable = [](std::string_view what, const std::string& path) {
    return Error{Errc::io, core::text("PageStore::open: {} {}: wanted a PEM file that can be used, without a password",
                                      what, path)};
  };
  SSL_CTX_set_min_proto_version(tls.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(tls.get(), SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_mode(tls.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_verify(tls.get(), SSL_VERIFY_PEER, nullptr);
  // By itself OpenSSL asks at the terminal for the password of a key that has one.
  SSL_CTX_set_default_passwd_cb(tls.get(), [](char*, int, int, void*) { return -1; });
  if (ca.empty()) {
    if (SSL_CTX_set_default_verify_paths(tls.get()) != 1) return unusable("ca", "of this system");
  } else if (SSL_CTX_load_verify_locations(tls.get(), ca.c_str(), nullptr) != 1) {
    return unusable("ca", ca);
  }
  if (!cert.empty() && SSL_CTX_use_certificate_chain_file(tls.get(), cert.c_str()) != 1) return unusable("cert", cert);
  if (!key.empty() && SSL_CTX_use_PrivateKey_file(tls.get(), key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return unusable("key", key);
  }
  return tls;
}

bool is_ip(const std::string& host) {
  std::array<unsigned char, 16> unused{};
  return inet_pton(AF_INET, host.c_str(), unused.data()) == 1 || inet_pton(AF_INET6, host.c_str(), unused.data()) == 1;
}

}  // namespace

Result<Settings> settings_of(const Url& url, const PageStoreOptions& options) {
  Settings settings{.first = {url.host, url.port}, .reach_patience = options.deadline};
  if (Status status = read_user(url, settings); !status) return status.error();
  if (Status status = read_ttl(url, settings); !status) return status.error();
  if (const auto prefix = url.options.find("prefix"); prefix != url.options.end()) settings.prefix = prefix->second;
  if (url.tls) {
    auto tls = make_tls(url);
    if (!tls) return tls.error();
    settings.tls = std::move(tls).value();
    return settings;
  }
  for (const std::string_view name : {"ca", "cert", "key"}) {
    if (url.options.contains(name)) return bad_option(core::text("{} is for valkeys:// and rediss://", name));
  }
  return settings;
}

std::unique_ptr<SSL, void (*)(SSL*)> tls_to(const std::string& host, const Settings& settings) {
  std::unique_ptr<SSL, void (*)(SSL*)> tls(SSL_new(settings.tls.get()), SSL_free);
  if (tls == nullptr) return tls;
  bool is_set = false;
  if (is_ip(host)) {
    is_set = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls.get()), host.c_str()) == 1;
  } else {
    SSL_set_hostflags(tls.get(), X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    is_set = SSL_set1_host(tls.get(), host.c_str()) == 1;
    // SSL_set_tlsext_host_name casts the old way.
    is_set = is_set && SSL_ctrl(tls.get(), SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                                const_cast<char*>(host.c_str())) == 1;
  }
  if (!is_set) tls.reset();
  return tls;
}

}  // namespace rota::page_store
