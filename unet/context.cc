// context.cc - opens a connection and creates endpoints.
#include "unet/context.h"

#include <cerrno>
#include <cstdlib>
#include <mutex>

#include "unet/connection.h"

namespace unet {

Result<Context> Context::open(std::string_view ni, std::string_view program, int first_descriptor) {
  const char* from_environment = ::secure_getenv("UNET_NI");
  if (ni.empty() && from_environment != nullptr) ni = from_environment;
  if (program.empty()) program = ::program_invocation_short_name;
  auto connection = Connection::open(ni, program, first_descriptor);
  if (!connection) return tl::unexpected(connection.error());
  return Context(std::move(*connection));
}

Result<Context> Context::attach(const unet_embedded_table& table, void* handle, Descriptor control, std::string_view program) {
  if (program.empty()) program = ::program_invocation_short_name;
  auto connection = Connection::attach(table, handle, std::move(control), program);
  if (!connection) return tl::unexpected(connection.error());
  return Context(std::move(*connection));
}

Result<Endpoint> Context::create_endpoint(const EndpointOptions& options) {
  return Endpoint::create(connection_, options);
}

// Asks for one part after the other. An NI that took over in between has no later part: then the whole report is requested again.
Result<std::string> Context::report() {
  constexpr int kAttempts = 4;
  const std::lock_guard lock(connection_->report_mutex());
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::string text;
    auto request = request_for<control::Report>(control::Op::report, 0);
    for (;; ++request.part) {
      auto answer = connection_->call(request);
      if (!answer && request.part != 0 && answer.error().code == Errc::invalid_argument) break;
      if (!answer) return tl::unexpected(answer.error());
      text += answer->text;
      if (!answer->more) return text;
    }
  }
  return fail(Errc::unavailable, "the network interface was replaced again and again while it reported: try again");
}

bool Context::alive() const noexcept {
  connection_->process();
  return connection_->alive();
}

}  // namespace unet
