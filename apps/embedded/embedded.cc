// embedded.cc - libunet_embedded.so: a whole NI inside the application's process, behind the function table of embedded_abi.h.
#include <algorithm>
#include <cstring>
#include <exception>

#include "apps/embedded/embedded_spec.h"
#include "apps/open_ports.h"
#include "ni/service/ip_config.h"
#include "ni/service/ni.h"
#include "unet/embedded_abi.h"

namespace unet::embedded {
namespace {

Result<std::unique_ptr<service::Ni>> open_ni(std::string_view spec, Descriptor& control) {
  Result<service::Config> config = parse_embedded(spec);
  if (!config) return tl::unexpected(config.error());
  Result<std::vector<std::unique_ptr<Driver>>> drivers =
      apps::open_ports(config->ports, service::ports_with_ip(config->ni.engine.ip.ports));
  if (!drivers) return tl::unexpected(drivers.error());
  Result<std::unique_ptr<service::Ni>> ni = service::Ni::create(config->ni, std::move(*drivers));
  if (!ni) return ni;
  Result<Descriptor> client = (*ni)->connect();
  if (!client) return tl::unexpected(client.error());
  control = std::move(*client);
  return ni;
}

void say(std::string_view text, char* error, size_t error_size) {
  if (error_size == 0) return;
  const size_t length = std::min(text.size(), error_size - 1);
  std::memcpy(error, text.data(), length);
  error[length] = '\0';
}

void* open(const char* spec, int* control_fd, char* error, size_t error_size) {
  try {
    Descriptor control;
    Result<std::unique_ptr<service::Ni>> ni = open_ni(spec, control);
    if (!ni) {
      say(ni.error().text, error, error_size);
      return nullptr;
    }
    *control_fd = control.release();
    return ni->release();
  } catch (const std::exception& exception) {
    say(std::string("cannot open the network interface: ") + exception.what(), error, error_size);
    return nullptr;
  }
}

service::Ni& ni_of(void* handle) { return *static_cast<service::Ni*>(handle); }

uint32_t poll(void* handle) { return ni_of(handle).poll(); }
uint32_t pull(void* handle) { return ni_of(handle).pull(); }
void push(void* handle) { ni_of(handle).push(); }

int send(void* handle, uint32_t endpoint, uint32_t channel, const void* data, uint32_t length, int more) {
  return ni_of(handle).send(endpoint, channel, {static_cast<const std::byte*>(data), length}, more != 0) ? 1 : 0;
}

int wait(void* handle, int64_t timeout_ns) {
  return ni_of(handle).wait(timeout_ns < 0 ? ~Nanoseconds{0} : static_cast<Nanoseconds>(timeout_ns));
}

int arm(void* handle) { return ni_of(handle).arm() ? 1 : 0; }
int descriptor(void* handle) { return ni_of(handle).descriptor(); }
int watch(void* handle, int watched) { return ni_of(handle).watch(watched) ? 0 : -1; }
void close(void* handle) { delete &ni_of(handle); }

constexpr unet_embedded_table kTable{
    .version = UNET_EMBEDDED_VERSION,
    .open = open,
    .poll = poll,
    .pull = pull,
    .push = push,
    .send = send,
    .wait = wait,
    .arm = arm,
    .descriptor = descriptor,
    .watch = watch,
    .close = close,
};

}  // namespace
}  // namespace unet::embedded

extern "C" __attribute__((visibility("default"))) const unet_embedded_table* unet_embedded_entry(void) {
  return &unet::embedded::kTable;
}
