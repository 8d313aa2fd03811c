// impaired.cc - the kernel's TCP over the cable that loses and delays: a stream of its own for each slice.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "apps/bench/frame/environment.h"
#include "apps/bench/paths/paths.h"
#include "apps/bench/workloads/lossy.h"
#include "apps/bench/workloads/messages.h"
#include "unet/mapping.h"

namespace unet::bench {

namespace {

constexpr int kImpairedBuffer = 4 << 20;
constexpr timeval kCallTimeout = {.tv_sec = 0, .tv_usec = 5000};  // a call returns after this time to look whether the slice is over

class ImpairedTcp final : public Path {
 public:
  ImpairedTcp(PathInfo info, const char* congestion_control) : Path(std::move(info)), congestion_control_(congestion_control) {}

  Status prepare(Environment& environment) override {
    auto wire = environment.impaired_wire();
    if (!wire) return tl::unexpected(wire.error());
    wire_ = *wire;
    namespace_a_ = environment.namespaces_if_made()->name_a();
    return listen_at(environment.namespaces_if_made()->name_b(), wire_->cable().address_b);
  }

  Outcome run(const Slice& slice, RunContext& context) override {
    return context.side == Side::a ? send_stream(slice, context) : receive_stream(slice, context);
  }

 private:
  Status socket_in(const std::string& name, Descriptor& descriptor) const {
    auto scope = NamespaceScope::enter(name);
    if (!scope) return tl::unexpected(scope.error());
    descriptor = Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!descriptor.valid()) return fail_errno("socket", errno);
    const int fd = descriptor.get();
    for (const int buffer : {SO_RCVBUFFORCE, SO_SNDBUFFORCE}) setsockopt(fd, SOL_SOCKET, buffer, &kImpairedBuffer, sizeof kImpairedBuffer);
    for (const int look : {SO_RCVTIMEO, SO_SNDTIMEO}) setsockopt(fd, SOL_SOCKET, look, &kCallTimeout, sizeof kCallTimeout);
    const auto length = static_cast<socklen_t>(std::strlen(congestion_control_));
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion_control_, length) == 0) return {};
    return fail_errno(std::string("TCP_CONGESTION ") + congestion_control_, errno);
  }
  Status listen_at(const std::string& name, const std::string& address) {
    if (auto made = socket_in(name, listener_); !made) return made;
    address_.sin_family = AF_INET;
    inet_pton(AF_INET, address.c_str(), &address_.sin_addr);
    socklen_t length = sizeof address_;
    auto* const at = reinterpret_cast<sockaddr*>(&address_);
    if (bind(listener_.get(), at, length) != 0 || listen(listener_.get(), 1) != 0 || getsockname(listener_.get(), at, &length) != 0) {
      return fail_errno("listening at " + address, errno);
    }
    return {};
  }

  // Calls that wait return now and then, or when a signal comes.
  static bool goes_on(const char* call, RunContext& context) {
    if (context.stop.raised()) return false;
    if (errno == EINTR || errno == EAGAIN || errno == EINPROGRESS || errno == EALREADY) return true;
    context.control.fail(Error(fail_errno(call, errno).value()).text);
    return false;
  }
  bool connect_to_b(Descriptor& stream, RunContext& context) {
    if (auto made = socket_in(namespace_a_, stream); !made) {
      context.control.fail(made.error().text);
      return false;
    }
    while (connect(stream.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_) != 0 && errno != EISCONN) {
      if (!goes_on("connect", context)) return false;
    }
    return true;
  }

  Outcome send_stream(const Slice& slice, RunContext& context) {
    Descriptor stream;
    if (!connect_to_b(stream, context)) return {};
    const auto send = [&] { return write(stream.get(), buffers_.out.data(), buffers_.out.size()) >= 0 || goes_on("write", context); };
    const auto wait = [&](auto ready) { spin_until(context.stop, ready); };
    const Outcome outcome = send_lossy(slice, context, *wire_, send, wait);
    const linger reset{.l_onoff = 1, .l_linger = 0};  // what is still under way is not waited for
    setsockopt(stream.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    return outcome;
  }

  Outcome receive_stream(const Slice& slice, RunContext& context) {
    Descriptor stream;
    while (!stream.valid()) {
      stream = Descriptor(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!stream.valid() && !goes_on("accept", context)) return {};
    }
    setsockopt(stream.get(), SOL_SOCKET, SO_RCVTIMEO, &kCallTimeout, sizeof kCallTimeout);
    return receive_lossy(slice, context, [&] {
      const ssize_t n = read(stream.get(), buffers_.in.data(), buffers_.in.size());
      return n < 0 && goes_on("read", context) ? 0 : n;
    });
  }

  const char* congestion_control_;
  ImpairedWire* wire_ = nullptr;
  std::string namespace_a_;
  Descriptor listener_;
  sockaddr_in address_{};
  MessageBuffers buffers_{kMessageMax};
};

}  // namespace

void add_kernel_impaired(Paths& paths) {
  for (const char* const congestion_control : {"cubic", "bbr"}) {
    paths.push_back(std::make_unique<ImpairedTcp>(
        PathInfo{.name = std::string("kernel-tcp-") + congestion_control,
                      .kind = Kind::kernel,
                      .what = std::string("TCP with ") + congestion_control + " over the cable that loses frames",
                      .setting = std::string(congestion_control) + ", blocking, 4 MiB buffers, no checksums, single segments",
                      .workloads = {Workload::lossy},
                      .abilities = {Ability::messages, Ability::tcp},
                      .only = {"am-loss", "tcp-loss"}},
        congestion_control));
  }
}

}  // namespace unet::bench
