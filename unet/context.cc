// context.cc - opening a connection and creating endpoints.
#include "unet/context.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <sys/stat.h>

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

Result<std::unique_ptr<Endpoint>> Context::create_endpoint(const EndpointOptions& options) {
  return Endpoint::create(connection_, options);
}

Result<std::string> Context::report() {
  control::Report request{};
  request.header.op = control::Op::report;
  auto answer = connection_->call(request);
  if (!answer) return tl::unexpected(answer.error());
  if (answer->descriptors.size() != 1) return fail(Errc::protocol, "the network interface sent no report");
  struct stat status {};
  if (::fstat(answer->descriptors[0].get(), &status) != 0) return fail_errno("fstat(report)", errno);
  std::string text(static_cast<size_t>(status.st_size), '\0');
  const ssize_t got = ::pread(answer->descriptors[0].get(), text.data(), text.size(), 0);
  if (got < 0) return fail_errno("pread(report)", errno);
  text.resize(static_cast<size_t>(got));
  return text;
}

bool Context::alive() const noexcept {
  connection_->process();
  return connection_->alive();
}

}  // namespace unet
