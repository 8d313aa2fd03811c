// service_test.h - what nearly every test of the service includes, compiled once for each program of them; as unit_test.h.
#include "ni/service/test_client.h"
#include "tests/catch/pch/unit_test.h"
