#include "conformance/factories.h"
