// service_test.h - precompiled header of the service's test programs: the headers that nearly every service test includes.
#include "ni/service/test_client.h"
#include "tests/catch/pch/unit_test.h"
