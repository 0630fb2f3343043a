#include "page_store/valkey/connection.h"

#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <hiredis/hiredis_ssl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>

#include "core/error.h"
#include "page_store/valkey/resolve.h"

namespace rota::page_store {
namespace {

constexpr std::size_t kSendBytes = 256U << 10;
constexpr std::size_t kReceiveBytes = 256U << 10;
constexpr std::uint64_t kReceiveAtOnceBytes = 1U << 20;  // then others have their turn

Error failed(const std::string& what) { return {Errc::io, what}; }

std::string text_of(int error) { return std::generic_category().message(error); }

// Owns a socket until hiredis does.
class Socket {
 public:
  explicit Socket(int number) noexcept : number_(number) {}
  ~Socket() {
    if (number_ >= 0) close(number_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  int number() const noexcept { return number_; }
  int release() noexcept { return std::exchange(number_, -1); }

 private:
  int number_;
};

void set(int socket, int level, int option) {
  const int on = 1;
  setsockopt(socket, level, option, &on, sizeof(on));
}

Status connect_to(const Place& place, const Socket& socket, const Until& until) {
  if (socket.number() < 0) return failed(text_of(errno));
  const int flags = fcntl(socket.number(), F_GETFL);
  if (fcntl(socket.number(), F_SETFL, flags | O_NONBLOCK) != 0 || fcntl(socket.number(), F_SETFD, FD_CLOEXEC) != 0) {
    return failed(text_of(errno));
  }
  set(socket.number(), IPPROTO_TCP, TCP_NODELAY);
  set(socket.number(), SOL_SOCKET, SO_KEEPALIVE);
#if defined(SO_NOSIGPIPE)
  set(socket.number(), SOL_SOCKET, SO_NOSIGPIPE);
#endif
  const auto* const address = reinterpret_cast<const sockaddr*>(&place.address);
  if (connect(socket.number(), address, place.bytes) == 0) return {};
  if (errno != EINPROGRESS) return failed(text_of(errno));
  if (Status status = wait_for(socket.number(), POLLOUT, until); !status) return failed("no connection in time");
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? Status() : failed(text_of(error));
}

std::string first_word(const std::string& text) { return text.substr(0, std::min<std::size_t>(text.find(' '), 32)); }

}  // namespace

Connection::Connection(Context context) : context_(std::move(context)), received_(kReceiveBytes) {}

int Connection::socket() const noexcept { return context_->fd; }

Result<std::unique_ptr<Connection>> Connection::open(const Address& address, const Settings& settings,
                                                     const Until& until) {
  auto connection = open_socket(address, until);
  if (!connection) return connection.error();
  if (settings.tls != nullptr) {
    if (Status status = (*connection)->start_tls(address.host, settings, until); !status) return status.error();
  }
  if (Status status = (*connection)->log_in(settings, until); !status) return status.error();
  return connection;
}

Result<std::unique_ptr<Connection>> Connection::open_socket(const Address& address, const Until& until) {
  const auto places = places_of(address, until);
  if (!places) return places.error();
  Status status;
  for (std::size_t i = 0; i < places->size(); ++i) {
    const Place& place = (*places)[i];
    Socket socket(::socket(place.address.ss_family, SOCK_STREAM, 0));
    // What is left of the time is shared by the places that are left.
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until.deadline - Clock::now());
    status = connect_to(place, socket, until.at_most(left / (places->size() - i)));
    if (!status) continue;
    redisOptions options{.type = REDIS_CONN_USERFD, .options = REDIS_OPT_NONBLOCK};
    options.endpoint.fd = socket.number();
    Context context(redisConnectWithOptions(&options), redisFree);
    if (context == nullptr) throw std::bad_alloc();
    socket.release();
    if (context->err != 0) return failed(context->errstr);
    return std::unique_ptr<Connection>(new Connection(std::move(context)));
  }
  return status.error();
}

Status Connection::start_tls(const std::string& host, const Settings& settings, const Until& until) {
  auto tls = tls_to(host, settings);
  if (tls == nullptr) return failed("TLS could not be started");
  const NoPipeSignal quiet;
  const bool is_begun = redisInitiateSSL(context_.get(), tls.get()) == REDIS_OK;
  SSL* const session = is_begun ? tls.release() : tls.get();
  if (is_begun) tls_ = session;
  for (;;) {
    ERR_clear_error();
    const int result = is_begun ? SSL_do_handshake(session) : 0;
    if (result == 1) return {};
    const int error = is_begun ? SSL_get_error(session, result) : SSL_ERROR_SSL;
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) break;
    const short events = error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
    if (Status status = wait_for(socket(), events, until); !status) return failed("no TLS in time");
  }
  if (const long verified = SSL_get_verify_result(session); verified != X509_V_OK) {
    return failed(core::text("its certificate is refused: {}", X509_verify_cert_error_string(verified)));
  }
  const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
  return failed(core::text("no TLS: {}", reason != nullptr ? reason : "the connection was closed"));
}

// The server's words may repeat the password: only their first is told.
Status Connection::log_in(const Settings& settings, const Until& until) {
  if (!settings.has_user) return {};
  const std::string request = settings.user.empty() ? command({"AUTH", settings.password})
                                                    : command({"AUTH", settings.user, settings.password});
  auto reply = call(request, {}, until);
  if (!reply) return reply.error();
  if ((*reply)->kind == Reply::Kind::status) return {};
  const std::string user = settings.user.empty() ? "the default user" : core::text("user {}", settings.user);
  return failed(core::text("AUTH of {} was refused: {}", user, first_word((*reply)->text)));
}

Error Connection::broken() const {
  if (context_->err == REDIS_ERR_EOF) return failed("the connection was closed");
  return failed(core::text("the connection broke: {}", context_->errstr));
}

void Connection::queue(std::string_view bytes) {
  if (!bytes.empty()) queued_.push_back(bytes);
}

// hiredis moves what it could not send to the front of its buffer: it is given little at a time.
Result<std::uint64_t> Connection::send() {
  const NoPipeSignal quiet;
  std::uint64_t sent_bytes = 0;
  while (wants_to_send()) {
    for (std::size_t room = is_sending_ ? 0 : kSendBytes; room > 0 && !queued_.empty();) {
      std::string_view& front = queued_.front();
      const std::span<const char> some = std::span(front).first(std::min(room, front.size()));
      if (redisAppendFormattedCommand(context_.get(), some.data(), some.size()) != REDIS_OK) return broken();
      front.remove_prefix(some.size());
      if (front.empty()) queued_.pop_front();
      room -= some.size();
      sent_bytes += some.size();
    }
    int is_done = 0;
    ERR_clear_error();
    if (redisBufferWrite(context_.get(), &is_done) != REDIS_OK) return broken();
    is_sending_ = is_done == 0;
    if (is_sending_) break;
  }
  return sent_bytes;
}

Result<std::uint64_t> Connection::receive() {
  std::optional<NoPipeSignal> quiet;
  if (tls_ != nullptr) quiet.emplace();  // TLS may answer while it reads, such as with an alert
  std::uint64_t all_bytes = 0;
  // What TLS has read of the socket nobody else tells of.
  const auto has_more = [&] { return tls_ != nullptr && SSL_pending(tls_) > 0; };
  bool may_begin_long = false;
  while ((all_bytes < kReceiveAtOnceBytes && !may_begin_long) || has_more()) {
    ERR_clear_error();
    const std::span<char> place = reader_.place();
    const std::span<char> to = place.empty() ? std::span(received_) : place;
    const ssize_t size = context_->funcs->read(context_.get(), to.data(), to.size());
    if (size < 0 && all_bytes == 0) return broken();  // else what came before the end comes first
    if (size <= 0) break;
    if (!place.empty()) {
      reader_.placed(static_cast<std::size_t>(size));
    } else if (Status status = reader_.feed(to.first(static_cast<std::size_t>(size))); !status) {
      return status.error();
    }
    may_begin_long = place.empty();  // which next() finds out
    all_bytes += static_cast<std::uint64_t>(size);
  }
  return all_bytes;
}

bool Connection::is_quiet() const {
  pollfd ready{.fd = socket(), .events = POLLIN};
  return !wants_to_send() && reader_.is_empty() && poll(&ready, 1, 0) == 0;
}

Result<std::unique_ptr<Reply>> Connection::call(std::string_view command, const ReplyLimit& most, const Until& until) {
  queue(command);
  for (;;) {
    if (auto sent = send(); !sent) return sent.error();
    auto reply = next(most);
    if (!reply || *reply != nullptr) return reply;
    const short events = wants_to_send() ? POLLIN | POLLOUT : POLLIN;
    if (Status status = wait_for(socket(), events, until); !status) return status.error();
    if (auto received = receive(); !received) return received.error();
  }
}

}  // namespace rota::page_store
