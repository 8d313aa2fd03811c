// capture_requests.h - requests for captures of a running NI: which client may have which; used by Service.
#pragma once

#include <cstdint>

#include "ni/service/captures.h"
#include "ni/service/clients.h"
#include "ni/service/endpoint_engines.h"
#include "ni/service/endpoints.h"
#include "ni/service/operation.h"
#include "ni/service/ports.h"
#include "ni/service/service_options.h"

namespace unet::service {

class CaptureRequests {
 public:
  CaptureRequests(const ServiceOptions& options, const Ports& ports, const Nanoseconds& now, Clients& clients,
                  const Endpoints& endpoints, const EndpointEngines& engines, const Operation& operation, Captures& captures) noexcept
      : options_(options), ports_(ports), now_(now), clients_(clients), endpoints_(endpoints), engines_(engines), operation_(operation),
        captures_(captures) {}

  void handle(ClientRecord& client, const control::CaptureStart& packet);
  void handle(ClientRecord& client, const control::CaptureStop& packet);

 private:
  Status may_capture(ClientRecord& client, const control::CaptureStart& packet);
  uint32_t engines_of(const CaptureRecord& capture);

  const ServiceOptions& options_;
  const Ports& ports_;
  const Nanoseconds& now_;
  Clients& clients_;
  const Endpoints& endpoints_;
  const EndpointEngines& engines_;
  const Operation& operation_;
  Captures& captures_;
};

}  // namespace unet::service
